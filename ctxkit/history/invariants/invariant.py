"""What an invariant of a history is: an object that finds the first place where a history breaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

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


def parted(view: View) -> list[tuple[int, Message | None, list[Message]]]:
    """Return the groups that are not shown as they were said: their row, the reply if shown, the results shown.

    Groups come in order of their rows; it takes O(shown) array work and looks at messages of such groups only.
    """
    rows, keys = view.column("rows"), view.column("keys")
    groups = view.log.column("groups", view.hi)
    known = rows >= 0
    have = np.bincount(groups[rows[known]], minlength=view.hi)
    odd = (have > 0) & (have != np.bincount(groups, minlength=view.hi))
    odd[groups[rows[known & (keys != 0)]]] = True
    if not odd.any():
        return []
    at = np.flatnonzero(known)
    of = groups[rows[at]]
    at, of = at[odd[of]], of[odd[of]]
    replies: dict[int, Message] = {}
    results: dict[int, list[Message]] = {}
    for position, group, row in zip(at.tolist(), of.tolist(), rows[at].tolist(), strict=True):
        if row == group:
            replies.setdefault(group, view[position])
        else:
            results.setdefault(group, []).append(view[position])
    return [(group, replies.get(group), results.get(group, [])) for group in sorted(replies.keys() | results.keys())]
