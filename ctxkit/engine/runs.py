"""A run of rules over a log: its state, its bill, and how it is brought from trigger to trigger."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.engine.prefixes import shared_prefix_tokens
from ctxkit.engine.prompt_sizes import BillMark, PromptSizes
from ctxkit.engine.pruning import PrunedForecast, forecast_whole_log
from ctxkit.engine.segments import (
    BlockedCompaction,
    Compaction,
    HookEvent,
    PrunedHistory,
    Segment,
    iter_segments,
)
from ctxkit.engine.sent import SentItem, iter_prompt_changes, left_out_rows, sent_items
from ctxkit.errors import ModelError
from ctxkit.policies.base import BasePolicy, coerce_to_history
from ctxkit.policies.forecast import UnprunedForecast
from ctxkit.policies.guards import blocking_reason, guard_label
from ctxkit.policies.history.history import History
from ctxkit.policies.history.log import CacheClock, MessageLog
from ctxkit.policies.protocols import is_call_overridden, name_of
from ctxkit.policies.triggers import Never

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ctxkit.engine.sent import PromptChange
    from ctxkit.policies.protocols import Guard
    from ctxkit.policies.rules import Rules
    from ctxkit.policies.triggers import BaseTrigger
    from ctxkit.session.messages import Edit

    First = Callable[[UnprunedForecast, int, int], int]
    """The first call in start..stop at which something is due, or `stop`."""


_RECENT_COMPACTIONS = 8
"""Edits before which prompts may be alive in the cache, where one edit does several things."""


class Run:
    """A run so far: a log, the history in force, the work done, and the bill; see `advance`.

    `total`, `fresh` and `peak` are sums and the maximum of the prompts sent: all tokens, those that
    are no cached prefix, the largest prompt; `prompts` and `fresh_tokens` are those of each call.
    """

    def __init__(self, log: MessageLog, rules: Rules, limit: int | None = None) -> None:
        self.log, self.rules, self.room = log, rules, rules.room(log, limit)
        self.clock = CacheClock.of(log, rules.cache_life)
        self.begin = 0
        self.over = False
        """Nothing more is said in its log."""
        self.billed = PromptSizes(log, self.clock)
        self._unsent: History | None = None
        self._look: UnprunedForecast | None = None
        self.in_common: dict[int, int] = {}
        """What a call without a cache has in common with the one before, where not all of it."""
        self._left: dict[tuple[int, int], PrunedHistory] = {}
        self.called = 0
        """Calls at which a pruning had to be asked by itself, as it says no schedule."""
        self.history = History.start(self.log)
        self.cuts: list[Compaction] = []
        self.due = ""
        """What made the latest compaction due, in the field's words, whatever came of it."""
        self.held: list[BlockedCompaction] = []
        self.warned: list[tuple[int, str]] = []
        self._noted: set[int] = set()
        self.asked: list[tuple[History, str, str | None]] = []
        """Where the policy was asked and nothing came of it: the history, how it ended, and why."""

    # -- what was sent -----------------------------------------------------------------------------

    @property
    def call(self) -> int:
        """The next call: all before it were billed."""
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
        """Those of them that are no cached prefix."""
        return self.billed.sums().fresh

    @property
    def peak(self) -> int:
        """The largest prompt so far."""
        return self.billed.sums().peak

    def sizes(self, start: int, stop: int) -> list[int]:
        """Return the prompt tokens billed for the calls start..stop."""
        return self.billed.sizes(start, stop)

    def sent(self, call: int | None) -> tuple[SentItem, ...]:
        """Return what went out at a call, message by message; None: what would go out next."""
        return sent_items(self, call)

    def left_out(self, call: int | None) -> dict[int, str]:
        """Return the rows that stood at a call and that a pruning left out, with its name."""
        return left_out_rows(self, call)

    def turnovers(self, start: int = 0, stop: int | None = None) -> Iterator[PromptChange]:
        """Yield what came into the prompt and went out of it at each call; see `sent.turnovers`."""
        return iter_prompt_changes(self, start, stop)

    def stretches(self) -> list[Segment]:
        """Return what was in force from one compaction to the next."""
        return list(iter_segments(self))

    def prompt_sizes(self, calls: int) -> list[int | None]:
        """Return the tokens of the prompts of the first so many calls."""
        found: list[int | None] = self.prompts[:calls].tolist()
        return [*found, *[None] * (calls - len(found))]

    @property
    def row_sizes(self) -> list[int]:
        """Tokens of each message that can be sent, as it was said."""
        return self.log.tokens.sizes

    @property
    def counter(self) -> str:
        """Name of the counter of its sizes."""
        return self.log.counter.name

    @property
    def owing(self) -> bool:
        """True where calls were billed otherwise than was known when they were sent."""
        return self.log.tokens.owing

    @property
    def prunes(self) -> bool:
        """True where calls are sent less than what stands."""
        return self.rules.pruning is not None

    def shown(self) -> History:
        """Return what the last call was sent, pruned; its `messages` are made when asked for."""
        call = max(self.call - 1, 0)
        return self.pruned(call).left(call)

    def coming(self, compacted: History | None = None) -> History:
        """Return what the next call would be sent, pruned, if nothing were compacted.

        Args:
            compacted: sent instead of the history in force, as if a compaction had left it.
        """
        history = (compacted or self.history).at(self.call)
        if not self.prunes:
            return history
        if compacted is not None:
            return PrunedHistory(history, self.rules.pruning, self.room).left(self.call)
        return self.pruned(self.call).left(self.call)

    def pruned(self, call: int) -> PrunedHistory:
        """Return what the prunings leave of the history in force at a call; before the run, all.

        The bill's own is taken where there is one. What comes next is worked out by itself while
        the log may go on: a schedule is asked about each call once.
        """
        if call == self.call and not self.over:
            return PrunedHistory(self.history.at(call), self.rules.pruning, self.room)
        cuts = bisect_right(self.cuts, call, key=lambda cut: cut.call)
        history = self.cuts[cuts - 1].new if cuts else History.start(self.log)
        start, pruning = max(history.call, self.begin), self.rules.pruning
        if call < self.begin:
            start, pruning = history.call, None
        look = self._look
        if isinstance(look, PrunedForecast) and look.looks_at(history) and look.start == start:
            return look.pruned
        found = self._left.get((cuts, start))
        if found is None or not found.schedule.sound:
            found = self._left[cuts, start] = PrunedHistory(history.at(start), pruning, self.room)
        return found

    # -- what was done -----------------------------------------------------------------------------

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits that were kept, in order; made when asked for."""
        return tuple(e for cut in self.cuts for e in cut.edits)

    @property
    def events(self) -> tuple[HookEvent, ...]:
        """The start and the end of each work of the policy."""
        name, out = name_of(self.rules.policy), list[HookEvent]()
        done = [(was, was, outcome, error) for was, outcome, error in self.asked]
        done += [(cut.was, cut.new, "compacted", None) for cut in self.cuts]
        for was, new, outcome, error in sorted(done, key=lambda d: d[0].call):
            out.append(HookEvent("start", was.call, name, len(was), was.tokens))
            out.append(HookEvent("end", was.call, name, len(new), new.tokens, outcome, error))
        return tuple(out)

    @property
    def errors(self) -> tuple[BlockedCompaction, ...]:
        """The failures of the policy."""
        return tuple(h for h in self.held if h.why.startswith("failed: "))

    # -- the bill ----------------------------------------------------------------------------------

    def look_from(self, call: int) -> UnprunedForecast:
        """Return what the coming calls will be like unedited; it is kept and goes on."""
        look, history, pruning = self._look, self.history, self.rules.pruning
        if pruning is None:
            look = UnprunedForecast(history, self.room, self.billed.sizes)
        elif not (
            isinstance(look, PrunedForecast) and look.looks_at(history) and look.start <= call
        ):
            look = self._pruned(pruning, call)
        self._look = look
        return look

    def _pruned(self, pruning: BasePolicy, call: int) -> PrunedForecast:
        look, history = self._look, self.history
        if not (call or history.head.size or history.lo):
            return forecast_whole_log(self.log, self.room, pruning, self.clock)
        past = look.past(call) if isinstance(look, PrunedForecast) and look.start < call else None
        return PrunedForecast(
            history, self.room, pruning, self.clock, call, sent=self.billed.sizes, past=past
        )

    def bill(self, look: UnprunedForecast, start: int, stop: int) -> None:
        """Write down the calls start..stop, of which the forecast knows the sizes."""
        if stop <= start:
            return
        if isinstance(look, PrunedForecast):
            prompts, shared = look.prompts(start, stop), look.shared(start, stop)
            self.call, self._unsent = stop, None
            fresh = prompts - shared
            for at in np.flatnonzero(self.clock.cold[start:stop]).tolist():
                fresh[at] = prompts[at]
                self.in_common[start + at] = int(shared[at])
            self.billed.marks.append(BillMark(start, prompts, fresh))
            self.called += (stop - start) * look.called
            return
        marks = self.billed.marks
        if self._unsent is not None:  # edited by hand since: the first one's prefix is compared
            self._bill_one(start, look.size(start), self._prefix(start, self.history.at(start)))
            self._unsent = None
            start += 1
        self.call = stop
        last = marks[-1].size if marks else None
        if start < stop and (type(last) is not int or last != look.off):
            marks.append(BillMark(start, look.off, None))

    def _bill_one(self, call: int, prompt: int, kept: int) -> None:
        """Write down a call that was sent something else than the one before and what was said."""
        self.billed.marks.append(BillMark(call, prompt - self.log.tokens.C[call], kept))
        if self.clock.cold[call]:
            self.in_common[call] = kept

    def take(self, cut: Compaction, look: UnprunedForecast) -> UnprunedForecast:
        """Write down a compaction and the call that follows it; return the forecast after it."""
        call, new = cut.call, cut.new
        if isinstance(look, PrunedForecast):
            self.history = new
            look = self.look_from(call)
            self.bill(look, call, call + 1)
        else:
            plain = self._unsent is None and len(new.steps) == 1
            kept = new.stable if plain else self._prefix(call, new)
            look.history = self.history = new
            look.off = new.head.tokens - self.log.tokens.P[new.lo]
            self._bill_one(call, new.tokens, kept)
        self.cuts.append(cut)
        self._unsent = None
        self.tell(new)
        return look

    def tell(self, new: History) -> None:
        """Let know of a compaction: warnings are due again, and the caller's hook is called."""
        self._noted.clear()
        if self.rules.on_compacted is not None:
            self.rules.on_compacted(new.messages)

    def note(self, look: UnprunedForecast, start: int, stop: int) -> None:
        """Write down each warning due in the calls start..stop, once between compactions."""
        new = []
        for i, trigger in enumerate(self.rules.warnings):
            call = stop if i in self._noted else trigger.first(look, start, stop)
            if call < stop:
                self._noted.add(i)
                new.append((call, i, trigger.why(look, call)))
        self.warned += [(call, name) for call, _, name in sorted(new)]

    def _prefix(self, call: int, view: History) -> int:
        """Return the tokens that a prompt shares with the last one, or one before the last edits.

        Those count while their cache is alive: an edit may have been taken back.
        """
        if call <= self.begin:
            return 0
        near = [cut for cut in self.cuts[-_RECENT_COMPACTIONS:] if self.begin < cut.call < call]
        alive = [cut.was.at(cut.call - 1) for cut in near if self.clock.alive(cut.call - 1, call)]
        last = (self._unsent or self.history).at(call - 1)
        return shared_prefix_tokens(view, (last, *alive))

    def resume(self, past: Run) -> None:
        """Stand where another run of the log ended, with its bill, cuts and warnings."""
        self.history, self.begin = past.history.at(past.call), past.call
        self.cuts, self.billed, self._noted = list(past.cuts), past.billed.copy(), set(past._noted)

    def by_hand(self, new: History, trigger: str = "manual", by: str = "") -> Compaction:
        """Take over what a policy (`by`) made of `history.at(call)` before the next call."""
        was = self.history.at(self.call)
        cut = Compaction(self.call, was, new, trigger, by)
        self._unsent = self._unsent or self.history
        self.cuts.append(cut)
        self.history = new.at(self.call)
        self.tell(new)
        return cut


