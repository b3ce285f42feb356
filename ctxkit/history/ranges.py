"""Verbs on a range of positions: what was said before a cut goes, or is summarised."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from ctxkit.history.head import Front, Head
from ctxkit.history.items import Given, Item, Tokens
from ctxkit.history.searches import Searches
from ctxkit.history.steps import Step, Words
from ctxkit.messages import Edit, Message, Text, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

_replace = msgspec.structs.replace


class Ranges(Searches, frozen=True, gc=False):
    """A history with the verbs that cut: O(1) where the head is short."""

    steps: tuple[Step, ...] = ()
    """What was done at this call."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What was done at this call, as edits that a session can hold; made when asked for."""
        after = [*(step.was for step in self.steps[1:]), self]
        return tuple(step.edit(now) for step, now in zip(self.steps, after, strict=False))

    def summarise(
        self,
        before: int,
        summary: Message | str | int | Sequence[Message],
        reason: str = "",
        *,
        start: int = 0,
        tokens: int | None = None,
        method: str | None = None,
        usage: Usage | None = None,
    ) -> Self:
        """Put a summary in the place of all messages at positions start..before; what stays, stays.

        Args:
            before: first position that is kept as it is; 0 (or not above `start`) changes nothing. One that lies
                between a call and its result is moved to the next safe cut (the last one before where there is none).
            summary: its text, a message of role `summary`, several messages, or only its size in tokens.
            reason: why, for a person to read.
            start: first position that is summarised.
            tokens: size of the summary where it is known better than by counting.
            method: the policy's own word for how it was done.
            usage: what the summariser's call cost, or would have cost.
        """
        if before <= start:
            return self
        return self._cut(start, before, summary, tokens, ("summarised", reason, method, usage))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _cut(self, start: int, before: int, summary: Any, tokens: int | None, words: Words) -> Self:
        """Return the history without the positions start..before; what came for them stands where the first stood."""
        log, head, lo = self.log, self.head, self.lo
        stays, front = log.stays, head.front_
        row = lo + before - head.size
        plain = front is not None and not start and lo < row < self.hi and log.is_cut[row]
        if plain and (not stays or stays[-1] < lo):
            return self._cut_behind(front, before, summary, tokens, words)  # type: ignore[arg-type]
        return self._cut_safely(start, before, summary, tokens, words)

    def _cut_safely(self, start: int, before: int, summary: Any, tokens: int | None, words: Words) -> Self:
        """Move the range to safe cuts, and look what stays in it."""
        log, head, lo = self.log, self.head, self.lo
        nh, stays = head.size, log.stays
        before = min(before, nh + self.hi - lo)
        if not self.is_safe(before):
            before = self.safe(before) or self.safe_before(before)
        row = lo + before - nh
        if start and not self.is_safe(start):
            start = self.safe(start) or len(self)
        if before <= start:
            return self
        rows: list[int] = []
        if row > lo and stays and stays[-1] >= lo:
            rows = stays[bisect_left(stays, lo + start - nh if start > nh else lo) : bisect_left(stays, row)]
        front = head.front(log)
        if front is None or start or row < lo or (rows and (len(front.items) < nh or rows[-1] - lo >= len(rows))):
            return self._cut_around(start, before, (head.firm(log), rows), (summary, tokens), words)
        if rows:  # all of the head stays, and the first rows behind it
            front = front.then(tuple([self.item(nh + r - lo) for r in rows]))
        return self if before <= len(front.items) else self._cut_behind(front, before, summary, tokens, words)

    def _cut_behind(self, front: Front, before: int, summary: Any, tokens: int | None, words: Words) -> Self:
        """Cut all behind what stays at the front: the way of nearly every compaction, so it is kept short."""
        log, lo, call, steps = self.log, self.lo, self.call, self.steps
        n, size, estimate = len(front.items), front.tokens, front.estimate
        row = lo + before - self.head.size
        new: tuple[Item, ...] = ()
        stay: Front | None = front
        if type(summary) is int:
            stands = row - 1 if row > lo else self.row(before - 1)
            new = (Item(-1, summary, summary, Tokens(summary, call, len(steps)), stands),)
            size += summary
            estimate += summary
        elif summary != ():
            new, stay = self._summaries(summary, tokens, before), None
            size += sum([i.tokens for i in new])
            estimate += sum([i.estimate for i in new])
        fixed = log.fixed_at
        stable = front.tokens + (fixed[call] if call < len(fixed) else log.fixed)
        if steps and self.stable < stable:
            stable = self.stable
        head = (
            self.head
            if not new and n == self.head.size
            else Head(n + len(new), size, estimate, front.items + new, stay)
        )
        step = Step(words, self, (n, before), new)
        return self.__class__(log, head, row, self.hi, call, call, stable, (*steps, step) if steps else (step,))

    def _cut_around(self, start: int, before: int, stay: Any, summary: tuple[Any, int | None], words: Words) -> Self:
        """Cut where something stays: before the range, in it, or of the head after it."""
        firm, rows = stay
        items, nh, lo = self.head.items, self.head.size, self.lo
        prefix: tuple[Item, ...] = items[:start]
        if start > nh:
            prefix += tuple(self.item(p) for p in range(nh, start))
        known = {p for p in firm if start <= p < before}
        kept = [items[p] for p in sorted(known)]
        first = start
        while first in known:
            first += 1
        tail = set(rows)
        while first >= nh and first < before and (lo + first - nh) in tail:
            first += 1
        if first >= before:
            return self
        kept += [self.item(nh + r - lo) for r in rows]
        lead = first - start  # what stays before the first message that goes
        new = self._summaries(*summary, before)
        head = Head.of((*prefix, *kept[:lead], *new, *kept[lead:], *items[before:]))
        return self._with(head, before, first, words, ((first, before), new))

    def _with(self, head: Head, upto: int, first: int, words: Words, done: Any, *, added: bool = False) -> Self:
        """Return the history with a head that swallowed all positions before `upto`; `first` is not as before.

        `done`: what a step holds as `at` and `new`.
        """
        lo, nh, call, steps = self.lo, self.head.size, self.call, self.steps
        if upto > nh:
            lo += upto - nh
        fixed = self.log.fixed_at
        stable = fixed[call] if call < len(fixed) else self.log.fixed
        if first:
            stable += self.before(first)
        if steps:
            stable = min(stable, self.stable)
        step = Step(words, self, done[0], done[1], added)
        return self.__class__(self.log, head, lo, self.hi, call, call, stable, (*steps, step))

    def _summaries(self, summary: Any, tokens: int | None, before: int) -> tuple[Item, ...]:
        if summary == ():
            return ()
        stands = self.row(before - 1)
        if isinstance(summary, (int, np.integer)):
            size = int(summary)
            return (Item(-1, size, size, Tokens(size, self.call, len(self.steps)), stands),)
        if isinstance(summary, str):
            summary = Message(role="summary", parts=(Text(summary),))
        many = (summary,) if isinstance(summary, Message) else tuple(summary)
        return tuple(self._made(m, stands, tokens if len(many) == 1 else None, n) for n, m in enumerate(many))

    def _made(self, message: Message, stands: int, tokens: int | None = None, n: int = 0) -> Item:
        """Return a new message as an item under an id that the log does not have."""
        if not message.id or message.id in self.log.index:
            name = (
                f"{message.role}@{self.call}" + (f".{len(self.steps)}" if self.steps else "") + (f"-{n}" if n else "")
            )
            message = _replace(message, id=name)
        size, estimate = self._size(message, -1)
        return Item(-1, size if tokens is None else tokens, estimate, Given(message), stands)

    def _size(self, message: Message, row: int) -> tuple[int, int]:
        """Return the tokens and the estimate of a message that is new, or was made from a row."""
        log = self.log
        tokens = log.measure(message, row)
        return tokens, tokens if log.estimates is log.tokens else log.estimator.message(message)
