"""A recorded team as one log for each agent: its own words, and all that the others said before."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.heard.heard_words import ARTIFACTS, BRANCHES, FOR, FORK, FROM, MOVE, TO, spoken
from ctxkit.heard.team_turns import is_ledger, names_of
from ctxkit.messages import Message
from ctxkit.sizes import Sizes, sizes
from ctxkit.subjects import results
from ctxkit.tokens.counter_names import default

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session import Session

_replace = msgspec.structs.replace


@dataclass(frozen=True)
class AgentLog:
    """One agent of a recorded team."""

    agent: str
    record: Session
    """Its session as it was recorded, with what it heard then."""
    shared: Session
    """The same calls, each with all that the others had said by then; no compactions."""

    known: Sizes
    """The sizes of the record's messages."""

    @cached_property
    def anchored(self) -> Sizes:
        """The shared log's sizes: the record's, else counts on the record's scale."""
        if self.shared is self.record:
            return self.known
        counter, known = default(), self.known
        scale = 1.0 if known.error is None else 1 / (1 + known.error)
        sized = zip(known.tokens, known.source, strict=True)
        placed = dict(zip(map(_key, self.record.messages), sized, strict=True))
        pairs = [
            placed.get(_key(m)) or (max(round(counter.message(m) * scale), 1), "estimated")
            for m in self.shared.messages
        ]
        tokens, source = zip(*pairs, strict=True) if pairs else ((), ())
        before = [0, *accumulate(tokens)]
        places = [i for i, m in enumerate(self.shared.messages) if m.role == "assistant"]
        fixed = known.fixed_at
        return Sizes(
            session=self.shared, counter=known.counter, tokens=tokens, source=source,
            fixed=known.fixed, fixed_at=fixed, unsent_at=known.unsent_at, error=known.error,
            clamped=known.clamped, recorded=known.recorded,
            modelled=tuple(before[i] + f for i, f in zip(places, fixed, strict=True)), inserted=(),
        )  # fmt: skip


def agent_logs(session: Session) -> list[AgentLog]:
    """Return the agents of a recorded team, each with all that it could have heard.

    Raises:
        BadArguments: only one agent speaks in it, or it holds no text.
    """
    if not any(s.has_text for s in (session, *session.children)):
        raise BadArguments("The log holds no text, so what a view would hide cannot be said.")
    if is_ledger(session):
        found = [AgentLog(c.agent, c, _of_ledger(session, c), sizes(c)) for c in session.children]
    elif session.children:
        found = _of_children(session)
    else:
        found = [_alone(_of_log(session, a)) for a in _speakers(session)]
    found = [f for f in found if f.record.calls]
    if len(found) < 2:
        raise BadArguments(
            "Views are of what agents hear of each other, and only one speaks here: give a team, "
            "what ck.write kept of its session, a session with subagents, or a log with several "
            "agents."
        )
    return found


def asked_logs(session: Session) -> list[AgentLog]:
    """Return the agents of a kept team that others ask as tools; each hears its questions alone."""
    if not is_ledger(session):
        return []
    below = [c for member in session.children for c in member.children if c.calls]
    return [_alone(c) for c in below]


def _alone(session: Session) -> AgentLog:
    return AgentLog(session.agent, session, session, sizes(session))


def _speakers(session: Session) -> list[str]:
    return list(dict.fromkeys(c.agent for c in session.calls))


def _key(message: Message) -> object:
    """Return what a message is known by in the record and in the shared log."""
    return message.details.get(FROM) or message.id or id(message)


# -- a team's ledger -------------------------------------------------------------------------------


def _of_ledger(session: Session, child: Session) -> Session:
    """Return an agent's log with the ledger in it, each entry before the turn that hears it."""
    ledger, told = session.messages, 0
    known = _known_at(session, child.agent)
    last = max(known)
    out: list[Message] = []
    for m in child.messages:
        if FROM in m.details or m.kind == ARTIFACTS:
            continue
        if m.role != "system":
            turn = m.turn or 0
            now = max(known.get(turn, told if turn < last else known[last]), told)
            out += [_replace(x, turn=m.turn, details={FROM: x.id, **_for(x)})
                    for x in ledger[told:now] if _reaches(x, child.agent)]  # fmt: skip
            told = now
        out.append(m)
    return _log(child, out)


