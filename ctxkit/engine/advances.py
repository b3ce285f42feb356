"""Bring a run up to a call from trigger to trigger: live to the next call, a replay to the end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ctxkit.engine.marks import Held, Kept
from ctxkit.engine.replayed import Run
from ctxkit.errors import ModelError
from ctxkit.history import History
from ctxkit.policies.chain import Part, as_history
from ctxkit.policies.dues import Never
from ctxkit.policies.guards import called, held_by
from ctxkit.policies.policy import call_alone, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.history import Log
    from ctxkit.policies.dues import Due
    from ctxkit.policies.forecasts import Straight
    from ctxkit.policies.policy import Guard
    from ctxkit.policies.rules import Rules

    First = Callable[[Straight, int, int], int]
    """The first call in start..stop at which something is due, or `stop`."""


def run(log: Log, rules: Rules, limit: int | None = None) -> Run:
    """Return the run of a whole log under rules; `limit` is the window where they name none."""
    done = advance(Run(log, rules, limit), rules, log.calls)
    done.over = True
    return done


def advance(run: Run, rules: Rules, stop: int) -> Run:
    """Bring a run up to the call `stop` (exclusive): bill up to a compaction, do it, go on."""
    call, policy = run.call, rules.policy
    if stop > call:
        run.clock.sync()
    first = _first(run, rules)
    plain = rules.pruning is None
    told = False  # the coming calls follow from what was written down last
    look = run.look_from(call)
    while call < stop:
        due = first(look, call, stop)
        if rules.warnings:
            run.note(look, call, min(due + 1, stop))
        if due > call and not told:
            run.bill(look, call, due)
        if due == stop or policy is None:
            break
        was = run.history.at(due)
        run.due = "" if rules.trigger is None else rules.trigger.why(look, due)
        new = _compacted(run, policy, rules.guards, was)
        if new is not was:
            look = run.take(Kept(due, was, new, run.due), look)
            told = plain
        elif not told:
            run.bill(look, due, due + 1)
        run.call = call = due + 1
    run.call = max(call, stop)
    return run


def _first(run: Run, rules: Rules) -> First:
    """Return what says at which call a compaction is to be made, no guard being closed."""
    policy, trigger, guards = rules.policy, rules.trigger, rules.guards
    if policy is None or trigger is None or not rules.auto:
        return Never().first
    wanted: First = partial(_wanted, policy, trigger)
    if type(policy).first is Part.first or call_alone(policy, "first"):
        wanted = trigger.first  # it may always do something
    return partial(_unguarded, run, guards, wanted) if guards else wanted


def _unguarded(  # noqa: PLR0917  a `First` behind what it goes by
    run: Run, guards: tuple[Guard, ...], wanted: First, look: Straight, start: int, stop: int
) -> int:
    """Return the first call at which a compaction is wanted and no guard is closed."""
    call = wanted(look, start, stop)
    while call < stop:
        later = max(guard.first(run, look, call, stop) for guard in guards)
        if later <= call:
            break
        while call < later:
            guard = next(g for g in guards if g.first(run, look, call, call + 1) > call)
            run.held.append(Held(call, called(guard), f"held back: {held_by(guard, run)}"))
            call = wanted(look, call + 1, later)
        call = wanted(look, later, stop)
    return call


def _wanted(policy: Part, trigger: Due, look: Straight, start: int, stop: int) -> int:
    """Return the first call at which the trigger is due and the policy can do something."""
    call = trigger.first(look, start, stop)
    while call < stop:
        later = policy.first(look, call, stop)
        if later == call:
            break
        call = trigger.first(look, later, stop)
    return call


def _compacted(run: Run, policy: Part, guards: tuple[Guard, ...], was: History) -> History:
    """Ask the policy; a failure or a refused result leaves the history as it was, and a note."""
    try:
        new = policy(was, run.room)
        if type(new) is not History or new.log is not was.log or new.call != was.call:
            new = as_history(new, was, policy)
    except ModelError as error:
        run.held.append(Held(was.call, name_of(policy), f"failed: {error}"))
        run.asked.append((was, "failed", str(error)))
        return was
    if new is was:
        run.asked.append((was, "nothing", None))
        return was
    for guard in guards:
        why = guard.refuses(run, was, new)
        if why:
            run.held.append(Held(was.call, called(guard), why))
            run.asked.append((was, "refused", why))
            return was
    return new
