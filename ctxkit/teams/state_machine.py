"""Decide what follows from a turn: next state, correction, branch, verifier, or the end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.errors import BadArguments
from ctxkit.teams.orchestration_patterns import PROGRESS_FIELD
from ctxkit.teams.plan import classify_failure, find_json_object, matches_any
from ctxkit.teams.turns import (
    MAX_ITEMS,
    TeamStatus,
    TurnDecision,
    ambiguous_signal_message,
    blocked_handoff_message,
    enter_state,
    escalation_message,
    finding_message,
    mark_done,
    mark_stopped,
    missing_fields_message,
    missing_list_message,
    missing_signal_message,
    parse_items,
    replan_message,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ctxkit.teams.contracts import ContractEvidence
    from ctxkit.teams.plan import ManagerLimits, TeamPlan, Transition
    from ctxkit.teams.turns import TurnReply


_TAIL_CHARS = 20_000
"""Characters at the end of a reply in which the words are looked for that end a round robin."""


def initial_status(plan: TeamPlan) -> TeamStatus:
    """Return where a team stands before its first turn."""
    seen = (plan.initial,) if plan.initial else ()
    return TeamStatus(state=plan.initial, seen=seen, branches=plan.branches)


def check_resumable(
    plan: TeamPlan, standing: TeamStatus, worked: Collection[str], name: str
) -> None:
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


def current_state(standing: TeamStatus) -> str:
    """Return the name of the state in which the next turn is taken."""
    return (*standing.branches, standing.state)[0]


def next_agent(plan: TeamPlan, standing: TeamStatus) -> str:
    """Return the name of the agent whose turn is next."""
    if standing.helper:
        return standing.helper
    if plan.order == "statemachine":
        return plan.states[current_state(standing)].agent
    takers = _round_agents(plan)
    return takers[(standing.turns - standing.since - standing.audits) % len(takers)]


def _round_agents(plan: TeamPlan) -> list[str]:
    """Return the agents that speak in turn: all but the verifier."""
    verifier = plan.verifier.agent if plan.verifier is not None else ""
    return [m.name for m in plan.members if m.name != verifier] or [verifier]


def decide_turn(
    plan: TeamPlan, standing: TeamStatus, turn: TurnReply, proof: ContractEvidence
) -> TurnDecision:
    """Return what follows from a turn.

    Args:
        plan: the team.
        standing: before it.
        turn: what was said in it.
        proof: what the agents really did.
    """
    now = replace(standing, turns=standing.turns + 1)
    if standing.helper:
        found = decide_helper_turn(plan, now, turn)
    elif standing.branches:
        found = decide_branch_turn(plan, now, turn.agent)
    elif plan.order != "statemachine":
        found = _decide_round_robin(plan, now, turn)
    elif plan.states[now.state].ends:
        found = _decide_final_state(plan, now, turn)
    else:
        found = _apply_stops(plan, _decide_by_signal(plan, now, turn, proof), turn)
    found = found if standing.auditing else schedule_verifier(plan, found)
    if not found.standing.ended and found.standing.turns - now.since >= plan.max_turns:
        why = f"the team has had its {plan.max_turns} turns"
        return TurnDecision(
            mark_stopped(found.standing, why),
            "max_turns_exceeded",
            found.correction,
            found.way,
            found.told,
        )
    return found


def _decide_by_signal(
    plan: TeamPlan, now: TeamStatus, turn: TurnReply, proof: ContractEvidence
) -> TurnDecision:
    state = plan.states[now.state]
    if state.splits:
        return decide_split_turn(plan, now, turn)
    mine = [t for t in state.transitions if not t.source_agents or turn.agent in t.source_agents]
    if any(t.when is not None for t in mine):
        return _decide_by_json(plan, now, turn, proof)
    signals = [t.signal for t in mine if t.signal]
    given = [s for s in signals if s.casefold() in {c.strip().casefold() for c in turn.called}]
    given = given or list(find_signals(turn.reply, signals))
    if len(given) > 1:
        return decide_unclear_turn(
            plan,
            now,
            turn.agent,
            correction=ambiguous_signal_message(given),
            signals=given,
            kind="multi_keyword",
        )
    way = next((t for t in mine if t.signal == (given[0] if given else "")), None)
    if way is None:
        return decide_unclear_turn(
            plan, now, turn.agent, correction=missing_signal_message(signals), signals=signals
        )
    missing = proof.lacking(way.contracts)
    if missing:
        return _decide_contract_failure(plan, replace(now, silent=0), turn, way, missing)
    return _decide_advance(plan, replace(now, silent=0), turn, way, proof)


def _decide_by_json(
    plan: TeamPlan, now: TeamStatus, turn: TurnReply, proof: ContractEvidence
) -> TurnDecision:
    """Take the first transition whose condition the JSON of the reply fulfils."""
    state, found = plan.states[now.state], find_json_object(turn.reply)
    mine = [t for t in state.transitions if not t.source_agents or turn.agent in t.source_agents]
    way = next((t for t in mine if found is not None and t.when and t.when.holds(found)), None)
    if way is None or found is None:
        fields = list(dict.fromkeys(t.when.field for t in mine if t.when is not None))
        return decide_unclear_turn(
            plan, now, turn.agent, correction=missing_fields_message(fields), signals=fields
        )
    on = replace(now, silent=0)
    if (
        plan.manager is not None
        and state.name == plan.manager.name
        and not plan.states[way.to].ends
    ):
        on = replace(on, stalls=0 if found.get(PROGRESS_FIELD) is not False else on.stalls + 1)
        if on.stalls >= plan.manager.stalls:
            return decide_stall(plan.manager, on)
    return _decide_advance(plan, on, turn, way, proof)


def _decide_contract_failure(
    plan: TeamPlan, now: TeamStatus, turn: TurnReply, way: Transition, missing: list[str]
) -> TurnDecision:
    key = f"{now.state} > {way.to}"
    count = now.failures.get(key, 0) + 1
    now = replace(now, failures={**now.failures, key: count})
    kind = classify_failure(missing, again=count > 1, worked=turn.worked)
    told = {"keyword": way.signal, "consecutive": count, "message": "; ".join(missing),
            "failure": kind}  # fmt: skip
    if plan.failing.stops(kind, count):
        times = f"{count} times in a row" if count > 1 else "once"
        why = f"{key}: the contract failed {times} ({'; '.join(missing)})"
        return TurnDecision(mark_stopped(now, why), "validation_fail", "", way, told)
    if way.recovery and plan.failing.recovers(kind, count) and key not in now.recovered:
        now = replace(now, helper=way.recovery, recovered=(*now.recovered, key))
    return TurnDecision(
        now, "validation_fail", blocked_handoff_message(way.signal, missing), way, told
    )


def _decide_advance(
    plan: TeamPlan, now: TeamStatus, turn: TurnReply, way: Transition, proof: ContractEvidence
) -> TurnDecision:
    key, back = f"{now.state} > {way.to}", way.to in now.seen
    count = now.visits.get(key, 0) + back
    if way.max_revisits and count > way.max_revisits:
        objections = proof.read(way.review) if way.review else ""
        return TurnDecision(
            now,
            "back_edge_escalation",
            escalation_message(way, objections),
            way,
            {"keyword": way.signal},
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
        return TurnDecision(now, "parallel_start", "", way, {**told, "targets": list(way.targets)})
    return TurnDecision(enter_state(plan, now, turn.agent), "state_advanced", "", way, told)


def _apply_stops(plan: TeamPlan, found: TurnDecision, turn: TurnReply) -> TurnDecision:
    """Let what an agent says end a state machine, too, but for a hand-off that was not taken."""
    if found.standing.ended or found.kind in ("validation_fail", "back_edge_escalation"):
        return found
    why = _find_stop(plan, turn)
    return found._replace(standing=mark_done(found.standing, why)) if why else found


def _find_stop(plan: TeamPlan, turn: TurnReply) -> str:
    """Return by which words of a turn the team is over; empty: by none."""
    for stop in plan.stops:
        if stop.agents and turn.agent not in stop.agents:
            continue
        if stop.when is not None:
            said = find_json_object(turn.reply)
            if said is not None and stop.when.holds(said):
                return f"{turn.agent} said {stop.when.field}: {stop.when.value}"
        elif matches_any((stop.pattern,), turn.reply[-_TAIL_CHARS:]):
            return f"{turn.agent} said {stop.pattern}"
    return ""


def _decide_final_state(plan: TeamPlan, now: TeamStatus, turn: TurnReply) -> TurnDecision:
    """Return what follows from a turn in a state out of which nothing leads: the end, or another
    such turn where the team ends by words of this agent that it did not say.
    """
    why = _find_stop(plan, turn)
    if not why and any(turn.agent in stop.agents for stop in plan.stops):
        return TurnDecision(now, "agent_routed")
    return TurnDecision(mark_done(now, why or f"{now.state} is reached"), "termination_satisfied")


def _decide_round_robin(plan: TeamPlan, now: TeamStatus, turn: TurnReply) -> TurnDecision:
    why = _find_stop(plan, turn)
    if why:
        return TurnDecision(mark_done(now, why), "termination_satisfied")
    if plan.order == "sequential" and now.turns - now.since - now.audits >= len(
        _round_agents(plan)
    ):
        return TurnDecision(
            replace(now, ended="done", why="each agent has had its turn"), "termination_satisfied"
        )
    return TurnDecision(now, "agent_routed")


def decide_helper_turn(plan: TeamPlan, now: TeamStatus, turn: TurnReply) -> TurnDecision:
    """Return what follows from the turn of an agent for recovery, or of the verifier."""
    on = replace(now, helper="", auditing=False)
    if not now.auditing:
        return TurnDecision(on, "recovery_activated")
    word = plan.verifier.word.casefold() if plan.verifier is not None else ""
    found = bool(word) and word in turn.reply.casefold()
    return TurnDecision(
        on, "agent_routed", finding_message(turn.agent, turn.reply) if found else ""
    )


def schedule_verifier(plan: TeamPlan, found: TurnDecision) -> TurnDecision:
    """Let the verifier have the next turn, where it is its time."""
    now, verifier = found.standing, plan.verifier
    if verifier is None or now.ended or now.helper or now.branches:
        return found
    own = now.turns - now.since - now.audits
    if not verifier.due(own, found.told.get("failure")):
        return found
    helped = replace(now, helper=verifier.agent, auditing=True, audits=now.audits + 1)
    return found._replace(standing=helped)


def decide_branch_turn(plan: TeamPlan, now: TeamStatus, by: str) -> TurnDecision:
    """Return what follows from the turn of one of several branches."""
    left = now.branches[1:]
    told = {"branch": now.branches[0]}
    if left:
        return TurnDecision(replace(now, branches=left), "parallel_branch_end", told=told)
    joined = replace(now, branches=())
    return TurnDecision(enter_state(plan, joined, by), "parallel_merge", told=told)


def decide_split_turn(plan: TeamPlan, now: TeamStatus, turn: TurnReply) -> TurnDecision:
    """Let one agent have a turn for each item of the list that a reply holds."""
    state = plan.states[now.state]
    (way,) = state.transitions
    items = parse_items(turn.reply, state.splits)
    if items is None:
        return decide_unclear_turn(
            plan,
            now,
            turn.agent,
            correction=missing_list_message(state.splits, MAX_ITEMS),
            signals=[f"a list at {state.splits}"],
        )
    on = replace(now, silent=0, state=way.to, branches=way.targets * len(items))
    told = {"from": now.state, "to": way.to, "items": len(items)}
    if not items:
        return TurnDecision(enter_state(plan, on, turn.agent), "state_advanced", "", way, told)
    return TurnDecision(on, "parallel_start", "", way, told)


def decide_stall(manager: ManagerLimits, now: TeamStatus) -> TurnDecision:
    """Let the manager plan anew, or stop the team where it did so often enough."""
    why = f"no progress in {now.stalls} rounds"
    again = replace(now, stalls=0, resets=now.resets + 1)
    if again.resets > manager.resets:
        again = mark_stopped(again, f"{why}, after {manager.resets} new plans")
    return TurnDecision(again, "magentic_replan", replan_message(why), None, {"message": why})


def decide_unclear_turn(
    plan: TeamPlan,
    now: TeamStatus,
    agent: str,
    *,
    correction: str,
    signals: Sequence[str],
    kind: str = "keyword_not_found",
) -> TurnDecision:
    """Return what follows from a turn in which no way out of the state can be seen."""
    again = replace(now, silent=now.silent + 1)
    if again.silent >= plan.failing.silent:
        why = (
            f"{agent} gave no clear signal in {again.silent} turns; it may give"
            f" {' or '.join(signals) or 'none'}"
        )
        again = mark_stopped(again, why)
    return TurnDecision(again, kind, correction, None, {"signals": list(signals)})


_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_EMPHASIS = str.maketrans("", "", "*_")


def find_signals(text: str, signals: Iterable[str]) -> tuple[str, ...]:
    """Return the signals that a reply gives, in the order in which they are asked for.

    A signal stands alone on its line, or begins it and is followed by a blank or a sign
    (fuseraft's rule, with `*` and `_` left out; upper and lower case alike). Inside a fence of
    code, on a line that is quoted (`>`), indented as code, or in quotes, it is somebody else's.
    """
    lines = [line.translate(_EMPHASIS).strip().casefold() for line in _own_lines(text)]
    found = []
    for signal in signals:
        wanted = signal.translate(_EMPHASIS).strip().casefold()
        if wanted and any(_begins_with_signal(line, wanted) for line in lines):
            found.append(signal)
    return _drop_prefixes(found)


def _begins_with_signal(line: str, wanted: str) -> bool:
    rest = line[len(wanted) :]
    return line.startswith(wanted) and not rest[:1].isalnum() and not rest.startswith("-")


def _own_lines(text: str) -> Iterable[str]:
    """Yield the lines that are the speaker's own words."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            if (
                mark
                and mark[1][0] == fence[0]
                and len(mark[1]) >= len(fence)
                and not line.strip(mark[1][0] + " \t")
            ):
                fence = ""
        elif mark:
            fence = mark[1]
        elif not line.lstrip().startswith(">") and not line.startswith(("    ", "\t")):
            yield line


def _drop_prefixes(found: list[str]) -> tuple[str, ...]:
    """Leave out what only begins another signal that was given: `DONE` of `DONE WITH BUGS`."""
    low = {s: s.casefold() for s in found}
    return tuple(s for s in found if not any(o != s and low[o].startswith(low[s]) for o in found))
