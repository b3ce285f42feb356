"""Verbs on any messages: kept, removed, made shorter, replaced; on columns, with text touched only
where it is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.history.columns import ASSISTANT
from ctxkit.history.head import Head
from ctxkit.history.head_items import Given, Maker, Placeholder, renamed, with_text
from ctxkit.history.invariants import check
from ctxkit.history.ranges import Ranges
from ctxkit.history.steps import Words  # noqa: TC001  beside what it is used with
from ctxkit.messages import Message, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ctxkit.history.view import Mask
    from ctxkit.messages import EditKind


class Masks(Ranges, frozen=True, gc=False):
    """A history with the verbs that work on any messages: O(shown)."""

    def drop(
        self, which: Mask | int, reason: str = "", *, start: int = 0, method: str | None = None
    ) -> Self:
        """Remove the messages of a mask, or all at positions start..which where `which`
        is an int.
        """
        if type(which) is int or (
            isinstance(which, (int, np.integer)) and not isinstance(which, bool)
        ):
            return (
                self
                if which <= start
                else self._cut(start, int(which), (), None, ("dropped", reason, method, None))
            )
        return self.keep(~self.mask(which), reason, method=method)

    def keep(self, mask: Mask, reason: str = "", *, method: str | None = None) -> Self:
        """Keep the messages of a mask and remove the others, with the rest of their groups."""
        gone = self._whole_groups(~self.mask(mask) & ~self.stays)
        if not gone.any():
            return self
        return self._without(np.flatnonzero(gone), reason, method)

    def shorten(
        self,
        changes: Mapping[int, Message | str] | Mask,
        text: str | None = None,
        reason: str = "",
        *,
        method: str | None = None,
    ) -> Self:
        """Make messages shorter; where the new message would not be smaller in tokens, the old one
        remains.

        Args:
            changes: the new messages (or their whole text; tool calls remain) by position; or a
                mask, with `text`.
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
    ) -> Self:
        """Put other messages in the place of some, smaller or not; None removes one. Groups are not
        extended.

        Raises:
            UnsoundHistory: a tool call would lose its result, or a result its call.
        """
        if not isinstance(changes, dict):
            return self._change(changes, text, "replaced", reason, method)
        stays = self.stays
        gone = [p for p, m in changes.items() if m is None and not stays[p]]
        new = self._change(
            {p: m for p, m in changes.items() if m is not None}, None, "replaced", reason, method
        )
        if gone:
            new = new._without(np.array(sorted(gone)), reason, method)  # noqa: SLF001  a history of this class
        if new is not self:
            check(new, self)
        return new

    def left_as(self, changes: Mapping[int, tuple[Message | None, int]], reason: str = "") -> Self:
        """Put messages of known sizes in the place of some; None leaves one out.

        Args:
            changes: by position the new message with its tokens.
            reason: why, for a person to read.

        Raises:
            UnsoundHistory: a tool call would lose its result, or a result its call.
        """
        at = sorted(p for p, (m, _) in changes.items() if m is not None)
        found = [(self.item(p).row, *changes[p]) for p in at]
        makers: list[Maker] = [Given(renamed(m, self._origin(row, m))) for row, m, _ in found if m]
        tokens = [size for _, _, size in found]
        alike = self.log.estimates is self.log.tokens
        sizes = tokens if alike else [self.log.estimator.message(m) for _, m, _ in found if m]
        new = self._put(np.array(at, int), tokens, sizes, makers, ("shortened", reason, None, None))
        gone = np.array(sorted(changes.keys() - set(at)), int)
        if len(gone):
            new = new._without(gone, reason, None)  # noqa: SLF001  a history of this class
            check(new, self)
        return new

    def _origin(self, row: int, message: Message) -> str:
        return self.log.messages[row].id if row >= 0 else message.id

    def positions(self, which: Mask) -> NDArray[Any]:
        """Return the positions of a mask, rising; those of an array that is rising positions
        already are taken as is.

        Raises:
            BadArguments: as `mask` does.
        """
        if (
            isinstance(which, np.ndarray)
            and which.dtype == np.int64
            and which.ndim == 1
            and which.size
        ):
            rises = which.size == 1 or bool((which[1:] > which[:-1]).all())
            if rises and which[0] >= 0 and which[-1] < len(self):
                return which
        return np.flatnonzero(self.mask(which))

    def mask(self, which: Mask) -> NDArray[Any]:
        """Return booleans, one a message, from booleans or from positions.

        Raises:
            BadArguments: there are as many booleans as messages, or positions within them, or else
                this.
        """
        mask = np.asarray(which)
        n = len(self)
        if mask.size and mask.dtype.kind not in "bui":
            raise BadArguments(f"A mask is booleans or positions, not {which!r:.60}.")
        if mask.dtype == bool:
            if mask.shape != (n,):
                raise BadArguments(
                    f"A mask needs one boolean a message: {n} are shown, {mask.shape} came."
                )
            return mask
        out = np.zeros(n, bool)
        if mask.size:
            if mask.min() < -n or mask.max() >= n:
                raise BadArguments(f"Positions run from 0 to {n - 1}; {mask.tolist()} came.")
            out[mask.astype(int)] = True
        return out

    # -- inside
    # ----------------------------------------------------------------------------------------------

    def _without(self, at: NDArray[Any], reason: str, method: str | None) -> Self:
        """Return the history without the messages at these positions."""
        upto = int(at[-1]) + 1
        columns, makers = self._head_arrays(upto)
        head = Head.of_columns(
            {name: np.delete(values, at) for name, values in columns.items()}, makers
        )
        return self._with(head, upto, int(at[0]), ("dropped", reason, method, None), (at, ()))

    def _whole_groups(self, gone: NDArray[Any]) -> NDArray[Any]:
        """Extend a mask of what goes to whole groups."""
        groups = self.groups
        table = np.zeros(self.hi + 1, bool)
        table[groups[gone]] = True  # -1, in no group, marks the spare place at the end
        table[-1] = False
        whole: NDArray[Any] = gone | (table[groups] & ~self.stays)
        return whole

    def _head_arrays(self, upto: int) -> tuple[dict[str, NDArray[Any]], dict[int, Maker]]:
        """Return the columns of a head that swallows all positions before `upto`."""
        log, head, lo = self.log, self.head, self.lo
        end = lo + max(upto - head.size, 0)
        rows = np.arange(lo, end)
        tail = {
            "rows": rows,
            "stands": rows,
            "keys": np.zeros(end - lo, np.int64),
            "tokens": log.column("tokens", end)[lo:],
        }
        alike = log.estimates is log.tokens
        if not alike:
            tail["estimates"] = log.column("estimates", end)[lo:]
        columns = {
            name: np.concatenate((head.column(log, name), part)) for name, part in tail.items()
        }
        if alike:
            columns["estimates"] = columns["tokens"]
        return columns, dict(head.makers)

    def _change(
        self,
        changes: Mapping[int, Message | str] | Mask,
        text: str | None,
        kind: EditKind,
        reason: str,
        method: str | None,
    ) -> Self:
        smaller = kind == "shortened"
        if isinstance(changes, dict):
            found = self._changed_each(changes, smaller)
        elif text is None:
            raise BadArguments(
                f"A mask alone does not say what the messages become: give {kind!r} a text."
            )
        else:
            found = self._changed_alike(self.positions(changes), text, smaller)
        return self._put(*found, (kind, reason, method, None))

    def _put(
        self, at: NDArray[Any], tokens: Any, estimates: Any, makers: list[Maker], words: Words
    ) -> Self:
        """Return the history with other messages at some rising positions."""
        if not len(at):
            return self
        columns, known = self._head_arrays(int(at[-1]) + 1)
        keys = [m.key for m in makers]
        columns["keys"][at] = keys if len(keys) > 1 else keys[0]
        columns["tokens"][at] = tokens
        if columns["estimates"] is not columns["tokens"]:
            columns["estimates"][at] = estimates
        known.update(zip(keys, makers, strict=True))
        upto, first = int(at[-1]) + 1, int(at[0])
        return self._with(Head.of_columns(columns, known), upto, first, words, (at, None))

    def _changed_alike(
        self, at: NDArray[Any], text: str, smaller: bool
    ) -> tuple[Any, Any, Any, list[Maker]]:
        """One placeholder for all messages at `at`; replies with tool calls keep those and are done
        one by one.
        """
        if not len(at):
            return at, at, at, []
        said = at[0] >= self.head.size  # all of them stand as they were said
        odd = [p for p in at[self._pick("roles", at) == ASSISTANT].tolist() if self[p].tool_calls]
        if odd or (not said and (self.column("rows")[at] < 0).any()):
            return self._changed_each(dict.fromkeys(at.tolist(), text), smaller)
        stays = self.log.stays
        if not said or (stays and stays[-1] >= self.lo + at[0] - self.head.size):
            at = at[~self.stays[at]]
        maker, size = Placeholder(text), self._placeholder(text)
        if not said:
            at = at[self.column("keys")[at] != maker.key]
        if smaller:
            at = at[self._pick("tokens", at) > size[0]]
        return at, size[0], size[1], [maker]

    def _pick(self, name: str, at: NDArray[Any]) -> NDArray[Any]:
        """Return the values of a column at some rising positions, without making the
        whole of it.
        """
        nh = self.head.size
        values: NDArray[Any]
        if not len(at) or at[0] < nh:
            values = self.column(name)[at]
            return values
        values = self.log.column(name, self.hi)[at + (self.lo - nh)]
        return values

    def _placeholder(self, text: str) -> tuple[int, int]:
        """Return the tokens and the estimate of a tool result that says only this text: counted
        once for a log.
        """
        key = ("placeholder", text)
        size = self.log.memo.get(key)
        if size is None:
            size = self.log.memo[key] = self._size(Message(role="tool", parts=(Text(text),)), -1)
        found: tuple[int, int] = size
        return found

    def _changed_each(
        self, changes: Mapping[int, Message | str], smaller: bool
    ) -> tuple[Any, Any, Any, list[Maker]]:
        stays = self.stays
        at: list[int] = []
        tokens: list[int] = []
        estimates: list[int] = []
        makers: list[Maker] = []
        for p in sorted(changes):
            old, new = self.item(p), changes[p]
            was = old.message(self.log)
            if stays[p] or new is was:
                continue
            if isinstance(new, str):
                new = with_text(was, new)
            if new.parts == was.parts and new.role == was.role:
                continue
            origin = self.log.messages[old.row].id if old.row >= 0 else was.id
            maker = Given(renamed(new, origin))
            size, estimate = self._size(maker.given, old.row)
            if smaller and size >= old.tokens:
                continue
            at.append(p)
            tokens.append(size)
            estimates.append(estimate)
            makers.append(maker)
        return np.array(at, int), tokens, estimates, makers
