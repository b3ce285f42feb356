"""Pi's structured summary, which its descendants share: split turns apart, lists of files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ctxkit.policies.summary import Summary
from ctxkit.policies.summary_places import asks_anew, boundary
from ctxkit.texts.summary_passages import PI_SECTIONS, PI_TURN_SECTIONS

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.policies.summarisers import Passage
    from ctxkit.tokens import Room

INSTRUCTIONS = (
    "Summarise this conversation so that another model can go on with the work. Update the earlier"
    " summary where there is one: keep what still holds. Keep exact file paths, function names and"
    " error messages."
)
TURN_INSTRUCTIONS = (
    "This is the beginning of a turn whose end is kept. Say what the end needs: "
    + ", ".join(PI_TURN_SECTIONS)
    + "."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class PiSummary(Summary):
    """Pi's compaction: cut by its own estimate, split turns apart, lists of files."""

    estimated: bool = True
    file_lists: bool = True
    sections: tuple[str, ...] = PI_SECTIONS
    instructions: str = INSTRUCTIONS
    quirks: bool = False
    """Lose what Pi lost at the second compaction, and cut nothing where Pi cut nothing."""
    remembers: bool = False
    """With quirks: what the compaction before had kept is summarised (Pi from 0.73 on)."""
    before_request: bool = False
    """Cut as if the request that waits were not said yet: Pi compacts before it takes one in."""

    def cut(self, history: History, room: Room) -> int:
        """Return the first position that is kept; the request that waits is always kept."""
        if not self.before_request:
            return super().cut(history, room)
        last = len(history) - 1
        row = history.row(last) if last >= 0 else -1
        if not asks_anew(history.log, row, history.call):
            return super().cut(history, room)
        request = history.item(last)
        kept = (self.keeps or 0) + (request.estimate if self.estimated else request.tokens)
        found = self.at(history, history.back(kept, estimated=self.estimated))
        if found < last:
            return found
        return 0 if self.quirks else history.safe_before(max(last - 1, 0))

    def start(self, history: History) -> int:
        """Return the first position that is looked at: with quirks behind what was kept before."""
        if not self.quirks or self.remembers:
            return 0
        return boundary(history, waiting=self.before_request)

    def at(self, history: History, position: int) -> int:
        """Return Pi's cut at or after a position."""
        if not self.quirks:
            return super().at(history, position)
        start = self.start(history)
        first = history.safe(max(position, start))
        return first if first > start else 0

    def passages(self, history: History, first: int) -> list[Passage]:
        """Return old turns and a split turn's head; with quirks, since the last compaction."""
        found = super().passages(history, first)
        if len(found) > 1:
            found[1] = replace(found[1], instructions=TURN_INSTRUCTIONS)
        return found
