"""Verbs on a range of positions: what was said before a cut goes, or is summarised."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from ctxkit.history.head import Front, Head
from ctxkit.history.head_items import Given, Item, Tokens
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
            before: first position that is kept as it is; 0 (or not above `start`) changes nothing.
                One that lies between a call and its result is moved to the next safe cut (the last
                one before where there is none).
            summary: its text, a message of role `summary`, several messages, or only its size in
                tokens.
            reason: why, for a person to read.
            start: first position that is summarised.
            tokens: size of the summary where it is known better than by counting.
            method: the policy's own word for how it was done.
            usage: what the summariser's call cost, or would have cost.
        """
        if before <= start:
            return self
        return self._cut(start, before, summary, tokens, ("summarised", reason, method, usage))

    # -- inside
    # ----------------------------------------------------------------------------------------------

    def _cut(  # noqa: PLR0917  as its callers have them
        self,
        start: int,
        before: int,
        summary: Any,
        tokens: int | None,
        words: Words,
        front: Front | None = None,
    ) -> Self:
        """Return the history without the positions start..before; what came for them stands where
        the first stood.

        `front`: all that stays of the head and of the range, where it is known to stand first. This
        is the way of nearly every compaction, so it is kept short.
        """
        log, was, lo, call, steps = self.log, self.head, self.lo, self.call, self.steps
        row = lo + before - was.size
        if front is None:
            front = was.front_
            late = log.late_stays or log.late_cuts
            if front is None or late or start or not lo < row < self.hi or not log.is_cut[row]:
                return self._cut_safely(start, before, summary, tokens, words)
            if log.stays and log.stays[-1] >= lo:
                if lo or was.size or not len(log.stays) == log.stays[-1] + 1 < row:
                    return self._cut_safely(start, before, summary, tokens, words)
                front = self._lead()
        items, size = front.items, front.tokens
        if type(summary) is int and row > lo:
            new: tuple[Item, ...] = (
                Item(-1, summary, summary, Tokens(summary, call, len(steps)), row - 1),
            )
            head = Head(
                len(items) + 1, size + summary, front.estimate + summary, items + new, front
            )
        elif summary == () and len(items) == was.size:
            new, head = (), was
        else:
            new = self._summaries(summary, tokens, before)
            head = _headed(front, new)
        size += log.fixed_at[call] if call < len(log.fixed_at) else log.fixed
        made: tuple[Step, ...] = (Step(words, self, (len(items), before), new),)
        if steps:
            made, size = steps + made, min(size, self.stable)
        return type(self)(log, head, row, self.hi, call, call, size, made)

    def _lead(self) -> Front:
        """Return what stays, where it is the first rows of the log and nothing else."""
        log, n = self.log, len(self.log.stays)
        key = ("lead", n)
        if key not in log.memo:
            log.memo[key] = Front().then(tuple([self.item(p) for p in range(n)]))
        lead: Front = log.memo[key]
        return lead

    def _cut_safely(
        self, start: int, before: int, summary: Any, tokens: int | None, words: Words
    ) -> Self:
        """Move the range to safe cuts, and look what stays in it."""
        log, head, lo = self.log, self.head, self.lo
        nh, stays = head.size, log.stays_at(self.call)
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
            rows = stays[
                bisect_left(stays, lo + start - nh if start > nh else lo) : bisect_left(stays, row)
            ]
        front = head.front(log, self.call)
        if (
            front is None
            or start
            or row < lo
            or (rows and (len(front.items) < nh or rows[-1] - lo >= len(rows)))
        ):
            return self._cut_around(
                start, before, (head.firm(log, self.call), rows), (summary, tokens), words
            )
        if rows:  # all of the head stays, and the first rows behind it
            front = front.then(tuple([self.item(nh + r - lo) for r in rows]))
        return (
            self
            if before <= len(front.items)
            else self._cut(0, before, summary, tokens, words, front)
        )

    def _cut_around(
        self, start: int, before: int, stay: Any, summary: tuple[Any, int | None], words: Words
    ) -> Self:
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

    def _with(
        self, head: Head, upto: int, first: int, words: Words, done: Any, *, added: bool = False
    ) -> Self:
        """Return the history with a head that swallowed all positions before `upto`; `first` is not
        as before.

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
        return tuple(
            self._made(m, stands, tokens if len(many) == 1 else None, n) for n, m in enumerate(many)
        )

    def _made(self, message: Message, stands: int, tokens: int | None = None, n: int = 0) -> Item:
        """Return a new message as an item under an id that the log does not have."""
        if not message.id or message.id in self.log.index:
            name = (
                f"{message.role}@{self.call}"
                + (f".{len(self.steps)}" if self.steps else "")
                + (f"-{n}" if n else "")
            )
            message = _replace(message, id=name)
        size, estimate = self._size(message, -1)
        if tokens is not None:
            size, estimate = tokens, tokens if self.log.estimates is self.log.tokens else estimate
        return Item(-1, size, estimate, Given(message), stands)

    def _size(self, message: Message, row: int) -> tuple[int, int]:
        """Return the tokens and the estimate of a message that is new, or was made from a row."""
        log = self.log
        tokens = log.measure(message, row)
        return tokens, tokens if log.estimates is log.tokens else log.estimator.message(message)


def _headed(front: Front, new: tuple[Item, ...]) -> Head:
    """Return the head of what stays and what came."""
    n = len(front.items)
    if not new:
        return Head(n, front.tokens, front.estimate, front.items, front)
    tokens, estimate = sum([i.tokens for i in new]), sum([i.estimate for i in new])
    stay = front if all(i.maker is not None and not i.maker.pinned for i in new) else None
    return Head(
        n + len(new), front.tokens + tokens, front.estimate + estimate, front.items + new, stay
    )
