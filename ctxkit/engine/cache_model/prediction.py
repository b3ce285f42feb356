"""Predicted input cost of a session, how far it is from the record, and reads after compactions.

Told to a prediction: sizes, times, models, events, and whether writes are billed and live five
minutes or an hour. Never told: a read of the session (or of the half) that is judged. So this
figure can fail, unlike `metrics.cost.ledger.closure_error`, which checks that the books add up.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ctxkit.engine.cache_model.call_features import (
    HOUR,
    cache_life,
    call_features,
    miss_cause,
    warm_read_tokens,
)
from ctxkit.engine.cache_model.miss_rates import (
    MIN_CALLS,
    MIN_SESSIONS,
    MissRates,
    count_session,
    draw_reads,
    load_counts,
    recorded_reads,
    without_copies,
)
from ctxkit.formats.inputs import accepts_session
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.call_features import CallFeatures
    from ctxkit.engine.cache_model.miss_rates import SessionCounts
    from ctxkit.session.session import Session


NAIVE_MODELS = ("lifetime", "all_cached", "nothing_cached")
"""Models beside which a prediction stands."""
_LOW, _HIGH = 10, 90
_HELD = 80
"""Of a hundred records so many lie in their intervals."""
_LEAST = 0.5
"""An interval is made no narrower than this share of what its draws say."""
DEFAULT_STRETCH = 1.5
"""How far an interval is stretched where no other session's error says."""


class Prediction(msgspec.Struct, frozen=True):
    """What was foretold of a session's input side, and how far it is from the record.

    Errors are shares of the recorded dollars: foretold / recorded - 1. None: `why` says what is
    missing.
    """

    reads: tuple[int, ...] = ()
    """Tokens that each billed call is foretold to read: the middle of the draws, call by call."""
    error: float | None = None
    """Of the middle of the draws in dollars, other sessions having taught them."""
    low: float | None = None
    """Lower end of the 80 % interval, as an error; it holds the record where low <= 0 <= high."""
    high: float | None = None
    half_error: float | None = None
    """Of the second half of the calls, the first half having taught it first."""
    split_error: float | None = None
    """Tokens by which the reads are off, call by call, over all tokens of the prompts."""
    lifetime_error: float | None = None
    """Of a model that knows the cache's lifetime alone."""
    all_cached_error: float | None = None
    """Of a model that finds all that two prompts share."""
    nothing_cached_error: float | None = None
    """Of a model without a cache."""
    teachers: int = 0
    """Sessions of the same tool and provider that taught it."""
    why: str | None = None
    """Why there is no figure, or what it rests on where that is little."""
    spread: tuple[float, float] | None = None
    """The interval around the foretold dollars, as shares of them: what a replay's dollars bear."""


@accepts_session
def predict_input_cost(
    session: Session, teachers: Iterable[SessionCounts] | None = None
) -> Prediction:
    """Return what other sessions foretell of a session's input side, and how far off that is.

    Args:
        session: a recorded session, what holds one, or the path of a log.
        teachers: what other sessions taught; None: the table that comes with ctxkit. The session
            itself and copies of its beginning are left out of them.

    Raises:
        BadArguments: it is no session.
    """
    if not session.has_usage:
        return Prediction(why="The log has no usage, so nothing can be foretold or checked.")
    known = call_features(session)
    if len(known) < 2:
        why = "no cache split" if not known else "one call with a cache split"
        return Prediction(why=f"The log has {why}, so no prediction can be checked.")
    rates = rates_for_session(session, load_counts() if teachers is None else teachers)
    reads = draw_reads(known, rates)
    middle = np.median(reads, axis=0)
    found = Prediction(
        reads=tuple(middle.astype(int).tolist()),
        split_error=split_error(known, recorded_reads(session), middle),
        teachers=len(rates.own),
        why=_limits_note(rates, len(known)),
    )
    line = input_costs(session, known)
    if line is None:
        why = "A call has no known price, so only the split of its tokens can be checked."
        return msgspec.structs.replace(found, why=why)
    case = _Case(
        session, known, rates, _without_headless(line, known), np.array(recorded_reads(session))
    )
    return case.judged(reads, found)


