"""Recorded teams of agents: the log of each agent, its turns, and peers' messages as it sees them.

A recorded team is a ledger with the sessions of its members as children, a session with subagents,
or one log in which several agents speak.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments
from ctxkit.metrics.prompt_sizes_and_contents import get_prompt_sizes as prompts_of
from ctxkit.session.messages import (
    OTHER_AGENT_CALL_KIND,
    OTHER_AGENT_KIND,
    Edit,
    Message,
    Text,
    get_plain_text,
)
from ctxkit.session.session import Session
from ctxkit.session.tool_call_paths_and_descriptions import map_results_by_call
from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes, measure_sizes
from ctxkit.tokens.token_counters import default_counter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd


__all__ = [
    "OwnAndSharedSession",
    "TeamTurn",
    "count_entries_before_parallel_branches",
    "find_compacted_calls",
    "get_agent_logs",
    "get_team_turns",
    "get_tool_agent_logs",
    "tabulate_recorded_turns",
    "tabulate_team_turns",
]
__dir__ = make_dunder_dir(__all__)


_replace = msgspec.structs.replace


@dataclass(frozen=True)
class OwnAndSharedSession:
    """One agent of a recorded team."""

    agent: str
    record: Session
    """Its session as recorded, with the messages of peers that it received."""
    shared: Session
    """The same calls, each with all messages of peers so far; without compactions."""

    record_sizes: MessageSizes
    """The sizes of the record's messages."""

    @cached_property
    def message_sizes(self) -> MessageSizes:
        """Sizes of the shared log: from the record, else counts scaled like the record."""
        if self.shared is self.record:
            return self.record_sizes
        counter, sizes = default_counter(), self.record_sizes
        scale = 1.0 if sizes.plain_count_error is None else 1 / (1 + sizes.plain_count_error)
        pairs_of_record = zip(sizes.tokens, sizes.source, strict=True)
        size_of_key = dict(
            zip(map(_message_key, self.record.messages), pairs_of_record, strict=True)
        )
        pairs = [
            size_of_key.get(_message_key(m))
            or (max(round(counter.message(m) * scale), 1), "estimated")
            for m in self.shared.messages
        ]
        tokens, source = zip(*pairs, strict=True) if pairs else ((), ())
        running_sums = [0, *accumulate(tokens)]
        reply_positions = [i for i, m in enumerate(self.shared.messages) if m.role == "assistant"]
        fixed = sizes.fixed_at
        modelled = tuple(running_sums[i] + n for i, n in zip(reply_positions, fixed, strict=True))
        return MessageSizes(
            session=self.shared, counter=sizes.counter, tokens=tokens, source=source,
            fixed=sizes.fixed, fixed_at=fixed, unsent_at=sizes.unsent_at,
            plain_count_error=sizes.plain_count_error,
            underivable_calls_n=sizes.underivable_calls_n,
            recorded=sizes.recorded, modelled=modelled, inserted=(),
        )  # fmt: skip


def get_agent_logs(session: Session) -> list[OwnAndSharedSession]:
    """Return the logs of the agents of a recorded team, each with all messages of its peers.

    Raises:
        BadArguments: only one agent speaks in it, or it has no text.
    """
    if not any(s.has_text for s in (session, *session.children)):
        raise BadArguments("The log holds no text, so what a view would hide cannot be said.")
    if is_team_ledger(session):
        logs = [
            OwnAndSharedSession(c.agent, c, _shared_log_of_ledger(session, c), measure_sizes(c))
            for c in session.children
        ]
    elif session.children:
        logs = _logs_of_children(session)
    else:
        logs = [_unshared_log(_log_of_speaker(session, a)) for a in _agent_names(session)]
    logs = [log for log in logs if log.record.calls]
    if len(logs) < 2:
        raise BadArguments(
            "Views are of what agents hear of each other, and only one speaks here: give a team, "
            "what ck.write kept of its session, a session with subagents, or a log with several "
            "agents."
        )
    return logs


def get_tool_agent_logs(session: Session) -> list[OwnAndSharedSession]:
    """Return the logs of agents that members of a team call as tools; they see only their input."""
    if not is_team_ledger(session):
        return []
    tool_sessions = [c for member in session.children for c in member.children if c.calls]
    return [_unshared_log(c) for c in tool_sessions]


def _unshared_log(session: Session) -> OwnAndSharedSession:
    return OwnAndSharedSession(session.agent, session, session, measure_sizes(session))


def _agent_names(session: Session) -> list[str]:
    return list(dict.fromkeys(c.agent for c in session.calls))


def _message_key(message: Message) -> object:
    """Return a key that a message has in the record and in the shared log."""
    return message.details.get(SOURCE_KEY) or message.id or id(message)


# -- a team's ledger -------------------------------------------------------------------------------


