"""Sessions and times as a legend and a hover text name them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from inspect import signature
from os import PathLike
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, cast

from ctxkit.display.markup import line
from ctxkit.readers.given import as_session, as_sessions
from ctxkit.session import Session
from ctxkit.titles import title_of, told_apart

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from ctxkit.plots.chart import Chart
    from ctxkit.readers.given import Given, GivenAll


class Compared(Protocol):
    """What ``ck.compare`` returns: each setting with the session that it gives."""

    replays: Mapping[str, Session]


def name_all(sessions: GivenAll | Mapping[str, Given] | Compared) -> dict[str, Session]:
    """Return the sessions under the names by which a legend tells them apart.

    Raises:
        BadArguments: something given is no session.
    """
    given: Any = getattr(sessions, "replays", sessions)
    named = isinstance(given, Mapping) and "role" not in given
    pairs = (
        [(name, as_session(s)) for name, s in given.items()]
        if named
        else [(title_of(s, _LONG), s) for s in as_sessions(given)]
    )
    return dict(zip(told_apart(str(n) for n, _ in pairs), (s for _, s in pairs), strict=True))


def clock(seconds: float | None) -> str | None:
    """A time of a log as text, UTC; None where there is none or it is no time."""
    if seconds is None or not 0 <= seconds < 253_402_300_799:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


_LONG = 48
"""Letters of a session's name in a legend."""
_NOTES = 6
"""Notes that a chart shows; of more it tells the number."""
_P = ParamSpec("_P")


def noted(chart: Callable[_P, Chart]) -> Callable[_P, Chart]:
    """Let a chart show the notes of the sessions, or of the runs, that it is given first."""
    first = next(iter(signature(chart).parameters))

    @wraps(chart)
    def made(*args: Any, **kwargs: Any) -> Chart:
        of = args[0] if args else kwargs.pop(first, None)
        if isinstance(of, (str, PathLike, list, Iterator)):  # read once
            of = as_sessions(of)
        return replace(chart(of, *args[1:], **kwargs), notes=tuple(notes_of(of)))

    return cast("Callable[_P, Chart]", made)


def notes_of(of: Any) -> list[str]:
    """Return the notes of sessions, of a comparison, or of a frame of runs, each with its session
    where several.
    """
    replays = getattr(of, "replays", None)
    if hasattr(of, "columns") and not replays:
        told = _of_runs(of)
    else:
        given = [of] if isinstance(of, Session) else replays or of
        if isinstance(given, Mapping):
            given = list(given.values())
        each = given if isinstance(given, Sequence) else ()
        told = dict.fromkeys((s.id, s.notes) for s in each if isinstance(s, Session))
    alone = len(told) == 1
    found = [n if alone else f"{line(name, 40)}: {n}" for name, notes in told for n in notes]
    more = len(found) - _NOTES
    if more > 0:
        found[_NOTES:] = [f"{more} more notes: see `notes` of the sessions."]
    return found


def size(n: int | None) -> str:
    """A number of tokens, as a hover text and a table tell it."""
    return "unknown" if n is None else f"{n:,}"


def _of_runs(runs: pd.DataFrame) -> dict[tuple[str, tuple[str, ...]], None]:
    if not {"session", "session_notes"} <= set(runs.columns):
        return {}
    each = runs.drop_duplicates("session")[["session", "session_notes"]].dropna()
    return dict.fromkeys((str(name), (str(note),)) for name, note in each.itertuples(index=False))


_SHARES = (
    "loss",
    "lost",
    "gone",
    "retained",
    "recoverable",
    "savings",
    "regret",
    "rate",
    "thrash",
    "refill",
)


def figure(column: str, value: float | None) -> str:
    """A number of a column as a table shows it: dollars, per cent of a share, or a count."""
    if value is None or not math.isfinite(value):
        return "unknown"
    if column.endswith("_usd"):
        return f"${value:,.2f}" if abs(value) >= 0.1 else f"${value:.4f}"
    if column.endswith(_SHARES):
        return f"{value:.1%}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def trust(runs: pd.DataFrame) -> str:
    """How far the cost model of a sweep can be believed, in a sentence; nothing where the runs do
    not say.
    """
    if not {"session", "prediction_error", "unexplained_misses"} <= set(runs.columns):
        return ""
    each = runs.drop_duplicates("session")
    errors, riddles = each["prediction_error"].dropna().abs(), each["unexplained_misses"].dropna()
    if errors.empty:
        return (
            " No session tells cached from uncached input, or none has prices: the cache model "
            "could not be checked."
        )
    return (
        f" Foretold without their reads, the input sides of {len(errors)} of {len(each)} sessions "
        f"are {float(errors.median()):.1%} off in the median, {float(errors.max()):.1%} at most; "
        f"{float(riddles.mean()):.1%} of the calls missed the cache without an explanation."
    )
