"""Sessions and times as a legend and a hover text name them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from ctxkit.readers.given import as_session, as_sessions

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.readers.given import Given, GivenAll
    from ctxkit.session import Session


class Compared(Protocol):
    """What ``ck.compare`` returns: each setting with the session that it gives."""

    replays: dict[str, Session]


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
        else [(s.id, s) for s in as_sessions(given)]
    )
    out: dict[str, Session] = {}
    for name, session in pairs:
        key, n = str(name), 2
        while key in out:
            key, n = f"{name} ({n})", n + 1
        out[key] = session
    return out


def clock(seconds: float | None) -> str | None:
    """A time of a log as text, UTC; None where there is none or it is no time."""
    if seconds is None or not 0 <= seconds < 253_402_300_799:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


_SHARES = ("loss", "lost", "gone", "retained", "recoverable", "savings", "regret", "rate", "thrash", "refill")


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
    """How far the cost model of a sweep can be believed, in a sentence; nothing where the runs do not say."""
    if not {"session", "reproduction_error", "unexplained_misses"} <= set(runs.columns):
        return ""
    each = runs.drop_duplicates("session")
    errors, riddles = each["reproduction_error"].dropna().abs(), each["unexplained_misses"].dropna()
    if errors.empty:
        return " No session tells cached from uncached input, so the cost model could not be checked."
    return (
        f" The cost model reproduces the recorded input side of {len(errors)} of {len(each)} sessions within "
        f"{float(errors.max()):.1%}; {float(riddles.mean()):.1%} of the calls missed the cache without an explanation."
    )
