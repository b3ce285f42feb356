"""The verbs of `History` as functions: cut, drop, change, insert; and edits as session records."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from ctxkit._internal.formatting_and_sanitizing import format_error_line
from ctxkit.errors import BadArguments, UnsoundHistory
from ctxkit.policies.history.edited_head import (
    EditedHead,
    HeadItem,
    MessageSource,
    Placeholder,
    ProtectedFront,
    ReplacementMessage,
    SizeOnlySummary,
    replace_all_but_calls,
    with_content_id,
)
from ctxkit.policies.history.growing_columns_and_sums import ASSISTANT
from ctxkit.policies.history.history_view_and_searches import (
    EditInfo,
    HistoryEdit,
    HistoryView,
    count_tokens_before,
    find_last_safe_cut,
    find_next_safe_cut,
    is_safe_cut,
)
from ctxkit.policies.history.invariants import check_invariants
from ctxkit.session.messages import SUMMARY_ERROR_KEY, Edit, EditKind, Message, Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ctxkit.policies.history.history_view_and_searches import Mask


H = TypeVar("H", bound=HistoryView)
"""A class of histories: a verb returns the class that it gets."""

SummaryAndSize = tuple[Any, int | None]
"""A summary (text, messages, or size), and its tokens where known better than by counting."""

# How a verb edits a history
# ---------------------------
# A history is an edited head (a list of items) followed by rows lo..hi of the log. A verb that
# edits positions below n moves the head's end to n: the rows before n become items, are edited, and
# `lo` moves on. The tail is never copied.
#   cut_range       replaces start..before by a summary or nothing. If all protected messages stand
#                   at the front, this is O(front): no message of the range is looked at. Nearly all
#                   compactions take this path.
#   _cut_around     the general cut: protected messages in the range stay, around the summary.
#   _put_messages, drop_positions   change or remove any positions, with NumPy columns: O(n).
# Invariants: groups stay whole, protected messages stay, `stable` is the number of tokens before
# the first edited position of this call, and every verb appends one `HistoryEdit` to `steps`.

_replace = msgspec.structs.replace


def cut_range(
    view: H,
    start: int,
    before: int,
    summary_and_size: SummaryAndSize,
    info: EditInfo,
    *,
    front: ProtectedFront | None = None,
) -> H:
    """Return the history with the positions start..before replaced by a summary or nothing.

    This is the fast path of nearly all compactions.

    Args:
        view: the history before.
        start: first position that is replaced.
        before: first position that is kept; not above `start`: nothing changes.
        summary_and_size: the summary (text, messages or size; empty: none), and its tokens where
            known better than by counting.
        info: kind, reason, method and usage of the edit.
        front: the protected items of head and range, where they are known to be at the front.
    """
    if before <= start:
        return view
    log, head_before, lo, call, steps = view.log, view.head, view.lo, view.call, view.steps
    row = lo + before - head_before.size
    if front is None:
        front = head_before.front_
        has_late_marks = log.late_stays or log.late_cuts
        if (
            front is None
            or has_late_marks
            or start
            or not lo < row < view.hi
            or not log.safe_cuts[row]
        ):
            return _cut_safely(view, start, before, summary_and_size, info)
        if log.stays and log.stays[-1] >= lo:
            if lo or head_before.size or not len(log.stays) == log.stays[-1] + 1 < row:
                return _cut_safely(view, start, before, summary_and_size, info)
            front = _leading_stays(view)
    # The new head: the protected front, then the summary. All other rows before `row` are gone.
    items, size, summary = front.items, front.tokens, summary_and_size[0]
    if type(summary) is int and row > lo:
        new: tuple[HeadItem, ...] = (
            HeadItem(-1, summary, summary, SizeOnlySummary(summary, call, len(steps)), row - 1),
        )
        head = EditedHead(
            len(items) + 1, size + summary, front.estimate + summary, items + new, front
        )
    elif summary == () and len(items) == head_before.size:
        new, head = (), head_before
    else:
        new = _summary_items(view, *summary_and_size, before)
        head = _make_head(front, new)
    size += log.fixed_at[call] if call < len(log.fixed_at) else log.fixed
    new_steps: tuple[HistoryEdit, ...] = (HistoryEdit(info, view, (len(items), before), new),)
    if steps:
        new_steps, size = steps + new_steps, min(size, view.stable)
    return view.__class__(log, head, row, view.hi, call, call, size, new_steps)


def _leading_stays(view: H) -> ProtectedFront:
    """Return the protected front, where the protected rows are the first rows of the log."""
    log, n = view.log, len(view.log.stays)
    key = ("lead", n)
    if key not in log.memo:
        log.memo[key] = ProtectedFront().append(tuple([view.item(p) for p in range(n)]))
    front: ProtectedFront = log.memo[key]
    return front


def _cut_safely(
    view: H, start: int, before: int, summary_and_size: SummaryAndSize, info: EditInfo
) -> H:
    """Move the range to safe cuts, find its protected rows, and choose the fast or general path."""
    log, head, lo = view.log, view.head, view.lo
    head_size, protected_rows = head.size, log.get_protected_rows(view.call)
    before = min(before, head_size + view.hi - lo)
    if not is_safe_cut(view, before):
        before = find_next_safe_cut(view, before) or find_last_safe_cut(view, before)
    row = lo + before - head_size
    if start and not is_safe_cut(view, start):
        start = find_next_safe_cut(view, start) or len(view)
    if before <= start:
        return view
    rows: list[int] = []
    if row > lo and protected_rows and protected_rows[-1] >= lo:
        first = bisect_left(protected_rows, lo + max(start - head_size, 0))
        rows = protected_rows[first : bisect_left(protected_rows, row)]
    front = head.front(log, view.call)
    has_gap = front and rows and (len(front.items) < head_size or rows[-1] - lo >= len(rows))
    if front is None or start or row < lo or has_gap:
        return _cut_around(
            view,
            (start, before),
            (head.protected_places(log, view.call), rows),
            summary_and_size,
            info,
        )
    if rows:  # all of the head is protected, and so are the first rows behind it
        front = front.append(tuple([view.item(head_size + r - lo) for r in rows]))
    return (
        view
        if before <= len(front.items)
        else cut_range(view, 0, before, summary_and_size, info, front=front)
    )


def _cut_around(
    view: H, span: tuple[int, int], protected: Any, summary_and_size: SummaryAndSize, info: EditInfo
) -> H:
    """Cut a range with protected messages before or within it, or in the head after it."""
    (start, before), (protected_in_head, rows) = span, protected
    items, head_size, lo = view.head.items, view.head.size, view.lo
    prefix: tuple[HeadItem, ...] = items[:start]
    if start > head_size:
        prefix += tuple(view.item(p) for p in range(head_size, start))
    protected_places = {p for p in protected_in_head if start <= p < before}
    protected_items = [items[p] for p in sorted(protected_places)]
    # The summary takes the position of the first removed message: skip protected ones before it.
    first = start
    while first in protected_places:
        first += 1
    tail = set(rows)
    while first >= head_size and first < before and (lo + first - head_size) in tail:
        first += 1
    if first >= before:
        return view
    protected_items += [view.item(head_size + r - lo) for r in rows]
    lead = first - start  # protected items before the first removed message
    new = _summary_items(view, *summary_and_size, before)
    head = EditedHead.of(
        (*prefix, *protected_items[:lead], *new, *protected_items[lead:], *items[before:])
    )
    return replace_head(view, head, before, first, info, edited=((first, before), new))


def replace_head(
    view: H,
    head: EditedHead,
    upto: int,
    first: int,
    info: EditInfo,
    *,
    edited: Any,
    added: bool = False,
) -> H:
    """Return the history with a new head in place of all positions before `upto`.

    Args:
        view: the history before.
        head: the new head.
        upto: one past the last position of the old history that the head replaces.
        first: first position that differs.
        info: kind, reason, method and usage of the edit.
        edited: the fields `at` and `new` of the edit.
        added: True where messages were only inserted.
    """
    lo, nh, call, steps = view.lo, view.head.size, view.call, view.steps
    if upto > nh:
        lo += upto - nh
    stable = view.fixed
    if first:
        stable += count_tokens_before(view, first)
    if steps:
        stable = min(stable, view.stable)
    step = HistoryEdit(info, view, edited[0], edited[1], added)
    return view.__class__(view.log, head, lo, view.hi, call, call, stable, (*steps, step))


def _summary_items(view: H, summary: Any, tokens: int | None, before: int) -> tuple[HeadItem, ...]:
    if summary == ():
        return ()
    last_row = view.row(before - 1)
    if isinstance(summary, (int, np.integer)):
        size = int(summary)
        return (
            HeadItem(-1, size, size, SizeOnlySummary(size, view.call, len(view.steps)), last_row),
        )
    if isinstance(summary, str):
        summary = Message(role="summary", parts=(Text(summary),))
    many = (summary,) if isinstance(summary, Message) else tuple(summary)
    return tuple(
        make_head_item(view, m, last_row, tokens if len(many) == 1 else None, n)
        for n, m in enumerate(many)
    )


def make_head_item(
    view: H, message: Message, last_row: int, tokens: int | None = None, n: int = 0
) -> HeadItem:
    """Return a new message as an item, with an id that the log does not have.

    Args:
        view: the history into which the message goes.
        message: the new message; an id that is empty or taken is replaced.
        last_row: the last row of the log that it replaces; -1: none.
        tokens: its size, where that is known without counting; None: it is counted.
        n: number of the message among those of one edit, for its id.
    """
    if not message.id or message.id in view.log.index:
        step, place = f".{len(view.steps)}" if view.steps else "", f"-{n}" if n else ""
        message = _replace(message, id=f"{message.role}@{view.call}{step}{place}")
    size, estimate = count_tokens_and_estimate(view, message, -1)
    if tokens is not None:
        size, estimate = tokens, tokens if view.log.estimates is view.log.tokens else estimate
    return HeadItem(-1, size, estimate, ReplacementMessage(message), last_row)


def count_tokens_and_estimate(view: H, message: Message, row: int) -> tuple[int, int]:
    """Return tokens and estimate of a message that is new (row -1) or replaces a row.

    Args:
        view: the history, whose log has the counter and the estimator.
        message: the message as it will be sent.
        row: the row that it replaces; -1: none.

    Returns:
        (tokens, the system's own estimate).
    """
    log = view.log
    tokens = log.measure(message, row)
    return tokens, tokens if log.estimates is log.tokens else log.estimator.message(message)


def _make_head(front: ProtectedFront, new: tuple[HeadItem, ...]) -> EditedHead:
    """Return the head of the protected front and new items."""
    n = len(front.items)
    if not new:
        return EditedHead(n, front.tokens, front.estimate, front.items, front)
    whole = front.append(new)
    front_of_head = (
        front if all(i.source is not None and not i.source.pinned for i in new) else None
    )
    return EditedHead(n + len(new), whole.tokens, whole.estimate, whole.items, front_of_head)


ChangedRows = tuple["NDArray[Any]", tuple[Any, Any], list[MessageSource]]
"""Positions, their new tokens and estimates (one or one each), and sources of messages."""


def keep_messages(view: H, which: Mask, reason: str, method: str | None) -> H:
    """Keep the messages of a mask; remove all others, each with its group (a reply, its results).

    Args:
        view: the history.
        which: messages to keep, unless their group goes: a boolean for each message, or positions.
        reason: why the others go, for the log.
        method: name of the method, for the log.

    Returns:
        The history with one more edit; itself where nothing goes. Protected messages stay.
    """
    is_dropped = _whole_groups(view, ~to_mask(view, which) & ~view.stays)
    return (
        drop_positions(view, np.flatnonzero(is_dropped), reason, method)
        if is_dropped.any()
        else view
    )


def replace_messages(
    view: H,
    changes: Mapping[int, Message | str | None] | Mask,
    text: str | None,
    info: EditInfo,
) -> H:
    """Replace messages, by smaller ones or not; None removes one. Groups are not extended.

    Args:
        view: the history before.
        changes: new messages, new texts or None, by position; or a mask.
        text: with a mask, the text of all its messages.
        info: kind, reason, method and usage of the edit.

    Returns:
        The history after.

    Raises:
        UnsoundHistory: a tool call would lose its result, or a result its call.
    """
    if not isinstance(changes, dict):
        return shorten_or_replace_messages(view, changes, text, info)
    is_protected = view.stays
    dropped = [p for p, m in changes.items() if m is None and not is_protected[p]]
    replaced = {p: m for p, m in changes.items() if m is not None}
    new = shorten_or_replace_messages(view, replaced, None, info)
    if dropped:
        new = drop_positions(new, np.array(sorted(dropped)), info[1], info[2])
    if new is not view:
        check_invariants(new, view)
    return new


def replace_sized_messages(
    view: H, changes: Mapping[int, tuple[Message | None, int]], reason: str = ""
) -> H:
    """Replace messages by messages of known sizes; None removes one.

    Args:
        view: the history before.
        changes: by position, the new message and its tokens.
        reason: the reason, for people.

    Returns:
        The history after.

    Raises:
        UnsoundHistory: a tool call would lose its result, or a result its call.
    """
    at = sorted(p for p, (m, _) in changes.items() if m is not None)
    changed = [(view.item(p).row, *changes[p]) for p in at]
    log_messages, count = view.log.messages, view.log.estimator.message
    sources: list[MessageSource] = [
        ReplacementMessage(with_content_id(m, log_messages[row].id if row >= 0 else m.id))
        for row, m, _ in changed
        if m
    ]
    tokens = [size for _, _, size in changed]
    alike = view.log.estimates is view.log.tokens
    sizes = tokens if alike else [count(m) for _, m, _ in changed if m]
    info: EditInfo = ("shortened", reason, None, None)
    new = _put_messages(view, np.array(at, int), (tokens, sizes), sources, info)
    hidden = np.array(sorted(changes.keys() - set(at)), int)
    if len(hidden):
        new = drop_positions(new, hidden, reason, None)
        check_invariants(new, view)
    return new


def to_positions(view: H, which: Mask) -> NDArray[Any]:
    """Return the sorted positions of a mask; an array of sorted positions is returned as is.

    Args:
        view: the history.
        which: a boolean for each message, or positions.

    Raises:
        BadArguments: as `to_mask` does.
    """
    if isinstance(which, np.ndarray) and which.dtype == np.int64 and which.ndim == 1 and which.size:
        rises = which.size == 1 or bool((which[1:] > which[:-1]).all())
        if rises and which[0] >= 0 and which[-1] < len(view):
            return which
    return np.flatnonzero(to_mask(view, which))


def to_mask(view: H, which: Mask) -> NDArray[Any]:
    """Return a boolean for each message, from booleans or positions.

    Args:
        view: the history.
        which: a boolean for each message, or positions; negative ones count from the end.

    Raises:
        BadArguments: they are neither, the number of booleans differs, or a position is out of
            range.
    """
    positions, n = np.asarray(which), len(view)
    if positions.size and positions.dtype.kind not in "bui":
        raise BadArguments(f"A mask is booleans or positions, not {which!r:.60}.")
    if positions.dtype == bool:
        if positions.shape != (n,):
            raise BadArguments(f"A mask needs one boolean per message: {n}, not {positions.shape}.")
        return positions
    out = np.zeros(n, bool)
    if positions.size:
        if positions.min() < -n or positions.max() >= n:
            raise BadArguments(f"Positions are from 0 to {n - 1}, not {positions.tolist()}.")
        out[positions.astype(int)] = True
    return out


def drop_positions(view: H, at: NDArray[Any], reason: str, method: str | None) -> H:
    """Return the history without some messages, even where that splits a group.

    Args:
        view: the history before.
        at: positions to remove, sorted; at least one.
        reason: the reason, for people.
        method: the policy's name for its method.
    """
    upto = int(at[-1]) + 1
    columns, sources = _head_arrays(view, upto)
    remaining = {name: np.delete(values, at) for name, values in columns.items()}
    head = EditedHead.of_columns(remaining, sources)
    info: EditInfo = ("dropped", reason, method, None)
    return replace_head(view, head, upto, int(at[0]), info, edited=(at, ()))


def _whole_groups(view: H, is_dropped: NDArray[Any]) -> NDArray[Any]:
    """Extend a mask of removed messages to whole groups."""
    # A removed message removes its group: mark the groups, then select all rows of marked groups.
    groups = view.groups
    is_dropped_group = np.zeros(view.hi + 1, bool)
    is_dropped_group[groups[is_dropped]] = True  # group -1 (none) marks the spare place at the end
    is_dropped_group[-1] = False
    whole: NDArray[Any] = is_dropped | (is_dropped_group[groups] & ~view.stays)
    return whole


def _head_arrays(view: H, upto: int) -> tuple[dict[str, NDArray[Any]], dict[int, MessageSource]]:
    """Return the columns and sources of a head of all positions before `upto`."""
    log, head, lo = view.log, view.head, view.lo
    end = lo + max(upto - head.size, 0)
    rows = np.arange(lo, end)
    tail = {
        "rows": rows,
        "source_rows": rows,
        "keys": np.zeros(end - lo, np.int64),
        "tokens": log.column("tokens", end)[lo:],
    }
    alike = log.estimates is log.tokens
    if not alike:
        tail["estimates"] = log.column("estimates", end)[lo:]
    columns = {name: np.concatenate((head.column(log, name), part)) for name, part in tail.items()}
    if alike:
        columns["estimates"] = columns["tokens"]
    return columns, dict(head.sources)


def shorten_or_replace_messages(
    view: H, changes: Mapping[int, Message | str] | Mask, text: str | None, info: EditInfo
) -> H:
    """Replace messages; with the kind `shortened`, only by smaller ones.

    Args:
        view: the history before.
        changes: new messages or new texts, by position; or a mask.
        text: with a mask, the text of all its messages.
        info: kind, reason, method and usage of the edit.

    Returns:
        The history after; `view` itself where nothing changes.

    Raises:
        BadArguments: a mask is given without a text.
    """
    only_if_smaller = info[0] == "shortened"
    if isinstance(changes, dict):
        return _put_messages(view, *_changed_each(view, changes, only_if_smaller), info)
    if text is None:
        raise BadArguments(
            f"A mask alone does not say what the messages become: give {info[0]!r} a text."
        )
    return _put_messages(
        view, *_changed_alike(view, to_positions(view, changes), text, only_if_smaller), info
    )


def _put_messages(
    view: H, at: NDArray[Any], sizes: tuple[Any, Any], sources: list[MessageSource], info: EditInfo
) -> H:
    """Return the history with new messages at some sorted positions."""
    if not len(at):
        return view
    # Everything up to the last changed position becomes the head; the tail stays in the log.
    columns, all_sources = _head_arrays(view, int(at[-1]) + 1)
    keys = [m.key for m in sources]
    columns["keys"][at] = keys if len(keys) > 1 else keys[0]
    columns["tokens"][at] = sizes[0]
    if columns["estimates"] is not columns["tokens"]:
        columns["estimates"][at] = sizes[1]
    all_sources.update(zip(keys, sources, strict=True))
    upto, first = int(at[-1]) + 1, int(at[0])
    return replace_head(
        view, EditedHead.of_columns(columns, all_sources), upto, first, info, edited=(at, None)
    )


def _changed_alike(view: H, at: NDArray[Any], text: str, only_if_smaller: bool) -> ChangedRows:
    """Return the change of all positions to one text; replies with calls change one by one."""
    if not len(at):
        return at, (at, at), []
    all_recorded = at[0] >= view.head.size  # all in the unchanged tail
    replies_with_calls = [
        p for p in at[_pick_values(view, "roles", at) == ASSISTANT].tolist() if view[p].tool_calls
    ]
    if replies_with_calls or (not all_recorded and (view.column("rows")[at] < 0).any()):
        return _changed_each(view, dict.fromkeys(at.tolist(), text), only_if_smaller)
    stays = view.log.stays
    if not all_recorded or (stays and stays[-1] >= view.lo + at[0] - view.head.size):
        at = at[~view.stays[at]]
    source, size = Placeholder(text), _placeholder_size(view, text)
    if not all_recorded:
        at = at[view.column("keys")[at] != source.key]
    if only_if_smaller:
        at = at[_pick_values(view, "tokens", at) > size[0]]
    return at, size, [source]


def _pick_values(view: H, name: str, at: NDArray[Any]) -> NDArray[Any]:
    """Return the values of a column at some sorted positions, without computing all of it."""
    nh = view.head.size
    if not len(at) or at[0] < nh:
        return np.asarray(view.column(name)[at])
    return np.asarray(view.log.column(name, view.hi)[at + (view.lo - nh)])


def _placeholder_size(view: H, text: str) -> tuple[int, int]:
    """Return tokens and estimate of a result with only this text, cached in the log."""
    key = ("placeholder", text)
    size = view.log.memo.get(key)
    if size is None:
        size = view.log.memo[key] = count_tokens_and_estimate(
            view, Message(role="tool", parts=(Text(text),)), -1
        )
    sizes: tuple[int, int] = size
    return sizes


def _changed_each(
    view: H, changes: Mapping[int, Message | str], only_if_smaller: bool
) -> ChangedRows:
    is_protected, sources = view.stays, list[MessageSource]()
    at, tokens, estimates = list[int](), list[int](), list[int]()
    for p in sorted(changes):
        old, new = view.item(p), changes[p]
        old_message = old.message(view.log)
        if is_protected[p] or new is old_message:
            continue
        # A text keeps the tool calls of the message; equal content is no change.
        if isinstance(new, str):
            new = replace_all_but_calls(old_message, new)
        if new.parts == old_message.parts and new.role == old_message.role:
            continue
        origin = view.log.messages[old.row].id if old.row >= 0 else old_message.id
        source = ReplacementMessage(with_content_id(new, origin))
        size, estimate = count_tokens_and_estimate(view, source.stored, old.row)
        if only_if_smaller and size >= old.tokens:
            continue
        at.append(p)
        tokens.append(size)
        estimates.append(estimate)
        sources.append(source)
    return np.array(at, int), (tokens, estimates), sources


def mark_fallback(view: H, error: str) -> H:
    """Record in the last edit that it replaces a summary that failed.

    Args:
        view: the history whose last edit is marked.
        error: the error of the summary; empty: no change.
    """
    if not view.steps or not error:
        return view
    *before, last = view.steps
    return replace(view, steps=(*before, replace(last, error=format_error_line(error))))


def make_session_edits(view: HistoryView) -> tuple[Edit, ...]:
    """Return the edits of this call as session records, with ids and messages."""
    after = [*(step.was for step in view.steps[1:]), view]
    return tuple(make_session_edit(step, now) for step, now in zip(view.steps, after, strict=False))


def make_session_edit(step: HistoryEdit, now: HistoryView) -> Edit:
    """Return an edit that led to the history `now` as a session record.

    Args:
        step: the edit and the history before it.
        now: the history after it.
    """
    log = step.was.log
    positions = step.positions()
    targets = tuple(step.was[p].id for p in positions)
    new = step.new if step.new is not None else tuple(now.head.item(p) for p in positions)
    inserted = tuple(i.message(log) for i in new)
    source = sum(step.was.item(p).tokens for p in positions)
    if step.added and step.at[0] < len(step.was):
        # a recorded edit inserts in place of a target, so the neighbour is target and inserted
        neighbour = step.was[int(step.at[0])]
        targets, inserted = (neighbour.id,), (*inserted, neighbour)
    kind, reason, method, usage = step.info
    details: dict[str, Any] = {"messages_before": len(step.was), "messages_after": len(now)}
    if kind == "summarised" and not step.added:
        details |= {"source_tokens": source, "summary_tokens": sum(i.tokens for i in new)}
        details["written_tokens"] = step.written_tokens(log)
    if error := step.error or _error_of(step, inserted):
        details[SUMMARY_ERROR_KEY] = error
    return Edit(
        kind=kind,
        targets=targets,
        inserted=inserted,
        reason=reason,
        method=method,
        tokens_before=step.was.tokens,
        tokens_after=now.tokens,
        source="derived",
        usage=usage,
        details=details,
    )


def _error_of(step: HistoryEdit, inserted: Sequence[Message]) -> str:
    """Return the errors of failed summaries that the inserted messages replaced."""
    failed = [m for m in inserted if m.role == "summary" and SUMMARY_ERROR_KEY in m.details]
    ids_before = {m.id for m in step.was.messages} if failed else set()
    return "; ".join(
        dict.fromkeys(str(m.details[SUMMARY_ERROR_KEY]) for m in failed if m.id not in ids_before)
    )


def insert_message(
    view: H, position: int, message: Message, reason: str = "", *, method: str | None = None
) -> H:
    """Insert a message before a position.

    Args:
        view: the history before.
        position: the message that stands there now follows the new one.
        message: the new message.
        reason: the reason, for people.
        method: the policy's name for its method.

    Returns:
        The history after.

    Raises:
        UnsoundHistory: the position is between a tool call and its result.
    """
    if not is_safe_cut(view, position):
        raise UnsoundHistory(
            f"A message at position {position} would part a tool call from its result."
        )
    item = make_head_item(view, message, last_row=view.row(position - 1) if position else -1)
    items = [view.item(p) for p in range(max(position, view.head.size))]
    items.insert(position, item)
    info: EditInfo = ("summarised", reason, method, None)
    upto, edited = max(position, view.head.size), (np.array([position]), (item,))
    return replace_head(
        view, EditedHead.of(tuple(items)), upto, position, info, edited=edited, added=True
    )


def make_history_of_messages(
    view: H, messages: Sequence[Message], reason: str = "", *, method: str | None = None
) -> H:
    """Return the history of a list of messages; ids of the history identify its messages.

    Args:
        view: the history before.
        messages: all messages of the new history, in order.
        reason: the reason, for people.
        method: the policy's name for its method.

    Raises:
        UnsoundHistory: a call or a result lost its partner, or a protected message is gone.
    """
    # Match messages by id; keep the items of unchanged ones, so that their content stays identical.
    present = view.messages
    items = [view.item(p) for p in range(len(view))]
    places = {m.id: p for p, m in enumerate(present)}
    new: list[HeadItem] = []
    for m in messages:
        p = places.get(m.id)
        old = None if p is None else items[p]
        if p is not None and old is not None and (m is present[p] or m == present[p]):
            new.append(old)
        elif old is not None:
            changed = with_content_id(m, view.log.messages[old.row].id if old.row >= 0 else m.id)
            new.append(
                HeadItem(
                    old.row,
                    *count_tokens_and_estimate(view, changed, old.row),
                    ReplacementMessage(changed),
                    old.last_replaced,
                )
            )
        else:
            new.append(make_head_item(view, m, new[-1].row if new else -1, n=len(new)))
    pairs = enumerate(zip(items, new, strict=False))
    first = next((i for i, (a, b) in pairs if a is not b), min(len(items), len(new)))
    if first == len(items) == len(new):
        return view
    rest = np.arange(first, len(items))
    kind: EditKind = "summarised" if len(new) > first else "dropped"
    info: EditInfo = ("replaced" if len(items) == len(new) else kind, reason, method, None)
    head, step = EditedHead.of(tuple(new)), (rest, tuple(new[first:]))
    done = replace_head(view, head, len(view), first, info, edited=step)
    check_invariants(done, view)
    return done


def apply_recorded_edit(view: H, edit: Edit) -> H:
    """Apply a recorded edit as far as its targets are present; pairs are not checked.

    Args:
        view: the history before.
        edit: the recorded edit; targets that are absent are skipped.

    Returns:
        The history after.
    """
    present = view.messages
    ids = {m.id: p for p, m in enumerate(present)}
    at = sorted(ids[t] for t in edit.targets if t in ids)
    if edit.kind in ("shortened", "replaced"):
        pairs = zip(edit.targets, edit.inserted, strict=False)
        return _apply_changes(view, edit, {ids[t]: m for t, m in pairs if t in ids})
    where, removed = min(at, default=len(view)), set(at)
    upto = max(at[-1] + 1 if at else len(view), view.head.size)
    last_row = view.row(at[-1]) if at else -1
    inserted = tuple(
        view.item(ids[m.id])  # an insertion before a present message records that message, too
        if ids.get(m.id, -1) in removed and present[ids[m.id]] == m
        else HeadItem(-1, *count_tokens_and_estimate(view, m, -1), ReplacementMessage(m), last_row)
        for m in edit.inserted
    )
    items = [view.item(p) for p in range(upto) if p not in removed]
    items[where:where] = inserted
    info, step = (edit.kind, edit.reason, edit.method, edit.usage), (np.array(at, int), inserted)
    return replace_head(view, EditedHead.of(tuple(items)), upto, where, info, edited=step)


def _apply_changes(view: H, edit: Edit, new: dict[int, Message]) -> H:
    if not new:
        return view
    at = sorted(new)
    upto = max(at[-1] + 1, view.head.size)
    items = [view.item(p) for p in range(upto)]
    for p in at:
        row, size = items[p].row, count_tokens_and_estimate(view, new[p], items[p].row)
        items[p] = HeadItem(row, *size, ReplacementMessage(new[p]), items[p].last_replaced)
    changed = tuple(items[p] for p in at)
    info = (edit.kind, edit.reason, edit.method, edit.usage)
    return replace_head(
        view, EditedHead.of(tuple(items)), upto, at[0], info, edited=(np.array(at), changed)
    )
