"""Coloured cells over two lists: a plotly heat map, and a picture where nothing runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ctxkit.plots.chart import safe
from ctxkit.plots.palette import LAYOUT, TEXT
from ctxkit.plots.strokes import picture, words

_SCALE = ("#d7e8f3", "#9cc6e0", "#5fa2cc", "#2b7db3", "#0b5a8c")
"""From small to large: one hue, which the colour-blind read, and no red or green that judges."""
_WIDTH, _LEFT, _ROW, _TOP = 720, 130, 26, 24
_LETTER = 9
"""Pixels of height that a letter of the title beside the rows takes."""


@dataclass(frozen=True, kw_only=True)
class Cells:
    """What is drawn; implements `Drawing`."""

    x: str
    y: str
    z: str
    across: tuple[str, ...]
    upward: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    texts: tuple[tuple[str, ...], ...]

    def plotly(self) -> dict[str, Any]:
        """Return data and layout."""
        trace = {
            "type": "heatmap",
            "x": [safe(a) for a in self.across],
            "y": [safe(b) for b in self.upward],
            "z": [list(row) for row in self.values],
            "text": [[safe(t) for t in row] for row in self.texts],
            "texttemplate": "%{text}",
            "hovertemplate": (
                f"{safe(self.x)} %{{x}}<br>{safe(self.y)} %{{y}}<br>%{{text}}<extra></extra>"
            ),
            "colorscale": [[i / (len(_SCALE) - 1), c] for i, c in enumerate(_SCALE)],
            "colorbar": {"title": {"text": safe(self.z)}, "tickfont": {"color": TEXT}},
            "xgap": 1,
            "ygap": 1,
        }
        layout = {
            **LAYOUT,
            "height": 112 + max(34 * max(len(self.upward), 3), _LETTER * len(self.y)),
            "margin": {"l": 90, "r": 16, "t": 44, "b": 60},
            "xaxis": {"title": {"text": safe(self.x), "standoff": 8}, "type": "category"},
            "yaxis": {
                "title": {"text": safe(self.y), "standoff": 12},
                "type": "category",
                "automargin": True,
            },
        }
        return {"data": [trace], "layout": layout}

    def svg(self) -> str:
        """Return the cells as a picture, the last row on top as on the chart."""
        known = [v for row in self.values for v in row if v is not None]
        low, high = min(known, default=0.0), max(known, default=1.0)
        wide = (_WIDTH - _LEFT) / max(len(self.across), 1)
        parts = [
            words(_LEFT + (i + 0.5) * wide, 16, a, "middle", limit=24)
            for i, a in enumerate(self.across)
        ]
        for k, j in enumerate(reversed(range(len(self.upward)))):
            y = _TOP + k * _ROW
            parts.append(words(_LEFT - 8, y + 17, self.upward[j], "end", limit=24))
            for i, value in enumerate(self.values[j]):
                if value is None:
                    continue
                share = (value - low) / (high - low) if high > low else 0.0
                level = round(share * (len(_SCALE) - 1))
                x = _LEFT + i * wide
                parts.append(
                    f'<rect x="{x:.1f}" y="{y}" width="{wide - 1:.1f}" height="{_ROW - 1}"'
                    f' fill="{_SCALE[level]}"/>'
                )
                ink = "#ffffff" if level > 2 else "#1a1a1a"
                parts.append(
                    words(x + wide / 2, y + 17, self.texts[j][i], "middle", ink=ink, limit=24)
                )
        height = _TOP + _ROW * max(len(self.upward), 1)
        return picture(parts, _WIDTH, height)
