"""Predicted input cost of a session, its error against the record, and reads after compactions.

A prediction uses sizes, times, models, events, and whether writes are billed and live five minutes
or an hour. It never uses a recorded read of the session (or of the half) that is judged. So the
prediction can be wrong, unlike `metrics.cost.cache_fit.closure_error`, which only checks that sums
agree.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ctxkit.engine.cache_model.call_features import (
    HOUR,
    compute_warm_read,
    find_miss_cause,
    get_cache_lifetime,
    get_call_features,
)
from ctxkit.engine.cache_model.miss_rates import (
    MIN_CALLS,
    MIN_SESSIONS,
    MissRates,
    count_session,
    exclude_copies,
    get_recorded_reads,
    load_counts,
    simulate_reads,
)
from ctxkit.formats.inputs import accepts_session
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.call_features import CallFeatures
    from ctxkit.engine.cache_model.miss_rates import SessionCounts
    from ctxkit.session.session import Session


# How an interval is made and calibrated.
#
# The middle 80 % of the simulated dollars (`simulate_reads`) is the raw interval. It is then
# stretched by two factors, one below and one above the median, which are the smallest that would
# have covered 80 % of the training sessions (conformal calibration: `SessionCounts.stretch` is each
# one's signed error in half widths of its own raw interval). Dollars are linear in the tokens read,
# so a draw is priced by one dot product (`InputCosts`). Cost: one simulation and O(training
# sessions).

NAIVE_MODELS = ("lifetime", "all_cached", "nothing_cached")
"""Baseline models with which a prediction is compared; see `compute_naive_reads`."""
_LOW_PERCENTILE, _HIGH_PERCENTILE = 10, 90
_COVERAGE = 80
"""Percent of the records that lie in their intervals."""
_MIN_STRETCH = 0.5
"""Smallest factor by which an interval is stretched."""
DEFAULT_STRETCH = 1.5
"""The factor where no training session has an error."""


class Prediction(msgspec.Struct, frozen=True):
    """The predicted input cost of a session and its errors.

    Errors are shares of the recorded dollars: predicted / recorded - 1. Where they are None, `why`
    says what is missing.
    """

    reads: tuple[int, ...] = ()
    """Tokens that each billed call is predicted to read: the median of the draws of each call."""
    error: float | None = None
    """Error of the median of the draws in dollars, with rates of other sessions."""
    low: float | None = None
    """Lower end of the 80 % interval, as an error; it covers the record where low <= 0 <= high."""
    high: float | None = None
    """Upper end of the interval."""
    second_half_error: float | None = None
    """Error of the second half of the calls, predicted with the first half's own counts."""
    read_split_error: float | None = None
    """Tokens by which the reads are off, call by call, over all tokens of the prompts."""
    lifetime_error: float | None = None
    """Error of a baseline that knows the cache's lifetime alone."""
    all_cached_error: float | None = None
    """Error of a baseline that reads all that two prompts share."""
    nothing_cached_error: float | None = None
    """Error of a baseline without a cache."""
    teachers: int = 0
    """Training sessions of the same tool, provider family and role."""
    why: str | None = None
    """Why there is no figure, or a warning where it rests on few calls or sessions."""
    spread: tuple[float, float] | None = None
    """The interval around the predicted dollars, as shares of them; replays use it, too."""


@accepts_session
def predict_input_cost(
    session: Session, training: Iterable[SessionCounts] | None = None
) -> Prediction:
    """Predict a session's input cost from the cache behaviour of other sessions.

    Args:
        session: a recorded session, what holds one, or the path of a log.
        training: counts of training sessions; None: the table that comes with ctxkit. The session
            itself and copies of its beginning are left out of them.

    Returns:
        The prediction and its errors against the record; `why` where a figure is missing.

    Raises:
        BadArguments: it is no session.
    """
    if not session.has_usage:
        return Prediction(why="The log has no usage, so nothing can be predicted or checked.")
    calls = get_call_features(session)
    if len(calls) < 2:
        missing = "no cache split" if not calls else "one call with a cache split"
        return Prediction(why=f"The log has {missing}, so no prediction can be checked.")
    rates = estimate_session_rates(session, load_counts() if training is None else training)
    draws = simulate_reads(calls, rates)
    median_reads = np.median(draws, axis=0)
    recorded = get_recorded_reads(session)
    prediction = Prediction(
        reads=tuple(median_reads.astype(int).tolist()),
        read_split_error=compute_split_error(calls, recorded, median_reads),
        teachers=len(rates.same_role),
        why=_limits_note(rates, len(calls)),
    )
    costs = compute_input_costs(session, calls)
    if costs is None:
        why = "A call has no known price, so only the split of its tokens can be checked."
        return msgspec.structs.replace(prediction, why=why)
    costs = _without_headless(costs, calls)
    case = _PredictedSession(session, calls, rates, costs, np.array(recorded))
    return case.with_errors(prediction, draws)