def _shared_log_of_ledger(session: Session, child: Session) -> Session:
    """Return an agent's log merged with the ledger, each entry before the turn that sees it."""
    ledger, entries_n = session.messages, 0
    entries_by_turn = _entries_by_turn(session, child.agent)
    last = max(entries_by_turn)
    log: list[Message] = []
    for m in child.messages:
        if SOURCE_KEY in m.details or m.kind == ARTIFACTS:
            continue
        if m.role != "system":
            turn = m.turn or 0
            entries_now = max(
                entries_by_turn.get(turn, entries_n if turn < last else entries_by_turn[last]),
                entries_n,
            )
            log += [
                _replace(x, turn=m.turn, details={SOURCE_KEY: x.id, **_handoff_details(x)})
                for x in ledger[entries_n:entries_now]
                if _is_visible_to(x, child.agent)
            ]
            entries_n = entries_now
        log.append(m)
    return _replace_log(child, log)


def _entries_by_turn(session: Session, agent: str) -> dict[int, int]:
    """Return how many ledger entries an agent could see, by the first turn of each move.

    A move that ends a parallel branch sees only the entries before the fork. The last key is one
    past the agent's last turn; its value counts the entries up to the last move of any agent.
    """
    entries_by_turn, entries_n, last = dict[int, int](), 0, -1
    fork = 0
    for i, m in enumerate(session.messages):
        if m.kind != LEDGER_MOVE:
            continue
        if m.agent == agent:
            move = m.details["told"]
            is_branch = move.get("kind") in BRANCH_END_MOVES
            entries_by_turn[move.get("from_own", 0)] = fork if is_branch else entries_n
            last = max(last, move.get("own", 0))
        entries_n = i + 1
        fork = entries_n if m.details["told"].get("kind") == FORK_MOVE else fork
    return {**entries_by_turn, last + 1: entries_n}


def count_entries_before_parallel_branches(ledger_entries: Sequence[Message]) -> int:
    """Return the number of ledger entries before those of the last parallel branches."""
    moves = (
        i for i in range(len(ledger_entries) - 1, -1, -1) if ledger_entries[i].kind == LEDGER_MOVE
    )
    return (
        next((i for i in moves if ledger_entries[i].details["told"].get("kind") == FORK_MOVE), -1)
        + 1
    )


def _handoff_details(message: Message) -> dict[str, str]:
    return {HANDOFF_KEY: message.details[HANDOFF_KEY]} if HANDOFF_KEY in message.details else {}


def _is_visible_to(message: Message, agent: str) -> bool:
    if message.kind == LEDGER_MOVE or message.agent == agent:
        return False
    return ADDRESSEE_KEY not in message.details or message.details[ADDRESSEE_KEY] == agent


# -- subagents, and several agents in one log ------------------------------------------------------


def _logs_of_children(session: Session) -> list[OwnAndSharedSession]:
    members = map_agents_to_sessions(session)
    rendered = {
        name: [(m.time or 0.0, x) for m, x in _rendered_messages(name, member.messages)]
        for name, member in members.items()
    }
    logs = []
    for name, member in members.items():
        others = [row for other, rows in rendered.items() if other != name for row in rows]
        merged = _interleave(_messages_with_turns(member), sorted(others, key=lambda row: row[0]))
        logs.append(
            OwnAndSharedSession(name, member, _replace_log(member, merged), measure_sizes(member))
        )
    return logs


def _log_of_speaker(session: Session, agent: str) -> Session:
    """Return one agent's log from a log of several, with peers' messages as it sees them."""
    log: list[Message] = []
    frames_by_reply = {m.id: list(rows) for m, rows in _group_by_reply(session)}
    for m in _messages_with_turns(session):
        if m.role in ("assistant", "tool") and (m.agent or session.agent) != agent:
            others = frames_by_reply.get(m.id, ())
            log += [_replace(x, id=f"{m.id}.{n}", turn=m.turn) for n, x in enumerate(others)]
        else:
            log.append(m)
    return _replace_log(session, log, agent)


def _messages_with_turns(session: Session) -> list[Message]:
    """Return a session's messages with their turns, without usage of whole turns.

    The usage of a whole turn sums many prompts, so it is not the size of a prompt.
    """
    pairs = [(e, t) for e, t in zip(session.path, session.turns, strict=True)
             if isinstance(e, Message)]  # fmt: skip
    return [_replace(e, turn=t, usage=None if e.kind == "turn" else e.usage) for e, t in pairs]


def _group_by_reply(session: Session) -> Iterable[tuple[Message, Iterable[Message]]]:
    result_of_call = map_results_by_call(session.messages)
    for m in session.messages:
        if m.role == "assistant":
            results = [result_of_call[id(c)] for c in m.tool_calls if id(c) in result_of_call]
            yield m, render_for_peers(m.agent or session.agent, [m, *results])


