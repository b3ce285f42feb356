"""A recorded team of agents: one log for each agent, its turns, and how messages of peers are
shown.

A record of several agents is a team's ledger with their sessions as children, a session with
subagents, or one log in which several agents speak.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments
from ctxkit.metrics.prompt_sizes import get_prompt_sizes as prompts_of
from ctxkit.session.messages import (
    OTHER_AGENT_CALL_KIND,
    OTHER_AGENT_KIND,
    Edit,
    Message,
    Text,
    get_plain_text,
)
from ctxkit.session.session import Session
from ctxkit.session.tool_calls import map_results_by_call
from ctxkit.tokens.registry import default_counter
from ctxkit.tokens.sizes import MessageSizes, measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd


__all__ = [
    "AgentLog",
    "TeamTurn",
    "count_entries_before_fork",
    "find_compacted_calls",
    "get_agent_logs",
    "get_team_turns",
    "get_tool_agent_logs",
    "tabulate_recorded_turns",
    "tabulate_turns",
]
__dir__ = public_dir(__all__)


_replace = msgspec.structs.replace


@dataclass(frozen=True)
class AgentLog:
    """One agent of a recorded team."""

    agent: str
    record: Session
    """Its session as it was recorded, with what it heard then."""
    shared: Session
    """The same calls, each with all that the others had said by then; no compactions."""

    known: MessageSizes
    """The sizes of the record's messages."""

    @cached_property
    def anchored(self) -> MessageSizes:
        """The shared log's sizes: the record's, else counts on the record's scale."""
        if self.shared is self.record:
            return self.known
        counter, known = default_counter(), self.known
        scale = 1.0 if known.error is None else 1 / (1 + known.error)
        sized = zip(known.tokens, known.source, strict=True)
        placed = dict(zip(map(_message_key, self.record.messages), sized, strict=True))
        pairs = [
            placed.get(_message_key(m)) or (max(round(counter.message(m) * scale), 1), "estimated")
            for m in self.shared.messages
        ]
        tokens, source = zip(*pairs, strict=True) if pairs else ((), ())
        before = [0, *accumulate(tokens)]
        places = [i for i, m in enumerate(self.shared.messages) if m.role == "assistant"]
        fixed = known.fixed_at
        return MessageSizes(
            session=self.shared, counter=known.counter, tokens=tokens, source=source,
            fixed=known.fixed, fixed_at=fixed, unsent_at=known.unsent_at, error=known.error,
            clamped=known.clamped, recorded=known.recorded,
            modelled=tuple(before[i] + f for i, f in zip(places, fixed, strict=True)), inserted=(),
        )  # fmt: skip


def get_agent_logs(session: Session) -> list[AgentLog]:
    """Return the agents of a recorded team, each with all that it could have heard.

    Raises:
        BadArguments: only one agent speaks in it, or it holds no text.
    """
    if not any(s.has_text for s in (session, *session.children)):
        raise BadArguments("The log holds no text, so what a view would hide cannot be said.")
    if is_team_ledger(session):
        found = [
            AgentLog(c.agent, c, _shared_log_of_ledger(session, c), measure_sizes(c))
            for c in session.children
        ]
    elif session.children:
        found = _logs_of_children(session)
    else:
        found = [_unshared_log(_log_of_speaker(session, a)) for a in _agent_names(session)]
    found = [f for f in found if f.record.calls]
    if len(found) < 2:
        raise BadArguments(
            "Views are of what agents hear of each other, and only one speaks here: give a team, "
            "what ck.write kept of its session, a session with subagents, or a log with several "
            "agents."
        )
    return found


def get_tool_agent_logs(session: Session) -> list[AgentLog]:
    """Return the agents of a kept team that others ask as tools; each hears its questions alone."""
    if not is_team_ledger(session):
        return []
    below = [c for member in session.children for c in member.children if c.calls]
    return [_unshared_log(c) for c in below]


def _unshared_log(session: Session) -> AgentLog:
    return AgentLog(session.agent, session, session, measure_sizes(session))


def _agent_names(session: Session) -> list[str]:
    return list(dict.fromkeys(c.agent for c in session.calls))


def _message_key(message: Message) -> object:
    """Return what a message is known by in the record and in the shared log."""
    return message.details.get(SOURCE_KEY) or message.id or id(message)


# -- a team's ledger -------------------------------------------------------------------------------


