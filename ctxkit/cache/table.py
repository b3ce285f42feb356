"""The sessions that teach every prediction: a table of counts, remade by `docs/make_trust.py`."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from ctxkit.cache.cache_counts import HEAD, Taught, recorded_reads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session import Session

NAME = "taught.json"


@cache
def table() -> tuple[Taught, ...]:
    """Return what the committed sessions taught: counts alone, nothing that was said in them."""
    data = resources.files(__package__).joinpath(NAME).read_bytes()
    return msgspec.json.decode(data, type=tuple[Taught, ...])


def teaches(session: Session) -> bool:
    """Say whether a session teaches: one that never reads a token tells of no cache."""
    reads = recorded_reads(session)
    return len(reads) > 1 and any(reads)


def others(teachers: Iterable[Taught], session: str, head: Sequence[int]) -> list[Taught]:
    """Return the teachers that are neither the session itself nor a copy of its beginning."""
    own = tuple(head)
    copy = len(own) == HEAD
    return [t for t in teachers if t.session != session and not (copy and t.head == own)]
