"""The decision after a turn of a team: next state, correction, branch, verifier, or the end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.errors import BadArguments
from ctxkit.teams.agent_selections_as_state_graphs import PROGRESS_FIELD
from ctxkit.teams.team_definition import classify_contract_failure, find_json_object, matches_any
from ctxkit.teams.turn_prompts_and_team_state import (
    MAX_ITEMS,
    TeamStatus,
    TurnDecision,
    ambiguous_signal_message,
    blocked_handoff_message,
    enter_state,
    mark_done,
    mark_stopped,
    missing_fields_message,
    missing_list_message,
    missing_signal_message,
    parse_items,
    replan_message,
    too_many_revisits_message,
    verifier_finding_message,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ctxkit.teams.handoffs_and_contracts import ContractChecker
    from ctxkit.teams.team_definition import ManagerStallLimits, TeamPlan, Transition
    from ctxkit.teams.turn_prompts_and_team_state import TurnReply


_TAIL_CHARS = 20_000
"""Characters at the end of a reply that are searched for the words that end a round robin."""


def make_initial_status(plan: TeamPlan) -> TeamStatus:
    """Return the status of a team before its first turn.

    Args:
        plan: the plan of the team; one of turns in a round has no initial state.

    Returns:
        The status of turn 0.
    """
    visited = (plan.initial,) if plan.initial else ()
    return TeamStatus(state=plan.initial, visited=visited, branches=plan.branches)


def check_resumable(
    plan: TeamPlan, status: TeamStatus, active_agents: Collection[str], name: str
) -> None:
    """Check that a team can continue from its status with a plan.

    Args:
        plan: the plan with which it is opened now.
        status: the current status.
        active_agents: agents that had a turn in its task.
        name: name of the team.

    Raises:
        BadArguments: its task was begun with another plan.
    """
    members = {m.name for m in plan.members}
    # A plan of turns in a round has no states; the status of its team names the state "".
    states = {*plan.states} or {""}
    has_agents = members.issuperset({*active_agents, status.recovery_or_verifier} - {""})
    has_states = states.issuperset({status.state, *status.branches})
    if status.ended or (has_agents and has_states):
        return
    where = f"state {status.state!r}" if status.state else "a round"
    agents = ", ".join(active_agents) or "other agents"
    raise BadArguments(
        f"Team {name!r} stands in {where} of {agents}, which this "
        "config does not have: open it with the one that it was begun with, or begin another team."
    )


def get_next_state_name(status: TeamStatus) -> str:
    """Return the name of the next turn's state.

    Args:
        status: status of a running team.

    Returns:
        The first of the branches that are still to come, else the state itself.
    """
    return (*status.branches, status.state)[0]


def get_next_agent(plan: TeamPlan, status: TeamStatus) -> str:
    """Return the name of the next agent.

    Args:
        plan: the plan of the team.
        status: status before the turn.

    Returns:
        The recovery agent or the verifier if it is due, else the agent of the state or of the
        round.
    """
    if status.recovery_or_verifier:
        return status.recovery_or_verifier
    if plan.order == "statemachine":
        return plan.states[get_next_state_name(status)].agent
    # turns of this task without the verifier's, so that an audit does not shift the round
    takers = _round_agents(plan)
    return takers[(status.turns - status.turns_before_task - status.verifier_turns) % len(takers)]


def _round_agents(plan: TeamPlan) -> list[str]:
    """Return the agents that take turns: all but the verifier."""
    verifier = plan.verifier.agent if plan.verifier is not None else ""
    return [m.name for m in plan.members if m.name != verifier] or [verifier]


# A turn leads to a decision in this order: the verifier or the agent for recovery (a helper), then
# open branches, then the order of the agents or the state machine. In a state machine a reply takes
# the transition of its signal (or of its JSON); a contract may block it, words of `Termination` may
# end the team. The verifier and the limit on turns are looked at last.
#
# A status is never changed: each step returns a new one, which the ledger keeps with the move.


def decide_turn(
    plan: TeamPlan, status: TeamStatus, turn: TurnReply, evidence: ContractChecker
) -> TurnDecision:
    """Return the decision after a turn.

    Args:
        plan: the plan of the team.
        status: status before the turn.
        turn: the reply of the turn.
        evidence: files and changes to check contracts against.

    Returns:
        The status after the turn, the kind of the decision in fuseraft's words, and a message to
        the next agent, usually empty.
    """
    now = replace(status, turns=status.turns + 1)
    if status.recovery_or_verifier:
        decision = decide_recovery_or_verifier_turn(plan, now, turn)
    elif status.branches:
        decision = decide_branch_turn(plan, now, turn.agent)
    elif plan.order != "statemachine":
        decision = _decide_round_robin(plan, now, turn)
    elif plan.states[now.state].is_final:
        decision = _decide_final_state(plan, now, turn)
    else:
        decision = _apply_stops(plan, _decide_by_signal(plan, now, turn, evidence), turn)
    # the verifier's own turn is not audited
    decision = decision if status.is_verifier_due else schedule_verifier(plan, decision)
    if (
        not decision.status.ended
        and decision.status.turns - now.turns_before_task >= plan.max_turns
    ):
        why = f"the team has had its {plan.max_turns} turns"
        return TurnDecision(
            mark_stopped(decision.status, why),
            "max_turns_exceeded",
            decision.correction,
            decision.transition,
            decision.payload,
        )
    return decision


def _decide_by_signal(
    plan: TeamPlan, status: TeamStatus, turn: TurnReply, evidence: ContractChecker
) -> TurnDecision:
    state = plan.states[status.state]
    if state.split_list_path:
        return decide_split_turn(plan, status, turn)
    transitions = [
        t for t in state.transitions if not t.source_agents or turn.agent in t.source_agents
    ]
    if any(t.when is not None for t in transitions):
        return _decide_by_json(plan, status, turn, evidence)
    signals = [t.signal for t in transitions if t.signal]
    # a call of the hand-off tool wins over signals in the text
    signalled = [
        s for s in signals if s.casefold() in {c.strip().casefold() for c in turn.called_signals}
    ]
    signalled = signalled or list(find_signals(turn.reply, signals))
    if len(signalled) > 1:
        return decide_unclear_turn(
            plan,
            status,
            turn.agent,
            correction=ambiguous_signal_message(signalled),
            signals=signalled,
            kind="multi_keyword",
        )
    # without a signal the default transition is taken, if there is one
    way = next((t for t in transitions if t.signal == (signalled[0] if signalled else "")), None)
    if way is None:
        return decide_unclear_turn(
            plan, status, turn.agent, correction=missing_signal_message(signals), signals=signals
        )
    missing = evidence.find_unmet_requirements(way.contracts)
    if missing:
        return _decide_contract_failure(
            plan, replace(status, turns_without_signal=0), turn, way, missing
        )
    return _decide_advance(plan, replace(status, turns_without_signal=0), turn, way, evidence)


def _decide_by_json(
    plan: TeamPlan, status: TeamStatus, turn: TurnReply, evidence: ContractChecker
) -> TurnDecision:
    """Take the first transition whose condition the reply's JSON meets."""
    state, record = plan.states[status.state], find_json_object(turn.reply)
    transitions = [
        t for t in state.transitions if not t.source_agents or turn.agent in t.source_agents
    ]
    way = next(
        (t for t in transitions if record is not None and t.when and t.when.matches(record)), None
    )
    if way is None or record is None:
        fields = list(dict.fromkeys(t.when.field for t in transitions if t.when is not None))
        return decide_unclear_turn(
            plan, status, turn.agent, correction=missing_fields_message(fields), signals=fields
        )
    new_status = replace(status, turns_without_signal=0)
    if (
        # Only the manager's own turns count its rounds; a reply that does not say whether there was
        # progress counts as progress.
        plan.manager is not None
        and state.name == plan.manager.name
        and not plan.states[way.to].is_final
    ):
        new_status = replace(
            new_status,
            stalls=0 if record.get(PROGRESS_FIELD) is not False else new_status.stalls + 1,
        )
        if new_status.stalls >= plan.manager.stalls:
            return decide_stall(plan.manager, new_status)
    return _decide_advance(plan, new_status, turn, way, evidence)


