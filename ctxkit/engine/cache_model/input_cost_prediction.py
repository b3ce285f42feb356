"""Predicted input cost of a session, its error against the record, and reads after compactions."""

# A prediction uses sizes, times, models, events, and whether writes are billed and live five
# minutes or an hour. It never uses a recorded read of the session (or of the half) that is judged.
# So the prediction can be wrong, unlike `metrics.cost.replay_cost_model.closure_error`, which only
# checks that sums agree. Negative controls are sessions with made-up reads, which it must not fit.

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from ctxkit._internal.formatting_and_sanitizing import format_change, format_percent
from ctxkit.engine.cache_model.call_features import (
    HOUR,
    compute_warm_read,
    find_miss_cause,
    get_cache_lifetime,
    get_call_features,
    get_written_cache_lifetime,
    select_calls_with_recorded_reads,
)
from ctxkit.engine.cache_model.interval_calibration import MIN_DEVELOPERS, compute_interval_stretch
from ctxkit.engine.cache_model.miss_rate_estimator import (
    MissRateEstimator,
    SimulatedReads,
    simulate_reads,
)
from ctxkit.engine.cache_model.training_counts import (
    MIN_CALLS,
    PastPredictionError,
    count_session,
    exclude_copies,
    get_recorded_reads,
    load_training_counts,
    with_initial_idle,
)
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.call_features import CallFeatures
    from ctxkit.engine.cache_model.training_counts import (
        Evidence,
        SameDeveloperSessions,
        SessionMissCounts,
    )
    from ctxkit.session.session import Session


# How a prediction and its interval are made.
#
# Two bills are made of the same rates: the median of the simulated dollars (`simulate_reads`), and
# rules alone (no unexplained miss). The point is half way between them, in logarithms: unexplained
# misses are the developer's own, so that the first is too dear for some and the second too cheap.
# The dollars of few calls are those of no miss, of one, and so on, with gaps between them: where
# the chance of no miss is near one half, the median and so the point depend on the draws' seed.
#
# The middle 80 % of the simulated dollars, and an error of the model itself that the draws do not
# have (`MODEL_ERROR`, added in quadrature), are the raw interval. It is stretched by two factors,
# one below and one above the point, that past errors of other developers calibrate
# (`interval_calibration`). Sessions of the same tool and kind of agent calibrate, of like length
# where they are enough, and those that as few developers taught: an interval is wider the further
# its teachers.
#
# Where no log of the same tool, model family and kind of agent teaches, the figure is that of the
# cache's lifetime alone, with the range of past errors of such logs, and there is no interval.
# Dollars are linear in the tokens read, so a draw is priced by one dot product
# (`InputCostFunction`).

NAIVE_MODELS = ("lifetime", "all_cached", "nothing_cached")
"""Baseline models with which a prediction is compared; see `compute_naive_reads`."""
_LOW_PERCENTILE, _HIGH_PERCENTILE = 10, 90
_NOT_CALIBRATED = (
    "The logs of too few developers are of its tool and kind of agent, so there is no 80 % "
    "interval."
)
MODEL_ERROR = 0.05
"""Half width, in logarithms, that is added in quadrature to that of the draws before both are
stretched: about the median error of a prediction.
"""
_MIN_RECORDS = 10
"""Past errors of which a range is given."""


class SessionInputCostPredictionErrors(msgspec.Struct, frozen=True):
    """The predicted input cost of a session and its errors.

    Errors are shares of the recorded dollars: predicted / recorded - 1. Where they are None, `why`
    says what is missing.
    """

    reads: tuple[int, ...] = ()
    """Tokens that each billed call is predicted to read."""
    error: float | None = None
    """Error of the predicted dollars, by rates of other developers."""
    low: float | None = None
    """Lower end of the 80 % interval, as an error; it covers the record where low <= 0 <= high."""
    high: float | None = None
    """Upper end of the interval; None, as `low`, where no log of its kind taught it."""
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
    """Developers whose logs of the same tool, model family and kind of agent taught it."""
    why: str | None = None
    """Why there is no figure, or a warning where it rests on few calls or developers."""
    spread: tuple[float, float] | None = None
    """The interval around the predicted dollars, as shares of them; replays use it, too."""