def _shared_log_of_ledger(session: Session, child: Session) -> Session:
    """Return an agent's log with the ledger in it, each entry before the turn that hears it."""
    ledger, told = session.messages, 0
    known = _entries_by_turn(session, child.agent)
    last = max(known)
    out: list[Message] = []
    for m in child.messages:
        if SOURCE_KEY in m.details or m.kind == ARTIFACTS:
            continue
        if m.role != "system":
            turn = m.turn or 0
            now = max(known.get(turn, told if turn < last else known[last]), told)
            out += [_replace(x, turn=m.turn, details={SOURCE_KEY: x.id, **_handoff_details(x)})
                    for x in ledger[told:now] if _is_visible_to(x, child.agent)]  # fmt: skip
            told = now
        out.append(m)
    return _replace_log(child, out)


def _entries_by_turn(session: Session, agent: str) -> dict[int, int]:
    """Return for the first of an agent's own turns in each of its moves how many entries of the
    ledger were there by then; under the last key all that are there now.
    """
    known, before, last = dict[int, int](), 0, -1
    fork = 0
    for i, m in enumerate(session.messages):
        if m.kind != LEDGER_MOVE:
            continue
        if m.agent == agent:
            told = m.details["told"]
            branch = told.get("kind") in BRANCH_END_MOVES
            known[told.get("from_own", 0)] = fork if branch else before
            last = max(last, told.get("own", 0))
        before = i + 1
        fork = before if m.details["told"].get("kind") == FORK_MOVE else fork
    return {**known, last + 1: before}


def count_entries_before_fork(said: Sequence[Message]) -> int:
    """Return how many entries of a ledger stand before what the last branches said."""
    moves = (i for i in range(len(said) - 1, -1, -1) if said[i].kind == LEDGER_MOVE)
    return next((i for i in moves if said[i].details["told"].get("kind") == FORK_MOVE), -1) + 1


def _handoff_details(message: Message) -> dict[str, str]:
    return {HANDOFF_KEY: message.details[HANDOFF_KEY]} if HANDOFF_KEY in message.details else {}


def _is_visible_to(message: Message, agent: str) -> bool:
    if message.kind == LEDGER_MOVE or message.agent == agent:
        return False
    return ADDRESSEE_KEY not in message.details or message.details[ADDRESSEE_KEY] == agent


# -- subagents, and several agents in one log ------------------------------------------------------


def _logs_of_children(session: Session) -> list[AgentLog]:
    members = map_agents_to_sessions(session)
    said = {
        name: [(m.time or 0.0, x) for m, x in _rendered_messages(name, member.messages)]
        for name, member in members.items()
    }
    out = []
    for name, member in members.items():
        others = [row for other, rows in said.items() if other != name for row in rows]
        made = _interleave(_messages_with_turns(member), sorted(others, key=lambda row: row[0]))
        out.append(AgentLog(name, member, _replace_log(member, made), measure_sizes(member)))
    return out


def _log_of_speaker(session: Session, agent: str) -> Session:
    """Return one agent's log out of a log of several: what the others said as it hears it."""
    mine: list[Message] = []
    frames = {m.id: list(rows) for m, rows in _group_by_reply(session)}
    for m in _messages_with_turns(session):
        if m.role in ("assistant", "tool") and (m.agent or session.agent) != agent:
            others = frames.get(m.id, ())
            mine += [_replace(x, id=f"{m.id}.{n}", turn=m.turn) for n, x in enumerate(others)]
        else:
            mine.append(m)
    return _replace_log(session, mine, agent)


def _messages_with_turns(session: Session) -> list[Message]:
    """Return a session's messages, each with the number of its turn; what stands for a whole turn
    has a bill of many prompts, which says nothing of one.
    """
    pairs = [(e, t) for e, t in zip(session.path, session.turns, strict=True)
             if isinstance(e, Message)]  # fmt: skip
    return [_replace(e, turn=t, usage=None if e.kind == "turn" else e.usage) for e, t in pairs]


def _group_by_reply(session: Session) -> Iterable[tuple[Message, Iterable[Message]]]:
    found = map_results_by_call(session.messages)
    for m in session.messages:
        if m.role == "assistant":
            own = [found[id(c)] for c in m.tool_calls if id(c) in found]
            yield m, render_for_peers(m.agent or session.agent, [m, *own])