def run_rules(log: MessageLog, rules: Rules, limit: int | None = None) -> Run:
    """Return the run of a whole log under rules; `limit` is the window where they name none."""
    done = advance(Run(log, rules, limit), rules, log.calls)
    done.over = True
    return done


def advance(run: Run, rules: Rules, stop: int) -> Run:
    """Bring a run up to the call `stop` (exclusive): bill up to a compaction, do it, go on."""
    call, policy = run.call, rules.policy
    if stop > call:
        run.clock.sync()
    first = _first_due(run, rules)
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
        new = _compact(run, policy, rules.guards, was)
        if new is not was:
            look = run.take(Compaction(due, was, new, run.due), look)
            told = plain
        elif not told:
            run.bill(look, due, due + 1)
        run.call = call = due + 1
    run.call = max(call, stop)
    return run


def _first_due(run: Run, rules: Rules) -> First:
    """Return what says at which call a compaction is to be made, no guard being closed."""
    policy, trigger, guards = rules.policy, rules.trigger, rules.guards
    if policy is None or trigger is None or not rules.auto:
        return Never().first
    wanted: First = partial(_first_wanted, policy, trigger)
    if type(policy).first is BasePolicy.first or is_call_overridden(policy, "first"):
        wanted = trigger.first  # it may always do something
    return partial(_first_unguarded, run, guards, wanted) if guards else wanted


