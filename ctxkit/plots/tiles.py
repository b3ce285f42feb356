"""Tiles within tiles, sized by tokens: a plotly treemap, and rows of bars where nothing runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ctxkit.plots.chart import safe
from ctxkit.plots.palette import LAYOUT, TEXT
from ctxkit.plots.strokes import picture, words

_WIDTH, _ROW, _LEFT = 720, 20, 170
_HEIGHT, _SHOWN = 420, 24


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A tile; one without a parent stands directly in the whole."""

    name: str
    tokens: int
    parent: int | None = None
    """Index of the tile in which it lies; the tiles in it sum up to its size."""
    colour: str = TEXT
    note: str = ""
    """Shown where the pointer rests, in a line of its own."""


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """What is drawn; implements `Drawing`."""

    whole: str
    tiles: tuple[Tile, ...]

    def plotly(self) -> dict[str, Any]:
        """Return data and layout."""
        total = sum(t.tokens for t in self.tiles if t.parent is None)
        trace = {
            "type": "treemap",
            "name": safe(self.whole),
            "branchvalues": "total",
            "ids": ["whole", *(str(i) for i in range(len(self.tiles)))],
            "labels": [safe(self.whole), *(safe(t.name, 60) for t in self.tiles)],
            "parents": ["", *("whole" if t.parent is None else str(t.parent) for t in self.tiles)],
            "values": [total, *(t.tokens for t in self.tiles)],
            "text": [f"{total:,}", *(f"{t.tokens:,}" for t in self.tiles)],
            "customdata": ["", *(safe(t.note, 120) for t in self.tiles)],
            "marker": {
                "colors": ["rgba(128,128,128,0.15)", *(t.colour for t in self.tiles)],
                "line": {"width": 1, "color": "rgba(255,255,255,0.4)"},
            },
            "textfont": {"color": ["#777777", *(["#ffffff"] * len(self.tiles))]},
            "texttemplate": "%{label}<br>%{text}",
            "hovertemplate": (
                "%{label}<br>%{text} tokens, %{percentRoot:.1%}<br>%{customdata}<extra></extra>"
            ),
            "pathbar": {"visible": False},
            "tiling": {"pad": 2},
            "maxdepth": 3,
        }
        layout = {**LAYOUT, "height": _HEIGHT, "margin": {"l": 8, "r": 8, "t": 44, "b": 8}}
        return {"data": [trace], "layout": layout}

    def svg(self) -> str:
        """Return the outer tiles as bars, largest first."""
        outer = sorted(
            (t for t in self.tiles if t.parent is None and t.tokens), key=lambda t: -t.tokens
        )[:_SHOWN]
        largest = max((t.tokens for t in outer), default=1)
        bars = (_bar(i, tile, largest) for i, tile in enumerate(outer))
        return picture(bars, _WIDTH, _ROW * max(len(outer), 1))


def _bar(i: int, tile: Tile, largest: int) -> str:
    wide = (_WIDTH - _LEFT - 80) * tile.tokens / largest
    y = i * _ROW
    return (
        f"{words(_LEFT - 8, y + 14, tile.name, 'end', limit=28)}"
        f'<rect x="{_LEFT}" y="{y + 3}" width="{wide:.1f}" height="{_ROW - 6}"'
        f' fill="{tile.colour}"/>{words(_LEFT + wide + 6, y + 14, f"{tile.tokens:,}")}'
    )
