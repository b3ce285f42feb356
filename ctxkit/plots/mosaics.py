"""Many small pictures of one kind side by side, before they are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.plots.decimation import decimate

if TYPE_CHECKING:
    from ctxkit.plots.traces import Trace

SHARP = 200
"""Points of a line: more than a panel is wide."""
CROWD = 20
"""Marks above which they are drawn smaller."""
_LETTERS = 76
"""Letters of all titles of a row together."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture."""

    title: str
    corner: str = ""
    """A few signs at the right end of the title."""
    traces: tuple[Trace, ...] = ()
    """Lines, areas and points; those of one name have one place in the legend of all panels."""
    limit: float | None = None
    """A line across."""


@dataclass(frozen=True, kw_only=True)
class Mosaic:
    """Pictures row by row, all on the same two scales; `Panels` draws it."""

    panels: tuple[Panel, ...]
    x: str
    y: str
    limit: str = "limit"
    """What the line across is called."""

    @property
    def columns(self) -> int:
        """How many stand side by side: as many as still have room for a title."""
        n = len(self.panels)
        return 4 if n > 9 else min(max(n, 1), 3)

    def letters(self, panel: Panel) -> int:
        """Return how long the title of a panel may be, so that it ends before the next on a page
        of 700 pixels beside the bars of a notebook.
        """
        return _LETTERS // self.columns - (len(panel.corner) + 1 if panel.corner else 0)

    @property
    def rows(self) -> int:
        """How many stand one below another."""
        return max(-(-len(self.panels) // self.columns), 1)

    @property
    def traces(self) -> list[Trace]:
        """The traces of all panels."""
        return [t for p in self.panels for t in p.traces]

    def reach(self) -> tuple[float, float, float]:
        """Return the ends of x and the top of y that all panels share; y begins at 0."""
        xs = [float(v) for t in self.traces if len(t.x) for v in (t.x[0], t.x[-1])] or [0.0]
        heights = [np.array(t.y, dtype=float) for t in self.traces]
        tops = [float(np.nanmax(y)) for y in heights if np.isfinite(y).any()]
        tops += [p.limit for p in self.panels if p.limit]
        return min(xs) - 0.5, max(xs) + 0.5, max(tops, default=0.0) * 1.06 or 1.0


def points(trace: Trace) -> tuple[Any, Any, Any]:
    """Return the places, the heights and the indices of the points of a trace that are drawn."""
    y = np.array(trace.y, dtype=float)
    kept = decimate(y, SHARP)
    return np.asarray(trace.x)[kept], y[kept], kept