def _decide_contract_failure(
    plan: TeamPlan, status: TeamStatus, turn: TurnReply, transition: Transition, missing: list[str]
) -> TurnDecision:
    key = f"{status.state} > {transition.to}"
    count = status.failures.get(key, 0) + 1
    status = replace(status, failures={**status.failures, key: count})
    kind = classify_contract_failure(missing, failed_before=count > 1, used_tools=turn.used_tools)
    payload = {"keyword": transition.signal, "consecutive": count, "message": "; ".join(missing),
            "failure": kind}  # fmt: skip
    if plan.failure_limits.stops(kind, count):
        times = f"{count} times in a row" if count > 1 else "once"
        why = f"{key}: the contract failed {times} ({'; '.join(missing)})"
        return TurnDecision(mark_stopped(status, why), "validation_fail", "", transition, payload)
    # the recovery agent has one turn per transition
    if (
        transition.recovery
        and plan.failure_limits.recovers(kind, count)
        and key not in status.recovered
    ):
        status = replace(
            status, recovery_or_verifier=transition.recovery, recovered=(*status.recovered, key)
        )
    return TurnDecision(
        status,
        "validation_fail",
        blocked_handoff_message(transition.signal, missing),
        transition,
        payload,
    )


def _decide_advance(
    plan: TeamPlan,
    status: TeamStatus,
    turn: TurnReply,
    transition: Transition,
    evidence: ContractChecker,
) -> TurnDecision:
    key, is_back_edge = f"{status.state} > {transition.to}", transition.to in status.visited
    count = status.visits.get(key, 0) + is_back_edge
    # the transition is not taken: the agent stays in its state and hears the objections
    if transition.max_revisits and count > transition.max_revisits:
        objections = evidence.read(transition.objections_file) if transition.objections_file else ""
        return TurnDecision(
            status,
            "back_edge_escalation",
            too_many_revisits_message(transition, objections),
            transition,
            {"keyword": transition.signal},
        )
    payload = {"from": status.state, "to": transition.to, "keyword": transition.signal}
    status = replace(
        status,
        state=transition.to,
        visits={**status.visits, key: count} if is_back_edge else status.visits,
        # a contract that holds resets the consecutive failures of its transition
        failures={k: n for k, n in status.failures.items() if k != key},
        branches=transition.targets,
    )
    # the next state is entered when each branch has had its turn
    if transition.targets:
        return TurnDecision(
            status,
            "parallel_start",
            "",
            transition,
            {**payload, "targets": list(transition.targets)},
        )
    return TurnDecision(
        enter_state(plan, status, turn.agent), "state_advanced", "", transition, payload
    )