def rates_for_session(session: Session, teachers: Iterable[SessionCounts]) -> MissRates:
    """Return what teachers say to a session, itself and copies of its beginning left out."""
    whose = count_session(session, 0)
    return MissRates(without_copies(teachers, session.id, whose.head), whose)


def _limits_note(rates: MissRates, calls: int) -> str | None:
    told = []
    if calls < MIN_CALLS:
        told.append(f"It has {calls} calls with a cache split, so one miss decides.")
    if rates.few:
        n = len(rates.own)
        others_ = f"Only {n} other session{'s' * (n != 1)}" if n else "No other session"
        told.append(f"{others_} of its tool and provider taught it.")
    return " ".join(told) or None


class _Case(NamedTuple):
    """A session that is judged."""

    session: Session
    known: Sequence[CallFeatures]
    rates: MissRates
    line: InputCosts
    recorded: NDArray[Any]

    def judged(self, reads: NDArray[Any], found: Prediction) -> Prediction:
        """Return a prediction with the errors of its dollars."""
        true = float(self.line.of(self.recorded))
        if not true:
            return msgspec.structs.replace(found, why="Its calls cost nothing, so no share is off.")
        draws = self.line.of(reads)
        point = float(np.median(draws))
        low, high = _interval(draws, point, *interval_stretch(self.rates))
        naive = naive_reads(self.known)
        return msgspec.structs.replace(
            found,
            error=point / true - 1,
            low=low / true - 1,
            high=high / true - 1,
            spread=(low / point - 1, high / point - 1) if point else None,
            half_error=self.half(),
            **{f"{n}_error": float(self.line.of(naive[n])) / true - 1 for n in NAIVE_MODELS},
        )

    def half(self) -> float | None:
        """Return the error of the second half of the calls, taught by the first half first."""
        at = len(self.known) // 2
        if at < 2:
            return None
        reads = draw_reads(self.known[at:], self.rates.after(count_session(self.session, at)))
        part = InputCosts(self.line.whole[at:], self.line.saved[at:])
        true = float(part.of(self.recorded[at:]))
        return float(np.median(part.of(reads))) / true - 1 if true else None


def _without_headless(line: InputCosts, known: Sequence[CallFeatures]) -> InputCosts:
    """Leave out the first call of a log without its beginning: nobody can tell what it reads."""
    counted = np.array([not a.headless for a in known])
    return InputCosts(line.whole * counted, line.saved * counted)


def _interval(draws: NDArray[Any], point: float, down: float, up: float) -> tuple[float, float]:
    """Return the ends of the interval: no side is less than half the other, nor than a hundredth.

    Draws end where nothing is missed, and a model can be wrong there, too.
    """
    low, high = np.percentile(draws, [_LOW, _HIGH]).tolist()
    below, above = point - low, high - point
    least = max(below / 2, above / 2, point / 100)
    return max(point - max(below, least) * down, 0.0), point + max(above, least) * up


def interval_stretch(rates: MissRates) -> tuple[float, float]:
    """Return by how much an interval is stretched downwards and upwards: the least that
    holds four fifths of the teachers.
    """
    own = [t.stretch for t in rates.own if t.stretch is not None]
    off = (
        own
        if len(own) >= MIN_SESSIONS
        else [t.stretch for t in rates.every if t.stretch is not None]
    )
    if not off:
        return DEFAULT_STRETCH, DEFAULT_STRETCH
    left = np.arange(0, 101 - _HELD)
    downs = np.maximum(-np.percentile(off, left), _LEAST)
    ups = np.maximum(np.percentile(off, left + _HELD), _LEAST)
    best = int(np.argmin(downs + ups))
    return float(downs[best]), float(ups[best])


def split_error(known: Sequence[CallFeatures], recorded: Sequence[int], reads: Any) -> float:
    """Return by how many tokens reads are off, call by call, over all tokens of the prompts."""
    counted = np.array([not a.headless for a in known])
    off = np.abs(np.asarray(recorded) - np.asarray(reads)) * counted
    return float(off.sum() / max(sum(a.prompt for a in known if not a.headless), 1))