def _rendered_messages(name: str, messages: Sequence[Message]) -> Iterable[tuple[Message, Message]]:
    by_id = {m.id: m for m in messages}
    for n, x in enumerate(render_for_peers(name, messages)):
        source = by_id[x.details["said"]]
        yield source, _replace(x, id=f"{name}.{source.id}.{n}")


def _interleave(own: Sequence[Message], others: Sequence[tuple[float, Message]]) -> list[Message]:
    """Return an agent's messages with what others said, each where it had been said by then and no
    call stands apart from its result.
    """
    out: list[Message] = []
    open_calls: set[str] = set()
    at, now = 0, 0.0
    for m in own:
        now = m.time if m.role == "user" and m.time is not None else now
        heard = m.role in ("user", "assistant") and not open_calls
        while heard and at < len(others) and others[at][0] <= now:
            out.append(_replace(others[at][1], turn=m.turn))
            at += 1
        open_calls |= {c.id for c in m.tool_calls}
        open_calls.discard(m.call_id or "")
        now = m.time if m.time is not None else now
        out.append(m)
    return out


def _replace_log(session: Session, messages: Sequence[Message], agent: str = "") -> Session:
    return _replace(
        session, log=tuple(messages), parents=(), leaf=-1, children=(), agent=agent or session.agent
    )


class TeamTurn(NamedTuple):
    """One turn of one agent."""

    agent: str
    calls: tuple[int, ...]
    """Numbers of its calls among those of this agent."""


def is_team_ledger(session: Session) -> bool:
    """Say whether a session is the ledger of a team, whose agents have sessions of their own."""
    return "team" in session.details and bool(session.children)


def map_agents_to_sessions(session: Session) -> dict[str, Session]:
    """Return the sessions of a team by the names of their agents; of namesakes each has its id."""
    members = [*session.children] if is_team_ledger(session) else [session, *session.children]
    names = [m.agent for m in members]
    return {m.agent if names.count(m.agent) == 1 else f"{m.agent} {m.id[:8]}": m for m in members}


def get_team_turns(session: Session) -> list[TeamTurn]:
    """Return the turns of a recorded team, in order.

    Of a ledger they are its moves. A subagent's session is one turn, which parts the turns of the
    session that it works for. In one log each agent that speaks begins a turn.
    """
    if is_team_ledger(session):
        return _turns_of_ledger(session)
    if session.children:
        return _turns_by_time(map_agents_to_sessions(session))
    return _turns_of_log(session)


def tabulate_recorded_turns(of: object) -> pd.DataFrame | None:
    """Return a row a turn of a recorded team (see `turn_table`); None without its ledger."""
    session = getattr(of, "session", of)
    if not isinstance(session, Session) or not is_team_ledger(session):
        return None
    members = map_agents_to_sessions(session)
    outputs = {
        name: [c.message.usage.output_tokens if c.message.usage else None for c in s.calls]
        for name, s in members.items()
    }
    prompts = {name: prompts_of(s)[0] for name, s in members.items()}
    cuts = {name: find_compacted_calls(s) for name, s in members.items()}
    told = {k: session.details.get(k, 0) for k in ("warn_at", "cutover_at")}
    return tabulate_turns(get_team_turns(session), prompts, outputs, cuts).assign(**told)


def find_compacted_calls(session: Session) -> list[int]:
    """Return the calls before which a session was compacted."""
    out, call = [], 0
    for entry in session.path:
        if isinstance(entry, Edit):
            out.append(call)
        else:
            call += entry.role == "assistant"
    return out


def tabulate_turns(
    turns: Sequence[TeamTurn],
    prompts: Mapping[str, Sequence[int | None]],
    outputs: Mapping[str, Sequence[int | None]],
    cuts: Mapping[str, Iterable[int]],
) -> pd.DataFrame:
    """Return a row a turn, in the columns of fuseraft's snapshots, with who is handed the work.

    Args:
        turns: of the team.
        prompts: of each agent the tokens of each call's prompt; None: not known.
        outputs: of each agent the tokens of each reply.
        cuts: of each agent the calls before which its session was compacted: its sum begins anew.
    """
    import pandas as pd

    sums: dict[str, int] = {}
    cut = {name: set(of) for name, of in cuts.items()}
    rows = []
    for n, turn in enumerate(turns):
        sent, given = (sum(of[turn.agent][c] or 0 for c in turn.calls) for of in (prompts, outputs))
        fired = not cut.get(turn.agent, set()).isdisjoint(turn.calls)
        sums[turn.agent] = sent + (0 if fired else sums.get(turn.agent, 0))
        to = turns[n + 1].agent if n + 1 < len(turns) else ""
        rows.append((turn.agent, n, sent, given, sums[turn.agent], fired, to * (to != turn.agent)))
    names = ["agent", "turn", "turn_input_tokens", "turn_output_tokens",
             "cumulative_input_tokens", "compaction_occurred", "to"]  # fmt: skip
    return pd.DataFrame(rows, columns=names)


