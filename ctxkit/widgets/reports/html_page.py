"""One offline HTML page: styles, plotly, tables and charts inside, log text escaped."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit._internal.chart_style import PLOTLY_TEXT_CSS, read_plotly_javascript
from ctxkit._internal.formatting_and_sanitizing import escape_html

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.plots.chart import Chart

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
"""The page itself forbids every request: were some text of a log to slip through, it could reach
nobody.
"""
_PRINT = """
;for (const [event, width] of [["beforeprint", 680], ["afterprint", null]]) addEventListener(event, () => {
document.querySelectorAll(".chart").forEach(c => Plotly.relayout(c, {width, autosize: width === null}));
for (const t of document.querySelectorAll(".wide>table")) {
t.parentNode.style.width = width ? "700px" : ""; t.style.fontSize = width ? "8pt" : ""; t.style.zoom = "";
if (width) t.style.zoom = Math.min(1, 700 / t.offsetWidth); }});
"""
"""On paper a chart is as wide as an A4 page, where plotly would keep the width of the screen, and
tables are small; one that is wider than the page smaller still.
"""
_STYLE = Path(__file__).with_name("style.css")


@dataclass(frozen=True)
class PageSection:
    """A heading and its HTML, which is safe already; an empty one is left out of the page."""

    title: str
    html: str


def render_page(title: str, head: str, sections: Iterable[PageSection], *, plotly: bool) -> str:
    """Return the whole file.

    Args:
        title: plain text.
        head: HTML that comes before the first section.
        sections: the rest, in order.
        plotly: whether plotly.js is put in (once, 4.8 MB), for pages with charts.

    Returns:
        A document with a content security policy that forbids requests.
    """
    style = _STYLE.read_text(encoding="utf-8") + PLOTLY_TEXT_CSS
    script = f"<script>{_plotly_script() if plotly else ''}{_PRINT}</script>"
    body = "".join(
        f"<section><h2>{escape_html(s.title)}</h2>{s.html}</section>" for s in sections if s.html
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape_html(title, 120)}</title><style>{style}</style>{script}</head>"
        f"<body><main><h1>{escape_html(title, 200)}</h1>{head}{body}</main></body></html>\n"
    )


def render_chart(drawn: Chart, name: str) -> str:
    """Return a chart that plotly draws, with its static picture for readers without scripts.

    Args:
        drawn: the chart; its caption becomes the figure's.
        name: id of the element, unique in the page.

    Returns:
        A figure; the page must include plotly.js (`render_page(plotly=True)`).
    """
    figure = drawn.to_plotly()
    layout = {**figure["layout"], "height": figure["layout"].get("height", 400), "autosize": True}
    # The page has headings of its own, and plotly follows the width of the window.
    layout.pop("title", None)
    layout.pop("width", None)
    drawing = f"Plotly.newPlot({encode_script_json(name)},{encode_script_json(figure['data'])},{encode_script_json(layout)},{{responsive:true,displaylogo:false}})"
    label = escape_html(f"{drawn.title}. {drawn.caption}", 700)
    return (
        f'<figure><div class="chart" style="height:{int(layout["height"])}px" id="{name}"'
        ' role="img" '
        f'aria-label="{label}"></div><noscript>{drawn.drawing.svg()}</noscript>'
        f"<figcaption>{escape_html(drawn.caption, 600)}</figcaption></figure><script>{drawing}</script>"
    )


def encode_script_json(value: object) -> str:
    """Return a value as JSON that may be in a script: no `<` can end it or open a comment."""
    return (
        json.dumps(value, allow_nan=False)
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def render_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: frozenset[int] = frozenset(),
    caption: str = "",
) -> str:
    """Return a table of plain texts as HTML; empty without rows.

    Args:
        head: names of the columns.
        rows: texts, one for each column; each is escaped and cut to 400 characters.
        numbers: positions of the columns that are aligned to the right.
        caption: a sentence above the table; empty: none.

    Returns:
        A table in a block that scrolls.

    Example:
        >>> from ctxkit.widgets.reports.html_page import render_table
        >>> "<td>&lt;b&gt;</td>" in render_table(["name"], [["<b>"]])
        True
    """
    kinds = [' class="n"' if i in numbers else "" for i in range(len(head))]
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{escape_html(cell, 400)}</td>"
            for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    if not body:
        return ""
    heads = "".join(
        f'<th scope="col"{kind}>{escape_html(h)}</th>' for kind, h in zip(kinds, head, strict=True)
    )
    caption_html = f"<caption>{escape_html(caption)}</caption>" if caption else ""
    return (
        "<div"
        f' class="wide"><table>{caption_html}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def render_sentence_list(sentences: Iterable[str]) -> str:
    """Return plain sentences as a list; without any it is empty.

    Args:
        sentences: plain texts, which are escaped.

    Returns:
        An unordered list.
    """
    inner = "".join(f"<li>{escape_html(sentence)}</li>" for sentence in sentences)
    return f"<ul>{inner}</ul>" if inner else ""


def render_name_value_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a few figures side by side.

    Args:
        pairs: name and figure; a figure is cut to 60 characters.

    Returns:
        A description list; empty without pairs.
    """
    inner = "".join(
        f"<div><dt>{escape_html(k)}</dt><dd>{escape_html(v, 60)}</dd></div>" for k, v in pairs
    )
    return f'<dl class="facts">{inner}</dl>' if inner else ""


def _plotly_script() -> str:
    return read_plotly_javascript().decode("utf-8").replace("</script", "<\\/script")
