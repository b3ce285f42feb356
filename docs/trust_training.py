"""Count what sessions teach the cache model, and test the model against chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from ctxkit.engine.cache_model.call_features import (
    call_features,
    is_miss,
    miss_cause,
)
from ctxkit.engine.cache_model.miss_rates import (
    MIN_CALLS,
    MissRates,
    count_session,
    draw_reads,
    is_informative,
    recorded_reads,
    without_copies,
)
from ctxkit.engine.cache_model.prediction import DEFAULT_STRETCH, input_costs, predict_input_cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.miss_rates import SessionCounts
    from ctxkit.engine.cache_model.prediction import Prediction
    from ctxkit.session.session import Session


_MOST = 20.0
"""Half widths off that count at most: an interval of no width says nothing."""


def distinct_sessions(sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions and subagents that can teach, the longest of those that are copies."""
    given = [each for s in sessions for each in (s, *s.children)]
    found: list[tuple[Session, SessionCounts]] = []
    for session in sorted((s for s in given if is_informative(s)), key=lambda s: -len(s.calls)):
        own = count_session(session)
        if len(without_copies([t for _, t in found], own.session, own.head)) == len(found):
            found.append((session, own))
    return sorted((s for s, _ in found), key=lambda s: (s.format, s.id))


def count_sessions(sessions: Sequence[Session]) -> tuple[SessionCounts, ...]:
    """Return what sessions teach, each with how far off its own interval was."""
    plain = [count_session(s) for s in sessions]
    return tuple(
        replace(
            t,
            stretch=_stretch(predict_input_cost(s, plain))
            if len(call_features(s)) >= MIN_CALLS
            else None,
        )
        for s, t in zip(sessions, plain, strict=True)
    )


def _stretch(found: Prediction) -> float | None:
    """Return how many unstretched half widths the record lies above what was foretold."""
    if found.error is None or found.low is None or found.high is None:
        return None
    half = found.error - found.low if found.error > 0 else found.high - found.error
    off = -found.error * DEFAULT_STRETCH / half if half else None
    return None if off is None else min(max(off, -_MOST), _MOST)


def leave_one_out(
    sessions: Sequence[Session], teachers: Sequence[SessionCounts]
) -> list[tuple[Session, Prediction]]:
    """Return each session that is long enough with its prediction by all teachers but itself."""
    judged = [s for s in sessions if len(call_features(s)) >= MIN_CALLS]
    return [(s, predict_input_cost(s, teachers)) for s in judged]


def chance_errors(session: Session) -> tuple[float, ...]:
    """Return the errors that are left where a session's own rates are known: chance call by call.

    Each draw is taken for the record, and the middle of all of them for what was foretold.
    """
    known = call_features(session)
    line, own = input_costs(session, known), count_session(session)
    if line is None or len(known) < 2:
        return ()
    draws = line.of(draw_reads(known, MissRates((), own, first=True)))
    return tuple(np.abs(np.median(draws) / draws - 1).tolist())


def chance_named_tokens(session: Session, seed: int = 0) -> tuple[int, int]:
    """Return what misses put to other calls would lose, in tokens, and how much has a cause."""
    known = [a for a in call_features(session) if a.before is not None]
    reads = dict(
        zip((a.call for a in call_features(session)), recorded_reads(session), strict=True)
    )
    n = sum(is_miss(a.shared, reads[a.call]) for a in known)
    if not n:
        return 0, 0
    taken: NDArray[Any] = np.random.default_rng(seed).choice(len(known), n, replace=False)
    lost = [known[i] for i in taken.tolist()]
    named = sum(a.shared for a in lost if miss_cause(a) != "unexplained")
    return sum(a.shared for a in lost), named
