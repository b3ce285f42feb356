"""How far the input side of a session is foretold: by other sessions, and by its own first half.

Told to a prediction: sizes, times, models, events, and whether writes are billed and live five
minutes or an hour. Never told: a read of the session (or of the half) that is judged. So this
figure can fail, unlike `metrics.money.closure_error`, which checks that the books add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ctxkit.cache.cache_counts import recorded_reads, taught
from ctxkit.cache.cached_calls import asked
from ctxkit.cache.causes import warm
from ctxkit.cache.dollars import Dollars, dollars
from ctxkit.cache.draws import drawn
from ctxkit.cache.rates import FEW, LONG, Rates
from ctxkit.cache.table import others, table
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.cache.cache_counts import Taught
    from ctxkit.cache.cached_calls import ForeseenCall
    from ctxkit.session import Session

NAIVE = ("lifetime", "all_cached", "nothing_cached")
"""Models beside which a prediction stands."""
_LOW, _HIGH = 10, 90
_HELD = 80
"""Of a hundred records so many lie in their intervals."""
_LEAST = 0.5
"""An interval is made no narrower than this share of what its draws say."""
STRETCH = 1.5
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


@of_session
def prediction(session: Session, teachers: Iterable[Taught] | None = None) -> Prediction:
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
    known = asked(session)
    if len(known) < 2:
        why = "no cache split" if not known else "one call with a cache split"
        return Prediction(why=f"The log has {why}, so no prediction can be checked.")
    rates = rates_of(session, table() if teachers is None else teachers)
    reads = drawn(known, rates)
    middle = np.median(reads, axis=0)
    found = Prediction(
        reads=tuple(middle.astype(int).tolist()),
        split_error=split_error(known, recorded_reads(session), middle),
        teachers=len(rates.own),
        why=_few(rates, len(known)),
    )
    line = dollars(session, known)
    if line is None:
        why = "A call has no known price, so only the split of its tokens can be checked."
        return msgspec.structs.replace(found, why=why)
    case = _Case(session, known, rates, _counted(line, known), np.array(recorded_reads(session)))
    return case.judged(reads, found)


def rates_of(session: Session, teachers: Iterable[Taught]) -> Rates:
    """Return what teachers say to a session, itself and copies of its beginning left out."""
    whose = taught(session, 0)
    return Rates(others(teachers, session.id, whose.head), whose)


def _few(rates: Rates, calls: int) -> str | None:
    told = []
    if calls < LONG:
        told.append(f"It has {calls} calls with a cache split, so one miss decides.")
    if rates.few:
        n = len(rates.own)
        others_ = f"Only {n} other session{'s' * (n != 1)}" if n else "No other session"
        told.append(f"{others_} of its tool and provider taught it.")
    return " ".join(told) or None


class _Case(NamedTuple):
    """A session that is judged."""

    session: Session
    known: Sequence[ForeseenCall]
    rates: Rates
    line: Dollars
    recorded: NDArray[Any]

    def judged(self, reads: NDArray[Any], found: Prediction) -> Prediction:
        """Return a prediction with the errors of its dollars."""
        true = float(self.line.of(self.recorded))
        if not true:
            return msgspec.structs.replace(found, why="Its calls cost nothing, so no share is off.")
        draws = self.line.of(reads)
        point = float(np.median(draws))
        low, high = _interval(draws, point, *stretch(self.rates))
        naive = naive_reads(self.known)
        return msgspec.structs.replace(
            found,
            error=point / true - 1,
            low=low / true - 1,
            high=high / true - 1,
            spread=(low / point - 1, high / point - 1) if point else None,
            half_error=self.half(),
            **{f"{n}_error": float(self.line.of(naive[n])) / true - 1 for n in NAIVE},
        )

    def half(self) -> float | None:
        """Return the error of the second half of the calls, taught by the first half first."""
        at = len(self.known) // 2
        if at < 2:
            return None
        reads = drawn(self.known[at:], self.rates.after(taught(self.session, at)))
        part = Dollars(self.line.whole[at:], self.line.saved[at:])
        true = float(part.of(self.recorded[at:]))
        return float(np.median(part.of(reads))) / true - 1 if true else None


def _counted(line: Dollars, known: Sequence[ForeseenCall]) -> Dollars:
    """Leave out the first call of a log without its beginning: nobody can tell what it reads."""
    counted = np.array([not a.headless for a in known])
    return Dollars(line.whole * counted, line.saved * counted)


def _interval(draws: NDArray[Any], point: float, down: float, up: float) -> tuple[float, float]:
    """Return the ends of the interval: no side is less than half the other, nor than a hundredth.

    Draws end where nothing is missed, and a model can be wrong there, too.
    """
    low, high = np.percentile(draws, [_LOW, _HIGH]).tolist()
    below, above = point - low, high - point
    least = max(below / 2, above / 2, point / 100)
    return max(point - max(below, least) * down, 0.0), point + max(above, least) * up


def stretch(rates: Rates) -> tuple[float, float]:
    """Return by how much an interval is stretched downwards and upwards: the least that
    holds four fifths of the teachers.
    """
    own = [t.stretch for t in rates.own if t.stretch is not None]
    off = own if len(own) >= FEW else [t.stretch for t in rates.every if t.stretch is not None]
    if not off:
        return STRETCH, STRETCH
    left = np.arange(0, 101 - _HELD)
    downs = np.maximum(-np.percentile(off, left), _LEAST)
    ups = np.maximum(np.percentile(off, left + _HELD), _LEAST)
    best = int(np.argmin(downs + ups))
    return float(downs[best]), float(ups[best])


def split_error(known: Sequence[ForeseenCall], recorded: Sequence[int], reads: Any) -> float:
    """Return by how many tokens reads are off, call by call, over all tokens of the prompts."""
    counted = np.array([not a.headless for a in known])
    off = np.abs(np.asarray(recorded) - np.asarray(reads)) * counted
    return float(off.sum() / max(sum(a.prompt for a in known if not a.headless), 1))


def naive_reads(known: Sequence[ForeseenCall]) -> dict[str, NDArray[Any]]:
    """Return what each call reads by models that know next to nothing of a cache."""
    shared = np.array([warm(a) for a in known])
    alive = np.array([not a.expired for a in known])
    return {
        "lifetime": shared * alive,
        "all_cached": shared,
        "nothing_cached": np.zeros(len(known), np.int64),
    }
