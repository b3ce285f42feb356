"""A run of context rules over a message log: its state, its prompt sizes, and its compactions."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from ctxkit.engine.prompt_sizes_and_prefixes import (
    PromptSizeSpan,
    PromptSizeSpans,
    measure_shared_prefix_tokens,
)
from ctxkit.engine.pruned_prompt_forecast import PrunedPromptForecast, make_whole_log_forecast
from ctxkit.engine.run_segments_and_prompts import (
    BlockedCompaction,
    Compaction,
    PolicyRunEvent,
    PrunedPromptsByCall,
    RunSegment,
    SentItem,
    build_sent_items,
    find_rows_left_out_by_pruning,
    iter_prompt_changes,
    iter_segments,
)
from ctxkit.errors import ModelError
from ctxkit.policies.guards import Smaller, collect_refusals, get_blocking_reason, get_guard_label
from ctxkit.policies.history.history import History
from ctxkit.policies.history.message_log import ColdCacheCalls, MessageLog
from ctxkit.policies.policy_base_and_chains import BasePolicy, coerce_to_history
from ctxkit.policies.protocols import is_only_call_overridden, name_of
from ctxkit.policies.triggers import Never
from ctxkit.policies.unpruned_prompt_forecast import UnprunedForecast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ctxkit.engine.run_segments_and_prompts import PromptChange
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.protocols import Guard
    from ctxkit.policies.triggers import BaseTrigger
    from ctxkit.session.messages import Edit

    First = Callable[[UnprunedForecast, int, int], int]
    """Returns the first call in start..stop at which something is due, else `stop`."""


# How a run advances (event-driven simulation).
#
# State: the history in force, and the next call. Instead of running rules at each call,
# `advance_run` asks a forecast of the unedited calls for the first call at which the trigger is
# due, the policy can do something and no guard is closed (`_build_due_search`). All calls before it
# are billed together, the policy is run at that call, its edit becomes the history in force, and
# the search continues.
#
# Invariants: `call` only rises, and every call before it is billed exactly once; a policy sees the
# history at the call for which it runs and nothing later; where the policy fails or a guard refuses
# its result the history stays. Advancing in steps gives the same run as advancing at once.
# Cost: O(compactions x what a policy costs) plus O(log n) searches; under a pruning see `pruning`.

_RECENT_COMPACTIONS = 8
"""Compactions whose earlier prompts are compared, where one edit has several steps."""


class RulesRun:
    """A log, the history in force, the compactions so far, and the billed prompts.

    `total`, `fresh` and `peak` are over the prompts sent, in tokens: all of them, those that are no
    cached prefix, and the largest prompt; `prompts` and `fresh_tokens` have one value a call.

    Args:
        log: the messages, as `make_log_from_session` builds them; it may grow while the run
            advances.
        rules: policy, trigger, pruning, guards and window.
        limit: the context window in tokens where the rules have none; None: unknown.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.engine import run_replay
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("window:keep_tokens=3000", above)
        >>> run = run_replay(ck.read(ck.samples.path("chat")), rules)
        >>> int(run.peak) == max(run.prompts.tolist()), int(run.total) == sum(run.prompts.tolist())
        (True, True)
    """

    def __init__(self, log: MessageLog, rules: Rules, limit: int | None = None) -> None:
        self.log, self.rules, self.budget = log, rules, rules.context_budget(log, limit)
        self.clock = ColdCacheCalls.of(log, rules.cache_life)
        self.begin = 0
        self.over = False
        """True where the log gets no more messages."""
        self.billed = PromptSizeSpans(log, self.clock)
        self._sent_before_edit: History | None = None
        """The history of the last call, where it was edited by hand since; None: it was not."""
        self._forecast: UnprunedForecast | None = None
        self.shared_when_cold: dict[int, int] = {}
        """By call that found a cold cache: the tokens shared with the prompt before it, where that
        is not all of it.
        """
        self._pruned_histories: dict[tuple[int, int], PrunedPromptsByCall] = {}
        self.unscheduled_calls = 0
        """Calls at which a pruning without a schedule was run by itself."""
        self.history = History.start(self.log)
        self.compactions: list[Compaction] = []
        self.trigger_reason = ""
        """Why the latest compaction was due, also where it was blocked."""
        self.blocked: list[BlockedCompaction] = []
        self.warned: list[tuple[int, str]] = []
        self._recent_warnings: set[int] = set()
        """Indices of the warnings given since the last compaction."""
        self.runs_without_effect: list[tuple[History, str, str | None]] = []
        """Runs of the policy without a compaction: the history, the outcome, and the error."""

    # -- what was sent -----------------------------------------------------------------------------

    @property
    def call(self) -> int:
        """The next call; all before it are billed."""
        return self.billed.upto

    @call.setter
    def call(self, call: int) -> None:
        self.billed.upto = call

    @property
    def prompts(self) -> NDArray[Any]:
        """Prompt tokens of each call so far."""
        return self.billed.prompts()

    @property
    def fresh_tokens(self) -> NDArray[Any]:
        """Tokens of each call so far that are no cached prefix."""
        return self.billed.fresh()

    @property
    def total(self) -> int:
        """Prompt tokens of all calls so far."""
        return self.billed.sums().total

    @property
    def fresh(self) -> int:
        """Tokens of them that are no cached prefix."""
        return self.billed.sums().fresh

    @property
    def peak(self) -> int:
        """Tokens of the largest prompt so far."""
        return self.billed.sums().peak

    def sizes(self, start: int, stop: int) -> list[int]:
        """Return the prompt tokens billed for the calls start..stop.

        Args:
            start: first call, from 0.
            stop: one past the last call.
        """
        return self.billed.sizes(start, stop)

    def sent(self, call: int | None) -> tuple[SentItem, ...]:
        """Return the prompt of a call, message by message; None: of the next call."""
        return build_sent_items(self, call)

    def left_out(self, call: int | None) -> dict[int, str]:
        """Return the rows that a pruning left out of a call's prompt, with its name."""
        return find_rows_left_out_by_pruning(self, call)

    def prompt_changes(self, start: int = 0, stop: int | None = None) -> Iterator[PromptChange]:
        """Yield the changes of the prompt at each call, as `iter_prompt_changes` does.

        Args:
            start: first call, from 0; its change is the whole prompt.
            stop: one past the last call; None: all calls so far.
        """
        return iter_prompt_changes(self, start, stop)

    def segments(self) -> list[RunSegment]:
        """Return the segments between compactions."""
        return list(iter_segments(self))

    def prompt_sizes(self, calls: int) -> list[int | None]:
        """Return the prompt tokens of the first `calls` calls; None where not billed yet."""
        sizes: list[int | None] = self.prompts[:calls].tolist()
        return [*sizes, *[None] * (calls - len(sizes))]

    @property
    def row_sizes(self) -> list[int]:
        """Tokens of each visible message of the log, unchanged."""
        return self.log.tokens.sizes

    @property
    def counter(self) -> str:
        """Name of the counter of its sizes."""
        return self.log.counter.name

    @property
    def owing(self) -> bool:
        """True where bills differ from the sizes that were known when the calls were sent."""
        return self.log.tokens.owing

    @property
    def prunes(self) -> bool:
        """True where a pruning changes what single calls are sent."""
        return self.rules.pruning is not None

    def last_prompt(self) -> History:
        """Return the pruned history that the last call was sent."""
        call = max(self.call - 1, 0)
        return self.pruned(call).prompt_at(call)

    def coming(self, compacted: History | None = None) -> History:
        """Return the pruned history of the next call, as if nothing were compacted before it.

        Args:
            compacted: a history to use instead of the one in force, as if a compaction had made it.
        """
        history = (compacted or self.history).at(self.call)
        if not self.prunes:
            return history
        if compacted is not None:
            return PrunedPromptsByCall(history, self.rules.pruning, self.budget).prompt_at(
                self.call
            )
        return self.pruned(self.call).prompt_at(self.call)

    def pruned(self, call: int) -> PrunedPromptsByCall:
        """Return the history in force at a call, pruned; before the run's first call, unpruned.

        The pruned history of the forecast is reused where it is the same one. That of the next call
        is built apart while the log may grow, as a schedule goes over each call only once.
        """
        if call == self.call and not self.over:
            return PrunedPromptsByCall(self.history.at(call), self.rules.pruning, self.budget)
        compactions_n = bisect_right(self.compactions, call, key=lambda compaction: compaction.call)
        history = (
            self.compactions[compactions_n - 1].new if compactions_n else History.start(self.log)
        )
        start, pruning = max(history.call, self.begin), self.rules.pruning
        if call < self.begin:
            start, pruning = history.call, None
        forecast = self._forecast
        if (
            isinstance(forecast, PrunedPromptForecast)
            and forecast.is_forecast_of(history)
            and forecast.start == start
        ):
            return forecast.pruned
        pruned = self._pruned_histories.get((compactions_n, start))
        if pruned is None or not pruned.schedule.sound:
            pruned = PrunedPromptsByCall(history.at(start), pruning, self.budget)
            self._pruned_histories[compactions_n, start] = pruned
        return pruned

    # -- what happened -----------------------------------------------------------------------------

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits of the compactions, in order; built at each access."""
        return tuple(e for compaction in self.compactions for e in compaction.edits)

    @property
    def events(self) -> tuple[PolicyRunEvent, ...]:
        """The start and the end of each run of the policy."""
        name, events = name_of(self.rules.policy), list[PolicyRunEvent]()
        policy_runs = [
            (was, was, outcome, error) for was, outcome, error in self.runs_without_effect
        ]
        policy_runs += [
            (compaction.was, compaction.new, "compacted", None) for compaction in self.compactions
        ]
        for was, new, outcome, error in sorted(policy_runs, key=lambda run: run[0].call):
            events.append(PolicyRunEvent("start", was.call, name, len(was), was.tokens))
            events.append(
                PolicyRunEvent("end", was.call, name, len(new), new.tokens, outcome, error)
            )
        return tuple(events)

    @property
    def errors(self) -> tuple[BlockedCompaction, ...]:
        """The failures of the policy."""
        return tuple(h for h in self.blocked if h.why.startswith("failed: "))

    # -- billing ----------------------------------------------------------------------------------

    def forecast_from(self, call: int) -> UnprunedForecast:
        """Return the forecast of the coming calls without an edit, reused where it still holds."""
        forecast, history, pruning = self._forecast, self.history, self.rules.pruning
        if pruning is None:
            forecast = UnprunedForecast(history, self.budget, self.billed.sizes)
        elif not (
            isinstance(forecast, PrunedPromptForecast)
            and forecast.is_forecast_of(history)
            and forecast.start <= call
        ):
            forecast = self._pruned_forecast(pruning, call)
        self._forecast = forecast
        return forecast

    def _pruned_forecast(self, pruning: BasePolicy, call: int) -> PrunedPromptForecast:
        last, history = self._forecast, self.history
        if not (call or history.head.size or history.lo):
            return make_whole_log_forecast(self.log, self.budget, pruning, self.clock)
        past = (
            last.past(call)
            if isinstance(last, PrunedPromptForecast) and last.start < call
            else None
        )
        return PrunedPromptForecast(
            history, self.budget, pruning, self.clock, call, sent=self.billed.sizes, past=past
        )

    def bill(self, forecast: UnprunedForecast, start: int, stop: int) -> None:
        """Bill the calls start..stop: add their prompt tokens and cached prefixes to `billed`.

        Args:
            forecast: the prompt sizes of these calls.
            start: first call, from 0; nothing is billed where `stop` is not above it.
            stop: one past the last call.
        """
        if stop <= start:
            return
        if isinstance(forecast, PrunedPromptForecast):
            prompts, shared = forecast.prompts(start, stop), forecast.shared(start, stop)
            self.call, self._sent_before_edit = stop, None
            fresh = prompts - shared
            for at in np.flatnonzero(self.clock.cold[start:stop]).tolist():
                fresh[at] = prompts[at]
                self.shared_when_cold[start + at] = int(shared[at])
            self.billed.marks.append(PromptSizeSpan(start, prompts, fresh))
            self.unscheduled_calls += (stop - start) * forecast.runs_each_call
            return
        marks = self.billed.marks
        if self._sent_before_edit is not None:  # edited by hand: compare the first call's prefix
            shared_tokens = self._shared_prefix(start, self.history.at(start))
            self._bill_one(start, forecast.size(start), shared_tokens)
            self._sent_before_edit = None
            start += 1
        self.call = stop
        last_size = marks[-1].size if marks else None
        if start < stop and (type(last_size) is not int or last_size != forecast.off):
            marks.append(PromptSizeSpan(start, forecast.off, None))

    def _bill_one(self, call: int, prompt: int, shared: int) -> None:
        """Bill a call whose prompt does not extend the one before; both numbers are tokens."""
        self.billed.marks.append(PromptSizeSpan(call, prompt - self.log.tokens.C[call], shared))
        if self.clock.cold[call]:
            self.shared_when_cold[call] = shared

    def record_compaction(
        self, compaction: Compaction, forecast: UnprunedForecast
    ) -> UnprunedForecast:
        """Record a compaction and bill the call that follows it; return the forecast after it.

        Args:
            compaction: the compaction; its `call` is the call that follows it.
            forecast: the forecast before it; one without prunings is changed in place.
        """
        call, new = compaction.call, compaction.new
        if isinstance(forecast, PrunedPromptForecast):
            size_before = forecast.size(call)
            self.history = new
            forecast = self.forecast_from(call)
            self.bill(forecast, call, call + 1)
            compaction = structs.replace(
                compaction, pruned_sizes=(size_before, self.sizes(call, call + 1)[0])
            )
        else:
            is_single_edit = self._sent_before_edit is None and len(new.steps) == 1
            shared = new.stable if is_single_edit else self._shared_prefix(call, new)
            forecast.history = self.history = new
            forecast.off = new.head.tokens - self.log.tokens.P[new.lo]
            self._bill_one(call, new.tokens, shared)
        self.compactions.append(compaction)
        self._sent_before_edit = None
        self.report_compaction(new)
        return forecast

    def report_compaction(self, new: History) -> None:
        """Reset the warnings after a compaction, and call the hook of the rules."""
        self._recent_warnings.clear()
        if self.rules.on_compacted is not None:
            self.rules.on_compacted(new.messages)

    def record_warnings(self, forecast: UnprunedForecast, start: int, stop: int) -> None:
        """Record each warning that is due in the calls start..stop, once between compactions.

        Args:
            forecast: the prompts of coming calls if nothing is compacted.
            start: first call.
            stop: one past the last call.
        """
        due = []
        for i, trigger in enumerate(self.rules.warnings):
            call = stop if i in self._recent_warnings else trigger.first(forecast, start, stop)
            if call < stop:
                self._recent_warnings.add(i)
                due.append((call, i, trigger.why(forecast, call)))
        self.warned += [(call, name) for call, _, name in sorted(due)]

    def _shared_prefix(self, call: int, view: History) -> int:
        """Return the tokens that a prompt shares with the last one, or with one before a recent
        compaction whose cache is alive: an edit may have been undone.
        """
        if call <= self.begin:
            return 0
        recent = [c for c in self.compactions[-_RECENT_COMPACTIONS:] if self.begin < c.call < call]
        alive = [c.was.at(c.call - 1) for c in recent if self.clock.alive(c.call - 1, call)]
        last = (self._sent_before_edit or self.history).at(call - 1)
        return measure_shared_prefix_tokens(view, (last, *alive))

    def resume(self, past: RulesRun) -> None:
        """Continue where another run of the log ended, with its bill, compactions and warnings."""
        self.history, self.begin = past.history.at(past.call), past.call
        self.compactions, self.billed = list(past.compactions), past.billed.copy()
        self._recent_warnings = set(past._recent_warnings)

    def by_hand(self, new: History, trigger: str = "manual", by: str = "") -> Compaction:
        """Record a compaction made outside of `advance_run`, before the next call.

        Args:
            new: what a policy made of `history.at(call)`.
            trigger: why it was made.
            by: name of that policy.

        Returns:
            The recorded compaction.
        """
        was, sizes = self.history.at(self.call), None
        if self.prunes and new.call == self.call:
            sizes = self.coming().tokens, self.coming(new).tokens
        compaction = Compaction(self.call, was, new, trigger, by, sizes)
        self._sent_before_edit = self._sent_before_edit or self.history
        self.compactions.append(compaction)
        self.history = new.at(self.call)
        self.report_compaction(new)
        return compaction


def run_rules(log: MessageLog, rules: Rules, limit: int | None = None) -> RulesRun:
    """Run rules over a whole log; `limit` is the window, in tokens, where the rules have none.

    Args:
        log: the messages, as `make_log_from_session` builds them.
        rules: the rules to run.
        limit: the context window in tokens where the rules have none; None: unknown.

    Returns:
        The run after the last call of the log.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.engine import make_log_from_session
        >>> rules = ck.policies.Rules("window:keep_tokens=3000", ck.policies.triggers.Above(4_000))
        >>> log = make_log_from_session(ck.read(ck.samples.path("chat")), rules)
        >>> run = run_rules(log, rules)
        >>> len(run.compactions) > 0, len(run.prompts) == log.calls
        (True, True)
    """
    run = advance_run(RulesRun(log, rules, limit), rules, log.calls)
    run.over = True
    return run


def find_first_compaction_call(log: MessageLog, rules: Rules, limit: int | None = None) -> int:
    """Return the first call of a log at which rules may compact; the number of calls: none.

    Args:
        log: the messages and calls.
        rules: the rules of context management; without a compaction policy there is no such call.
        limit: tokens that a prompt may have; None: the limit of the rules.
    """
    run = RulesRun(log, rules, limit)
    if rules.policy is None:
        return log.calls
    return _build_due_search(run, rules)(run.forecast_from(0), 0, log.calls)


def advance_run(run: RulesRun, rules: Rules, stop: int) -> RulesRun:
    """Advance a run up to the call `stop` (exclusive): bill up to a compaction, do it, continue.

    Args:
        run: a run whose log may have grown since.
        rules: the rules of the coming calls.
        stop: the first call that is not run; at most the calls of the log.

    Returns:
        The same object, advanced: `run.call` is `stop`.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.engine import make_log_from_session
        >>> rules = ck.policies.Rules("window:keep_tokens=3000", ck.policies.triggers.Above(4_000))
        >>> log = make_log_from_session(ck.read(ck.samples.path("chat")), rules)
        >>> run = advance_run(RulesRun(log, rules), rules, 5)
        >>> run.call, len(run.prompts)
        (5, 5)
    """
    call = run.call
    if stop > call:
        run.clock.sync()
    find_due_call, forecast, due = _build_due_search(run, rules), run.forecast_from(call), stop
    if call < stop:
        due = find_due_call(forecast, call, stop)
        if rules.warnings:
            run.record_warnings(forecast, call, min(due + 1, stop))
        run.bill(forecast, call, due)
    if due < stop and rules.policy is not None:  # in most live decisions no policy runs
        with collect_refusals() as refusals:
            _run_policy(run, rules, find_due_call, forecast, due, stop, refusals)
    run.call = max(run.call, stop)
    return run


def _run_policy(  # noqa: PLR0917  the state of `advance_run` at its first compaction
    run: RulesRun,
    rules: Rules,
    find_due_call: First,
    forecast: UnprunedForecast,
    due: int,
    stop: int,
    refusals: list[str],
) -> None:
    """Run the policy at the call `due`, before which all is billed, and at those after it.

    `refusals` grows while the policy runs.
    """
    policy: Any = rules.policy
    # without a pruning, the mark of a compaction also holds for the calls after it
    is_unpruned, is_billed = rules.pruning is None, False
    while due < stop:
        was = run.history.at(due)
        run.trigger_reason = "" if rules.trigger is None else rules.trigger.why(forecast, due)
        refusals.clear()
        new = _compact(run, policy, rules.guards, was, refusals)
        if new is not was:
            forecast = run.record_compaction(
                Compaction(due, was, new, run.trigger_reason), forecast
            )
            is_billed = is_unpruned
        elif not is_billed:
            run.bill(forecast, due, due + 1)
        run.billed.upto = call = due + 1
        if call == stop:
            break
        due = find_due_call(forecast, call, stop)
        if rules.warnings:
            run.record_warnings(forecast, call, min(due + 1, stop))
        if due > call and not is_billed:
            run.bill(forecast, call, due)


def _build_due_search(run: RulesRun, rules: Rules) -> First:
    """Return the function that finds the call at which a compaction is due and not suppressed."""
    policy, trigger, guards = rules.policy, rules.trigger, rules.guards
    if policy is None or trigger is None or not rules.auto:
        return Never().first
    first: First = partial(_first_effective, policy, trigger)
    if type(policy).first is BasePolicy.first or is_only_call_overridden(policy, "first"):
        first = trigger.first  # the policy may do something at any call
    return partial(_first_unguarded, run, guards, first) if guards else first


def _first_unguarded(  # noqa: PLR0917  a `First` behind what it is bound to
    run: RulesRun,
    guards: tuple[Guard, ...],
    first: First,
    forecast: UnprunedForecast,
    start: int,
    stop: int,
) -> int:
    """Return the first call at which a compaction is due and no guard is closed.

    Each due call before it is recorded as blocked, with the guard that was closed.
    """
    call = first(forecast, start, stop)
    while call < stop:
        opens = max(guard.first(run, forecast, call, stop) for guard in guards)
        if opens <= call:
            break
        while call < opens:
            guard = next(g for g in guards if g.first(run, forecast, call, call + 1) > call)
            why = f"suppressed: {get_blocking_reason(guard, run)}"
            run.blocked.append(BlockedCompaction(call, get_guard_label(guard), why))
            call = first(forecast, call + 1, opens)
        call = first(forecast, opens, stop)
    return call


def _first_effective(
    policy: BasePolicy, trigger: BaseTrigger, forecast: UnprunedForecast, start: int, stop: int
) -> int:
    """Return the first call at which the trigger is due and the policy can do something.

    Both searches alternate, each from the other's result on, until they agree.
    """
    call = trigger.first(forecast, start, stop)
    while call < stop:
        effective = policy.first(forecast, call, stop)
        if effective == call:
            break
        call = trigger.first(forecast, effective, stop)
    return call


def _compact(
    run: RulesRun, policy: BasePolicy, guards: tuple[Guard, ...], was: History, refusals: list[str]
) -> History:
    """Run the policy; a failure or a refused result is recorded, and the history stays."""
    try:
        new = policy(was, run.budget)
        if type(new) is not History or new.log is not was.log or new.call != was.call:
            new = coerce_to_history(new, was, policy)
    except ModelError as error:
        run.blocked.append(BlockedCompaction(was.call, name_of(policy), f"failed: {error}"))
        run.runs_without_effect.append((was, "failed", str(error)))
        return was
    if new is was and refusals:
        run.blocked.append(BlockedCompaction(was.call, Smaller.word, refusals[-1]))
        run.runs_without_effect.append((was, "refused", refusals[-1]))
        return was
    if new is was:
        run.runs_without_effect.append((was, "nothing", None))
        return was
    for guard in guards:
        why = guard.refuses(run, was, new)
        if why:
            run.blocked.append(BlockedCompaction(was.call, get_guard_label(guard), why))
            run.runs_without_effect.append((was, "refused", why))
            return was
    return new