def _rendered_messages(name: str, messages: Sequence[Message]) -> Iterable[tuple[Message, Message]]:
    by_id = {m.id: m for m in messages}
    for n, x in enumerate(render_for_peers(name, messages)):
        source = by_id[x.details["said"]]
        yield source, _replace(x, id=f"{name}.{source.id}.{n}")


def _interleave(
    messages: Sequence[Message], others: Sequence[tuple[float, Message]]
) -> list[Message]:
    """Merge others' messages into an agent's by time, but not between a call and its result."""
    log: list[Message] = []
    open_calls: set[str] = set()
    next_other, time = 0, 0.0
    for m in messages:
        time = m.time if m.role == "user" and m.time is not None else time
        can_insert = m.role in ("user", "assistant") and not open_calls
        while can_insert and next_other < len(others) and others[next_other][0] <= time:
            log.append(_replace(others[next_other][1], turn=m.turn))
            next_other += 1
        open_calls |= {c.id for c in m.tool_calls}
        open_calls.discard(m.call_id or "")
        time = m.time if m.time is not None else time
        log.append(m)
    return log


def _replace_log(session: Session, messages: Sequence[Message], agent: str = "") -> Session:
    return _replace(
        session, log=tuple(messages), parents=(), leaf=-1, children=(), agent=agent or session.agent
    )


class TeamTurn(NamedTuple):
    """One turn of one agent."""

    agent: str
    calls: tuple[int, ...]
    """Numbers of the turn's calls among all calls of this agent."""


def is_team_ledger(session: Session) -> bool:
    """Return True if a session is the ledger of a team whose members have their own sessions."""
    return "team" in session.details and bool(session.children)


def map_agents_to_sessions(session: Session) -> dict[str, Session]:
    """Return the sessions of a team by agent name; equal names are made unique by session ids."""
    members = [*session.children] if is_team_ledger(session) else [session, *session.children]
    names = [m.agent for m in members]
    return {m.agent if names.count(m.agent) == 1 else f"{m.agent} {m.id[:8]}": m for m in members}


def get_team_turns(session: Session) -> list[TeamTurn]:
    """Return the turns of a recorded team, in order.

    Each move of a ledger is a turn. A subagent's session is one turn and splits the turn of the
    session that started it. In a single log a turn begins where another agent speaks.
    """
    if is_team_ledger(session):
        return _turns_of_ledger(session)
    if session.children:
        return _turns_by_time(map_agents_to_sessions(session))
    return _turns_of_log(session)


def tabulate_recorded_turns(of: object) -> pd.DataFrame | None:
    """Return one row per turn of a recorded team (see `tabulate_turns`); None without a ledger."""
    session = getattr(of, "session", of)
    if not isinstance(session, Session) or not is_team_ledger(session):
        return None
    members = map_agents_to_sessions(session)
    outputs = {
        name: [c.message.usage.output_tokens if c.message.usage else None for c in s.calls]
        for name, s in members.items()
    }
    prompts = {name: prompts_of(s)[0] for name, s in members.items()}
    compactions_by_agent = {name: find_compacted_calls(s) for name, s in members.items()}
    thresholds = {k: session.details.get(k, 0) for k in ("warn_at", "cutover_at")}
    return tabulate_team_turns(
        get_team_turns(session), prompts, outputs, compactions_by_agent
    ).assign(**thresholds)


def find_compacted_calls(session: Session) -> list[int]:
    """Return the calls before which a session was compacted."""
    out, call = [], 0
    for entry in session.path:
        if isinstance(entry, Edit):
            out.append(call)
        else:
            call += entry.role == "assistant"
    return out


def tabulate_team_turns(
    turns: Sequence[TeamTurn],
    prompts: Mapping[str, Sequence[int | None]],
    outputs: Mapping[str, Sequence[int | None]],
    compactions_by_agent: Mapping[str, Iterable[int]],
) -> pd.DataFrame:
    """Return one row per turn with the columns of fuseraft's snapshots, and the next agent as `to`.

    Args:
        turns: the turns of the team.
        prompts: for each agent the tokens of each call's prompt; None: unknown.
        outputs: for each agent the tokens of each reply.
        compactions_by_agent: for each agent the calls before which its session was compacted,
            which restarts its running sum.
    """
    import pandas as pd

    sums: dict[str, int] = {}
    compacted_calls = {name: set(of) for name, of in compactions_by_agent.items()}
    rows = []
    for n, turn in enumerate(turns):
        sent, received = (
            sum(of[turn.agent][c] or 0 for c in turn.calls) for of in (prompts, outputs)
        )
        was_compacted = not compacted_calls.get(turn.agent, set()).isdisjoint(turn.calls)
        sums[turn.agent] = sent + (0 if was_compacted else sums.get(turn.agent, 0))
        next_agent = turns[n + 1].agent if n + 1 < len(turns) else ""
        rows.append(
            (
                turn.agent,
                n,
                sent,
                received,
                sums[turn.agent],
                was_compacted,
                next_agent * (next_agent != turn.agent),
            )
        )
    names = ["agent", "turn", "turn_input_tokens", "turn_output_tokens",
             "cumulative_input_tokens", "compaction_occurred", "to"]  # fmt: skip
    return pd.DataFrame(rows, columns=names)


