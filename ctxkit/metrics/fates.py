"""What became of each item that a cut removed, and whether a reply named it later."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.metrics.items import Family, Found

Fate = Literal["retained", "recoverable", "lost"]
FATES: tuple[Fate, ...] = get_args(Fate)


class Gone(NamedTuple):
    """One item of what a cut removed, or an earlier one had removed."""

    item: Found
    position: int
    """Place in `session.path` of the first removed message that held it."""
    fate: Fate
    needed: int | None
    """The first call before the next cut that names it again; None: none does."""


class Taken(NamedTuple):
    """One item that a cut took out of sight: before it the item stood in what was shown, or in what was said since."""

    item: Found
    position: int
    """Place in `session.path` of the first removed message that held it."""
    fate: Fate
    """`recoverable` or `lost`, as it stood after this cut."""
    needed: int | None
    """The first later call, at any time before a cut takes it again, that names it; None: none does."""


class CutLoss(NamedTuple):
    """What stood after one cut of all that had been removed since the start, and what this cut took."""

    number: int
    call: int
    """The first call after it."""
    items: tuple[Gone, ...]
    taken: tuple[Taken, ...]
    due: int
    """Items removed so far, in sight or not, that the record names at any time after it."""
    saved: float
    """How many of these the best set of messages of the same size could have kept: an upper bound."""
    tally: Tally[tuple[Fate, Family, bool]]
    """Number of items by fate, family and whether they were needed before the next cut."""

    def count(self, fate: Fate | None = None, family: Family | None = None, *, needed: bool = False) -> int:
        """Return how many items are of a fate and family, or were needed before the next cut."""
        return sum(
            n
            for (f, of, used), n in self.tally.items()
            if (fate is None or f == fate) and (family is None or of == family) and (used or not needed)
        )

    def missed(self, family: Family | None = None) -> int:
        """Return how many of the items that this cut took were named later, before they were taken again."""
        return sum(t.needed is not None and (family is None or t.item.family == family) for t in self.taken)


class Loss(NamedTuple):
    """What all cuts of a session lost."""

    cuts: tuple[CutLoss, ...]
    used_again: int
    """Items that the record names again after they were said, each once: the same under any rules."""
    needed: frozenset[Found]
    """Items that a cut removed and that the record named at any time after, in sight or not."""

    @property
    def missed(self) -> dict[Found, tuple[int, Taken]]:
        """The items that a cut took and that were named later, each once, with the first call after that cut."""
        out: dict[Found, tuple[int, Taken]] = {}
        for cut in self.cuts:
            for taken in cut.taken:
                if taken.needed is not None:
                    out.setdefault(taken.item, (cut.call, taken))
        return out


def tallied(items: Iterable[Gone]) -> Tally[tuple[Fate, Family, bool]]:
    """Return the number of items by fate, family and need."""
    return Tally((g.fate, g.item.family, g.needed is not None) for g in items)
