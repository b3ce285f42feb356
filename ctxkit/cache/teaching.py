"""Sessions as teachers of each other: what `docs/make_trust.py` writes and measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.cache.cache_counts import taught
from ctxkit.cache.cached_calls import asked
from ctxkit.cache.predictions import STRETCH, prediction
from ctxkit.cache.rates import LONG
from ctxkit.cache.table import others, teaches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.cache.cache_counts import Taught
    from ctxkit.cache.predictions import Prediction
    from ctxkit.session import Session

_MOST = 20.0
"""Half widths off that count at most: an interval of no width says nothing."""


def apart(sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions and subagents that can teach, the longest of those that are copies."""
    given = [each for s in sessions for each in (s, *s.children)]
    found: list[tuple[Session, Taught]] = []
    for session in sorted((s for s in given if teaches(s)), key=lambda s: -len(s.calls)):
        own = taught(session)
        if len(others([t for _, t in found], own.session, own.head)) == len(found):
            found.append((session, own))
    return sorted((s for s, _ in found), key=lambda s: (s.format, s.id))


def teach(sessions: Sequence[Session]) -> tuple[Taught, ...]:
    """Return what sessions teach, each with how far off its own interval was."""
    plain = [taught(s) for s in sessions]
    return tuple(
        replace(t, stretch=_stretch(prediction(s, plain)) if len(asked(s)) >= LONG else None)
        for s, t in zip(sessions, plain, strict=True)
    )


def _stretch(found: Prediction) -> float | None:
    """Return how many unstretched half widths the record lies above what was foretold."""
    if found.error is None or found.low is None or found.high is None:
        return None
    half = found.error - found.low if found.error > 0 else found.high - found.error
    off = -found.error * STRETCH / half if half else None
    return None if off is None else min(max(off, -_MOST), _MOST)


def left_out(
    sessions: Sequence[Session], teachers: Sequence[Taught]
) -> list[tuple[Session, Prediction]]:
    """Return each session that is long enough with its prediction by all teachers but itself."""
    judged = [s for s in sessions if len(asked(s)) >= LONG]
    return [(s, prediction(s, teachers)) for s in judged]