def _turns_of_ledger(session: Session) -> list[TeamTurn]:
    by_name = {child.agent: child for child in session.children}
    out = []
    for m in session.messages:
        told = m.details.get("told", {}) if m.kind == LEDGER_MOVE else {}
        if m.agent in by_name and "own" in told:
            own = range(told.get("from_own", 0), told["own"] + 1)
            calls = [c.index for c in by_name[m.agent].calls if c.turn in own]
            out.append(TeamTurn(m.agent, tuple(calls)))
    return out


def _turns_by_time(members: Mapping[str, Session]) -> list[TeamTurn]:
    (main, session), *others = members.items()
    begun = [(_start_time(s), 1, n, name, tuple(range(len(s.calls))))
             for n, (name, s) in enumerate(others) if s.calls]  # fmt: skip
    told = 0.0
    spoke = []
    for call in session.calls:
        told = call.message.time if call.message.time is not None else told
        spoke.append((told, 0, call.index, main, (call.index,)))
    rows = sorted([*begun, *spoke])
    out = []
    for _, of in groupby(rows, key=lambda row: (row[3], row[1] and row[2])):
        same = list(of)
        out.append(TeamTurn(same[0][3], tuple(c for row in same for c in row[4])))
    return out


def _start_time(session: Session) -> float:
    times = [m.time for m in session.messages if m.time is not None]
    return min(times, default=session.started or 0.0)


def _turns_of_log(session: Session) -> list[TeamTurn]:
    counts: dict[str, int] = {}
    out = []
    for (agent, _), of in groupby(session.calls, key=lambda c: (c.agent, c.turn)):
        n = len(list(of))
        first = counts.get(agent, 0)
        counts[agent] = first + n
        out.append(TeamTurn(agent, tuple(range(first, first + n))))
    return out


HANDOFF, ARTIFACTS, TASK = "handoff", "artifacts", "task"
"""Kinds of the messages in the user's place, beside those of `messages`."""
LEDGER_MOVE = "move"
"""Kind of the entries of a team's ledger that say what followed from a turn."""
FORK_MOVE, BRANCH_END_MOVES = "parallel_start", ("parallel_branch_end", "parallel_merge")
"""Kinds of the moves after which branches begin, and of those that end one (fuseraft's events)."""
ADDRESSEE_KEY, SOURCE_KEY, HANDOFF_KEY = "to", "from", "for"
"""In the details of a message: the agent that alone hears it; the ledger's message that it is; the
agent that a hand-off was put together for."""


def format_peer_tool_call(agent: str, tool: str, arguments: str, result: str) -> str:
    """Return another agent's tool call and its result as others hear it."""
    return f"[{agent} called {tool}({arguments})]\n{result}"


def format_peer_text(agent: str, words: str) -> str:
    """Return another agent's words as others hear them."""
    return f"[{agent}]\n{words}"


def render_for_peers(agent: str, messages: Sequence[Message]) -> Iterator[Message]:
    """Yield what an agent said as others hear it: no thinking, a call with its result.

    Args:
        agent: who said it.
        messages: its replies and the results of its tools, in order.
    """
    found = map_results_by_call(messages)
    for m in messages:
        if m.role != "assistant" or not m.visible:
            continue
        words = get_plain_text(m).strip()
        if words:
            yield _peer_message(OTHER_AGENT_KIND, format_peer_text(agent, words), agent, m)
        for call in m.tool_calls:
            answer = found.get(id(call))
            arguments = call.raw or msgspec.json.encode(call.arguments).decode()
            text = format_peer_tool_call(
                agent, call.name, arguments, get_plain_text(answer) if answer else ""
            )
            frame = _peer_message(OTHER_AGENT_CALL_KIND, text, agent, m)
            yield msgspec.structs.replace(frame, tool=call.name)


def _peer_message(kind: str, text: str, agent: str, source: Message) -> Message:
    return Message(role="user", kind=kind, parts=(Text(text),), agent=agent, time=source.time,
                   details={"said": source.id})  # fmt: skip
