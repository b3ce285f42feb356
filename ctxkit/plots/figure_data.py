"""Traces, limits and marks over two axes, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ctxkit._internal.palette import TEXT_COLOUR
from ctxkit.plots.decimation import decimate, decimate_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_NEAR, _PART = 0.1, 0.25
"""How near to a limit a line is, of the height, where its name stands, which is a quarter of the
width long."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One row of points; `y` may hold None or NaN where nothing is known."""

    name: str
    x: Sequence[float] | Any
    y: Sequence[float | None] | Any
    kind: Literal["line", "points", "area", "bar"] = "line"
    hover: Callable[[int], str] | None = None
    """Lines of text for the i-th point, joined by newlines; not asked for where points had to be
    left out."""
    look: int = 0
    """Which colour, dash and symbol of the palette."""
    colour: str | None = None
    dash: str | None = None
    names: tuple[str, ...] = ()
    """What is written beside its points, one each, as far as there is room."""
    hollow: bool = False
    """True where its points are drawn as outlines: what they stand for was found, not recorded."""
    marked: bool = True
    """False: a line without markers, however few its points."""
    follows: bool = False
    """True where it comes and goes with the trace of the same look, and has no place of its own in
    the legend."""

    def heights(self) -> NDArray[Any]:
        """Return `y` as numbers; what is not known is NaN, which is drawn as a gap."""
        return self.y if isinstance(self.y, np.ndarray) else np.array(self.y, dtype=float)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A line across the chart at a height."""

    y: float
    label: str
    colour: str = TEXT_COLOUR
    shown: bool = True
    """False: only in the legend, for a limit far above everything."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A line from bottom to top at a place."""

    x: float
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class AxesData:
    """What is drawn over two axes; `Axes` draws it."""

    x: str
    y: str
    traces: tuple[Trace, ...] = ()
    limits: tuple[Limit, ...] = ()
    marks: tuple[Mark, ...] = ()
    stacked: bool = False
    whole: bool = False
    """True where x counts things: only whole numbers on its axis."""
    y_share: bool = False
    """True where y is a share, shown in per cent."""
    y_small: bool = False
    """True where y is about 1: 0.5 is written so, and not as 500m."""
    x_dollars: bool = False
    """True where x is an amount: `$` on its ticks."""
    ticks: tuple[str, ...] = ()
    """Names for the places 0, 1, 2 ... of the x axis."""
    points: int = 600
    """Points of each line in the static picture, at most about."""
    circles: int = 600
    """The same for traces of points by themselves."""

    def is_band(self, trace: Trace) -> bool:
        """Say whether a trace stands on the one before it."""
        return self.stacked and trace.kind in ("area", "bar")

    def select_points(
        self, heights: Sequence[NDArray[Any]], points: int, circles: int
    ) -> list[NDArray[np.int64]]:
        """Return for each trace the indices of the points that are drawn; the bands of a stack,
        which are summed, share theirs.

        Args:
            heights: the y of each trace.
            points: about how many of a line, an area or bars.
            circles: the same for a trace of points.
        """
        pairs = list(zip(self.traces, heights, strict=True))
        bands = [y for trace, y in pairs if self.is_band(trace)]
        shared = decimate_stack(bands, points) if bands else None
        return [
            shared
            if shared is not None and self.is_band(trace)
            else decimate(y, circles if trace.kind == "points" else points)
            for trace, y in pairs
        ]

    def free_end(self, limit: Limit) -> str:
        """Return the end of a limit where no line runs, `right` before `left`: its name stands
        there. Empty where lines run through both.
        """
        lines = [t for t in self.traces if t.kind in ("line", "area") and len(t.x) > 1]
        rows = [(np.asarray(t.x), np.array(t.y, dtype=float)) for t in lines]
        rows = [(x.astype(float), y) for x, y in rows if x.dtype.kind in "iuf"]
        if not rows:
            return "right"
        low, high = min(x[0] for x, _ in rows), max(x[-1] for x, _ in rows)
        tops = [limit.y, *(float(np.nanmax(y)) for _, y in rows if np.isfinite(y).any())]
        near, part = _NEAR * max(tops), _PART * (high - low)

        def meets(start: float, end: float) -> bool:
            if any(start < m.x < end for m in self.marks):
                return True
            at = np.linspace(start, end, 50)
            for x, y in rows:
                way = np.interp(at, x, y, left=np.nan, right=np.nan) - limit.y
                least, most = np.fmin(way[:-1], way[1:]), np.fmax(way[:-1], way[1:])
                if bool(((least < near) & (most > -near)).any()):
                    return True
            return False

        if not meets(high - part, high):
            return "right"
        return "" if meets(low, low + part) else "left"
