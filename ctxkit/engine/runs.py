"""A run so far: the history in force, what was done, and the bill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.engine.billed import Billed
from ctxkit.engine.marks import Cut, Event, Held
from ctxkit.history import History, Log
from ctxkit.policies.chain import applied
from ctxkit.policies.outlooks import Straight
from ctxkit.policies.policy import name_of
from ctxkit.policies.samples import Sampled, common
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
        self.begin = self.call = 0
        self.billed = Billed(log, self.clock)
        self._unsent: History | None = None
        self.history = History.start(self.log)
        self.cuts: list[Cut] = []
        self.held: list[Held] = []
        self.warned: list[tuple[int, str]] = []
        self._noted: set[int] = set()
        self.asked: list[tuple[History, str, str | None]] = []
        """Where the policy was asked and nothing came of it: the history, how it ended, and why."""

    @property
    def in_step(self) -> bool:
        """False where the history was edited by hand since the last call."""
        return self._unsent is None

    # -- what was sent -----------------------------------------------------------------------------------------------

    @property
    def prompts(self) -> NDArray[Any]:
        """Prompt tokens of each call so far."""
        return self.billed.prompts(self.call)

    @property
    def fresh_tokens(self) -> NDArray[Any]:
        """Tokens of each call so far that are no cached prefix."""
        return self.billed.fresh(self.call)

    @property
    def total(self) -> int:
        """Prompt tokens of all calls so far."""
        return self.billed.sums(self.call)[0]

    @property
    def fresh(self) -> int:
        """Those of them that are no cached prefix."""
        return self.billed.sums(self.call)[1]

    @property
    def peak(self) -> int:
        """The largest prompt so far."""
        return self.billed.sums(self.call)[2]

    def sent(self, start: int, stop: int) -> list[int]:
        """Return the prompt tokens billed for the calls start..stop."""
        return self.billed.sizes(start, stop, self.call)

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
        marks = self.billed.marks
        if self._unsent is not None:  # edited by hand since the last call: the first one's prefix is compared
            kept = self._prefix(start, self._unsent, self._view(self.history.at(start)))
            marks.append((start, look.size(start) - self.log.tokens.C[start], kept))
            self._unsent = None
            start += 1
        self.call = stop
        if type(look) is Straight:
            last = marks[-1][1] if marks else None
            if type(last) is not int or last != look.off:
                marks.append((start, look.off, None))
        elif isinstance(look, Sampled) and stop > start:
            marks.append((start, look.prompts(start, stop), look.fresh(start, stop, self.clock)))

    def take(self, cut: Cut, look: Straight) -> None:
        """Write down a compaction and the call that follows it; the outlook then looks at the history after it."""
        call, new = cut.call, cut.new
        if type(look) is Straight:
            look.history = new
            look.off = off = new.head.tokens - self.log.tokens.P[new.lo]
            plain = self._unsent is None and len(new.steps) == 1
            kept = new.stable if plain else self._prefix(call, self._unsent or self.history, new)
        elif isinstance(look, Sampled) and self._front_stays(cut, look):
            off, kept = look.size(call) - self.log.tokens.C[call], new.stable
        else:
            view = self._view(new)
            off, kept = view.tokens - self.log.tokens.C[call], self._prefix(call, self._unsent or self.history, view)
        self.billed.marks.append((call, off, kept))
        self.cuts.append(cut)
        self._unsent = None

    def tell(self, new: History) -> None:
        """Let those know of a compaction who want to: warnings are due again, and the caller's hook is called."""
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
        """Stand where another run of the same log ended, with its bill, cuts and warnings: budgets look at them."""
        self.history, self.call, self.begin = past.history.at(past.call), past.call, past.call
        self.cuts, self.billed, self._noted = list(past.cuts), past.billed.copy(), set(past._noted)

    def by_hand(self, new: History, trigger: str = "manual") -> Cut:
        """Take over what a policy made of `history.at(call)`, before the next call is sent."""
        was = self.history.at(self.call)
        cut = Cut(self.call, was, new, trigger)
        self._unsent = self._unsent or self.history
        self.cuts.append(cut)
        self.history = new.at(self.call)
        self.tell(new)
        return cut