@accepts_session
def predict_input_cost(
    session: Session,
    training: Iterable[SessionMissCounts] | None = None,
    logs: SameDeveloperSessions | None = None,
) -> SessionInputCostPredictionErrors:
    """Predict a session's input cost from the cache behaviour of other sessions.

    Args:
        session: a recorded session, what holds one, or the path of a log.
        training: counts of other developers' sessions; None: the table that comes with ctxkit. The
            session itself and copies of its beginning are left out of them.
        logs: sessions of the same developer, such as those of one folder: they tell how long ago
            the last one was, and teach the developer's own rates.

    Returns:
        The prediction and its errors against the record; `why` where a figure is missing.

    Raises:
        BadArguments: it is no session.
    """
    if not session.has_usage:
        return SessionInputCostPredictionErrors(
            why="The log has no usage, so nothing can be predicted or checked."
        )
    recorded = get_call_features(session)
    if len(recorded) < 2:
        missing = "no cache split" if not recorded else "one call with a cache split"
        return SessionInputCostPredictionErrors(
            why=f"The log has {missing}, so no prediction can be checked."
        )
    case = prepare_prediction(
        session, load_training_counts() if training is None else training, logs
    )
    prediction = case.predict()
    if case.half_size and prediction.error is not None:
        own_half = count_session(session, case.half_size)
        prediction = msgspec.structs.replace(
            prediction, second_half_error=case.compute_half_error(own_half)
        )
    return prediction


def prepare_prediction(
    session: Session,
    training: Iterable[SessionMissCounts],
    logs: SameDeveloperSessions | None = None,
    *,
    uses_own_logs: bool = True,
) -> SessionInputCostPredictor:
    """Return a session with its estimated rates, prices and record.

    The session itself and copies of it are left out of both training sessions and logs.

    Args:
        session: a session with two billed calls or more.
        training: counts of other developers' sessions.
        logs: sessions of the same developer.
        uses_own_logs: whether those logs teach rates, too, and not only the time since the last.
    """
    target = count_session(session, 0)
    rates = MissRateEstimator(
        exclude_copies(training, session.id, target.head),
        target,
        own=exclude_copies(logs.counts, session.id, target.head) if logs and uses_own_logs else (),
    )
    idle = logs.measure_idle(session) if logs else None
    calls = with_initial_idle(get_call_features(session), idle)
    costs = make_input_cost_function(session, calls)
    priced = None if costs is None else _without_headless(costs, calls)
    return SessionInputCostPredictor(calls, rates, get_recorded_reads(session), priced)


def _limits_note(rates: MissRateEstimator, calls: int) -> str | None:
    sentences = []
    if calls < MIN_CALLS:
        sentences.append(f"It has {calls} calls with a cache split, so one miss decides.")
    n = rates.teachers
    if 0 < n < MIN_DEVELOPERS:
        sentences.append(
            f"Only {n} other developer{'s' * (n != 1)} of its tool and model taught it."
        )
    if not n:
        sentences.append(_untaught_note(rates.training))
    return " ".join(sentences) or None


def _untaught_note(training: Sequence[SessionMissCounts]) -> str:
    """Say that the lifetime alone is used, and how far off it was for such logs before."""
    why = "No log of the same tool, model and kind of agent was there to calibrate it"
    errors = [-s.past.lifetime for s in training if s.past and not s.past.teachers]
    if len(errors) < _MIN_RECORDS:
        return f"{why}, and how far off it then is, is not established."
    low, high = np.exp(np.percentile(errors, [_LOW_PERCENTILE, _HIGH_PERCENTILE])) - 1
    return (
        f"{why}; for {len(errors)} such logs the real cost was between {format_change(low)} and"
        f" {format_change(high)} of the predicted one, four times of five."
    )


def _predict_by_lifetime(
    prediction: SessionInputCostPredictionErrors, rates: MissRateEstimator
) -> SessionInputCostPredictionErrors:
    """Return the prediction of an untaught kind: that of the lifetime.

    A model of which no log has read a token may have no cache: then it says what that costs.
    """
    cached, uncached = prediction.lifetime_error, prediction.nothing_cached_error
    by_lifetime = msgspec.structs.replace(prediction, error=cached)
    if rates.is_model_seen or cached is None or uncached is None or cached <= -1:
        return by_lifetime
    times = (1 + uncached) / (1 + cached)
    note = f"No log is of its model: if that has no cache, it costs {times:.1f} times that figure."
    return msgspec.structs.replace(by_lifetime, why=f"{prediction.why} {note}")


