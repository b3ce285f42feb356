"""Records one after the other: what is damaged becomes a fault, and the rest is read."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ctxkit.messages import Fault
from ctxkit.readers.fields import DAMAGE, mapping, why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@contextmanager
def noting(faults: list[Fault], line: int, what: str = "") -> Iterator[None]:
    """Take one record; where it is damaged, its line is noted, with what it is."""
    try:
        yield
    except DAMAGE as e:
        faults.append(Fault(line, what + why(e)))


def each_line(
    records: Iterable[tuple[int, Any]], take: Callable[[Any], object], faults: list[Fault]
) -> None:
    """Give each record to a reader; of a damaged one the line is noted."""
    for line, record in records:
        try:
            take(record)
        except DAMAGE as e:
            faults.append(Fault(line, why(e)))


def each_of(
    raws: Iterable[Any],
    what: str,
    take: Callable[[dict[str, Any]], object],
    faults: list[Fault],
) -> None:
    """Give each of a list's objects to a reader; of a damaged one its place is noted.

    Args:
        raws: the list; what is no object is taken for an empty one.
        what: what they are, in a word.
        take: reads one.
        faults: gets the damaged ones.
    """
    for n, raw in enumerate(raws):
        try:
            take(mapping(raw))
        except DAMAGE as e:
            faults.append(Fault(0, f"{what} {n}: {why(e)}"))
