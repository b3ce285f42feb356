"""Count what sessions teach the cache model, and test the model against chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from ctxkit.engine.cache_model.call_features import (
    find_miss_cause,
    get_call_features,
    is_miss,
)
from ctxkit.engine.cache_model.miss_rates import (
    MIN_CALLS,
    MissRates,
    count_session,
    exclude_copies,
    get_recorded_reads,
    is_informative,
    simulate_reads,
)
from ctxkit.engine.cache_model.prediction import (
    DEFAULT_STRETCH,
    compute_input_costs,
    predict_input_cost,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.call_features import CallFeatures
    from ctxkit.engine.cache_model.miss_rates import SessionCounts
    from ctxkit.engine.cache_model.prediction import Prediction
    from ctxkit.session.session import Session


_MAX_STRETCH = 20.0
"""Largest error in half widths that is counted: an interval may have almost no width."""


def select_distinct_sessions(sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions and subagents that can be counted; of copies, the longest one."""
    candidates = [s for session in sessions for s in (session, *session.children)]
    distinct: list[tuple[Session, SessionCounts]] = []
    informative = (s for s in candidates if is_informative(s))
    for session in sorted(informative, key=lambda s: -len(s.calls)):
        counts = count_session(session)
        others = [other for _, other in distinct]
        if len(exclude_copies(others, counts.session, counts.head)) == len(others):
            distinct.append((session, counts))
    return sorted((s for s, _ in distinct), key=lambda s: (s.format, s.id))


def count_sessions(sessions: Sequence[Session]) -> tuple[SessionCounts, ...]:
    """Count sessions, each with the error of its own prediction by the others (`stretch`)."""
    counts = [count_session(s) for s in sessions]
    return tuple(
        replace(
            own,
            stretch=_interval_error(predict_input_cost(session, counts))
            if len(get_call_features(session)) >= MIN_CALLS
            else None,
        )
        for session, own in zip(sessions, counts, strict=True)
    )


def _interval_error(prediction: Prediction) -> float | None:
    """Return how many unstretched half widths the record lies above the prediction."""
    error, low, high = prediction.error, prediction.low, prediction.high
    if error is None or low is None or high is None:
        return None
    half_width = error - low if error > 0 else high - error
    if not half_width:
        return None
    return min(max(-error * DEFAULT_STRETCH / half_width, -_MAX_STRETCH), _MAX_STRETCH)


def predict_leave_one_out(
    sessions: Sequence[Session], training: Sequence[SessionCounts]
) -> list[tuple[Session, Prediction]]:
    """Predict each session that is long enough from all training sessions but itself."""
    long_sessions = [s for s in sessions if len(get_call_features(s)) >= MIN_CALLS]
    return [(s, predict_input_cost(s, training)) for s in long_sessions]


def compute_chance_errors(session: Session) -> tuple[float, ...]:
    """Return the errors that are left where a session's own rates are known: chance call by call.

    Each draw in turn is taken for the record, and the median of all draws for the prediction.
    """
    calls = get_call_features(session)
    costs = compute_input_costs(session, calls)
    if costs is None or len(calls) < 2:
        return ()
    rates = MissRates((), count_session(session), has_own_half=True)
    dollars = costs.of(simulate_reads(calls, rates))
    return tuple(np.abs(np.median(dollars) / dollars - 1).tolist())


def count_tokens_named_by_chance(session: Session, seed: int = 0) -> tuple[int, int]:
    """Return the tokens that the misses would lose at random other calls, and those of them at
    calls for which a rule names a cause.
    """
    pairs = zip(get_call_features(session), get_recorded_reads(session), strict=True)
    calls = [(call, read) for call, read in pairs if call.before is not None]
    n_misses = sum(is_miss(call.shared, read) for call, read in calls)
    if not n_misses:
        return 0, 0
    rng = np.random.default_rng(seed)
    picked: NDArray[Any] = rng.choice(len(calls), n_misses, replace=False)
    missed: list[CallFeatures] = [calls[i][0] for i in picked.tolist()]
    named = sum(call.shared for call in missed if find_miss_cause(call) != "unexplained")
    return sum(call.shared for call in missed), named