class SessionInputCostPredictor(NamedTuple):
    """A session with its estimated rates, prices and record."""

    calls: Sequence[CallFeatures]
    rates: MissRateEstimator
    recorded: Sequence[int]
    """Tokens that each call read."""
    costs: InputCostFunction | None
    """Prices; None: not all are known."""

    @property
    def evidence(self) -> Evidence:
        """What is known of the developer in addition to the session's own log."""
        if self.rates.own:
            return "known"
        return "folder" if self.calls and self.calls[0].idle is not None else "alone"

    @property
    def half_size(self) -> int:
        """Calls of the first half; 0 where a half has fewer than two."""
        half = len(self.calls) // 2
        return half if half >= 2 else 0

    def predict(self) -> SessionInputCostPredictionErrors:
        """Return the prediction without the second half's error."""
        reads = simulate_reads(self.calls, self.rates)
        naive = compute_naive_reads(self.calls)
        is_taught = bool(self.rates.teachers)
        by_call = reads.rules_only if is_taught else naive["lifetime"]
        prediction = SessionInputCostPredictionErrors(
            reads=tuple(by_call.astype(int).tolist()),
            read_split_error=compute_read_error(self.calls, self.recorded, by_call),
            teachers=self.rates.teachers,
            why=_limits_note(self.rates, len(self.calls)),
        )
        if self.costs is None:
            why = "A call has no known price, so only the split of its tokens can be checked."
            return msgspec.structs.replace(prediction, why=why)
        recorded = float(self.costs.of(np.array(self.recorded)))
        if not recorded:
            why = "Its calls cost nothing, so no share is off."
            return msgspec.structs.replace(prediction, why=why)
        errors = {n: float(self.costs.of(naive[n])) / recorded - 1 for n in NAIVE_MODELS}
        prediction = msgspec.structs.replace(
            prediction, **{f"{name}_error": error for name, error in errors.items()}
        )
        if not is_taught:
            return _predict_by_lifetime(prediction, self.rates)
        stretch = compute_interval_stretch(self.rates, len(self.calls), self.evidence)
        return _with_interval(prediction, self.measure_bill(reads), stretch, recorded)

    def measure_bill(self, reads: SimulatedReads) -> PredictedDollars:
        """Return the predicted dollars and the unstretched half widths.

        Raises:
            ValueError: a price is missing.
        """
        if self.costs is None:
            raise ValueError("a price is missing")
        dollars = self.costs.of(reads.draws)
        middle, rules = float(np.median(dollars)), float(self.costs.of(reads.rules_only))
        point = max(middle * rules, 0.0) ** 0.5
        if not point:
            return PredictedDollars(0.0, 0.0, 0.0)
        low, high = np.percentile(dollars, [_LOW_PERCENTILE, _HIGH_PERCENTILE]).tolist()
        # Draws end where nothing is missed, yet the model can be wrong there, too: so no side is
        # less than half the other.
        below = float(np.log(point / max(low, 1e-12)))
        above = float(np.log(max(high, 1e-12) / point))
        sides = max(below, above / 2, 0.0), max(above, below / 2, 0.0)
        return PredictedDollars(point, *(float(np.hypot(side, MODEL_ERROR)) for side in sides))

    def compute_half_error(self, first_half: SessionMissCounts) -> float | None:
        """Return the error of the second half of the calls, the first half being counted."""
        half = self.half_size
        if self.costs is None or not half:
            return None
        costs = InputCostFunction(self.costs.whole[half:], self.costs.saved[half:])
        case = self._replace(
            calls=self.calls[half:],
            rates=self.rates.with_own_half(first_half),
            recorded=self.recorded[half:],
            costs=costs,
        )
        recorded = float(costs.of(np.array(case.recorded)))
        bill = case.measure_bill(simulate_reads(case.calls, case.rates))
        return bill.point / recorded - 1 if recorded else None


class PredictedDollars(NamedTuple):
    """Predicted dollars, and how far the middle 80 % of the draws are around them."""

    point: float
    below: float
    """Half width below the point, in logarithms, before it is stretched."""
    above: float

    def compare_with(self, recorded: float) -> PastPredictionError:
        """Return the bill as held against recorded dollars; both are more than 0."""
        error = float(np.log(self.point / recorded))
        return PastPredictionError(*(round(value, 4) for value in (error, self.below, self.above)))


def _with_interval(
    prediction: SessionInputCostPredictionErrors,
    bill: PredictedDollars,
    stretch: tuple[float, float] | None,
    recorded: float,
) -> SessionInputCostPredictionErrors:
    """Return a prediction with its error and, where past errors calibrate it, its interval."""
    ratio = bill.point / recorded
    if not bill.point or stretch is None:
        note = None if not bill.point else _NOT_CALIBRATED
        why = " ".join(filter(None, (prediction.why, note))) or None
        return msgspec.structs.replace(prediction, error=ratio - 1, why=why)
    down, up = stretch
    low, high = np.exp([-bill.below * down, bill.above * up]).tolist()
    return msgspec.structs.replace(
        prediction,
        error=ratio - 1,
        low=ratio * low - 1,
        high=ratio * high - 1,
        spread=(low - 1, high - 1),
    )


def _without_headless(costs: InputCostFunction, calls: Sequence[CallFeatures]) -> InputCostFunction:
    """Leave out the first call of a log without its beginning: its read is unknown."""
    counted = np.array([not call.headless for call in calls])
    return InputCostFunction(costs.whole * counted, costs.saved * counted)


def compute_read_error(
    calls: Sequence[CallFeatures], recorded: Sequence[int], predicted: Any
) -> float:
    """Return the absolute error of the reads, summed over calls, as a share of the prompts.

    Args:
        calls: features of the calls; a first call whose prompt is not in the log does not count.
        recorded: tokens that each call read from the cache.
        predicted: the same, predicted.
    """
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


