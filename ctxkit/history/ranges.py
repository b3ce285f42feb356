"""A range of positions goes, and what came for it stands in its place; what stays, stays."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, TypeVar

import msgspec
import numpy as np

from ctxkit.history.head import Front, Head
from ctxkit.history.head_items import Given, Item, Tokens
from ctxkit.history.searches import before as tokens_before
from ctxkit.history.searches import is_safe, safe, safe_before
from ctxkit.history.steps import Step, Words
from ctxkit.history.view import View
from ctxkit.messages import Message, Text

H = TypeVar("H", bound=View)
"""The class of a history: what goes in comes out."""

Told = tuple[Any, int | None]
"""A summary (a text, messages, its size), and its tokens where better known than by counting."""

_replace = msgspec.structs.replace


def cut(
    view: H,
    start: int,
    before: int,
    told: Told,
    words: Words,
    *,
    front: Front | None = None,
) -> H:
    """Return the history without the positions start..before; what came for them stands where
    the first stood.

    `front`: all that stays of the head and of the range, where it is known to stand first. This
    is the way of nearly every compaction, so it is kept short.
    """
    if before <= start:
        return view
    log, was, lo, call, steps = view.log, view.head, view.lo, view.call, view.steps
    row = lo + before - was.size
    if front is None:
        front = was.front_
        late = log.late_stays or log.late_cuts
        if front is None or late or start or not lo < row < view.hi or not log.is_cut[row]:
            return _cut_safely(view, start, before, told, words)
        if log.stays and log.stays[-1] >= lo:
            if lo or was.size or not len(log.stays) == log.stays[-1] + 1 < row:
                return _cut_safely(view, start, before, told, words)
            front = _lead(view)
    items, size, summary = front.items, front.tokens, told[0]
    if type(summary) is int and row > lo:
        new: tuple[Item, ...] = (
            Item(-1, summary, summary, Tokens(summary, call, len(steps)), row - 1),
        )
        head = Head(len(items) + 1, size + summary, front.estimate + summary, items + new, front)
    elif summary == () and len(items) == was.size:
        new, head = (), was
    else:
        new = _summaries(view, *told, before)
        head = _headed(front, new)
    size += log.fixed_at[call] if call < len(log.fixed_at) else log.fixed
    made: tuple[Step, ...] = (Step(words, view, (len(items), before), new),)
    if steps:
        made, size = steps + made, min(size, view.stable)
    return view.__class__(log, head, row, view.hi, call, call, size, made)


def _lead(view: H) -> Front:
    """Return what stays, where it is the first rows of the log and nothing else."""
    log, n = view.log, len(view.log.stays)
    key = ("lead", n)
    if key not in log.memo:
        log.memo[key] = Front().then(tuple([view.item(p) for p in range(n)]))
    lead: Front = log.memo[key]
    return lead


def _cut_safely(view: H, start: int, before: int, told: Told, words: Words) -> H:
    """Move the range to safe cuts, and look what stays in it."""
    log, head, lo = view.log, view.head, view.lo
    nh, stays = head.size, log.stays_at(view.call)
    before = min(before, nh + view.hi - lo)
    if not is_safe(view, before):
        before = safe(view, before) or safe_before(view, before)
    row = lo + before - nh
    if start and not is_safe(view, start):
        start = safe(view, start) or len(view)
    if before <= start:
        return view
    rows: list[int] = []
    if row > lo and stays and stays[-1] >= lo:
        first = bisect_left(stays, lo + max(start - nh, 0))
        rows = stays[first : bisect_left(stays, row)]
    front = head.front(log, view.call)
    apart = front and rows and (len(front.items) < nh or rows[-1] - lo >= len(rows))
    if front is None or start or row < lo or apart:
        return _cut_around(view, (start, before), (head.firm(log, view.call), rows), told, words)
    if rows:  # all of the head stays, and the first rows behind it
        front = front.then(tuple([view.item(nh + r - lo) for r in rows]))
    return view if before <= len(front.items) else cut(view, 0, before, told, words, front=front)


def _cut_around(view: H, span: tuple[int, int], stay: Any, told: Told, words: Words) -> H:
    """Cut where something stays: before the range, in it, or of the head after it."""
    (start, before), (firm, rows) = span, stay
    items, nh, lo = view.head.items, view.head.size, view.lo
    prefix: tuple[Item, ...] = items[:start]
    if start > nh:
        prefix += tuple(view.item(p) for p in range(nh, start))
    known = {p for p in firm if start <= p < before}
    kept = [items[p] for p in sorted(known)]
    first = start
    while first in known:
        first += 1
    tail = set(rows)
    while first >= nh and first < before and (lo + first - nh) in tail:
        first += 1
    if first >= before:
        return view
    kept += [view.item(nh + r - lo) for r in rows]
    lead = first - start  # what stays before the first message that goes
    new = _summaries(view, *told, before)
    head = Head.of((*prefix, *kept[:lead], *new, *kept[lead:], *items[before:]))
    return with_head(view, head, before, first, words, done=((first, before), new))


def with_head(
    view: H, head: Head, upto: int, first: int, words: Words, *, done: Any, added: bool = False
) -> H:
    """Return the history with a head that swallowed all positions before `upto`; `first` is not
    as before.

    `done`: what a step holds as `at` and `new`.
    """
    lo, nh, call, steps = view.lo, view.head.size, view.call, view.steps
    if upto > nh:
        lo += upto - nh
    stable = view.fixed
    if first:
        stable += tokens_before(view, first)
    if steps:
        stable = min(stable, view.stable)
    step = Step(words, view, done[0], done[1], added)
    return view.__class__(view.log, head, lo, view.hi, call, call, stable, (*steps, step))


def _summaries(view: H, summary: Any, tokens: int | None, before: int) -> tuple[Item, ...]:
    if summary == ():
        return ()
    stands = view.row(before - 1)
    if isinstance(summary, (int, np.integer)):
        size = int(summary)
        return (Item(-1, size, size, Tokens(size, view.call, len(view.steps)), stands),)
    if isinstance(summary, str):
        summary = Message(role="summary", parts=(Text(summary),))
    many = (summary,) if isinstance(summary, Message) else tuple(summary)
    return tuple(
        new_item(view, m, stands, tokens if len(many) == 1 else None, n) for n, m in enumerate(many)
    )


def new_item(view: H, message: Message, stands: int, tokens: int | None = None, n: int = 0) -> Item:
    """Return a new message as an item under an id that the log does not have."""
    if not message.id or message.id in view.log.index:
        step, place = f".{len(view.steps)}" if view.steps else "", f"-{n}" if n else ""
        message = _replace(message, id=f"{message.role}@{view.call}{step}{place}")
    size, estimate = size_of(view, message, -1)
    if tokens is not None:
        size, estimate = tokens, tokens if view.log.estimates is view.log.tokens else estimate
    return Item(-1, size, estimate, Given(message), stands)


def size_of(view: H, message: Message, row: int) -> tuple[int, int]:
    """Return the tokens and the estimate of a message that is new, or was made from a row."""
    log = view.log
    tokens = log.measure(message, row)
    return tokens, tokens if log.estimates is log.tokens else log.estimator.message(message)


def _headed(front: Front, new: tuple[Item, ...]) -> Head:
    """Return the head of what stays and what came."""
    n = len(front.items)
    if not new:
        return Head(n, front.tokens, front.estimate, front.items, front)
    whole = front.then(new)
    stay = front if all(i.maker is not None and not i.maker.pinned for i in new) else None
    return Head(n + len(new), whole.tokens, whole.estimate, whole.items, stay)
