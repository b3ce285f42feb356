"""One figure over two settings: each cell a mean over sessions, cells of few sessions marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.errors import BadArguments
from ctxkit.metrics.pooled import summary
from ctxkit.plots.chart import Chart
from ctxkit.plots.chart_words import figure, noted, trust
from ctxkit.plots.heat_tables import Cells

if TYPE_CHECKING:
    import pandas as pd


class HeatCell(NamedTuple):
    """One pair of settings; `z` is None where no run has the figure."""

    x: Any
    y: Any
    z: float | None
    low: float | None
    high: float | None
    sessions: int
    few: bool


def heatmap_data(runs: pd.DataFrame, x: str, y: str, z: str = "cost_usd") -> tuple[HeatCell, ...]:
    """Return one cell for each pair of settings: mean of `z` with its 90 % interval, over resampled
    sessions.

    Args:
        runs: what `sweep` returned.
        x: column across, a setting.
        y: column upward, a setting.
        z: column that is shown.

    Raises:
        BadArguments: there is no such column, or x and y are one.
    """
    if x == y:
        raise BadArguments(f"A heat map needs two settings: x and y are both {x!r}.")
    known = {x, y} <= set(getattr(runs, "columns", ()))
    kept = runs[runs[x].notna() & runs[y].notna()] if known else runs
    rows = summary(kept, (x, y), z).to_dict("records")
    return tuple(
        HeatCell(
            r[x],
            r[y],
            _number(r[z]),
            _number(r[f"{z}_low"]),
            _number(r[f"{z}_high"]),
            int(r["sessions_n"]),
            bool(r["few"]),
        )
        for r in rows
    )


@noted
def heatmap(runs: pd.DataFrame, x: str, y: str, z: str = "cost_usd") -> Chart:
    """Chart one figure of a sweep over two of its settings; see `heatmap_data`."""
    data = heatmap_data(runs, x, y, z)
    across, upward = (sorted({c[i] for c in data}, key=_order) for i in (0, 1))
    found = {(c.x, c.y): c for c in data}
    cells = [[found.get((a, b)) for a in across] for b in upward]
    checked = trust(runs) if z.endswith("_usd") else ""
    few = " * fewer than five sessions." if any(c.few for c in data) else ""
    return Chart(
        title=f"{z} over {x} and {y}",
        caption=f"Means over sessions; empty where no run has the figure.{few}{checked}",
        drawing=Cells(
            x=x,
            y=y,
            z=z,
            across=tuple(map(_word, across)),
            upward=tuple(map(_word, upward)),
            values=tuple(tuple(None if c is None else c.z for c in row) for row in cells),
            texts=tuple(tuple("" if c is None else _text(z, c) for c in row) for row in cells),
        ),
        head=(f"{y} \\ {x}", *map(_word, across)),
        rows=tuple(
            (_word(b), *("" if c is None else _text(z, c) for c in row))
            for b, row in zip(upward, cells, strict=True)
        ),
        shown=30,
    )


def _text(z: str, cell: HeatCell) -> str:
    return "" if cell.z is None else figure(z, cell.z) + "*" * cell.few


def _number(value: Any) -> float | None:
    return None if value is None or value != value else float(value)  # noqa: PLR0124  NaN


def _order(value: Any) -> tuple[int, float, str]:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (0, float(value), "") if number else (1, 0.0, str(value))


def _word(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