class InputCostFunction(NamedTuple):
    """Input cost as a linear function of the tokens that each call reads from the cache."""

    whole: NDArray[Any]
    """Dollars of each call if it reads nothing."""
    saved: NDArray[Any]
    """Dollars that each read token of a call saves."""

    def of(self, reads: NDArray[Any]) -> NDArray[Any]:
        """Return the dollars of calls that read so many tokens, summed over the last axis."""
        dollars = np.asarray(self.saved * reads)
        np.subtract(self.whole, dollars, out=dollars)  # draws are many: no second array
        return np.asarray(dollars.sum(axis=-1))


def make_input_cost_function(
    session: Session, calls: Sequence[CallFeatures]
) -> InputCostFunction | None:
    """Return the input cost of calls by the price table; None where one has no price.

    What is not read is written, at the price of the lifetime that the session's writes have, or
    sent uncached where the provider bills no writes or the prompt is too short to be cached.

    Args:
        session: the session, with the price of its model.
        calls: features of the calls that are priced.
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
    return InputCostFunction(whole, saved)


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

    Args:
        session: a recorded session with compactions and cache reads.

    Returns:
        One value a compaction that a billed call follows; the prediction is None where there is no
        other to learn from.

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

    Args:
        reads: what `predict_reads_after_compactions` returned.

    Returns:
        The sum of absolute errors over the sum of prompts, 0 or more.
    """
    errors = [(r.prompt, abs(r.read - r.predicted)) for r in reads if r.predicted is not None]
    return sum(off for _, off in errors) / sum(n for n, _ in errors) if errors else None


NO_CACHE_SPLIT = "No cache split is recorded, so the cache model could not be checked."


def describe_prediction(
    error: float | None, low: float | None, high: float | None, note: str | None
) -> str:
    """Describe in a sentence how well the cost model predicts a session's input cost.

    Args:
        error: predicted over recorded input cost, less 1; None: unknown.
        low: lower end of the 80 % interval, as a share like `error`; None: unknown.
        high: its upper end.
        note: a sentence that is appended, or stands alone where the error is unknown; None: none.
    """
    if error is None:
        return note or NO_CACHE_SPLIT
    interval = ""
    if low is not None and high is not None:
        interval = f"; 80 % interval {format_change(low)} to {format_change(high)}"
    side = "high" if error > 0 else "low"
    return (
        f"The cost model, which does not see this session's cache reads, predicts its input"
        f" cost {format_percent(abs(error), 1)} too {side}{interval}.{f' {note}' if note else ''}"
    )


def replace_reads(session: Session, reads: Sequence[int]) -> Session:
    """Return a session whose billed calls have other cache reads; its prompts stay the same.

    Args:
        session: a session whose log reports cache reads.
        reads: tokens read from the cache, one number for each of
            `select_calls_with_recorded_reads`.
    """
    calls = zip(
        select_calls_with_recorded_reads(session), get_call_features(session), reads, strict=True
    )
    places = {
        session.indices[c.position]: _reply(
            c.message, n, hour=(get_written_cache_lifetime(c) or a.life) == HOUR
        )
        for c, a, n in calls
    }
    return replace(session, log=tuple(places.get(i, e) for i, e in enumerate(session.log)))


def _reply(message: Any, read: int, *, hour: bool) -> Any:
    u = message.usage
    rest = (u.prompt_tokens or 0) - read
    writes = u.cache_write_tokens is not None or u.cache_write_1h_tokens is not None
    hour = hour and writes
    usage = replace(
        u,
        input_tokens=None if writes else rest,
        cache_read_tokens=read,
        cache_write_tokens=0 if hour else rest if writes else None,
        cache_write_1h_tokens=rest if hour else None,
    )
    return replace(message, usage=usage)


def with_random_reads(session: Session, seed: int = 0) -> Session:
    """Return a session that read any number of tokens of each prompt.

    Args:
        session: a session whose log reports cache reads.
        seed: seed of the random numbers.
    """
    rng = np.random.default_rng(seed)
    return replace_reads(
        session, [int(rng.integers(a.prompt + 1)) for a in get_call_features(session)]
    )


def with_shuffled_reads(session: Session, seed: int = 0) -> Session:
    """Return a session in which calls have the read shares of other calls, shuffled.

    Args:
        session: a session with recorded cache reads.
        seed: seed of the permutation.
    """
    features = get_call_features(session)
    shares = [r / a.prompt for a, r in zip(features, get_recorded_reads(session), strict=True)]
    order = np.random.default_rng(seed).permutation(len(features))
    reads = [int(shares[i] * a.prompt) for i, a in zip(order, features, strict=True)]
    return replace_reads(session, reads)
