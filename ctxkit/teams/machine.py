"""What follows from a turn: on to the next state, once more with a correction, or the end."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ctxkit.errors import BadArguments
from ctxkit.teams.corrections import ambiguous, blocked, escalated, nudge
from ctxkit.teams.patterns import is_in
from ctxkit.teams.signals import said

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ctxkit.teams.contracts import Proof
    from ctxkit.teams.rosters import Roster, TeamState, Transition

SILENT = 3
"""Turns in a row of one state without one clear signal, after which the team stops."""
FAILED = 4
"""Times in a row that a contract may fail before the team stops."""
RECOVER = 2
"""Times in a row that a contract fails before the agent for recovery gets a turn (fuseraft's)."""
_END = 20_000
"""Characters at the end of a reply in which the words are looked for that end a round robin."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a team stands between two turns; kept in the ledger with every move."""

    turns: int = 0
    """Turns that are over."""
    since: int = 0
    """How many were over when the task was given."""
    state: str = ""
    silent: int = 0
    failures: dict[str, int] = {}
    """Failed contracts in a row, by `state > target`."""
    recovered: tuple[str, ...] = ()
    """Transitions whose agent for recovery has had its turn."""
    helper: str = ""
    """The agent for recovery, where the next turn is its own."""
    visits: dict[str, int] = {}
    """How often each transition led back."""
    seen: tuple[str, ...] = ()
    """States that were entered."""
    own: dict[str, int] = {}
    """Of each agent: the last turn of its own session that belongs to a turn that is over."""
    ended: str = ""
    """`done`, `stopped`, or nothing while it goes on."""
    why: str = ""


class TeamReply(NamedTuple):
    """What an agent said in a turn."""

    agent: str
    reply: str
    """Its last words."""
    called: Sequence[str] = ()
    """Signals that it gave by a tool call."""


class Decided(NamedTuple):
    """What follows from a turn."""

    standing: Standing
    kind: str
    """The event, in fuseraft's words."""
    correction: str = ""
    """What is said to the agent that takes the next turn."""
    way: Transition | None = None
    told: Mapping[str, Any] = MappingProxyType({})


def begun(plan: Roster) -> Standing:
    """Return where a team stands before its first turn."""
    return Standing(state=plan.initial, seen=(plan.initial,) if plan.initial else ())


def check(plan: Roster, standing: Standing, worked: Collection[str], name: str) -> None:
    """Let a plan pass by which a team can go on from where it stands.

    Args:
        plan: the team, as it is opened now.
        standing: where it stands.
        worked: agents that took a turn of its task.
        name: of the team.

    Raises:
        BadArguments: its task was begun with another plan.
    """
    names, states = {m.name for m in plan.members}, {*plan.states} or {""}
    known = names.issuperset({*worked, standing.helper} - {""})
    if standing.ended or (standing.state in states and known):
        return
    at = f"state {standing.state!r}" if standing.state else "a round"
    raise BadArguments(
        f"Team {name!r} stands in {at} of {', '.join(worked) or 'other agents'}, which this "
        "config does not have: open it with the one that it was begun with, or begin another team."
    )


def speaker(plan: Roster, standing: Standing) -> str:
    """Return the name of the agent whose turn is next."""
    if plan.order == "statemachine":
        return standing.helper or plan.states[standing.state].agent
    return plan.members[(standing.turns - standing.since) % len(plan.members)].name


def decided(plan: Roster, standing: Standing, turn: TeamReply, proof: Proof) -> Decided:
    """Return what follows from a turn.

    Args:
        plan: the team.
        standing: before it.
        turn: what was said in it.
        proof: what the agents really did.
    """
    now = replace(standing, turns=standing.turns + 1)
    if plan.order != "statemachine":
        found = _in_turn(plan, now, turn)
    elif standing.helper:
        found = Decided(replace(now, helper=""), "recovery_activated")
    else:
        found = _by_signal(plan, now, turn, proof)
    if not found.standing.ended and found.standing.turns - now.since >= plan.max_turns:
        why = f"the team has had its {plan.max_turns} turns"
        return Decided(
            _stopped(found.standing, why),
            "max_turns_exceeded",
            found.correction,
            found.way,
            found.told,
        )
    return found


def _by_signal(plan: Roster, now: Standing, turn: TeamReply, proof: Proof) -> Decided:
    state = plan.states[now.state]
    mine = [t for t in state.transitions if not t.source_agents or turn.agent in t.source_agents]
    signals = [t.signal for t in mine if t.signal]
    given = [s for s in signals if s.casefold() in {c.strip().casefold() for c in turn.called}]
    given = given or list(said(turn.reply, signals))
    if len(given) > 1:
        return _unclear(now, turn.agent, "multi_keyword", ambiguous(given), given)
    way = next((t for t in mine if t.signal == (given[0] if given else "")), None)
    if way is None:
        return _unclear(now, turn.agent, "keyword_not_found", nudge(signals), signals)
    missing = proof.lacking(way.contracts)
    if missing:
        return _failed(replace(now, silent=0), state, way, missing)
    return _onward(plan, replace(now, silent=0), state, way, proof)


def _unclear(
    now: Standing, agent: str, kind: str, correction: str, signals: Sequence[str]
) -> Decided:
    again = replace(now, silent=now.silent + 1)
    if again.silent >= SILENT:
        why = (
            f"{agent} gave no clear signal in {SILENT} turns; it may give"
            f" {' or '.join(signals) or 'none'}"
        )
        again = _stopped(again, why)
    return Decided(again, kind, correction, None, {"signals": list(signals)})


def _failed(now: Standing, state: TeamState, way: Transition, missing: list[str]) -> Decided:
    key = f"{state.name} > {way.to}"
    count = now.failures.get(key, 0) + 1
    now = replace(now, failures={**now.failures, key: count})
    told = {"keyword": way.signal, "consecutive": count, "message": "; ".join(missing)}
    if count >= FAILED:
        why = f"{key}: the contract failed {count} times in a row ({'; '.join(missing)})"
        return Decided(_stopped(now, why), "validation_fail", "", way, told)
    if way.recovery and count >= RECOVER and key not in now.recovered:
        now = replace(now, helper=way.recovery, recovered=(*now.recovered, key))
    return Decided(now, "validation_fail", blocked(way.signal, missing), way, told)


def _onward(
    plan: Roster, now: Standing, state: TeamState, way: Transition, proof: Proof
) -> Decided:
    key, back = f"{state.name} > {way.to}", way.to in now.seen
    count = now.visits.get(key, 0) + back
    if way.max_revisits and count > way.max_revisits:
        objections = proof.read(way.review) if way.review else ""
        return Decided(
            now, "back_edge_escalation", escalated(way, objections), way, {"keyword": way.signal}
        )
    now = replace(
        now,
        state=way.to,
        visits={**now.visits, key: count} if back else now.visits,
        seen=now.seen if back else (*now.seen, way.to),
        failures={k: n for k, n in now.failures.items() if k != key},
    )
    if plan.states[way.to].ends:
        now = replace(now, ended="done", why=f"{way.to} is reached")
    return Decided(
        now, "state_advanced", "", way, {"from": state.name, "to": way.to, "keyword": way.signal}
    )


def _in_turn(plan: Roster, now: Standing, turn: TeamReply) -> Decided:
    for stop in plan.stops:
        spoke = not stop.agents or turn.agent in stop.agents
        if spoke and is_in((stop.pattern,), turn.reply[-_END:]):
            return Decided(
                replace(now, ended="done", why=f"{turn.agent} said {stop.pattern}"),
                "termination_satisfied",
            )
    if plan.order == "sequential" and now.turns - now.since >= len(plan.members):
        return Decided(
            replace(now, ended="done", why="each agent has had its turn"), "termination_satisfied"
        )
    return Decided(now, "agent_routed")


def _stopped(now: Standing, why: str) -> Standing:
    return replace(now, ended="stopped", why=why)
