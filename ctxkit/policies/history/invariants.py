"""Invariants of every history: groups stay whole, protected messages stay, order stays."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ctxkit.errors import UnsoundHistory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.policies.history.history_view_and_searches import HistoryView
    from ctxkit.session.messages import Message


class Invariant(Protocol):
    """A condition that every history of a log must meet."""

    @property
    def name(self) -> str:
        """The condition in a few words."""

    def broken(self, view: HistoryView) -> str | None:
        """Return a sentence about the first violation, or None."""


class ChangedGroup(NamedTuple):
    """A reply and the results of its calls, where the history differs from the log."""

    row: int
    reply: Message | None
    """None: it was removed."""
    results: list[Message]
    """The results in the history."""


def find_changed_groups(view: HistoryView) -> list[ChangedGroup]:
    """Return the groups that differ from the log, and from the last view that was checked.

    Groups are in order of rows. Cost: O(n) array operations; only messages of changed groups are
    read. Groups that a checked view had in the same form are skipped, so that a chain of policies
    or a sequence of calls does not check them again.
    """
    groups, sound_groups, rows = (
        _visible_groups(view),
        _last_sound_groups(view),
        view.column("rows"),
    )
    is_new = groups.odd & (sound_groups.sizes != groups.sizes)
    is_new[groups.groups[sound_groups.keys != groups.keys]] = True
    is_new &= groups.odd
    if not is_new.any():
        return []
    at = np.flatnonzero(rows >= 0)
    places: dict[int, list[int]] = {group: [] for group in np.flatnonzero(is_new).tolist()}
    for p in at[is_new[groups.groups[rows[at]]]].tolist():
        places[int(groups.groups[rows[p]])].append(p)
    out = []
    for group, group_positions in places.items():
        reply = next((p for p in group_positions if rows[p] == group), None)
        results = [view[p] for p in group_positions if rows[p] != group]
        out.append(ChangedGroup(group, None if reply is None else view[reply], results))
    return out


def remember_sound_groups(view: HistoryView) -> None:
    """Record the changed groups of a view as sound: the next check skips them."""
    groups, cache = _visible_groups(view), _last_sound_groups(view)
    in_changed_group = groups.odd[groups.groups]
    cache.keys[in_changed_group], cache.sizes[in_changed_group] = (
        groups.keys[in_changed_group],
        groups.sizes[in_changed_group],
    )


class ViewRowArrays(NamedTuple):
    """How a view holds the rows of a log: arrays with one value per row."""

    keys: NDArray[Any]
    """Key of the row's content in the view (0: recorded); `_HIDDEN`: not in the view."""
    sizes: NDArray[Any]
    """At the row of a reply, the number of messages of its group."""
    groups: NDArray[Any]
    """Row of the reply of the row's group."""
    odd: NDArray[Any]
    """At the row of a reply, True where its group is in the view and differs from the log."""


_HIDDEN = -(1 << 63)


def _last_sound_groups(view: HistoryView) -> ViewRowArrays:
    """Return the cache of the last sound form of each row, with room for all rows; writable."""
    cache: list[NDArray[Any]] = view.log.memo.setdefault("sound", [np.zeros(0, np.int64)] * 2)
    if len(cache[0]) < view.hi:
        more = np.full(view.hi + len(cache[0]), -1, np.int64)
        cache[:] = [np.concatenate((column, more)) for column in cache]
    keys, counts = (column[: view.hi] for column in cache)
    return ViewRowArrays(keys, counts, keys, keys)


def _visible_groups(view: HistoryView) -> ViewRowArrays:
    last = view.log.memo.get("visible groups")
    if last is None or last[0] is not view:  # several invariants check one view
        last = view.log.memo["visible groups"] = view, _group_rows(view)
    groups: ViewRowArrays = last[1]
    return groups


def _group_rows(view: HistoryView) -> ViewRowArrays:
    is_visible = view.column("rows") >= 0
    rows, keys = view.column("rows")[is_visible], view.column("keys")[is_visible]
    # A group is changed if the view has some, but not all, of its rows, or one in another form.
    groups = view.log.column("groups", view.hi)
    keys_by_row = np.full(view.hi, _HIDDEN)
    keys_by_row[rows] = keys
    visible_counts, recorded_counts = (
        np.bincount(of, minlength=view.hi) for of in (groups[rows], groups)
    )
    is_changed = (visible_counts > 0) & (visible_counts != recorded_counts)
    is_changed[groups[rows[keys != 0]]] = True
    return ViewRowArrays(keys_by_row, recorded_counts, groups, is_changed)


