"""Whose turn it was: the turns of a recorded team in order, with the calls of each."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.frames.occupancy import prompts as prompts_of
from ctxkit.heard.heard_words import MOVE
from ctxkit.messages import Edit
from ctxkit.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd


class TeamTurn(NamedTuple):
    """One turn of one agent."""

    agent: str
    calls: tuple[int, ...]
    """Numbers of its calls among those of this agent."""


def is_ledger(session: Session) -> bool:
    """Say whether a session is the ledger of a team, whose agents have sessions of their own."""
    return "team" in session.details and bool(session.children)


def names_of(session: Session) -> dict[str, Session]:
    """Return the sessions of a team by the names of their agents; of namesakes each has its id."""
    members = [*session.children] if is_ledger(session) else [session, *session.children]
    names = [m.agent for m in members]
    return {m.agent if names.count(m.agent) == 1 else f"{m.agent} {m.id[:8]}": m for m in members}


def team_turns(session: Session) -> list[TeamTurn]:
    """Return the turns of a recorded team, in order.

    Of a ledger they are its moves. A subagent's session is one turn, which parts the turns of the
    session that it works for. In one log each agent that speaks begins a turn.
    """
    if is_ledger(session):
        return _moved(session)
    if session.children:
        return _by_time(names_of(session))
    return _in_one_log(session)


def recorded_turns(of: object) -> pd.DataFrame | None:
    """Return a row a turn of a recorded team (see `turn_table`); None without its ledger."""
    session = getattr(of, "session", of)
    if not isinstance(session, Session) or not is_ledger(session):
        return None
    members = names_of(session)
    outputs = {
        name: [c.message.usage.output_tokens if c.message.usage else None for c in s.calls]
        for name, s in members.items()
    }
    prompts = {name: prompts_of(s)[0] for name, s in members.items()}
    cuts = {name: cuts_of(s) for name, s in members.items()}
    told = {k: session.details.get(k, 0) for k in ("warn_at", "cutover_at")}
    return turn_table(team_turns(session), prompts, outputs, cuts).assign(**told)


def cuts_of(session: Session) -> list[int]:
    """Return the calls before which a session was compacted."""
    out, call = [], 0
    for entry in session.path:
        if isinstance(entry, Edit):
            out.append(call)
        else:
            call += entry.role == "assistant"
    return out


def turn_table(
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


def _moved(session: Session) -> list[TeamTurn]:
    by_name = {child.agent: child for child in session.children}
    out = []
    for m in session.messages:
        told = m.details.get("told", {}) if m.kind == MOVE else {}
        if m.agent in by_name and "own" in told:
            own = range(told.get("from_own", 0), told["own"] + 1)
            calls = [c.index for c in by_name[m.agent].calls if c.turn in own]
            out.append(TeamTurn(m.agent, tuple(calls)))
    return out


def _by_time(members: Mapping[str, Session]) -> list[TeamTurn]:
    (main, session), *others = members.items()
    begun = [(_start(s), 1, n, name, tuple(range(len(s.calls))))
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


def _start(session: Session) -> float:
    times = [m.time for m in session.messages if m.time is not None]
    return min(times, default=session.started or 0.0)


def _in_one_log(session: Session) -> list[TeamTurn]:
    counts: dict[str, int] = {}
    out = []
    for (agent, _), of in groupby(session.calls, key=lambda c: (c.agent, c.turn)):
        n = len(list(of))
        first = counts.get(agent, 0)
        counts[agent] = first + n
        out.append(TeamTurn(agent, tuple(range(first, first + n))))
    return out
