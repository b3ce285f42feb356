"""Bring a run up to a call by jumping from trigger to trigger: live stops at the next call, a replay at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.engine.marks import Cut, Held
from ctxkit.engine.runs import Run
from ctxkit.errors import ModelError
from ctxkit.history import History
from ctxkit.policies.chain import as_history
from ctxkit.policies.policy import name_of
from ctxkit.policies.triggers import first_due

if TYPE_CHECKING:
    from ctxkit.history import Log
    from ctxkit.policies.outlooks import Straight
    from ctxkit.policies.rules import Rules


def run(log: Log, rules: Rules, limit: int | None = None) -> Run:
    """Return the run of a whole log under rules; `limit` is the window where the rules name none."""
    return advance(Run(log, rules, limit), rules, log.calls)


def advance(run: Run, rules: Rules, stop: int) -> Run:
    """Bring a run up to the call `stop` (exclusive): bill what comes before a compaction, do it, go on."""
    call, policy = run.call, rules.policy
    if stop > call:
        run.clock.sync()
    idle = policy is None or not rules.auto
    first = None if rules.guards or hasattr(policy, "first") else getattr(rules.trigger, "first", None)
    plain = rules.pruning is None
    trigger, told = "", False  # told: the coming calls follow from what was written down last
    look = run.look_from(call)
    while call < stop:
        due = stop if idle else first(look, call, stop) if first else _due(run, rules, look, call, stop)
        if rules.warnings:
            run.note(look, call, min(due + 1, stop))
        if due > call and not told:
            run.bill(look, call, due)
        if due == stop:
            break
        was = run.history.at(due)
        new = _compacted(run, rules, was)
        if new is not was:
            trigger = trigger or name_of(rules.trigger)
            look = run.take(Cut(due, was, new, trigger), look)
            told = plain
        elif not told:
            run.bill(look, due, due + 1)
        run.call = call = due + 1
    run.call = max(call, stop)
    return run


def _due(run: Run, rules: Rules, look: Straight, start: int, stop: int) -> int:
    """Return the first call at which the trigger is due, the policy can do something and no guard is closed."""
    call = _wanted(rules, look, start, stop)
    while call < stop and rules.guards:
        later = max(guard.first(run, look, call, stop) for guard in rules.guards)
        if later <= call:
            break
        while call < later:
            guard = next(g for g in rules.guards if g.first(run, look, call, call + 1) > call)
            run.held.append(Held(call, name_of(guard), "held back"))
            call = _wanted(rules, look, call + 1, later)
        call = _wanted(rules, look, later, stop)
    return call


def _wanted(rules: Rules, look: Straight, start: int, stop: int) -> int:
    """Return the first call at which the trigger is due and the policy can do something."""
    able = getattr(rules.policy, "first", None)
    call = first_due(rules.trigger, look, start, stop)
    while able is not None and call < stop:
        later = able(look, call, stop)
        if later == call:
            break
        call = first_due(rules.trigger, look, later, stop)
    return call


def _compacted(run: Run, rules: Rules, was: History) -> History:
    """Ask the policy; a failure or a refused result leaves the history as it was, and a note."""
    try:
        new = rules.policy(was, run.room)
        if type(new) is not History or new.log is not was.log or new.call != was.call:
            new = as_history(new, was, rules.policy)
    except ModelError as error:
        run.held.append(Held(was.call, name_of(rules.policy), f"failed: {error}"))
        run.asked.append((was, "failed", str(error)))
        return was
    if new is was:
        run.asked.append((was, "nothing", None))
        return was
    for guard in rules.guards:
        why = guard.refuses(run, was, new)
        if why:
            run.held.append(Held(was.call, name_of(guard), why))
            run.asked.append((was, "refused", why))
            return was
    return new
