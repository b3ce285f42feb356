"""What holds for every history: pairs stay whole, protected messages stay, order stays."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ctxkit.errors import UnsoundHistory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.policies.history.view import HistoryView
    from ctxkit.session.messages import Message


class Invariant(Protocol):
    """One question about a history, measured against the log that it shows."""

    @property
    def name(self) -> str:
        """What it asks for, in a few words."""

    def broken(self, view: HistoryView) -> str | None:
        """Return a sentence that names the first place where the view breaks it, or None."""


class ChangedGroup(NamedTuple):
    """A reply and the results of its calls, not shown as they were said."""

    row: int
    reply: Message | None
    """None: it is not shown."""
    results: list[Message]
    """Those that are shown."""


def find_changed_groups(view: HistoryView) -> list[ChangedGroup]:
    """Return the groups that are not shown as they were said, nor as in a view that was sound.

    Groups come in order of their rows; it takes O(shown) array work and looks at messages of such
    groups only.
    """
    now, sound_groups, rows = _shown_groups(view), _last_sound_groups(view), view.column("rows")
    new = now.odd & (sound_groups.said != now.said)
    new[now.groups[sound_groups.keys != now.keys]] = True
    new &= now.odd
    if not new.any():
        return []
    at = np.flatnonzero(rows >= 0)
    places: dict[int, list[int]] = {group: [] for group in np.flatnonzero(new).tolist()}
    for p in at[new[now.groups[rows[at]]]].tolist():
        places[int(now.groups[rows[p]])].append(p)
    out = []
    for group, changed in places.items():
        reply = next((p for p in changed if rows[p] == group), None)
        results = [view[p] for p in changed if rows[p] != group]
        out.append(ChangedGroup(group, None if reply is None else view[reply], results))
    return out


def remember_sound_groups(view: HistoryView) -> None:
    """Take down that what a view shows of each group is sound: it need not be looked at again."""
    now, cache = _shown_groups(view), _last_sound_groups(view)
    mine = now.odd[now.groups]
    cache.keys[mine], cache.said[mine] = now.keys[mine], now.said[mine]


class ShownGroups(NamedTuple):
    """What is shown of the rows of a log, as arrays: one value a row."""

    keys: NDArray[Any]
    """What a row says, as `Head` has it; `_HIDDEN`: it is not shown."""
    said: NDArray[Any]
    """At the row of a reply how many messages its group has."""
    groups: NDArray[Any]
    """The row of its group's reply."""
    odd: NDArray[Any]
    """At the row of a reply whether its group is shown, and not as it was said."""


_HIDDEN = -(1 << 63)


def _last_sound_groups(view: HistoryView) -> ShownGroups:
    """Return how each row was shown in the last sound view with its group odd; written to."""
    cache: list[NDArray[Any]] = view.log.memo.setdefault("sound", [np.zeros(0, np.int64)] * 2)
    if len(cache[0]) < view.hi:
        more = np.full(view.hi + len(cache[0]), -1, np.int64)
        cache[:] = [np.concatenate((last, more)) for last in cache]
    keys, unchanged = (last[: view.hi] for last in cache)
    return ShownGroups(keys, unchanged, keys, keys)


def _shown_groups(view: HistoryView) -> ShownGroups:
    last = view.log.memo.get("shown in groups")
    if last is None or last[0] is not view:  # several ask about one view
        last = view.log.memo["shown in groups"] = view, _group_rows(view)
    groups: ShownGroups = last[1]
    return groups


def _group_rows(view: HistoryView) -> ShownGroups:
    shown = view.column("rows") >= 0
    rows, keys = view.column("rows")[shown], view.column("keys")[shown]
    groups = view.log.column("groups", view.hi)
    now = np.full(view.hi, _HIDDEN)
    now[rows] = keys
    have, unchanged = (np.bincount(of, minlength=view.hi) for of in (groups[rows], groups))
    odd = (have > 0) & (have != unchanged)
    odd[groups[rows[keys != 0]]] = True
    return ShownGroups(now, unchanged, groups, odd)


class CallsHaveResults:
    """A call that was answered before the coming call is shown only with its answer."""

    name = "every tool call has its result"

    def broken(self, view: HistoryView) -> str | None:
        """Return a sentence that names a call that lost its result, or None."""
        log = view.log
        for group, reply, results in find_changed_groups(view):
            if reply is None:
                continue
            calls = [r for r in log.results.get(group, ()) if r < view.hi]
            answered = {log.messages[r].call_id for r in calls}
            shown = {m.call_id for m in results}
            for call in reply.tool_calls:
                if call.id in answered - shown:
                    return f"Tool call {call.name} ({call.id}) lost its result."
            if reply.tool_calls and None in answered and len(results) < len(calls):
                return (
                    f"Tool call {reply.tool_calls[0].name} ({reply.tool_calls[0].id}) lost its"
                    " result."
                )
        return None


class ResultsHaveCalls:
    """A result whose call the log has is shown only with that call."""

    name = "every tool result has its call"

    def broken(self, view: HistoryView) -> str | None:
        """Return a sentence that names a result that lost its call, or None."""
        for group, reply, results in find_changed_groups(view):
            calls = {c.id for c in reply.tool_calls} if reply else set()
            for result in results:
                if result.role == "tool" and (
                    reply is None or (result.call_id or "") not in calls | {""}
                ):
                    name = result.tool or view.log.tool(group) or "a tool"
                    return f"The result of {name} ({result.call_id or result.id}) lost its call."
        return None


class MessagesStay:
    """Every message of one kind that was said before the coming call is shown."""

    def __init__(self, name: str, what: str) -> None:
        self.name, self._what = name, what

    def broken(self, view: HistoryView) -> str | None:
        """Return a sentence that names a message that is gone, or None."""
        log = view.log
        for row in log.stays[: bisect_left(log.stays, view.hi)]:
            message = log.messages[row]
            if self._is(message) and row < view.lo and row not in view.head.rows:
                return f"The {self._what} message {message.id or row} is gone: it must stay."
        return None

    def _is(self, message: Message) -> bool:
        item = message.role == "system"
        return item if self._what == "system" else bool(getattr(message, self._what))


SYSTEM_STAYS = MessagesStay("system messages stay", "system")
PINNED_STAYS = MessagesStay("pinned messages stay", "pinned")
PENDING_STAYS = MessagesStay("pending approvals stay", "pending")
"""What an approval or an unfinished tool waits on stays."""


class OrderStays:
    """Rows that are shown rise, and none is shown twice."""

    name = "order stays"

    def broken(self, view: HistoryView) -> str | None:
        """Return a sentence that names the first message out of order, or None."""
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
    """Raise UnsoundHistory where a history breaks an invariant that it did not break before.

    A result may have come after its call was compacted away: then nobody's change is to blame.
    """
    why = find_violation(view)
    if why and not find_violation(was):
        raise UnsoundHistory(why)
