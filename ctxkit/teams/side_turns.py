"""Turns beside a state machine's way: recovery, verifier, branches, a manager at a loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.teams.brought import MOST_ITEMS, items_in
from ctxkit.teams.corrections import finding, replan, unsplit
from ctxkit.teams.decisions import Decided, entered, stopped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.teams.decisions import Standing, TeamReply
    from ctxkit.teams.rosters import Manager, Roster


def helped(plan: Roster, now: Standing, turn: TeamReply) -> Decided:
    """Return what follows from the turn of an agent for recovery, or of the verifier."""
    on = replace(now, helper="", auditing=False)
    if not now.auditing:
        return Decided(on, "recovery_activated")
    word = plan.verifier.word.casefold() if plan.verifier is not None else ""
    found = bool(word) and word in turn.reply.casefold()
    return Decided(on, "agent_routed", finding(turn.agent, turn.reply) if found else "")


def looked_at(plan: Roster, found: Decided) -> Decided:
    """Let the verifier have the next turn, where it is its time."""
    now, verifier = found.standing, plan.verifier
    if verifier is None or now.ended or now.helper or now.branches:
        return found
    own = now.turns - now.since - now.audits
    if not verifier.due(own, found.told.get("failure")):
        return found
    helped = replace(now, helper=verifier.agent, auditing=True, audits=now.audits + 1)
    return found._replace(standing=helped)


def branched(plan: Roster, now: Standing, by: str) -> Decided:
    """Return what follows from the turn of one of several branches."""
    left = now.branches[1:]
    told = {"branch": now.branches[0]}
    if left:
        return Decided(replace(now, branches=left), "parallel_branch_end", told=told)
    joined = replace(now, branches=())
    return Decided(entered(plan, joined, by), "parallel_merge", told=told)


def split(plan: Roster, now: Standing, turn: TeamReply) -> Decided:
    """Let one agent have a turn for each item of the list that a reply holds."""
    state = plan.states[now.state]
    (way,) = state.transitions
    items = items_in(turn.reply, state.splits)
    if items is None:
        return unclear(plan, now, turn.agent, correction=unsplit(state.splits, MOST_ITEMS),
                       signals=[f"a list at {state.splits}"])  # fmt: skip
    on = replace(now, silent=0, state=way.to, branches=way.targets * len(items))
    told = {"from": now.state, "to": way.to, "items": len(items)}
    if not items:
        return Decided(entered(plan, on, turn.agent), "state_advanced", "", way, told)
    return Decided(on, "parallel_start", "", way, told)


def stalled(manager: Manager, now: Standing) -> Decided:
    """Let the manager plan anew, or stop the team where it did so often enough."""
    why = f"no progress in {now.stalls} rounds"
    again = replace(now, stalls=0, resets=now.resets + 1)
    if again.resets > manager.resets:
        again = stopped(again, f"{why}, after {manager.resets} new plans")
    return Decided(again, "magentic_replan", replan(why), None, {"message": why})


def unclear(
    plan: Roster,
    now: Standing,
    agent: str,
    *,
    correction: str,
    signals: Sequence[str],
    kind: str = "keyword_not_found",
) -> Decided:
    """Return what follows from a turn in which no way out of the state can be seen."""
    again = replace(now, silent=now.silent + 1)
    if again.silent >= plan.failing.silent:
        why = (
            f"{agent} gave no clear signal in {again.silent} turns; it may give"
            f" {' or '.join(signals) or 'none'}"
        )
        again = stopped(again, why)
    return Decided(again, kind, correction, None, {"signals": list(signals)})
