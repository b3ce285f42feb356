"""Style of charts: colours, dashes and symbols that the colour-blind can tell apart, on light and
dark pages; Plotly's layout, and its JavaScript from the wheel (without importing plotly).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ctxkit._internal.distribution_version_and_conflicts import DISTRIBUTION
from ctxkit.errors import CtxkitError

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b8860b", "#c0659a", "#3a93cc", "#8c6d46", "#7b6fd0")
"""Okabe and Ito's palette, with black, yellow and the two palest colours changed until each has a
contrast of 3:1 on white and on #111111.
"""
GROUP_COLOURS = (
    *(
        "#7b6fd0",
        "#a05fb4",
        "#c0659a",
        "#b8860b",
        "#009e73",
        "#4f9e3f",
        "#0072b2",
        "#3a93cc",
        "#5f7fa8",
    ),
    *("#d55e00", "#c9523f", "#b0575f", "#8c6d46", "#8a8a8a", "#a0764f", "#6f8f8f", "#777777"),
)
"""One for each group of the context report, neighbours distinct; the unlogged part is grey."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "x")
TEXT_COLOUR = "#777777"
"""The grey with a contrast above 4.2:1 on both themes."""
PLOTLY_TEXT_CSS = (
    '.js-plotly-plot :is(g[class$="tick"] text,text[class$="title"],.legendtext,.annotation-text,'
    ".textpoint text){fill:var(--jp-content-font-color1,var(--vscode-foreground,CanvasText))"
    "!important}"
)
"""Gives plotly's words the colour of the page: a figure has one grey for light and dark pages, and
no grey has a contrast above 4.5 on both. Words on marks and hover texts keep theirs.
"""
GRID_COLOUR = "rgba(128,128,128,0.25)"
PLOTLY_LAYOUT = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"color": TEXT_COLOUR, "size": 12},
    # Upright at the right edge: in a row it is on the title where the page is narrow.
    "modebar": {
        "bgcolor": "rgba(0,0,0,0)",
        "color": TEXT_COLOUR,
        "activecolor": TEXT_COLOUR,
        "orientation": "v",
    },
}
"""Plotly layout of every chart; the background is transparent."""
WARN_COLOUR, STOP_COLOUR = "#b8860b", "#d55e00"
ALERT_TEXT_CSS = f"color:color-mix(in srgb,{STOP_COLOUR} 50%,currentColor)"
"""Style of warnings: the stop colour, mixed with the page's text until it can be read on both."""
BUDGET_WARNING_CSS = "background:#ffd75f;color:#000000"
"""Style of a warning about a budget of tokens: black on yellow, read on light and dark pages."""
SVG_DASHES = {
    "solid": "",
    "dash": "6 4",
    "dot": "2 3",
    "dashdot": "6 3 2 3",
    "longdash": "10 4",
    "longdashdot": "10 3 2 3",
}


def pick_colour(i: int) -> str:
    """Return the colour of the i-th trace."""
    return COLOURS[i % len(COLOURS)]


def choose_text_colour(fill: str) -> str:
    """Return white or black for text on an area of colour ``#rrggbb``: what has more contrast."""
    # Relative luminance of WCAG 2.2. At 0.179 both inks have a contrast of 4.6.
    parts = [int(fill[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179 else "#000000"


def pick_dash(i: int) -> str:
    """Return the dash of the i-th trace, so that traces differ in more than colour."""
    return DASHES[i % len(DASHES)]


def pick_symbol(i: int) -> str:
    """Return the marker of the i-th trace."""
    return SYMBOLS[i % len(SYMBOLS)]


def make_translucent(colour: str) -> str:
    """Return a colour `#rrggbb` with an opacity of 16 %."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def read_plotly_javascript() -> bytes:
    """Return the minified JavaScript of plotly.

    Raises:
        CtxkitError: plotly is not installed.
    """
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise CtxkitError(f"A page with charts needs plotly: install {DISTRIBUTION} again.")
    return (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_bytes()