def estimate_session_rates(session: Session, training: Iterable[SessionCounts]) -> MissRates:
    """Return the miss rates for a session by training sessions, itself and copies left out."""
    target = count_session(session, 0)
    return MissRates(exclude_copies(training, session.id, target.head), target)


def _limits_note(rates: MissRates, calls: int) -> str | None:
    sentences = []
    if calls < MIN_CALLS:
        sentences.append(f"It has {calls} calls with a cache split, so one miss decides.")
    if rates.has_few_sessions:
        n = len(rates.same_role)
        others = f"Only {n} other session{'s' * (n != 1)}" if n else "No other session"
        sentences.append(f"{others} of its tool and provider taught it.")
    return " ".join(sentences) or None


class _PredictedSession(NamedTuple):
    """A session with its estimated rates, prices and record."""

    session: Session
    calls: Sequence[CallFeatures]
    rates: MissRates
    costs: InputCosts
    recorded: NDArray[Any]
    """Tokens that each call read."""

    def with_errors(self, prediction: Prediction, draws: NDArray[Any]) -> Prediction:
        """Return a prediction with the errors of its dollars, which the drawn reads give."""
        recorded = float(self.costs.of(self.recorded))
        if not recorded:
            why = "Its calls cost nothing, so no share is off."
            return msgspec.structs.replace(prediction, why=why)
        dollars = self.costs.of(draws)
        point = float(np.median(dollars))
        low, high = _stretched_interval(dollars, point, *compute_interval_stretch(self.rates))
        naive = compute_naive_reads(self.calls)
        return msgspec.structs.replace(
            prediction,
            error=point / recorded - 1,
            low=low / recorded - 1,
            high=high / recorded - 1,
            spread=(low / point - 1, high / point - 1) if point else None,
            second_half_error=self._second_half_error(),
            **{f"{n}_error": float(self.costs.of(naive[n])) / recorded - 1 for n in NAIVE_MODELS},
        )

    def _second_half_error(self) -> float | None:
        """Return the error of the second half of the calls, the first half being counted."""
        half = len(self.calls) // 2
        if half < 2:
            return None
        rates = self.rates.with_own_half(count_session(self.session, half))
        costs = InputCosts(self.costs.whole[half:], self.costs.saved[half:])
        recorded = float(costs.of(self.recorded[half:]))
        dollars = costs.of(simulate_reads(self.calls[half:], rates))
        return float(np.median(dollars)) / recorded - 1 if recorded else None


def _without_headless(costs: InputCosts, calls: Sequence[CallFeatures]) -> InputCosts:
    """Leave out the first call of a log without its beginning: nobody can tell what it reads."""
    counted = np.array([not call.headless for call in calls])
    return InputCosts(costs.whole * counted, costs.saved * counted)


def _stretched_interval(
    dollars: NDArray[Any], point: float, stretch_down: float, stretch_up: float
) -> tuple[float, float]:
    """Return the ends of the interval around the median `point`.

    Draws end where nothing is missed, yet the model can be wrong there, too. So no side is less
    than half the other before it is stretched, nor less than a hundredth of the dollars.
    """
    low, high = np.percentile(dollars, [_LOW_PERCENTILE, _HIGH_PERCENTILE]).tolist()
    below, above = point - low, high - point
    min_width = max(below / 2, above / 2, point / 100)
    return (
        max(point - max(below, min_width) * stretch_down, 0.0),
        point + max(above, min_width) * stretch_up,
    )


def compute_interval_stretch(rates: MissRates) -> tuple[float, float]:
    """Return the factors by which an interval is stretched downwards and upwards.

    They are those of the smallest sum that cover `_COVERAGE` percent of the training sessions: of
    the same tool and role if they are enough, else of all.
    """
    errors = [s.stretch for s in rates.same_role if s.stretch is not None]
    if len(errors) < MIN_SESSIONS:
        errors = [s.stretch for s in rates.training if s.stretch is not None]
    if not errors:
        return DEFAULT_STRETCH, DEFAULT_STRETCH
    # p percent of the records may lie below the interval, and 100 - _COVERAGE - p above it
    below = np.arange(0, 101 - _COVERAGE)
    downs = np.maximum(-np.percentile(errors, below), _MIN_STRETCH)
    ups = np.maximum(np.percentile(errors, below + _COVERAGE), _MIN_STRETCH)
    best = int(np.argmin(downs + ups))
    return float(downs[best]), float(ups[best])


def compute_split_error(
    calls: Sequence[CallFeatures], recorded: Sequence[int], predicted: Any
) -> float:
    """Return the absolute error of the reads, summed over calls, as a share of the prompts."""
    counted = np.array([not call.headless for call in calls])
    off = np.abs(np.asarray(recorded) - np.asarray(predicted)) * counted
    return float(off.sum() / max(sum(call.prompt for call in calls if not call.headless), 1))


