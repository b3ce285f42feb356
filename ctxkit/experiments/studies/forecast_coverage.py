"""Coverage of the intervals of forecasts, on sessions of developers that are cut in two.

Calls, prompt tokens and the dollars of carried tokens are those of recorded sessions: the table
that ships with the kit. Dollars and loss of whole sessions are those of made developers, whose
archives are forecast and compared with the files that came later, as `ctxkit forecasts` does.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.lazy import public_dir
from ctxkit.engine.cache_model.training_counts import load_counts
from ctxkit.experiments.forecast_records import FIGURES, forecasts, get_start, write_forecast
from ctxkit.formats.writing import write
from ctxkit.metrics.prediction_intervals import predict_interval
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ctxkit.engine.cache_model.training_counts import SessionCounts
    from ctxkit.session.session import Session


__all__ = [
    "ForecastCoverage",
    "count_carried_tokens",
    "measure_archive_coverage",
    "measure_coverage",
    "price_carried_tokens",
]
__dir__ = public_dir(__all__)

MIN_SESSIONS = 8
"""Sessions of a developer and tool from which they are cut in two."""
_TIME_ORDERED_IDS = frozenset(("codex", "pi"))
"""Tools whose session ids rise with time."""


class ForecastCoverage(NamedTuple):
    """Later sessions inside of the intervals that the earlier ones gave."""

    inside: int
    sessions_n: int
    developers_n: int
    by_developer: dict[str, tuple[int, int]]
    """For each developer the sessions inside, and all."""

    @property
    def share(self) -> float:
        """The share of later sessions inside."""
        return self.inside / self.sessions_n


def count_carried_tokens(session: SessionCounts) -> float:
    """Return the tokens of all prompts that the calls of a session share with the ones before."""
    return float(sum(count.expected for count in session.counts.values()) + sum(session.head[:1]))


def price_carried_tokens(session: SessionCounts) -> float | None:
    """Return the dollars of the tokens that a session's calls share with the ones before.

    Those that the cache missed are billed as writes, the others as reads, at the list prices of the
    model. New tokens and output are not in the table. None: the model has no price.
    """
    model_price = price(session.model)
    if model_price is None:
        return None
    lost = sum(count.lost for count in session.counts.values())
    carried = sum(count.expected for count in session.counts.values())
    return model_price.read * (carried - lost) + model_price.write() * lost


def measure_archive_coverage(
    developers: Mapping[str, Sequence[Session]],
) -> dict[tuple[str, str], ForecastCoverage]:
    """Forecast each developer's archive in the middle, and hold the later sessions against it.

    The sessions are written as files, read again, and forecast as they are set.

    Args:
        developers: sessions of one tool, by time.

    Returns:
        For each tool and figure (`FIGURES`) the later sessions inside of the 80 % interval; figures
        without an interval are left out.
    """
    counts: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    for name, sessions in developers.items():
        with tempfile.TemporaryDirectory() as folder:
            for session in sessions:
                write(session, Path(folder) / f"{session.id}.jsonl")
            write_forecast(folder, now=get_start(sessions[len(sessions) // 2]))
            for outcome in forecasts(folder).outcomes:
                for figure in FIGURES:
                    inside, of = outcome.hits(figure)
                    if of:
                        key = outcome.forecast.tool, figure
                        counts.setdefault(key, {})[name] = inside, of
    return {key: _sum_counts(by_developer) for key, by_developer in counts.items()}


def _sum_counts(by_developer: dict[str, tuple[int, int]]) -> ForecastCoverage:
    judged = [c for c in by_developer.values() if c[1]]
    return ForecastCoverage(
        sum(c[0] for c in judged), sum(c[1] for c in judged), len(judged), by_developer
    )


def measure_coverage(
    figure: Callable[[SessionCounts], float | None], rows: Sequence[SessionCounts] | None = None
) -> ForecastCoverage:
    """Forecast a figure from the first half of each developer's sessions of a tool, try the second.

    The sessions of Codex and Pi are in the order of time; the others in that of the table, as it
    holds no times.

    Args:
        figure: of a session; sessions of which it is None are left out.
        rows: sessions; None: the table of recorded sessions that ships with the kit.
    """
    groups: dict[tuple[str, str], list[SessionCounts]] = {}
    for row in load_counts() if rows is None else rows:
        if row.developer and not row.subagent:
            groups.setdefault((row.developer, row.tool), []).append(row)
    by_developer: dict[str, tuple[int, int]] = {}
    for (developer, tool), sessions in groups.items():
        if len(sessions) < MIN_SESSIONS:
            continue
        ordered = sessions
        if tool in _TIME_ORDERED_IDS:
            ordered = sorted(sessions, key=lambda row: row.session)
        values = [value for row in ordered if (value := figure(row)) is not None]
        half = len(values) // 2
        interval = predict_interval(values[:half])
        hits = [interval.contains(v) for v in values[half:]] if interval is not None else []
        judged = [h for h in hits if h is not None]
        inside, of = by_developer.get(developer, (0, 0))
        by_developer[developer] = (inside + sum(judged), of + len(judged))
    return _sum_counts(by_developer)
