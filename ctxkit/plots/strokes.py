"""What static pictures are made of: frame, texts and lines, with ink from the theme."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.display.markup import escape
from ctxkit.plots.palette import SVG_DASHES

if TYPE_CHECKING:
    from collections.abc import Iterable

INK = "var(--jp-content-font-color2,#777777)"


def picture(parts: Iterable[str], width: int, height: int, *, hidden: bool = True) -> str:
    """Return an SVG picture as wide as its place; `hidden`: a table says the same to who hears."""
    told = ' aria-hidden="true"' if hidden else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' style="width:100%;max-width:{width}px;height:auto"{told}>{"".join(parts)}</svg>'
    )


def words(
    x: float, y: float, text: str, anchor: str = "start", more: str = "", *,
    ink: str = INK, limit: int = 40,
) -> str:  # fmt: skip
    """Return a text of at most `limit` characters; `more`: what its style has besides."""
    style = f"fill:{ink};font:11px system-ui,sans-serif{more}"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        f' style="{style}">{escape(text, limit)}</text>'
    )


def stroke(
    start: tuple[float, float], end: tuple[float, float], ink: str, dashes: str = "solid"
) -> str:
    """Return a line."""
    (x0, y0), (x1, y1) = start, end
    style = f'stroke="{ink}" stroke-width="1" stroke-dasharray="{SVG_DASHES[dashes]}"'
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" {style}/>'


def way(points: Iterable[tuple[float, float]]) -> str:
    """Return what an SVG path through points is drawn by."""
    return "".join(f"{'L' if i else 'M'}{a:.1f} {b:.1f}" for i, (a, b) in enumerate(points))


def keys(named: Iterable[tuple[str, str]]) -> str:
    """Return the keys of a legend: what stands for each, as safe HTML, and its name."""
    return " ".join(
        '<span style="display:inline-block;margin-right:14px;white-space:nowrap">'
        f"{drawn} {escape(name, 60)}</span>"
        for drawn, name in named
    )