def naive_reads(known: Sequence[CallFeatures]) -> dict[str, NDArray[Any]]:
    """Return what each call reads by models that know next to nothing of a cache."""
    shared = np.array([warm_read_tokens(a) for a in known])
    alive = np.array([not a.expired for a in known])
    return {
        "lifetime": shared * alive,
        "all_cached": shared,
        "nothing_cached": np.zeros(len(known), np.int64),
    }


class InputCosts(NamedTuple):
    """The input side as a straight line: each token that is read is cheaper by so much."""

    whole: NDArray[Any]
    """Dollars of each call that reads nothing."""
    saved: NDArray[Any]
    """Dollars that one read token of a call saves."""

    def of(self, reads: NDArray[Any]) -> NDArray[Any]:
        """Return the dollars of calls that read so many tokens, summed over the last axis."""
        return np.asarray((self.whole - self.saved * reads).sum(axis=-1))


def input_costs(session: Session, known: Sequence[CallFeatures]) -> InputCosts | None:
    """Return what calls cost by the table of prices; None where one has no price.

    What is not read is written, at the price of the life that the session's writes have, or sent
    fresh where the provider bills no writes or the prompt is too short to be cached.
    """
    calls = session.calls
    usages = [calls[a.call].message.usage for a in known]
    writes = any(u and (u.cache_write_tokens or u.cache_write_1h_tokens) for u in usages)
    hour = writes and cache_life(session) == HOUR
    whole, saved = np.zeros(len(known)), np.zeros(len(known))
    for i, a in enumerate(known):
        found = price(calls[a.call].message.model or session.model)
        if found is None:
            return None
        p = found.at(a.prompt)
        rest = p.write(hour=hour) if writes and a.prompt >= a.least else p.input
        whole[i] = a.prompt * rest
        saved[i] = rest - p.read
    return InputCosts(whole, saved)


class ReadAfterCompaction(NamedTuple):
    """The first call after a compaction."""

    call: int
    prompt: int
    """Tokens of its prompt: so many it could have read."""
    read: int
    """Tokens that it read."""
    foretold: int | None
    """What the session's other compactions foretell of it; None: it has no other that tells."""


@accepts_session
def reads_after_compactions(session: Session) -> tuple[ReadAfterCompaction, ...]:
    """Return the first call after each compaction, foretold with that compaction left out.

    What the tool always sends first stays in the cache, and is the same after each compaction of a
    session; nothing stays where the pause was longer than the cache lives.

    Raises:
        BadArguments: it is no session.
    """
    pairs = zip(call_features(session), recorded_reads(session), strict=True)
    cut = [(a, read) for a, read in pairs if miss_cause(a) == "compaction"]
    reads = sorted(read for a, read in cut if not a.expired)
    found = []
    for a, read in cut:
        told = _middle_without(reads, read) if not a.expired else 0 if len(cut) > 1 else None
        told = None if told is None else min(told, a.prompt)
        found.append(ReadAfterCompaction(a.call, a.prompt, read, told))
    return tuple(found)


def _middle_without(ordered: Sequence[int], one: int) -> int | None:
    """Return the median, rounded, of what is left without one of them; None where nothing is."""
    at, n = bisect_left(ordered, one), len(ordered) - 1
    low, high = (k + (k >= at) for k in ((n - 1) // 2, n // 2))
    return round((ordered[low] + ordered[high]) / 2) if n else None


def compaction_read_error(found: Sequence[ReadAfterCompaction]) -> float | None:
    """Return by how many tokens those reads are off, over the prompts; None where none is told."""
    told = [(c.prompt, abs(c.read - c.foretold)) for c in found if c.foretold is not None]
    return sum(off for _, off in told) / sum(n for n, _ in told) if told else None


NO_CACHE_SPLIT = "No cache split is recorded, so the cache model could not be checked."


def describe_prediction(
    error: float | None, low: float | None, high: float | None, note: str | None
) -> str:
    """Return how well one session was foretold: error and interval, and what it rests on."""
    if error is None or low is None or high is None:
        return note or NO_CACHE_SPLIT
    return (
        f"Foretold by other sessions, without its reads, the input side is {error:+.1%} off the "
        f"record (80 % interval {low:+.0%} to {high:+.0%}).{f' {note}' if note else ''}"
    )
