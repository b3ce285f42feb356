"""What an invariant of a history is: an object that finds the first place where a history breaks
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
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
    known = view.log.memo.get("sound", {})
    shown = _shown(view).items()
    new = {group: places for group, (places, how) in shown if known.get(group) != how}
    out = []
    for group, places in sorted(new.items()):
        reply = next((p for p, row in places if row == group), None)
        results = [view[p] for p, row in places if row != group]
        out.append(Group(group, None if reply is None else view[reply], results))
    return out


def keep_in_mind(view: View) -> None:
    """Take down that what a view shows of each group is sound: it need not be looked at again."""
    known = view.log.memo.setdefault("sound", {})
    known.update((group, how) for group, (_, how) in _shown(view).items())


def _shown(view: View) -> dict[int, tuple[list[tuple[int, int]], Any]]:
    """Return by group, where it is not shown as it was said, positions and rows, and how it is."""
    last = view.log.memo.get("shown in groups")
    if last is None or last[0] is not view:  # several ask about one view
        last = view.log.memo["shown in groups"] = view, _grouped(view)
    found: dict[int, tuple[list[tuple[int, int]], Any]] = last[1]
    return found


def _grouped(view: View) -> dict[int, tuple[list[tuple[int, int]], Any]]:
    rows, keys = view.column("rows"), view.column("keys")
    groups = view.log.column("groups", view.hi)
    known = rows >= 0
    have = np.bincount(groups[rows[known]], minlength=view.hi)
    said = np.bincount(groups, minlength=view.hi)
    odd = (have > 0) & (have != said)
    odd[groups[rows[known & (keys != 0)]]] = True
    if not odd.any():
        return {}
    at = np.flatnonzero(known)
    of = groups[rows[at]]
    at, of = at[odd[of]], of[odd[of]]
    table = zip(*(x.tolist() for x in (of, at, rows[at], keys[at])), strict=True)
    found: dict[int, tuple[list[tuple[int, int]], list[Any]]] = {}
    for group, position, row, key in table:
        places, how = found.setdefault(group, ([], []))
        places.append((position, row))
        how += (row, key)
    return {g: (places, (int(said[g]), *how)) for g, (places, how) in found.items()}
