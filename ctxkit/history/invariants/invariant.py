"""What an invariant of a history is: it finds the first place where one breaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history.view import View
    from ctxkit.messages import Message


class Invariant(Protocol):
    """One question about a history, measured against the log that it shows."""

    @property
    def name(self) -> str:
        """What it asks for, in a few words."""

    def broken(self, view: View) -> str | None:
        """Return a sentence that names the first place where the view breaks it, or None."""


class Group(NamedTuple):
    """A reply and the results of its calls, not shown as they were said."""

    row: int
    reply: Message | None
    """None: it is not shown."""
    results: list[Message]
    """Those that are shown."""


def parted(view: View) -> list[Group]:
    """Return the groups that are not shown as they were said, nor as in a view that was sound.

    Groups come in order of their rows; it takes O(shown) array work and looks at messages of such
    groups only.
    """
    now, known, rows = _shown(view), _sound(view), view.column("rows")
    new = now.odd & (known.said != now.said)
    new[now.groups[known.keys != now.keys]] = True
    new &= now.odd
    if not new.any():
        return []
    at = np.flatnonzero(rows >= 0)
    places: dict[int, list[int]] = {group: [] for group in np.flatnonzero(new).tolist()}
    for p in at[new[now.groups[rows[at]]]].tolist():
        places[int(now.groups[rows[p]])].append(p)
    out = []
    for group, found in places.items():
        reply = next((p for p in found if rows[p] == group), None)
        results = [view[p] for p in found if rows[p] != group]
        out.append(Group(group, None if reply is None else view[reply], results))
    return out


def keep_in_mind(view: View) -> None:
    """Take down that what a view shows of each group is sound: it need not be looked at again."""
    now, known = _shown(view), _sound(view)
    mine = now.odd[now.groups]
    known.keys[mine], known.said[mine] = now.keys[mine], now.said[mine]


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


def _sound(view: View) -> ShownGroups:
    """Return how each row was shown in the last sound view with its group odd; written to."""
    known: list[NDArray[Any]] = view.log.memo.setdefault("sound", [np.zeros(0, np.int64)] * 2)
    if len(known[0]) < view.hi:
        more = np.full(view.hi + len(known[0]), -1, np.int64)
        known[:] = [np.concatenate((held, more)) for held in known]
    keys, said = (held[: view.hi] for held in known)
    return ShownGroups(keys, said, keys, keys)


def _shown(view: View) -> ShownGroups:
    last = view.log.memo.get("shown in groups")
    if last is None or last[0] is not view:  # several ask about one view
        last = view.log.memo["shown in groups"] = view, _grouped(view)
    found: ShownGroups = last[1]
    return found


def _grouped(view: View) -> ShownGroups:
    shown = view.column("rows") >= 0
    rows, keys = view.column("rows")[shown], view.column("keys")[shown]
    groups = view.log.column("groups", view.hi)
    now = np.full(view.hi, _HIDDEN)
    now[rows] = keys
    have, said = (np.bincount(of, minlength=view.hi) for of in (groups[rows], groups))
    odd = (have > 0) & (have != said)
    odd[groups[rows[keys != 0]]] = True
    return ShownGroups(now, said, groups, odd)
