"""What one verb did to a history, kept light: a session's edit is made from it when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.history.columns import SUMMARY
from ctxkit.history.head_items import Item
from ctxkit.messages import EditKind, Usage

if TYPE_CHECKING:
    from ctxkit.history.log import Log


Words = tuple[EditKind, str, str | None, Usage | None]
"""Kind and reason of a step, its policy's own word for how it was done, and what the call of a
summariser cost.
"""


class Step(msgspec.Struct, frozen=True):
    """One verb's work. Its numbers are plain; messages and ids are looked up only in `edits`."""

    words: Words
    was: Any
    """The history before."""
    at: Any
    """Positions that went or changed: a pair (first, one past the last; without what stays there),
    or an array.
    """
    new: tuple[Item, ...] | None
    """What came in their place; None: read it off the history after."""
    added: bool = False
    """True where messages were only put in, before the position `at`."""
    error: str = ""
    """Why the summary failed for which this was done instead; empty: none failed."""

    @property
    def kind(self) -> EditKind:
        """What was done."""
        return self.words[0]

    @property
    def usage(self) -> Usage | None:
        """What the call of a summariser cost, or would have cost."""
        return self.words[3]

    @property
    def first(self) -> int:
        """The first position that is not as before."""
        if isinstance(self.at, tuple):
            return int(self.at[0])
        return int(self.at[0]) if len(self.at) else len(self.was)

    def positions(self) -> list[int]:
        """Return the positions in the history before that went or changed."""
        if self.added:
            return []
        if not isinstance(self.at, tuple):
            return [int(p) for p in self.at]
        stays = self.was.stays
        return [p for p in range(*self.at) if not stays[p]]

    def written(self, log: Log) -> int:
        """Return the tokens that a model wrote: its summary's, where other messages came with it.

        Those are the user's own words, or files that were attached again.
        """
        new = self.new or ()
        told = [i.tokens for i in new if i.role(log) == SUMMARY]
        return sum(told) if told else sum(i.tokens for i in new)
