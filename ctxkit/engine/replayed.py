"""A run so far: the history in force, what was done, and the bill."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.engine.billed import Billed
from ctxkit.engine.marks import Held, HookEvent, Kept
from ctxkit.engine.prefixes import common
from ctxkit.engine.pruned import Pruned, whole
from ctxkit.engine.sent import SentItem, items_of, left_out, turnovers
from ctxkit.engine.stretches import PrunedHistory, Stretch, stretches
from ctxkit.history import History, Log
from ctxkit.history.clock import Clock
from ctxkit.policies.forecasts import Straight
from ctxkit.policies.policy import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ctxkit.engine.sent import Turnover
    from ctxkit.messages import Edit
    from ctxkit.policies.chain import Part
    from ctxkit.policies.rules import Rules


_REMEMBERED = 8
"""Edits before which prompts may be alive in the cache, where one edit does several things."""


class Run:
    """A run so far: a log, the history in force, the work done, and the bill; see `advance`.

    `total`, `fresh` and `peak` are sums and the maximum of the prompts sent: all tokens, those that
    are no cached prefix, the largest prompt; `prompts` and `fresh_tokens` are those of each call.
    """

    def __init__(self, log: Log, rules: Rules, limit: int | None = None) -> None:
        self.log, self.rules, self.room = log, rules, rules.room(log, limit)
        self.clock = Clock.of(log, rules.cache_life)
        self.begin = 0
        self.over = False
        """Nothing more is said in its log."""
        self.billed = Billed(log, self.clock)
        self._unsent: History | None = None
        self._look: Straight | None = None
        self.in_common: dict[int, int] = {}
        """What a call without a cache has in common with the one before, where not all of it."""
        self._left: dict[tuple[int, int], PrunedHistory] = {}
        self.called = 0
        """Calls at which a pruning had to be asked by itself, as it says no schedule."""
        self.history = History.start(self.log)
        self.cuts: list[Kept] = []
        self.due = ""
        """What made the latest compaction due, in the field's words, whatever came of it."""
        self.held: list[Held] = []
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
        return self.billed.sums()[0]

    @property
    def fresh(self) -> int:
        """Those of them that are no cached prefix."""
        return self.billed.sums()[1]

    @property
    def peak(self) -> int:
        """The largest prompt so far."""
        return self.billed.sums()[2]

    def sizes(self, start: int, stop: int) -> list[int]:
        """Return the prompt tokens billed for the calls start..stop."""
        return self.billed.sizes(start, stop)

    def sent(self, call: int | None) -> tuple[SentItem, ...]:
        """Return what went out at a call, message by message; None: what would go out next."""
        return items_of(self, call)

    def left_out(self, call: int | None) -> dict[int, str]:
        """Return the rows that stood at a call and that a pruning left out, with its name."""
        return left_out(self, call)

    def turnovers(self, start: int = 0, stop: int | None = None) -> Iterator[Turnover]:
        """Yield what came into the prompt and went out of it at each call; see `sent.turnovers`."""
        return turnovers(self, start, stop)

    def stretches(self) -> list[Stretch]:
        """Return what was in force from one compaction to the next."""
        return list(stretches(self))

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
        if isinstance(look, Pruned) and look.looks_at(history) and look.start == start:
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
    def errors(self) -> tuple[Held, ...]:
        """The failures of the policy."""
        return tuple(h for h in self.held if h.why.startswith("failed: "))

    # -- the bill ----------------------------------------------------------------------------------

    def look_from(self, call: int) -> Straight:
        """Return what the coming calls will be like unedited; it is kept and goes on."""
        look, history, pruning = self._look, self.history, self.rules.pruning
        if pruning is None:
            look = Straight(history, self.room, self.billed.sizes)
        elif not (isinstance(look, Pruned) and look.looks_at(history) and look.start <= call):
            look = self._pruned(pruning, call)
        self._look = look
        return look

    def _pruned(self, pruning: Part, call: int) -> Pruned:
        look, history = self._look, self.history
        if not (call or history.head.size or history.lo):
            return whole(self.log, self.room, pruning, self.clock)
        past = look.past(call) if isinstance(look, Pruned) and look.start < call else None
        return Pruned(
            history, self.room, pruning, self.clock, call, sent=self.billed.sizes, past=past
        )

    def bill(self, look: Straight, start: int, stop: int) -> None:
        """Write down the calls start..stop, of which the forecast knows the sizes."""
        if stop <= start:
            return
        if isinstance(look, Pruned):
            prompts, shared = look.prompts(start, stop), look.shared(start, stop)
            self.call, self._unsent = stop, None
            fresh = prompts - shared
            for at in np.flatnonzero(self.clock.cold[start:stop]).tolist():
                fresh[at] = prompts[at]
                self.in_common[start + at] = int(shared[at])
            self.billed.marks.append((start, prompts, fresh))
            self.called += (stop - start) * look.called
            return
        marks = self.billed.marks
        if self._unsent is not None:  # edited by hand since: the first one's prefix is compared
            self._bill_one(start, look.size(start), self._prefix(start, self.history.at(start)))
            self._unsent = None
            start += 1
        self.call = stop
        last = marks[-1][1] if marks else None
        if start < stop and (type(last) is not int or last != look.off):
            marks.append((start, look.off, None))

    def _bill_one(self, call: int, prompt: int, kept: int) -> None:
        """Write down a call that was sent something else than the one before and what was said."""
        self.billed.marks.append((call, prompt - self.log.tokens.C[call], kept))
        if self.clock.cold[call]:
            self.in_common[call] = kept

    def take(self, cut: Kept, look: Straight) -> Straight:
        """Write down a compaction and the call that follows it; return the forecast after it."""
        call, new = cut.call, cut.new
        if isinstance(look, Pruned):
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

    def note(self, look: Straight, start: int, stop: int) -> None:
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
        near = [cut for cut in self.cuts[-_REMEMBERED:] if self.begin < cut.call < call]
        alive = [cut.was.at(cut.call - 1) for cut in near if self.clock.alive(cut.call - 1, call)]
        last = (self._unsent or self.history).at(call - 1)
        return common(view, (last, *alive))

    def resume(self, past: Run) -> None:
        """Stand where another run of the log ended, with its bill, cuts and warnings."""
        self.history, self.begin = past.history.at(past.call), past.call
        self.cuts, self.billed, self._noted = list(past.cuts), past.billed.copy(), set(past._noted)

    def by_hand(self, new: History, trigger: str = "manual", by: str = "") -> Kept:
        """Take over what a policy (`by`) made of `history.at(call)` before the next call."""
        was = self.history.at(self.call)
        cut = Kept(self.call, was, new, trigger, by)
        self._unsent = self._unsent or self.history
        self.cuts.append(cut)
        self.history = new.at(self.call)
        self.tell(new)
        return cut
