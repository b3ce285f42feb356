"""A run so far: the history in force, what was done, and the bill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.engine.marks import Cut, Event, Held
from ctxkit.history import History, Log
from ctxkit.policies.chain import applied
from ctxkit.policies.outlooks import Sampled, Straight, common
from ctxkit.policies.policy import name_of
from ctxkit.policies.triggers import first_due

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.messages import Edit
    from ctxkit.policies.rules import Rules


class Run:
    """A run so far: a log, the history in force, what was done, and the bill. It is brought on by `advance`.

    `total`, `fresh` and `peak` are sums and the maximum of the prompts sent: all tokens, those that are no cached
    prefix, the largest prompt. `prompts` and `fresh_tokens` give them for each call, derived when asked for.
    """

    def __init__(self, log: Log, rules: Rules, limit: int | None = None) -> None:
        self.log, self.rules, self.room = log, rules, rules.room(log, limit)
        self.clock = log.clock(rules.cache_life)
        self.history = History.start(log)
        self.begin = self.call = 0
        self.cuts: list[Cut] = []
        self.held: list[Held] = []
        self.warned: list[tuple[int, str]] = []
        self.asked: list[tuple[History, str, str | None]] = []
        """Where the policy was asked and nothing came of it: the history, how it ended, and why."""
        self._summed, self._sums = 0, (0, 0, 0)
        self._stretches: list[tuple[int, int, Any, Any]] = []
        """First and last call, sizes and fresh tokens; without the latter the size is what to add to the log's."""
        self._noted: set[int] = set()
        self._unsent: History | None = None

    @property
    def in_step(self) -> bool:
        """False where the history was edited by hand since the last call."""
        return self._unsent is None

    # -- what was sent -----------------------------------------------------------------------------------------------

    @property
    def prompts(self) -> NDArray[Any]:
        """Prompt tokens of each call so far."""
        sizes = self.log.tokens.calls(0, self.call)
        parts = [_array(size) if fresh is not None else sizes[a:b] + size for a, b, size, fresh in self._stretches]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    @property
    def fresh_tokens(self) -> NDArray[Any]:
        """Tokens of each call so far that are no cached prefix."""
        parts: list[NDArray[Any]] = [np.zeros(0, np.int64)]
        clock = self.clock.sync()
        for a, b, size, fresh in self._stretches:
            if fresh is None:
                sizes, before = self.log.tokens.calls(a, b), np.array(clock.before[a:b], np.int64)
                fresh = np.where(clock.cold[a:b], sizes + size, np.maximum(sizes - before, 0))  # noqa: PLW2901
            parts.append(_array(fresh))
        return np.concatenate(parts)

    @property
    def total(self) -> int:
        """Prompt tokens of all calls so far."""
        return self._bill()[0]

    @property
    def fresh(self) -> int:
        """Those of them that are no cached prefix."""
        return self._bill()[1]

    @property
    def peak(self) -> int:
        """The largest prompt so far."""
        return self._bill()[2]

    def _bill(self) -> tuple[int, int, int]:
        """Sum up the stretches: O(1) each, from the log's running sums."""
        total, fresh, peak = self._sums
        tokens, clock = self.log.tokens, self.clock
        Q, C, F, N = tokens.Q, tokens.C, clock.F, clock.N  # noqa: N806  as they are called there
        for a, b, size, own in self._stretches[self._summed :]:
            if own is None:
                total += size * (b - a) + Q[b] - Q[a]
                fresh += F[b] - F[a] + size * (N[b] - N[a])
                most = size + (C[b - 1] if tokens.rising else int(tokens.calls(a, b).max()))
            elif type(size) is int:
                total, fresh, most = total + size, fresh + own, size
            else:
                total, fresh, most = total + int(size.sum()), fresh + int(own.sum()), int(size.max())
            peak = max(peak, most)
        self._summed, self._sums = len(self._stretches), (total, fresh, peak)
        return self._sums

    def sent(self, start: int, stop: int) -> list[int]:
        """Return the prompt tokens billed for the calls start..stop."""
        found: list[int] = []
        for a, b, size, fresh in reversed(self._stretches):
            if b <= start:
                break
            lo, hi = max(a, start), min(b, stop)
            if lo < hi:
                part = _array(size)[lo - a : hi - a] if fresh is not None else self.log.tokens.calls(lo, hi) + size
                found[:0] = part.tolist()
        return found

    def shown(self) -> History:
        """Return what the last call was sent, pruned; its `messages` are made when asked for."""
        view = self.history.at(max(self.call - 1, 0))
        return view if self.rules.pruning is None else applied(self.rules.pruning, view, self.room)

    def coming(self) -> History:
        """Return what the next call would be sent, pruned, if nothing were compacted."""
        view = self.history.at(self.call)
        return view if self.rules.pruning is None else applied(self.rules.pruning, view, self.room)

    # -- what was done -----------------------------------------------------------------------------------------------

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits that were kept, in order; made when asked for."""
        return tuple(e for cut in self.cuts for e in cut.edits)

    @property
    def events(self) -> tuple[Event, ...]:
        """The start and the end of each work of the policy."""
        name = name_of(self.rules.policy)
        done = [(was, was, outcome, error) for was, outcome, error in self.asked]
        done += [(cut.was, cut.new, "compacted", None) for cut in self.cuts]
        out = []
        for was, new, outcome, error in sorted(done, key=lambda d: d[0].call):
            out.append(Event("start", was.call, name, len(was), was.tokens))
            out.append(Event("end", was.call, name, len(new), new.tokens, outcome, error))
        return tuple(out)

    @property
    def errors(self) -> tuple[Held, ...]:
        """The failures of the policy."""
        return tuple(h for h in self.held if h.why.startswith("failed: "))

    # -- the bill ----------------------------------------------------------------------------------------------------

    def bill(self, look: Straight, start: int, stop: int) -> None:
        """Write down the calls start..stop, of which the outlook knows the sizes."""
        if stop <= start:
            return
        if self._unsent is not None:  # edited by hand since the last call: the first one's prefix is compared
            view = self._view(self.history.at(start))
            size, cached = look.size(start), self._prefix(start, self._unsent, view)
            fresh = size if self.clock.cold[start] or not cached else max(size - cached, 0)
            self._stretches.append((start, start + 1, size, fresh))
            self._unsent = None
            start += 1
            if stop <= start:
                return
        if type(look) is Straight:
            self._stretches.append((start, stop, look.off, None))
        else:
            self._stretches.append((start, stop, look.prompts(start, stop), look.fresh(start, stop, self.clock)))

    def take(self, cut: Cut, look: Straight) -> None:
        """Write down a compaction and the call that follows it; a `Sampled` outlook looks at the history after it."""
        call, new = cut.call, cut.new
        if type(look) is Straight and self._unsent is None and len(new.steps) == 1:
            tokens, cached = self.log.tokens, look.off + self.clock.before[call]
            size = new.head.tokens - tokens.P[new.lo] + tokens.C[call]
            cached = min(cached, new.stable)
        elif type(look) is Sampled and self._front_stays(cut, look):
            size, cached = look.size(call), new.stable
        else:
            view = self._view(new)
            size, cached = view.tokens, self._prefix(call, self._unsent or self.history, view)
            self._unsent = None
        fresh = size if self.clock.cold[call] or not cached else max(size - cached, 0)
        self._stretches.append((call, call + 1, size, fresh))
        self.cuts.append(cut)
        if self._noted:
            self._noted.clear()
        if self.rules.on_compacted is not None:
            self.rules.on_compacted(new.messages)

    def _front_stays(self, cut: Cut, look: Sampled) -> bool:
        """Return True where the call before was sent all in front of the edit, and no pruning touches that."""
        steps, call = cut.new.steps, cut.call
        if self._unsent is not None or call == self.begin or len(steps) != 1:
            return False
        kind, first = steps[0].kind, steps[0].first
        if kind not in ("summarised", "dropped"):  # a shortened message may be what the pruning had sent
            return False
        if first > len(cut.was.at(call - 1)):
            return False
        return look.leaves(first, removes=False) if kind == "dropped" else look.leaves(first + 1)

    def note(self, look: Straight, start: int, stop: int) -> None:
        """Write down each warning that is due in the calls start..stop, once until the next compaction."""
        new = []
        for i, trigger in enumerate(self.rules.warnings):
            if i not in self._noted:
                call = first_due(trigger, look, start, stop)
                if call < stop:
                    self._noted.add(i)
                    new.append((call, i, name_of(trigger)))
        self.warned += [(call, name) for call, _, name in sorted(new)]

    def _view(self, history: History) -> History:
        return history if self.rules.pruning is None else applied(self.rules.pruning, history, self.room)

    def _prefix(self, call: int, sent: History, view: History) -> int:
        """Return the tokens that a view shares with what the call before was sent."""
        return common(self._view(sent.at(call - 1)), view) if call > self.begin else 0

    def resume(self, past: Run) -> None:
        """Stand where another run of the same log ended, with its bill and cuts: guards and budgets look at them."""
        self.history, self.call, self.begin = past.history.at(past.call), past.call, past.call
        self.cuts, self._stretches = list(past.cuts), list(past._stretches)

    def by_hand(self, new: History, trigger: str = "manual") -> Cut:
        """Take over what a policy made of `history.at(call)`, before the next call is sent."""
        was = self.history.at(self.call)
        cut = Cut(self.call, was, new, trigger)
        self._unsent = self._unsent or self.history
        self.cuts.append(cut)
        self._noted.clear()
        self.history = new.at(self.call)
        if self.rules.on_compacted is not None:
            self.rules.on_compacted(new.messages)
        return cut


def _array(sizes: Any) -> NDArray[Any]:
    return np.atleast_1d(np.asarray(sizes, np.int64))
