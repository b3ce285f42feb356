"""Any messages made other than they were: removed, made shorter, replaced; on columns, with text
touched only where it is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.history.columns import ASSISTANT
from ctxkit.history.head import Head
from ctxkit.history.head_items import Given, Maker, Placeholder, renamed, with_text
from ctxkit.history.invariants import check
from ctxkit.history.ranges import H, size_of, with_head
from ctxkit.history.steps import Words  # noqa: TC001  beside what it is used with
from ctxkit.messages import Message, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ctxkit.history.view import Mask


Changed = tuple["NDArray[Any]", tuple[Any, Any], list[Maker]]
"""Positions, their new tokens and estimates (one for all, or one each), and what they say."""


def keep(view: H, which: Mask, reason: str, method: str | None) -> H:
    """Keep the messages of a mask and remove the others, with the rest of their groups."""
    gone = _whole_groups(view, ~mask(view, which) & ~view.stays)
    return without(view, np.flatnonzero(gone), reason, method) if gone.any() else view


def replace(
    view: H,
    changes: Mapping[int, Message | str | None] | Mask,
    text: str | None,
    words: Words,
) -> H:
    """Put other messages in the place of some, smaller or not; None removes one."""
    if not isinstance(changes, dict):
        return change(view, changes, text, words)
    stays = view.stays
    gone = [p for p, m in changes.items() if m is None and not stays[p]]
    said = {p: m for p, m in changes.items() if m is not None}
    new = change(view, said, None, words)
    if gone:
        new = without(new, np.array(sorted(gone)), words[1], words[2])
    if new is not view:
        check(new, view)
    return new


def left_as(view: H, changes: Mapping[int, tuple[Message | None, int]], reason: str = "") -> H:
    """Do what `History.left_as` says."""
    at = sorted(p for p, (m, _) in changes.items() if m is not None)
    found = [(view.item(p).row, *changes[p]) for p in at]
    said, count = view.log.messages, view.log.estimator.message
    makers: list[Maker] = [
        Given(renamed(m, said[row].id if row >= 0 else m.id)) for row, m, _ in found if m
    ]
    tokens = [size for _, _, size in found]
    alike = view.log.estimates is view.log.tokens
    sizes = tokens if alike else [count(m) for _, m, _ in found if m]
    words: Words = ("shortened", reason, None, None)
    new = _put(view, np.array(at, int), (tokens, sizes), makers, words)
    gone = np.array(sorted(changes.keys() - set(at)), int)
    if len(gone):
        new = without(new, gone, reason, None)
        check(new, view)
    return new


def positions(view: H, which: Mask) -> NDArray[Any]:
    """Return what `History.positions` says."""
    if isinstance(which, np.ndarray) and which.dtype == np.int64 and which.ndim == 1 and which.size:
        rises = which.size == 1 or bool((which[1:] > which[:-1]).all())
        if rises and which[0] >= 0 and which[-1] < len(view):
            return which
    return np.flatnonzero(mask(view, which))


def mask(view: H, which: Mask) -> NDArray[Any]:
    """Return what `History.mask` says."""
    given, n = np.asarray(which), len(view)
    if given.size and given.dtype.kind not in "bui":
        raise BadArguments(f"A mask is booleans or positions, not {which!r:.60}.")
    if given.dtype == bool:
        if given.shape != (n,):
            raise BadArguments(
                f"A mask needs one boolean a message: {n} are shown, {given.shape} came."
            )
        return given
    out = np.zeros(n, bool)
    if given.size:
        if given.min() < -n or given.max() >= n:
            raise BadArguments(f"Positions run from 0 to {n - 1}; {given.tolist()} came.")
        out[given.astype(int)] = True
    return out


def without(view: H, at: NDArray[Any], reason: str, method: str | None) -> H:
    """Return the history without the messages at these positions, whatever they part."""
    upto = int(at[-1]) + 1
    columns, makers = _head_arrays(view, upto)
    left = {name: np.delete(values, at) for name, values in columns.items()}
    head = Head.of_columns(left, makers)
    words: Words = ("dropped", reason, method, None)
    return with_head(view, head, upto, int(at[0]), words, done=(at, ()))


def _whole_groups(view: H, gone: NDArray[Any]) -> NDArray[Any]:
    """Extend a mask of what goes to whole groups."""
    groups = view.groups
    table = np.zeros(view.hi + 1, bool)
    table[groups[gone]] = True  # -1, in no group, marks the spare place at the end
    table[-1] = False
    whole: NDArray[Any] = gone | (table[groups] & ~view.stays)
    return whole


def _head_arrays(view: H, upto: int) -> tuple[dict[str, NDArray[Any]], dict[int, Maker]]:
    """Return the columns of a head that swallows all positions before `upto`."""
    log, head, lo = view.log, view.head, view.lo
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
    columns = {name: np.concatenate((head.column(log, name), part)) for name, part in tail.items()}
    if alike:
        columns["estimates"] = columns["tokens"]
    return columns, dict(head.makers)


def change(
    view: H, changes: Mapping[int, Message | str] | Mask, text: str | None, words: Words
) -> H:
    """Put other messages in the place of some; `shortened`: where they are smaller.

    Raises:
        BadArguments: a mask came without a text.
    """
    smaller = words[0] == "shortened"
    if isinstance(changes, dict):
        return _put(view, *_changed_each(view, changes, smaller), words)
    if text is None:
        raise BadArguments(
            f"A mask alone does not say what the messages become: give {words[0]!r} a text."
        )
    return _put(view, *_changed_alike(view, positions(view, changes), text, smaller), words)


def _put(view: H, at: NDArray[Any], sizes: tuple[Any, Any], makers: list[Maker], words: Words) -> H:
    """Return the history with other messages at some rising positions."""
    if not len(at):
        return view
    columns, known = _head_arrays(view, int(at[-1]) + 1)
    keys = [m.key for m in makers]
    columns["keys"][at] = keys if len(keys) > 1 else keys[0]
    columns["tokens"][at] = sizes[0]
    if columns["estimates"] is not columns["tokens"]:
        columns["estimates"][at] = sizes[1]
    known.update(zip(keys, makers, strict=True))
    upto, first = int(at[-1]) + 1, int(at[0])
    return with_head(view, Head.of_columns(columns, known), upto, first, words, done=(at, None))


def _changed_alike(view: H, at: NDArray[Any], text: str, smaller: bool) -> Changed:
    """One placeholder for all messages at `at`; replies keep their calls, and go one by one."""
    if not len(at):
        return at, (at, at), []
    said = at[0] >= view.head.size  # all of them stand as they were said
    odd = [p for p in at[_pick(view, "roles", at) == ASSISTANT].tolist() if view[p].tool_calls]
    if odd or (not said and (view.column("rows")[at] < 0).any()):
        return _changed_each(view, dict.fromkeys(at.tolist(), text), smaller)
    stays = view.log.stays
    if not said or (stays and stays[-1] >= view.lo + at[0] - view.head.size):
        at = at[~view.stays[at]]
    maker, size = Placeholder(text), _placeholder(view, text)
    if not said:
        at = at[view.column("keys")[at] != maker.key]
    if smaller:
        at = at[_pick(view, "tokens", at) > size[0]]
    return at, size, [maker]


def _pick(view: H, name: str, at: NDArray[Any]) -> NDArray[Any]:
    """Return the values of a column at some rising positions, without making all of it."""
    nh = view.head.size
    if not len(at) or at[0] < nh:
        return np.asarray(view.column(name)[at])
    return np.asarray(view.log.column(name, view.hi)[at + (view.lo - nh)])


def _placeholder(view: H, text: str) -> tuple[int, int]:
    """Return tokens and estimate of a result that says only this text: counted once for a log."""
    key = ("placeholder", text)
    size = view.log.memo.get(key)
    if size is None:
        size = view.log.memo[key] = size_of(view, Message(role="tool", parts=(Text(text),)), -1)
    found: tuple[int, int] = size
    return found


def _changed_each(view: H, changes: Mapping[int, Message | str], smaller: bool) -> Changed:
    stays, makers = view.stays, list[Maker]()
    at, tokens, estimates = list[int](), list[int](), list[int]()
    for p in sorted(changes):
        old, new = view.item(p), changes[p]
        was = old.message(view.log)
        if stays[p] or new is was:
            continue
        if isinstance(new, str):
            new = with_text(was, new)
        if new.parts == was.parts and new.role == was.role:
            continue
        origin = view.log.messages[old.row].id if old.row >= 0 else was.id
        maker = Given(renamed(new, origin))
        size, estimate = size_of(view, maker.given, old.row)
        if smaller and size >= old.tokens:
            continue
        at.append(p)
        tokens.append(size)
        estimates.append(estimate)
        makers.append(maker)
    return np.array(at, int), (tokens, estimates), makers