def _apply_stops(plan: TeamPlan, decision: TurnDecision, turn: TurnReply) -> TurnDecision:
    """Apply stop conditions to a state machine, unless a hand-off was blocked."""
    if decision.status.ended or decision.kind in ("validation_fail", "back_edge_escalation"):
        return decision
    why = _find_stop(plan, turn)
    return decision._replace(status=mark_done(decision.status, why)) if why else decision


def _find_stop(plan: TeamPlan, turn: TurnReply) -> str:
    """Return which stop condition a reply meets, as a sentence; empty if none."""
    for stop in plan.stops:
        if stop.agents and turn.agent not in stop.agents:
            continue
        if stop.when is not None:
            record = find_json_object(turn.reply)
            if record is not None and stop.when.matches(record):
                return f"{turn.agent} said {stop.when.field}: {stop.when.value}"
        elif matches_any((stop.pattern,), turn.reply[-_TAIL_CHARS:]):
            return f"{turn.agent} said {stop.pattern}"
    return ""


def _decide_final_state(plan: TeamPlan, status: TeamStatus, turn: TurnReply) -> TurnDecision:
    """Return the decision after a turn in a final state: the end, or another turn in it.

    The turn is repeated if the team ends by this agent's words, and the reply lacks them.
    """
    why = _find_stop(plan, turn)
    if not why and any(turn.agent in stop.agents for stop in plan.stops):
        return TurnDecision(status, "agent_routed")
    return TurnDecision(
        mark_done(status, why or f"{status.state} is reached"), "termination_satisfied"
    )


