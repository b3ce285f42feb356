"""What follows from a turn: on to the next state, once more with a correction, or the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.errors import BadArguments
from ctxkit.teams.conditions import object_in
from ctxkit.teams.corrections import ambiguous, blocked, escalated, nudge, unstructured
from ctxkit.teams.decisions import Decided, Standing, done, entered, stopped
from ctxkit.teams.failures import kind_of
from ctxkit.teams.managers import PROGRESS
from ctxkit.teams.patterns import is_in
from ctxkit.teams.side_turns import branched, helped, looked_at, split, stalled, unclear
from ctxkit.teams.signals import said

if TYPE_CHECKING:
    from collections.abc import Collection

    from ctxkit.teams.contracts import Proof
    from ctxkit.teams.decisions import TeamReply
    from ctxkit.teams.rosters import Roster, Transition

_END = 20_000
"""Characters at the end of a reply in which the words are looked for that end a round robin."""


def begun(plan: Roster) -> Standing:
    """Return where a team stands before its first turn."""
    seen = (plan.initial,) if plan.initial else ()
    return Standing(state=plan.initial, seen=seen, branches=plan.branches)


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
    if standing.ended or (states.issuperset({standing.state, *standing.branches}) and known):
        return
    where = f"state {standing.state!r}" if standing.state else "a round"
    raise BadArguments(
        f"Team {name!r} stands in {where} of {', '.join(worked) or 'other agents'}, which this "
        "config does not have: open it with the one that it was begun with, or begin another team."
    )


def place(standing: Standing) -> str:
    """Return the name of the state in which the next turn is taken."""
    return (*standing.branches, standing.state)[0]


def speaker(plan: Roster, standing: Standing) -> str:
    """Return the name of the agent whose turn is next."""
    if standing.helper:
        return standing.helper
    if plan.order == "statemachine":
        return plan.states[place(standing)].agent
    takers = _takers(plan)
    return takers[(standing.turns - standing.since - standing.audits) % len(takers)]


def _takers(plan: Roster) -> list[str]:
    """Return the agents that speak in turn: all but the verifier."""
    verifier = plan.verifier.agent if plan.verifier is not None else ""
    return [m.name for m in plan.members if m.name != verifier] or [verifier]


def decided(plan: Roster, standing: Standing, turn: TeamReply, proof: Proof) -> Decided:
    """Return what follows from a turn.

    Args:
        plan: the team.
        standing: before it.
        turn: what was said in it.
        proof: what the agents really did.
    """
    now = replace(standing, turns=standing.turns + 1)
    if standing.helper:
        found = helped(plan, now, turn)
    elif standing.branches:
        found = branched(plan, now, turn.agent)
    elif plan.order != "statemachine":
        found = _in_turn(plan, now, turn)
    elif plan.states[now.state].ends:
        found = _last(plan, now, turn)
    else:
        found = _ended(plan, _by_signal(plan, now, turn, proof), turn)
    found = found if standing.auditing else looked_at(plan, found)
    if not found.standing.ended and found.standing.turns - now.since >= plan.max_turns:
        why = f"the team has had its {plan.max_turns} turns"
        return Decided(
            stopped(found.standing, why),
            "max_turns_exceeded",
            found.correction,
            found.way,
            found.told,
        )
    return found


def _by_signal(plan: Roster, now: Standing, turn: TeamReply, proof: Proof) -> Decided:
    state = plan.states[now.state]
    if state.splits:
        return split(plan, now, turn)
    mine = [t for t in state.transitions if not t.source_agents or turn.agent in t.source_agents]
    if any(t.when is not None for t in mine):
        return _by_json(plan, now, turn, proof)
    signals = [t.signal for t in mine if t.signal]
    given = [s for s in signals if s.casefold() in {c.strip().casefold() for c in turn.called}]
    given = given or list(said(turn.reply, signals))
    if len(given) > 1:
        return unclear(plan, now, turn.agent, correction=ambiguous(given), signals=given,
                       kind="multi_keyword")  # fmt: skip
    way = next((t for t in mine if t.signal == (given[0] if given else "")), None)
    if way is None:
        return unclear(plan, now, turn.agent, correction=nudge(signals), signals=signals)
    missing = proof.lacking(way.contracts)
    if missing:
        return _failed(plan, replace(now, silent=0), turn, way, missing)
    return _onward(plan, replace(now, silent=0), turn, way, proof)


def _by_json(plan: Roster, now: Standing, turn: TeamReply, proof: Proof) -> Decided:
    """Take the first transition whose condition the JSON of the reply fulfils."""
    state, found = plan.states[now.state], object_in(turn.reply)
    mine = [t for t in state.transitions if not t.source_agents or turn.agent in t.source_agents]
    way = next((t for t in mine if found is not None and t.when and t.when.holds(found)), None)
    if way is None or found is None:
        fields = list(dict.fromkeys(t.when.field for t in mine if t.when is not None))
        return unclear(plan, now, turn.agent, correction=unstructured(fields), signals=fields)
    on = replace(now, silent=0)
    if (
        plan.manager is not None
        and state.name == plan.manager.name
        and not plan.states[way.to].ends
    ):
        on = replace(on, stalls=0 if found.get(PROGRESS) is not False else on.stalls + 1)
        if on.stalls >= plan.manager.stalls:
            return stalled(plan.manager, on)
    return _onward(plan, on, turn, way, proof)


def _failed(
    plan: Roster, now: Standing, turn: TeamReply, way: Transition, missing: list[str]
) -> Decided:
    key = f"{now.state} > {way.to}"
    count = now.failures.get(key, 0) + 1
    now = replace(now, failures={**now.failures, key: count})
    kind = kind_of(missing, again=count > 1, worked=turn.worked)
    told = {"keyword": way.signal, "consecutive": count, "message": "; ".join(missing),
            "failure": kind}  # fmt: skip
    if plan.failing.stops(kind, count):
        times = f"{count} times in a row" if count > 1 else "once"
        why = f"{key}: the contract failed {times} ({'; '.join(missing)})"
        return Decided(stopped(now, why), "validation_fail", "", way, told)
    if way.recovery and plan.failing.recovers(kind, count) and key not in now.recovered:
        now = replace(now, helper=way.recovery, recovered=(*now.recovered, key))
    return Decided(now, "validation_fail", blocked(way.signal, missing), way, told)


def _onward(plan: Roster, now: Standing, turn: TeamReply, way: Transition, proof: Proof) -> Decided:
    key, back = f"{now.state} > {way.to}", way.to in now.seen
    count = now.visits.get(key, 0) + back
    if way.max_revisits and count > way.max_revisits:
        objections = proof.read(way.review) if way.review else ""
        return Decided(
            now, "back_edge_escalation", escalated(way, objections), way, {"keyword": way.signal}
        )
    told = {"from": now.state, "to": way.to, "keyword": way.signal}
    now = replace(
        now,
        state=way.to,
        visits={**now.visits, key: count} if back else now.visits,
        failures={k: n for k, n in now.failures.items() if k != key},
        branches=way.targets,
    )
    if way.targets:
        return Decided(now, "parallel_start", "", way, {**told, "targets": list(way.targets)})
    return Decided(entered(plan, now, turn.agent), "state_advanced", "", way, told)


def _ended(plan: Roster, found: Decided, turn: TeamReply) -> Decided:
    """Let what an agent says end a state machine, too, but for a hand-off that was not taken."""
    if found.standing.ended or found.kind in ("validation_fail", "back_edge_escalation"):
        return found
    why = _stop_said(plan, turn)
    return found._replace(standing=done(found.standing, why)) if why else found


def _stop_said(plan: Roster, turn: TeamReply) -> str:
    """Return by which words of a turn the team is over; empty: by none."""
    for stop in plan.stops:
        if stop.agents and turn.agent not in stop.agents:
            continue
        if stop.when is not None:
            said = object_in(turn.reply)
            if said is not None and stop.when.holds(said):
                return f"{turn.agent} said {stop.when.field}: {stop.when.value}"
        elif is_in((stop.pattern,), turn.reply[-_END:]):
            return f"{turn.agent} said {stop.pattern}"
    return ""


def _last(plan: Roster, now: Standing, turn: TeamReply) -> Decided:
    """Return what follows from a turn in a state out of which nothing leads: the end, or another
    such turn where the team ends by words of this agent that it did not say.
    """
    why = _stop_said(plan, turn)
    if not why and any(turn.agent in stop.agents for stop in plan.stops):
        return Decided(now, "agent_routed")
    return Decided(done(now, why or f"{now.state} is reached"), "termination_satisfied")


def _in_turn(plan: Roster, now: Standing, turn: TeamReply) -> Decided:
    why = _stop_said(plan, turn)
    if why:
        return Decided(done(now, why), "termination_satisfied")
    if plan.order == "sequential" and now.turns - now.since - now.audits >= len(_takers(plan)):
        return Decided(
            replace(now, ended="done", why="each agent has had its turn"), "termination_satisfied"
        )
    return Decided(now, "agent_routed")