def _known_at(session: Session, agent: str) -> dict[int, int]:
    """Return for the first of an agent's own turns in each of its moves how many entries of the
    ledger were there by then; under the last key all that are there now.
    """
    known, before, last = dict[int, int](), 0, -1
    fork = 0
    for i, m in enumerate(session.messages):
        if m.kind != MOVE:
            continue
        if m.agent == agent:
            told = m.details["told"]
            branch = told.get("kind") in BRANCHES
            known[told.get("from_own", 0)] = fork if branch else before
            last = max(last, told.get("own", 0))
        before = i + 1
        fork = before if m.details["told"].get("kind") == FORK else fork
    return {**known, last + 1: before}


def forks(said: Sequence[Message]) -> int:
    """Return how many entries of a ledger stand before what the last branches said."""
    moves = (i for i in range(len(said) - 1, -1, -1) if said[i].kind == MOVE)
    return next((i for i in moves if said[i].details["told"].get("kind") == FORK), -1) + 1


def _for(message: Message) -> dict[str, str]:
    return {FOR: message.details[FOR]} if FOR in message.details else {}


def _reaches(message: Message, agent: str) -> bool:
    if message.kind == MOVE or message.agent == agent:
        return False
    return TO not in message.details or message.details[TO] == agent


# -- subagents, and several agents in one log ------------------------------------------------------


def _of_children(session: Session) -> list[AgentLog]:
    members = names_of(session)
    said = {
        name: [(m.time or 0.0, x) for m, x in _words(name, member.messages)]
        for name, member in members.items()
    }
    out = []
    for name, member in members.items():
        others = [row for other, rows in said.items() if other != name for row in rows]
        made = _woven(_in_turns(member), sorted(others, key=lambda row: row[0]))
        out.append(AgentLog(name, member, _log(member, made), sizes(member)))
    return out


def _of_log(session: Session, agent: str) -> Session:
    """Return one agent's log out of a log of several: what the others said as it hears it."""
    mine: list[Message] = []
    frames = {m.id: list(rows) for m, rows in _grouped(session)}
    for m in _in_turns(session):
        if m.role in ("assistant", "tool") and (m.agent or session.agent) != agent:
            others = frames.get(m.id, ())
            mine += [_replace(x, id=f"{m.id}.{n}", turn=m.turn) for n, x in enumerate(others)]
        else:
            mine.append(m)
    return _log(session, mine, agent)


def _in_turns(session: Session) -> list[Message]:
    """Return a session's messages, each with the number of its turn; what stands for a whole turn
    has a bill of many prompts, which says nothing of one.
    """
    pairs = [(e, t) for e, t in zip(session.path, session.turns, strict=True)
             if isinstance(e, Message)]  # fmt: skip
    return [_replace(e, turn=t, usage=None if e.kind == "turn" else e.usage) for e, t in pairs]


def _grouped(session: Session) -> Iterable[tuple[Message, Iterable[Message]]]:
    found = results(session.messages)
    for m in session.messages:
        if m.role == "assistant":
            own = [found[id(c)] for c in m.tool_calls if id(c) in found]
            yield m, spoken(m.agent or session.agent, [m, *own])


def _words(name: str, messages: Sequence[Message]) -> Iterable[tuple[Message, Message]]:
    by_id = {m.id: m for m in messages}
    for n, x in enumerate(spoken(name, messages)):
        source = by_id[x.details["said"]]
        yield source, _replace(x, id=f"{name}.{source.id}.{n}")


def _woven(own: Sequence[Message], others: Sequence[tuple[float, Message]]) -> list[Message]:
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


def _log(session: Session, messages: Sequence[Message], agent: str = "") -> Session:
    return _replace(
        session, log=tuple(messages), parents=(), leaf=-1, children=(), agent=agent or session.agent
    )
