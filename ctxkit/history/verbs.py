"""A history: the view with its verbs, each of which returns a new history and remembers what it did."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.history.head import Given, Head, Item, Maker, Placeholder, Tokens, renamed
from ctxkit.history.invariants import check
from ctxkit.history.steps import Step
from ctxkit.history.view import View
from ctxkit.messages import Edit, Message, Text, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ctxkit.history.view import Mask
    from ctxkit.messages import EditKind

_replace = msgspec.structs.replace


class History(View, frozen=True, gc=False):
    """What is shown to the model now: history in, history out.

    A verb that changes nothing returns the history itself, so ``new is history`` tells that nothing was done. Verbs
    never part a tool call from its results and never remove what `stays` (system, pinned, pending): a group of which
    one message goes, goes whole; a group that holds a message that stays, stays whole.

    A policy in four lines::

        def mine(history, room):
            if history.tokens < 80_000:
                return history
            return history.summarise(history.safe(history.back(20_000)), "So far: ...", "over 80,000")
    """

    steps: tuple[Step, ...] = ()
    """What was done at this call."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What was done at this call, as edits that a session can hold; made when asked for."""
        return tuple(step.edit() for step in self.steps)

    # -- verbs on a range of positions: O(1) where the head is short ------------------------------------------------

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
    ) -> History:
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
        new = self._summaries(summary, tokens, before)
        return self._cut(start, before, new, "summarised", reason, method, usage)

    def drop(self, which: Mask | int, reason: str = "", *, start: int = 0, method: str | None = None) -> History:
        """Remove the messages of a mask, or all at positions start..which where `which` is an int."""
        if isinstance(which, (int, np.integer)) and not isinstance(which, (bool, np.bool_)):
            return self._cut(start, int(which), (), "dropped", reason, method)
        return self.keep(~self.mask(which), reason, method=method)

    # -- verbs on any messages: O(shown) -----------------------------------------------------------------------------

    def keep(self, mask: Mask, reason: str = "", *, method: str | None = None) -> History:
        """Keep the messages of a mask and remove the others, with the rest of their groups."""
        gone = self._whole_groups(~self.mask(mask) & ~self.stays)
        if not gone.any():
            return self
        at = np.flatnonzero(gone)
        columns, makers = self._head_arrays(int(at[-1]) + 1)
        kept = ~gone[: len(columns["rows"])]
        head = Head.of({name: values[kept] for name, values in columns.items()}, makers)
        return self._with(head, int(at[-1]) + 1, Step("dropped", reason, self, at, (), method))

    def shorten(
        self,
        changes: Mapping[int, Message | str] | Mask,
        text: str | None = None,
        reason: str = "",
        *,
        method: str | None = None,
    ) -> History:
        """Make messages shorter; where the new message would not be smaller in tokens, the old one remains.

        Args:
            changes: the new messages (or their whole text; tool calls remain) by position; or a mask, with `text`.
            text: what all messages of the mask say instead: a placeholder.
            reason: why, for a person to read.
            method: the policy's own word for how it was done.
        """
        return self._change(changes, text, "shortened", reason, method)

    def replace(
        self,
        changes: Mapping[int, Message | str | None] | Mask,
        text: str | None = None,
        reason: str = "",
        *,
        method: str | None = None,
    ) -> History:
        """Put other messages in the place of some, smaller or not; None removes one. Groups are not extended.

        Raises:
            UnsoundHistory: a tool call would lose its result, or a result its call.
        """
        if not isinstance(changes, dict):
            return self._change(changes, text, "replaced", reason, method)
        stays = self.stays
        gone = [p for p, m in changes.items() if m is None and not stays[p]]
        new = self._change({p: m for p, m in changes.items() if m is not None}, None, "replaced", reason, method)
        if gone:
            at = np.array(sorted(gone))
            columns, makers = new._head_arrays(int(at[-1]) + 1)
            head = Head.of({name: np.delete(values, at) for name, values in columns.items()}, makers)
            new = new._with(head, int(at[-1]) + 1, Step("dropped", reason, new, at, (), method))
        if new is not self:
            check(new)
        return new

    def insert(self, position: int, message: Message, reason: str = "", *, method: str | None = None) -> History:
        """Put one more message before a position (a digest, a notice, a pinned signal); `len(history)` is the end.

        Raises:
            UnsoundHistory: the position lies between a tool call and its result.
        """
        made = self._made(message, stands=self.row(position - 1) if position else -1)
        columns, makers = self._head_arrays(position)
        items = list(Head.of(columns, makers).items)
        items.insert(position, made)
        step = Step("summarised", reason, self, np.array([position]), (made,), method, added=True)
        new = self._with(Head(tuple(items)), max(position, self.head.size), step)
        check(new)
        return new

    def become(self, messages: Sequence[Message], reason: str = "", *, method: str | None = None) -> History:
        """Show these messages instead: what a policy that works on a plain list of messages gives back.

        A message under an id that is shown is that message, changed or not; any other one is new.

        Raises:
            UnsoundHistory: a call or a result lost its partner, or a message that stays is gone.
        """
        shown = self.messages
        items = [self.item(p) for p in range(len(self))]
        places = {m.id: p for p, m in enumerate(shown)}
        new: list[Item] = []
        for m in messages:
            p = places.get(m.id)
            old = None if p is None else items[p]
            if old is not None and (m is shown[p] or m == shown[p]):
                new.append(old)
            elif old is not None:
                changed = renamed(m, self.log.messages[old.row].id if old.row >= 0 else m.id)
                new.append(Item(old.row, *self._size(changed, old.row), Given(changed), old.stands))
            else:
                new.append(self._made(m, new[-1].row if new else -1, n=len(new)))
        first = next(
            (i for i, (a, b) in enumerate(zip(items, new, strict=False)) if a is not b), min(len(items), len(new))
        )
        if first == len(items) == len(new):
            return self
        rest = np.arange(first, len(items))
        kind: EditKind = "replaced" if len(items) == len(new) else "summarised" if len(new) > first else "dropped"
        step = Step(kind, reason, self, rest, tuple(new[first:]), method)
        done = self._with(Head(tuple(new)), len(self), step)
        check(done)
        return done

    def apply(self, edit: Edit) -> History:
        """Do what a recorded edit did, as far as its targets are shown; pairs are not checked: it is a fact."""
        ids = {m.id: p for p, m in enumerate(self.messages)}
        at = [ids[t] for t in edit.targets if t in ids]
        if edit.kind in ("shortened", "replaced"):
            new = {ids[t]: m for t, m in zip(edit.targets, edit.inserted, strict=False) if t in ids}
            items = [
                Item(i.row, *self._size(m, i.row), Given(m), i.stands) if (m := new.get(p)) else i
                for p, i in enumerate(self.item(p) for p in range(len(self)))
            ]
            step = Step(
                edit.kind, edit.reason, self, np.array(sorted(new)), tuple(items[p] for p in sorted(new)), edit.method
            )
        else:
            where, gone = min(at, default=len(self)), set(at)
            made = tuple(
                Item(-1, *self._size(m, -1), Given(m), self.row(max(at, default=-1)) if at else -1)
                for m in edit.inserted
            )
            items = [self.item(p) for p in range(len(self)) if p not in gone]
            items[where:where] = made
            step = Step(edit.kind, edit.reason, self, np.array(sorted(gone), int), made, edit.method)
        return self._with(Head(tuple(items)), len(self), step)

    def mask(self, which: Mask) -> NDArray[Any]:
        """Return booleans, one a message, from booleans or from positions.

        Raises:
            BadArguments: there are as many booleans as messages, or positions within them, or else this.
        """
        mask = np.asarray(which)
        n = len(self)
        if mask.dtype == bool:
            if mask.shape != (n,):
                raise BadArguments(f"A mask needs one boolean a message: {n} are shown, {mask.shape} came.")
            return mask
        out = np.zeros(n, bool)
        if mask.size:
            if mask.min() < -n or mask.max() >= n:
                raise BadArguments(f"Positions run from 0 to {n - 1}; {mask.tolist()} came.")
            out[mask.astype(int)] = True
        return out

    # -- inside ------------------------------------------------------------------------------------------------------------

    def _with(self, head: Head, upto: int, step: Step) -> History:
        """Return the history with another head, which swallowed all positions before `upto`."""
        lo = self.lo + max(upto - self.head.size, 0)
        new = History(self.log, head, lo, self.hi, self.call, self.call, 0, self.steps)
        stable = self.fixed + self.before(step.first)
        if self.steps:
            stable = min(stable, self.stable)
        step.after, step.count = new.tokens, len(new)
        if step.new is None:
            step.made = head
        return History(self.log, head, lo, self.hi, self.call, self.call, stable, (*self.steps, step))

    def _cut(
        self,
        start: int,
        before: int,
        new: tuple[Item, ...],
        kind: EditKind,
        reason: str,
        method: str | None,
        usage: Usage | None = None,
    ) -> History:
        before = min(before, len(self))
        if not self.is_safe(before):
            before = self.safe(before) or self.safe_before(before)
        if start and not self.is_safe(start):
            start = self.safe(start) or len(self)
        if before <= start:
            return self
        log, nh, lo = self.log, self.head.size, self.lo
        items = self.head.items
        prefix: tuple[Item, ...] = items[:start]
        if start > nh:
            prefix += tuple(self.item(p) for p in range(nh, start))
        stay = [i for i in items[start:before] if i.stays(log)] if start < nh else []
        first = start
        while first < min(nh, before) and items[first].stays(log):
            first += 1
        if before > nh and log.stays:
            a, b = lo + max(start - nh, 0), lo + before - nh
            rows = log.stays[bisect_left(log.stays, a) : bisect_left(log.stays, b)]
            while first >= nh and (lo + first - nh) in rows:
                first += 1
            stay += [self.item(nh + r - lo) for r in rows]
        if first >= before:
            return self
        lead = first - start  # what stays before the first message that goes
        head = Head((*prefix, *stay[:lead], *new, *stay[lead:], *items[before:]))
        return self._with(head, before, Step(kind, reason, self, (first, before), new, method, usage=usage))

    def _summaries(self, summary: Any, tokens: int | None, before: int) -> tuple[Item, ...]:
        stands = self.row(min(before, len(self)) - 1) if 0 < before else -1
        if isinstance(summary, int):
            name = f"summary@{self.call}" + (f".{len(self.steps)}" if self.steps else "")
            return (Item(-1, summary, summary, Tokens(summary, name), stands),)
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

    def _whole_groups(self, gone: NDArray[Any]) -> NDArray[Any]:
        """Extend a mask of what goes to whole groups."""
        groups = self.groups
        table = np.zeros(self.hi + 1, bool)
        table[groups[gone]] = True  # -1, in no group, marks the spare place at the end
        table[-1] = False
        return gone | (table[groups] & ~self.stays)

    def _head_arrays(self, upto: int) -> tuple[dict[str, NDArray[Any]], dict[int, Maker]]:
        """Return the columns of a head that swallows all positions before `upto`."""
        upto = max(upto, self.head.size)
        names = ("rows", "stands", "keys", "tokens", "estimates")
        return {name: self.column(name)[:upto].copy() for name in names}, dict(self.head.makers)

    def _change(
        self,
        changes: Mapping[int, Message | str] | Mask,
        text: str | None,
        kind: EditKind,
        reason: str,
        method: str | None,
    ) -> History:
        smaller = kind == "shortened"
        if isinstance(changes, dict):
            found = self._changed_each(changes, smaller)
        elif text is None:
            raise BadArguments(f"A mask alone does not say what the messages become: give {kind!r} a text.")
        else:
            found = self._changed_alike(self.mask(changes), text, smaller)
        at, tokens, estimates, makers = found
        if not len(at):
            return self
        columns, known = self._head_arrays(int(at[-1]) + 1)
        columns["keys"][at] = [m.key for m in makers] if len(makers) > 1 else makers[0].key
        columns["tokens"][at], columns["estimates"][at] = tokens, estimates
        known.update({m.key: m for m in makers})
        return self._with(Head.of(columns, known), int(at[-1]) + 1, Step(kind, reason, self, at, None, method))

    def _changed_alike(self, mask: NDArray[Any], text: str, smaller: bool) -> tuple[Any, Any, Any, list[Maker]]:
        """One placeholder for all messages of the mask; replies with tool calls keep those and are done one by one."""
        asking = np.flatnonzero(mask & self.role("assistant"))
        odd = [p for p in asking.tolist() if self[p].tool_calls]
        odd += np.flatnonzero(mask & (self.column("rows") < 0)).tolist()
        if odd:
            return self._changed_each({p: text for p in np.flatnonzero(mask).tolist()}, smaller)
        at = np.flatnonzero(mask & ~self.stays)
        if not len(at):
            return at, at, at, []
        log, maker = self.log, Placeholder(text)
        key = ("placeholder", text)
        size = log.memo.get(key)
        if size is None:
            size = log.memo[key] = self._size(maker.message(log, int(self.row(int(at[0])))), -1)
        at = at[self.column("keys")[at] != maker.key]
        if smaller:
            at = at[self.sizes[at] > size[0]]
        return at, size[0], size[1], [maker]

    def _changed_each(self, changes: Mapping[int, Message | str], smaller: bool) -> tuple[Any, Any, Any, list[Maker]]:
        stays = self.stays
        at, tokens, estimates, makers = [], [], [], []
        for p in sorted(changes):
            old, new = self.item(p), changes[p]
            was = old.message(self.log)
            if stays[p] or new is was:
                continue
            if isinstance(new, str):
                new = _replace(was, parts=(*((Text(new),) if new else ()), *was.tool_calls))
            if new.parts == was.parts and new.role == was.role:
                continue
            origin = self.log.messages[old.row].id if old.row >= 0 else was.id
            maker = Given(renamed(new, origin))
            size, estimate = self._size(maker.given, old.row)
            if smaller and size >= old.tokens:
                continue
            at.append(p), tokens.append(size), estimates.append(estimate), makers.append(maker)
        return np.array(at, int), tokens, estimates, makers