class CallsHaveResults:
    """A tool call that has a result in the log has it in the history, too."""

    name = "every tool call has its result"

    def broken(self, view: HistoryView) -> str | None:
        """Return a sentence about a call that lost its result, or None."""
        log = view.log
        for group, reply, results in find_changed_groups(view):
            if reply is None:
                continue
            result_rows = [r for r in log.results.get(group, ()) if r < view.hi]
            answered = {log.messages[r].call_id for r in result_rows}
            visible = {m.call_id for m in results}
            for call in reply.tool_calls:
                if call.id in answered - visible:
                    return f"Tool call {call.name} ({call.id}) lost its result."
            if reply.tool_calls and None in answered and len(results) < len(result_rows):
                return (
                    f"Tool call {reply.tool_calls[0].name} ({reply.tool_calls[0].id}) lost its"
                    " result."
                )
        return None


class ResultsHaveCalls:
    """A tool result whose call is in the log has it in the history, too."""

    name = "every tool result has its call"

    def broken(self, view: HistoryView) -> str | None:
        """Return a sentence about a result that lost its call, or None."""
        for _, reply, results in find_changed_groups(view):
            calls = {c.id for c in reply.tool_calls} if reply else set()
            for result in results:
                if result.role == "tool" and (
                    reply is None or (result.call_id or "") not in calls | {""}
                ):
                    name = result.tool or "a tool"
                    return f"The result of {name} ({result.call_id or result.id}) lost its call."
        return None


class ProtectedMessagesStay:
    """All messages of one protected kind are in the history."""

    def __init__(self, name: str, what: str) -> None:
        self.name, self._what = name, what

    def broken(self, view: HistoryView) -> str | None:
        """Return a sentence about a removed message, or None."""
        log = view.log
        for row in log.stays[: bisect_left(log.stays, view.hi)]:
            message = log.messages[row]
            if self._is_of_kind(message) and row < view.lo and row not in view.head.rows:
                return f"The {self._what} message {message.id or row} is gone: it must stay."
        return None

    def _is_of_kind(self, message: Message) -> bool:
        is_system = message.role == "system"
        return is_system if self._what == "system" else bool(getattr(message, self._what))


SYSTEM_STAYS = ProtectedMessagesStay("system messages stay", "system")
PINNED_STAYS = ProtectedMessagesStay("pinned messages stay", "pinned")
PENDING_STAYS = ProtectedMessagesStay("pending approvals stay", "pending")
"""Messages that a pending approval or an unfinished tool needs stay."""


class OrderStays:
    """The rows of the history are in order, without duplicates."""

    name = "order stays"

    def broken(self, view: HistoryView) -> str | None:
        """Return a sentence about the first message out of order, or None."""
        rows = view.column("rows")
        rows = rows[rows >= 0]
        wrong = np.flatnonzero(np.diff(rows) <= 0)
        if not len(wrong):
            return None
        message = view.log.messages[int(rows[wrong[0] + 1])]
        return f"Message {message.id or int(rows[wrong[0] + 1])} stands out of order, or twice."


INVARIANTS: tuple[Invariant, ...] = (
    CallsHaveResults(),
    ResultsHaveCalls(),
    SYSTEM_STAYS,
    PINNED_STAYS,
    PENDING_STAYS,
    OrderStays(),
)


def find_violation(view: HistoryView) -> str | None:
    """Return the sentence of the first invariant that a history breaks, or None."""
    why = next((why for invariant in INVARIANTS if (why := invariant.broken(view))), None)
    if why is None:
        remember_sound_groups(view)
    return why


def check_invariants(view: HistoryView, was: HistoryView) -> None:
    """Check that a history violates no invariant that the one before did not violate.

    The history before can violate one where a result comes after its call was compacted.

    Args:
        view: the history after an edit.
        was: the history before it.

    Raises:
        UnsoundHistory: the edit violates an invariant; the sentence says which.
    """
    why = find_violation(view)
    if why and not find_violation(was):
        raise UnsoundHistory(why)
