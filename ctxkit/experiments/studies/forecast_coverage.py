"""Coverage of the intervals of forecasts, on sessions of developers that are cut in two."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.lazy import public_dir
from ctxkit.engine.cache_model.session_counts import load_counts
from ctxkit.metrics.prediction_intervals import predict_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.engine.cache_model.session_counts import SessionCounts


__all__ = ["ForecastCoverage", "count_prompt_tokens", "measure_coverage"]
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


def count_prompt_tokens(session: SessionCounts) -> float:
    """Return the tokens of all prompts that the calls of a session share with the ones before."""
    return float(sum(count.expected for count in session.counts.values()) + sum(session.head[:1]))


def measure_coverage(
    figure: Callable[[SessionCounts], float], rows: Sequence[SessionCounts] | None = None
) -> ForecastCoverage:
    """Forecast a figure from the first half of each developer's sessions of a tool, try the second.

    The sessions of Codex and Pi are in the order of time; the others in that of the table, as it
    holds no times.

    Args:
        figure: of a session.
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
        values = [figure(row) for row in ordered]
        half = len(values) // 2
        interval = predict_interval(values[:half])
        hits = [interval.holds(v) for v in values[half:]] if interval is not None else []
        judged = [h for h in hits if h is not None]
        inside, of = by_developer.get(developer, (0, 0))
        by_developer[developer] = (inside + sum(judged), of + len(judged))
    counts = [c for c in by_developer.values() if c[1]]
    return ForecastCoverage(
        sum(c[0] for c in counts), sum(c[1] for c in counts), len(counts), by_developer
    )