def _first_unguarded(  # noqa: PLR0917  a `First` behind what it goes by
    run: Run,
    guards: tuple[Guard, ...],
    wanted: First,
    look: UnprunedForecast,
    start: int,
    stop: int,
) -> int:
    """Return the first call at which a compaction is wanted and no guard is closed."""
    call = wanted(look, start, stop)
    while call < stop:
        later = max(guard.first(run, look, call, stop) for guard in guards)
        if later <= call:
            break
        while call < later:
            guard = next(g for g in guards if g.first(run, look, call, call + 1) > call)
            run.held.append(
                BlockedCompaction(
                    call, guard_label(guard), f"held back: {blocking_reason(guard, run)}"
                )
            )
            call = wanted(look, call + 1, later)
        call = wanted(look, later, stop)
    return call


def _first_wanted(
    policy: BasePolicy, trigger: BaseTrigger, look: UnprunedForecast, start: int, stop: int
) -> int:
    """Return the first call at which the trigger is due and the policy can do something."""
    call = trigger.first(look, start, stop)
    while call < stop:
        later = policy.first(look, call, stop)
        if later == call:
            break
        call = trigger.first(look, later, stop)
    return call


def _compact(run: Run, policy: BasePolicy, guards: tuple[Guard, ...], was: History) -> History:
    """Ask the policy; a failure or a refused result leaves the history as it was, and a note."""
    try:
        new = policy(was, run.room)
        if type(new) is not History or new.log is not was.log or new.call != was.call:
            new = coerce_to_history(new, was, policy)
    except ModelError as error:
        run.held.append(BlockedCompaction(was.call, name_of(policy), f"failed: {error}"))
        run.asked.append((was, "failed", str(error)))
        return was
    if new is was:
        run.asked.append((was, "nothing", None))
        return was
    for guard in guards:
        why = guard.refuses(run, was, new)
        if why:
            run.held.append(BlockedCompaction(was.call, guard_label(guard), why))
            run.asked.append((was, "refused", why))
            return was
    return new
