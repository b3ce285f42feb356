"""A history: the view with all its verbs, each of which returns a new history and remembers what it
did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ctxkit.errors import UnsoundHistory
from ctxkit.history.head import Head
from ctxkit.history.head_items import Given, Item, renamed
from ctxkit.history.invariants import check
from ctxkit.history.row_masks import Masks
from ctxkit.history.steps import Words  # noqa: TC001  beside what it is used with

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.messages import Edit, EditKind, Message


class History(Masks, frozen=True, gc=False):
    """What is shown to the model now: history in, history out.

    A verb that changes nothing returns the history itself, so ``new is history`` tells that nothing
    was done. Verbs never part a tool call from its results and never remove what `stays` (system,
    pinned, pending): a group of which one message goes, goes whole; a group that holds a message
    that stays, stays whole.

    A policy in four lines::

        def mine(history, room):
            if history.tokens < 80_000:
                return history
            return history.summarise(history.safe(history.back(20_000)), "So far: ...", "over
            80,000")
    """

    def insert(
        self, position: int, message: Message, reason: str = "", *, method: str | None = None
    ) -> History:
        """Put one more message before a position (a digest, a notice, a pinned signal);
        `len(history)` is the end.

        Raises:
            UnsoundHistory: the position lies between a tool call and its result.
        """
        if not self.is_safe(position):
            raise UnsoundHistory(
                f"A message at position {position} would part a tool call from its result."
            )
        made = self._made(message, stands=self.row(position - 1) if position else -1)
        items = [self.item(p) for p in range(max(position, self.head.size))]
        items.insert(position, made)
        words: Words = ("summarised", reason, method, None)
        upto, done = max(position, self.head.size), (np.array([position]), (made,))
        return self._with(Head.of(tuple(items)), upto, position, words, done, added=True)

    def become(
        self, messages: Sequence[Message], reason: str = "", *, method: str | None = None
    ) -> History:
        """Show these messages instead: what a policy that works on a plain list of messages gives
        back.

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
            if p is not None and old is not None and (m is shown[p] or m == shown[p]):
                new.append(old)
            elif old is not None:
                changed = renamed(m, self.log.messages[old.row].id if old.row >= 0 else m.id)
                new.append(Item(old.row, *self._size(changed, old.row), Given(changed), old.stands))
            else:
                new.append(self._made(m, new[-1].row if new else -1, n=len(new)))
        first = next(
            (i for i, (a, b) in enumerate(zip(items, new, strict=False)) if a is not b),
            min(len(items), len(new)),
        )
        if first == len(items) == len(new):
            return self
        rest = np.arange(first, len(items))
        kind: EditKind = (
            "replaced"
            if len(items) == len(new)
            else "summarised"
            if len(new) > first
            else "dropped"
        )
        words = (kind, reason, method, None)
        done = self._with(Head.of(tuple(new)), len(self), first, words, (rest, tuple(new[first:])))
        check(done, self)
        return done

    def apply(self, edit: Edit) -> History:
        """Do what a recorded edit did, as far as its targets are shown; pairs are not checked: it
        is a fact.
        """
        shown = self.messages
        ids = {m.id: p for p, m in enumerate(shown)}
        at = sorted(ids[t] for t in edit.targets if t in ids)
        if edit.kind in ("shortened", "replaced"):
            return self._apply_changes(
                edit,
                {ids[t]: m for t, m in zip(edit.targets, edit.inserted, strict=False) if t in ids},
            )
        where, gone = min(at, default=len(self)), set(at)
        upto = max(at[-1] + 1 if at else len(self), self.head.size)
        stands = self.row(at[-1]) if at else -1
        made = tuple(
            self.item(ids[m.id])  # it was there before something was put in front of it
            if ids.get(m.id, -1) in gone and shown[ids[m.id]] == m
            else Item(-1, *self._size(m, -1), Given(m), stands)
            for m in edit.inserted
        )
        items = [self.item(p) for p in range(upto) if p not in gone]
        items[where:where] = made
        words = (edit.kind, edit.reason, edit.method, edit.usage)
        return self._with(Head.of(tuple(items)), upto, where, words, (np.array(at, int), made))

    def _apply_changes(self, edit: Edit, new: dict[int, Message]) -> History:
        if not new:
            return self
        at = sorted(new)
        upto = max(at[-1] + 1, self.head.size)
        items = [self.item(p) for p in range(upto)]
        for p in at:
            items[p] = Item(
                items[p].row, *self._size(new[p], items[p].row), Given(new[p]), items[p].stands
            )
        made = tuple(items[p] for p in at)
        words = (edit.kind, edit.reason, edit.method, edit.usage)
        return self._with(Head.of(tuple(items)), upto, at[0], words, (np.array(at), made))
