"""Counts of training sessions, and tests of the cache model against chance.

Used by `docs/make_trust.py` and `docs/trust_cache.py` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from ctxkit.engine.cache_model.call_features import (
    HOUR,
    billed_calls,
    call_features,
    is_miss,
    miss_cause,
    written_cache_life,
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

    from ctxkit.engine.cache_model.call_features import CallFeatures
    from ctxkit.engine.cache_model.miss_rates import SessionCounts
    from ctxkit.engine.cache_model.prediction import Prediction
    from ctxkit.session.session import Session


_MAX_STRETCH = 20.0
"""Largest error in half widths that is counted: an interval may have almost no width."""


def distinct_sessions(sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions and subagents that can be counted; of copies, the longest one."""
    candidates = [s for session in sessions for s in (session, *session.children)]
    distinct: list[tuple[Session, SessionCounts]] = []
    informative = (s for s in candidates if is_informative(s))
    for session in sorted(informative, key=lambda s: -len(s.calls)):
        counts = count_session(session)
        others = [other for _, other in distinct]
        if len(without_copies(others, counts.session, counts.head)) == len(others):
            distinct.append((session, counts))
    return sorted((s for s, _ in distinct), key=lambda s: (s.format, s.id))


def count_sessions(sessions: Sequence[Session]) -> tuple[SessionCounts, ...]:
    """Count sessions, each with the error of its own prediction by the others (`stretch`)."""
    counts = [count_session(s) for s in sessions]
    return tuple(
        replace(
            own,
            stretch=_interval_error(predict_input_cost(session, counts))
            if len(call_features(session)) >= MIN_CALLS
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


def leave_one_out(
    sessions: Sequence[Session], teachers: Sequence[SessionCounts]
) -> list[tuple[Session, Prediction]]:
    """Predict each session that is long enough from all training sessions but itself."""
    long_sessions = [s for s in sessions if len(call_features(s)) >= MIN_CALLS]
    return [(s, predict_input_cost(s, teachers)) for s in long_sessions]


def with_reads(session: Session, reads: Sequence[int]) -> Session:
    """Return a session whose billed calls read so many tokens; its prompts are as they were."""
    calls = zip(billed_calls(session), call_features(session), reads, strict=True)
    replies = {
        session.indices[c.position]: _reply_with_read(
            c.message, read, hour=(written_cache_life(c) or features.life) == HOUR
        )
        for c, features, read in calls
    }
    return replace(session, log=tuple(replies.get(i, e) for i, e in enumerate(session.log)))


def _reply_with_read(message: Any, read: int, *, hour: bool) -> Any:
    usage = message.usage
    rest = (usage.prompt_tokens or 0) - read
    bills_writes = usage.cache_write_tokens is not None or usage.cache_write_1h_tokens is not None
    hour = hour and bills_writes
    usage = replace(
        usage,
        input_tokens=None if bills_writes else rest,
        cache_read_tokens=read,
        cache_write_tokens=0 if hour else rest if bills_writes else None,
        cache_write_1h_tokens=rest if hour else None,
    )
    return replace(message, usage=usage)


def with_random_reads(session: Session, seed: int = 0) -> Session:
    """Return a session of which each call read a random number of its prompt's tokens."""
    rng = np.random.default_rng(seed)
    reads = [int(rng.integers(call.prompt + 1)) for call in call_features(session)]
    return with_reads(session, reads)


def with_shuffled_reads(session: Session, seed: int = 0) -> Session:
    """Return a session of which each call read the share that another of its calls did."""
    calls = call_features(session)
    shares = [r / c.prompt for c, r in zip(calls, recorded_reads(session), strict=True)]
    order = np.random.default_rng(seed).permutation(len(calls))
    reads = [int(shares[i] * call.prompt) for i, call in zip(order, calls, strict=True)]
    return with_reads(session, reads)


def chance_errors(session: Session) -> tuple[float, ...]:
    """Return the errors that remain where a session's own rates are known: chance call by call.

    Each draw in turn is taken for the record, and the median of all draws for the prediction.
    """
    calls = call_features(session)
    costs = input_costs(session, calls)
    if costs is None or len(calls) < 2:
        return ()
    rates = MissRates((), count_session(session), has_own_half=True)
    dollars = costs.of(draw_reads(calls, rates))
    return tuple(np.abs(np.median(dollars) / dollars - 1).tolist())


def chance_named_tokens(session: Session, seed: int = 0) -> tuple[int, int]:
    """Return the tokens that the misses would lose at random other calls, and those of them at
    calls for which a rule names a cause.
    """
    pairs = zip(call_features(session), recorded_reads(session), strict=True)
    calls = [(call, read) for call, read in pairs if call.before is not None]
    n_misses = sum(is_miss(call.shared, read) for call, read in calls)
    if not n_misses:
        return 0, 0
    rng = np.random.default_rng(seed)
    picked: NDArray[Any] = rng.choice(len(calls), n_misses, replace=False)
    missed: list[CallFeatures] = [calls[i][0] for i in picked.tolist()]
    named = sum(call.shared for call in missed if miss_cause(call) != "unexplained")
    return sum(call.shared for call in missed), named