def _decide_round_robin(plan: TeamPlan, status: TeamStatus, turn: TurnReply) -> TurnDecision:
    why = _find_stop(plan, turn)
    if why:
        return TurnDecision(mark_done(status, why), "termination_satisfied")
    if (
        plan.order == "sequential"
        and status.turns - status.turns_before_task - status.verifier_turns
        >= len(_round_agents(plan))
    ):
        return TurnDecision(
            replace(status, ended="done", why="each agent has had its turn"),
            "termination_satisfied",
        )
    return TurnDecision(status, "agent_routed")


def decide_recovery_or_verifier_turn(
    plan: TeamPlan, status: TeamStatus, turn: TurnReply
) -> TurnDecision:
    """Return the decision after a turn of the recovery agent or the verifier.

    Args:
        plan: the team.
        status: its status before the decision.
        turn: the reply.
    """
    new_status = replace(status, recovery_or_verifier="", is_verifier_due=False)
    if not status.is_verifier_due:
        return TurnDecision(new_status, "recovery_activated")
    word = plan.verifier.finding_keyword.casefold() if plan.verifier is not None else ""
    has_finding = bool(word) and word in turn.reply.casefold()
    return TurnDecision(
        new_status,
        "agent_routed",
        verifier_finding_message(turn.agent, turn.reply) if has_finding else "",
    )


def schedule_verifier(plan: TeamPlan, decision: TurnDecision) -> TurnDecision:
    """Give the verifier the next turn if a check is due.

    Args:
        plan: the team; without a verifier nothing changes.
        decision: the decision after the turn.
    """
    now, verifier = decision.status, plan.verifier
    if verifier is None or now.ended or now.recovery_or_verifier or now.branches:
        return decision
    turns_of_task = now.turns - now.turns_before_task - now.verifier_turns
    if not verifier.is_due(turns_of_task, decision.payload.get("failure")):
        return decision
    status = replace(
        now,
        recovery_or_verifier=verifier.agent,
        is_verifier_due=True,
        verifier_turns=now.verifier_turns + 1,
    )
    return decision._replace(status=status)


def decide_branch_turn(plan: TeamPlan, status: TeamStatus, agent: str) -> TurnDecision:
    """Return the decision after a turn of a branch.

    Args:
        plan: the team.
        status: its status before the decision; its first branch is the one that ended.
        agent: the agent that had the turn.
    """
    branches = status.branches[1:]
    payload = {"branch": status.branches[0]}
    if branches:
        return TurnDecision(
            replace(status, branches=branches), "parallel_branch_end", payload=payload
        )
    joined = replace(status, branches=())
    return TurnDecision(enter_state(plan, joined, agent), "parallel_merge", payload=payload)


def decide_split_turn(plan: TeamPlan, status: TeamStatus, turn: TurnReply) -> TurnDecision:
    """Return the decision that gives one agent a turn for each item of a reply's list.

    Args:
        plan: the team.
        status: its status before the decision.
        turn: the reply, with the list as JSON.
    """
    state = plan.states[status.state]
    (transition,) = state.transitions  # a state that splits has one
    items = parse_items(turn.reply, state.split_list_path)
    if items is None:
        return decide_unclear_turn(
            plan,
            status,
            turn.agent,
            correction=missing_list_message(state.split_list_path, MAX_ITEMS),
            signals=[f"a list at {state.split_list_path}"],
        )
    branches = transition.targets * len(items)
    new_status = replace(status, turns_without_signal=0, state=transition.to, branches=branches)
    payload = {"from": status.state, "to": transition.to, "items": len(items)}
    # an empty list makes no branches: the next state is entered at once
    if not items:
        return TurnDecision(
            enter_state(plan, new_status, turn.agent), "state_advanced", "", transition, payload
        )
    return TurnDecision(new_status, "parallel_start", "", transition, payload)