def _turns_of_ledger(session: Session) -> list[TeamTurn]:
    by_name = {child.agent: child for child in session.children}
    turns = []
    for m in session.messages:
        move = m.details.get("told", {}) if m.kind == LEDGER_MOVE else {}
        if m.agent in by_name and "own" in move:
            turn_range = range(move.get("from_own", 0), move["own"] + 1)
            calls = [c.index for c in by_name[m.agent].calls if c.turn in turn_range]
            turns.append(TeamTurn(m.agent, tuple(calls)))
    return turns


def _turns_by_time(members: Mapping[str, Session]) -> list[TeamTurn]:
    (main, session), *others = members.items()
    subagent_turns = [(_start_time(s), 1, n, name, tuple(range(len(s.calls))))
             for n, (name, s) in enumerate(others) if s.calls]  # fmt: skip
    time = 0.0
    calls = []
    for call in session.calls:
        time = call.message.time if call.message.time is not None else time
        calls.append((time, 0, call.index, main, (call.index,)))
    rows = sorted([*subagent_turns, *calls])
    turns = []
    for _, of in groupby(rows, key=lambda row: (row[3], row[1] and row[2])):
        group = list(of)
        turns.append(TeamTurn(group[0][3], tuple(c for row in group for c in row[4])))
    return turns


def _start_time(session: Session) -> float:
    times = [m.time for m in session.messages if m.time is not None]
    return min(times, default=session.started or 0.0)


def _turns_of_log(session: Session) -> list[TeamTurn]:
    counts: dict[str, int] = {}
    turns = []
    for (agent, _), of in groupby(session.calls, key=lambda c: (c.agent, c.turn)):
        n = len(list(of))
        first = counts.get(agent, 0)
        counts[agent] = first + n
        turns.append(TeamTurn(agent, tuple(range(first, first + n))))
    return turns


HANDOFF, ARTIFACTS, TASK = "handoff", "artifacts", "task"
"""Kinds of messages with the role user, in addition to those of `session.messages`."""
LEDGER_MOVE = "move"
"""Kind of the ledger entries that record the move after a turn."""
FORK_MOVE, BRANCH_END_MOVES = "parallel_start", ("parallel_branch_end", "parallel_merge")
"""Kinds of moves that start parallel branches, and of those that end one (fuseraft's events)."""
ADDRESSEE_KEY, SOURCE_KEY, HANDOFF_KEY = "to", "from", "for"
"""Keys in the details of a message: the only agent that sees it; the id of its ledger entry; the
agent that a hand-off is for.
"""


def format_peer_tool_call(agent: str, tool: str, arguments: str, result: str) -> str:
    """Return the text of an agent's tool call and its result, as peers see it.

    Args:
        agent: name of the agent that called the tool.
        tool: name of the tool.
        arguments: its arguments, as JSON.
        result: text of the result.
    """
    return f"[{agent} called {tool}({arguments})]\n{result}"


def format_peer_text(agent: str, words: str) -> str:
    """Return an agent's text as peers see it.

    Args:
        agent: name of the agent.
        words: its text.
    """
    return f"[{agent}]\n{words}"


def render_for_peers(agent: str, messages: Sequence[Message]) -> Iterator[Message]:
    """Yield an agent's replies as peers see them: without thinking, each call with its result.

    Args:
        agent: name of the agent.
        messages: its replies and the results of its tools, in order.
    """
    result_of_call = map_results_by_call(messages)
    for m in messages:
        if m.role != "assistant" or not m.visible:
            continue
        words = get_plain_text(m).strip()
        if words:
            yield _peer_message(OTHER_AGENT_KIND, format_peer_text(agent, words), agent, m)
        for call in m.tool_calls:
            answer = result_of_call.get(id(call))
            arguments = call.raw or msgspec.json.encode(call.arguments).decode()
            text = format_peer_tool_call(
                agent, call.name, arguments, get_plain_text(answer) if answer else ""
            )
            frame = _peer_message(OTHER_AGENT_CALL_KIND, text, agent, m)
            yield msgspec.structs.replace(frame, tool=call.name)


def _peer_message(kind: str, text: str, agent: str, source: Message) -> Message:
    return Message(role="user", kind=kind, parts=(Text(text),), agent=agent, time=source.time,
                   details={"said": source.id})  # fmt: skip