def compute_naive_reads(calls: Sequence[CallFeatures]) -> dict[str, NDArray[Any]]:
    """Return what each call reads, in tokens, by each of the `NAIVE_MODELS`."""
    warm_reads = np.array([compute_warm_read(call) for call in calls])
    is_alive = np.array([not call.expired for call in calls])
    return {
        "lifetime": warm_reads * is_alive,
        "all_cached": warm_reads,
        "nothing_cached": np.zeros(len(calls), np.int64),
    }


class InputCosts(NamedTuple):
    """Input cost as a linear function of the tokens that each call reads from the cache."""

    whole: NDArray[Any]
    """Dollars of each call if it reads nothing."""
    saved: NDArray[Any]
    """Dollars that each read token of a call saves."""

    def of(self, reads: NDArray[Any]) -> NDArray[Any]:
        """Return the dollars of calls that read so many tokens, summed over the last axis."""
        return np.asarray((self.whole - self.saved * reads).sum(axis=-1))


def compute_input_costs(session: Session, calls: Sequence[CallFeatures]) -> InputCosts | None:
    """Return the input cost of calls by the price table; None where one has no price.

    What is not read is written, at the price of the lifetime that the session's writes have, or
    sent uncached where the provider bills no writes or the prompt is too short to be cached.
    """
    model_calls = session.calls
    usages = [model_calls[call.call].message.usage for call in calls]
    logs_writes = any(u and (u.cache_write_tokens or u.cache_write_1h_tokens) for u in usages)
    is_hour = logs_writes and get_cache_lifetime(session) == HOUR
    whole, saved = np.zeros(len(calls)), np.zeros(len(calls))
    for i, call in enumerate(calls):
        message = model_calls[call.call].message
        prices = price(message.model or session.model)
        if prices is None:
            return None
        rates = prices.on(message.time).at(call.prompt)
        is_written = (logs_writes or prices.writes_unread) and call.prompt >= call.least
        unread_price = rates.write(hour=is_hour) if is_written else rates.input
        whole[i] = call.prompt * unread_price
        saved[i] = unread_price - rates.read
    return InputCosts(whole, saved)


class ReadAfterCompaction(NamedTuple):
    """The first call after a compaction: its recorded and predicted read."""

    call: int
    prompt: int
    """Tokens of its prompt, which is what it could have read."""
    read: int
    """Tokens that it read."""
    predicted: int | None
    """Tokens that the session's other compactions predict; None: there is no other to go by."""


@accepts_session
def predict_reads_after_compactions(session: Session) -> tuple[ReadAfterCompaction, ...]:
    """Return the first call after each compaction with its predicted read (leave-one-out median).

    What the tool always sends first stays in the cache, and is the same after each compaction of a
    session, so the median of the other compactions is the prediction. Nothing stays where the pause
    was longer than the cache lives.

    Raises:
        BadArguments: it is no session.
    """
    pairs = zip(get_call_features(session), get_recorded_reads(session), strict=True)
    compacted = [(call, read) for call, read in pairs if find_miss_cause(call) == "compaction"]
    warm_reads = sorted(read for call, read in compacted if not call.expired)
    rows = []
    for call, read in compacted:
        if call.expired:
            predicted = 0 if len(compacted) > 1 else None
        else:
            predicted = _median_without(warm_reads, read)
        if predicted is not None:
            predicted = min(predicted, call.prompt)
        rows.append(ReadAfterCompaction(call.call, call.prompt, read, predicted))
    return tuple(rows)


def _median_without(ordered: Sequence[int], value: int) -> int | None:
    """Return the rounded median of ordered values without one of them; None where none is left.

    O(log n): the two middle positions skip the place of the value that is left out.
    """
    at, n = bisect_left(ordered, value), len(ordered) - 1
    low, high = (k + (k >= at) for k in ((n - 1) // 2, n // 2))
    return round((ordered[low] + ordered[high]) / 2) if n else None


def compute_compaction_read_error(reads: Sequence[ReadAfterCompaction]) -> float | None:
    """Return the absolute error of the predicted reads after compactions, as a share of the
    prompts' tokens; None where none is predicted.
    """
    errors = [(r.prompt, abs(r.read - r.predicted)) for r in reads if r.predicted is not None]
    return sum(off for _, off in errors) / sum(n for n, _ in errors) if errors else None


NO_CACHE_SPLIT = "No cache split is recorded, so the cache model could not be checked."


def describe_prediction(
    error: float | None, low: float | None, high: float | None, note: str | None
) -> str:
    """Describe in a sentence the error and interval of one session's prediction, with its note."""
    if error is None or low is None or high is None:
        return note or NO_CACHE_SPLIT
    return (
        f"Predicted by other sessions, without its reads, the input side is {error:+.1%} off the "
        f"record (80 % interval {low:+.0%} to {high:+.0%}).{f' {note}' if note else ''}"
    )