def decide_stall(manager: ManagerStallLimits, status: TeamStatus) -> TurnDecision:
    """Ask the manager for a new plan, or stop the team after too many.

    Args:
        manager: the number of new plans that it may make.
        status: its status before the decision, with the rounds without progress.
    """
    why = f"no progress in {status.stalls} rounds"
    new_status = replace(status, stalls=0, resets=status.resets + 1)
    if new_status.resets > manager.resets:
        new_status = mark_stopped(new_status, f"{why}, after {manager.resets} new plans")
    return TurnDecision(new_status, "magentic_replan", replan_message(why), None, {"message": why})


def decide_unclear_turn(
    plan: TeamPlan,
    status: TeamStatus,
    agent: str,
    *,
    correction: str,
    signals: Sequence[str],
    kind: str = "keyword_not_found",
) -> TurnDecision:
    """Return the decision after a turn that names no transition, or several.

    Args:
        plan: the team, with the number of such turns in a row that it allows.
        status: its status before the decision.
        agent: the agent that had the turn.
        correction: message to the agent.
        signals: what it may give, for the reason and the record.
        kind: name of the decision in the events.
    """
    new_status = replace(status, turns_without_signal=status.turns_without_signal + 1)
    if new_status.turns_without_signal >= plan.failure_limits.max_silent_turns:
        why = (
            f"{agent} gave no clear signal in {new_status.turns_without_signal} turns; it may give"
            f" {' or '.join(signals) or 'none'}"
        )
        new_status = mark_stopped(new_status, why)
    return TurnDecision(new_status, kind, correction, None, {"signals": list(signals)})


_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_EMPHASIS = str.maketrans("", "", "*_")


def find_signals(text: str, signals: Iterable[str]) -> tuple[str, ...]:
    """Return the signals that a reply gives, in the order of `signals`.

    A signal is alone on its line, or begins it and is followed by a blank or a sign
    (fuseraft's rule, with `*` and `_` left out; upper and lower case alike). Inside a fence of
    code, on a line that is quoted (`>`), indented as code, or in quotes, it is somebody else's.

    Args:
        text: the reply of an agent.
        signals: signals that its state knows.
    """
    lines = [line.translate(_EMPHASIS).strip().casefold() for line in _iter_spoken_lines(text)]
    present = []
    for signal in signals:
        folded = signal.translate(_EMPHASIS).strip().casefold()
        if folded and any(_begins_with_signal(line, folded) for line in lines):
            present.append(signal)
    return _drop_prefixes(present)


def _begins_with_signal(line: str, signal: str) -> bool:
    rest = line[len(signal) :]
    return line.startswith(signal) and not rest[:1].isalnum() and not rest.startswith("-")


# Fences of code are found as CommonMark has them: a fence of three or more backticks or tildes is
# closed by one of the same sign that is at least as long and has nothing behind it. A fence that is
# never closed reaches to the end of the reply.
def _iter_spoken_lines(text: str) -> Iterable[str]:
    """Yield the lines of a reply that are neither quoted nor code."""
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


def _drop_prefixes(signals: list[str]) -> tuple[str, ...]:
    """Drop signals that are prefixes of another given signal: `DONE` of `DONE WITH BUGS`."""
    folded = {s: s.casefold() for s in signals}
    return tuple(
        s for s in signals if not any(o != s and folded[o].startswith(folded[s]) for o in signals)
    )
