"""What one verb did to a history, kept light: the edit that a session holds is made from it when
asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.history.columns import SUMMARY
from ctxkit.history.head_items import Item
from ctxkit.messages import Edit, EditKind, Usage

if TYPE_CHECKING:
    from ctxkit.history.log import Log
    from ctxkit.history.view import View


Words = tuple[EditKind, str, str | None, Usage | None]
"""Kind and reason of a step, its policy's own word for how it was done, and what the call of a
summariser cost.
"""


class Step(msgspec.Struct, frozen=True, gc=False):
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

    def edit(self, now: View) -> Edit:
        """Return the step that led to `now` as an edit with ids and messages; targets stood in the
        view before.
        """
        log = self.was.log
        positions = self.positions()
        targets = tuple(self.was[p].id for p in positions)
        new = self.new if self.new is not None else tuple(now.head.item(p) for p in positions)
        inserted = tuple(i.message(log) for i in new)
        source = sum(self.was.item(p).tokens for p in positions)
        if self.added and self.at[0] < len(
            self.was
        ):  # an edit puts messages where a target stood: so one is put back
            neighbour = self.was[int(self.at[0])]
            targets, inserted = (neighbour.id,), (*inserted, neighbour)
        kind, reason, method, usage = self.words
        details: dict[str, Any] = {"messages_before": len(self.was), "messages_after": len(now)}
        if kind == "summarised" and not self.added:
            details |= {"source_tokens": source, "summary_tokens": sum(i.tokens for i in new)}
            details["written_tokens"] = self.written(log)
        return Edit(
            kind=kind,
            targets=targets,
            inserted=inserted,
            reason=reason,
            method=method,
            tokens_before=self.was.tokens,
            tokens_after=now.tokens,
            source="derived",
            usage=usage,
            details=details,
        )
