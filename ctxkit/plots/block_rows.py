"""Blocks in a row, as wide as they have tokens: as a plotly figure and as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.display.markup import escape
from ctxkit.plots.chart import safe
from ctxkit.plots.palette import LAYOUT
from ctxkit.plots.strokes import picture, words

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _HIGH, _ROW = 720, 30, 62
_WORDS = 92
"""Pixels that a name below its blocks needs at least."""


class Span(NamedTuple):
    """A block, or the part of it that was billed in one way."""

    start: int
    tokens: int
    kind: int
    """Which of the kinds of the strip."""
    told: str
    """Said where the pointer rests; untrusted."""


class Row(NamedTuple):
    """One prompt."""

    name: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, kw_only=True)
class BlockRows:
    """What is drawn; implements `Drawing`. Rows share one scale."""

    kinds: tuple[tuple[str, str], ...]
    """Name and colour of each kind, in the order in which they follow each other."""
    rows: tuple[Row, ...]

    def plotly(self) -> dict[str, Any]:
        """Return data and layout: a trace a kind."""
        data = []
        for i, (name, ink) in enumerate(self.kinds):
            found = [(row.name, s) for row in self.rows for s in row.spans if s.kind == i]
            if found:
                data.append(_trace(name, ink, found))
        axis = {"title": {"text": "tokens from the beginning of the prompt"}, "zeroline": False}
        layout = {
            "barmode": "overlay",
            **LAYOUT,
            "height": 170 + 70 * len(self.rows),
            "margin": {"l": 90 if len(self.rows) > 1 else 12, "r": 12, "t": 44, "b": 84},
            "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
            "xaxis": {**axis, "rangemode": "tozero", "separatethousands": True},
            "yaxis": {
                "autorange": "reversed",
                "showgrid": False,
                "showticklabels": len(self.rows) > 1,
                "fixedrange": True,
            },
        }
        return {"data": data, "layout": layout}

    def svg(self) -> str:
        """Return the static picture; what the pointer rests on says what it is."""
        end = max((s.start + s.tokens for row in self.rows for s in row.spans), default=1) or 1
        parts = [_drawn(i, row, self.kinds, _WIDTH / end) for i, row in enumerate(self.rows)]
        high = _ROW * max(len(self.rows), 1)
        return picture(parts, _WIDTH, high, hidden=False)


def _trace(name: str, ink: str, found: Sequence[tuple[str, Span]]) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": safe(name),
        "y": [safe(row, 40) for row, _ in found],
        "x": [s.tokens for _, s in found],
        "base": [s.start for _, s in found],
        "hovertext": [f"{safe(s.told, 120)}<br>{s.tokens:,} tokens {safe(name)}" for _, s in found],
        "hoverinfo": "text",
        "marker": {"color": ink, "line": {"width": 0.6, "color": "rgba(255,255,255,0.7)"}},
    }


def _drawn(i: int, row: Row, kinds: Sequence[tuple[str, str]], scale: float) -> str:
    top = i * _ROW + 14
    out = [words(0, top - 3, row.name, limit=80)]
    for s in row.spans:
        wide = max(s.tokens * scale - 0.6, 0.4)
        told = escape(f"{s.told}: {s.tokens:,} tokens {kinds[s.kind][0]}", 200)
        out.append(
            f'<rect x="{s.start * scale:.1f}" y="{top}" width="{wide:.1f}" height="{_HIGH}" '
            f'fill="{kinds[s.kind][1]}"><title>{told}</title></rect>'
        )
    free = 0.0
    for kind, (name, _) in enumerate(kinds):
        mine = [s for s in row.spans if s.kind == kind]
        total = sum(s.tokens for s in mine)
        if total:
            x = max(min(mine[0].start * scale, _WIDTH - _WORDS - 40), free)
            free = x + _WORDS + 40
            out.append(words(x, top + _HIGH + 13, f"{name} {total:,}", limit=60))
    return "".join(out)
