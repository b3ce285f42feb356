"""A chart: one object with a plotly bundle, a static HTML twin and a text twin."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Protocol

from ctxkit.display.markup import NO_MATH, escape, line, plain
from ctxkit.errors import BadArguments, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PLOTLY = "application/vnd.plotly.v1+json"
_STYLE = "color:var(--jp-content-font-color1,var(--vscode-foreground,inherit))"
_CELL = "text-align:left;padding:2px 10px 2px 0"
_NUMBER = (
    "text-align:right;padding:2px 10px 2px 0;font-variant-numeric:tabular-nums;white-space:nowrap"
)
_FIGURE = re.compile(r"[-–$+±~\d.,:%kM→*\s]*\d[-–$+±~\d.,:%kM→*\s]*|–")
"""A cell of figures: `40,471`, `$3.32–$3.40`, `71 %`."""
_LONG = 24
_WIDE = 64
"""Letters of a line of a title: as many as a page of 700 pixels holds beside the bars of a
notebook."""


class Drawing(Protocol):
    """What a chart shows: drawn by plotly in a notebook, as SVG where nothing runs."""

    def plotly(self) -> dict[str, Any]:
        """Return the figure as plain JSON: `data` and `layout`."""

    def svg(self) -> str:
        """Return the static picture."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What every plot returns; the last value of a cell shows it."""

    title: str
    """Untrusted text is allowed here and in all other fields: it is escaped where it is shown."""
    caption: str = ""
    """What is shown, of what, and where the numbers come from; read to those who do not see the
    picture.
    """
    drawing: Drawing
    head: tuple[str, ...] = ()
    """Heads of the columns of the small table that the twins carry."""
    rows: tuple[tuple[str, ...], ...] = ()
    shown: int = 12
    """How many of the rows the twins show."""
    notes: tuple[str, ...] = ()
    """What its logs cannot say or say wrongly (`Session.notes`); shown below the caption."""

    def figure(self) -> Any:
        """Return a plotly ``go.Figure``, free to be changed."""
        import plotly.graph_objects as go

        return go.Figure(self.to_plotly())

    def to_plotly(self) -> dict[str, Any]:
        """Return the plotly figure as plain JSON."""
        drawn = self.drawing.plotly()
        lines = wrap(line(self.title, 120), _WIDE)
        title = {
            "text": "<br>".join(map(safe, lines)),
            "font": {"size": 15 if len(lines) < 2 else 12},
            "x": 0,
            "xref": "container",
            "pad": {"l": 12},
        }
        return {"data": drawn["data"], "layout": {"title": title, **drawn["layout"]}}

    def to_text(self) -> str:
        """Return the chart as lines of text: title, caption, table."""
        out = [line(self.title, 120)]
        if self.caption:
            out.append(plain(self.caption, 600))
        out += [f"Note: {line(note, 400)}" for note in self.notes]
        shown = [
            tuple(line(cell, 40) for cell in row)
            for row in (self.head, *self.rows[: self.shown])
            if row
        ]
        if shown:
            widths = [max(len(row[i]) for row in shown) for i in range(len(self.head))]
            out += [
                "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
                for row in shown
            ]
        if len(self.rows) > self.shown:
            out.append(f"... and {len(self.rows) - self.shown} more")
        return "\n".join(out)

    def to_html(self) -> str:
        """Return the static twin: a picture and a table without scripts, for light and for dark."""
        label = escape(f"{self.title}. {self.caption}", 700)
        return (
            f'<figure class="ctxkit-chart {NO_MATH}" style="margin:0;{_STYLE}">'
            f"<figcaption><strong>{escape(self.title, 120)}</strong>"
            f"{'<br>' + escape(self.caption, 600) if self.caption else ''}{self._notes()}"
            "</figcaption>"
            f'<div role="img" aria-label="{label}">{self.drawing.svg()}</div>'
            f"{table(self.head, self.rows[: self.shown], caption=self._table_caption())}</figure>"
        )

    def _notes(self) -> str:
        return "".join(
            f'<br><small class="note">Note: {escape(note, 400)}</small>' for note in self.notes
        )

    def _table_caption(self) -> str:
        more = len(self.rows) - self.shown
        return (
            f"The same in figures; {more} more rows are not shown."
            if more > 0
            else "The same in figures."
        )

    def write_html(self, path: str | Path) -> Path:
        """Write one page that opens offline, with plotly in it (about 5 MB), and return its path.

        Raises:
            BadArguments: the page cannot be written there.
        """
        return write_page(path, self.page())

    def page(self) -> str:
        """Return one page that opens offline, with plotly in it (about 5 MB)."""
        body = self.figure().to_html(
            include_plotlyjs=True, include_mathjax=False, full_html=False, div_id="ctxkit"
        )
        shown = table(self.head, self.rows, caption=plain(self.caption, 600))
        return (
            '<!doctype html><html lang="en"><head><meta'
            f' charset="utf-8"><title>{escape(self.title, 120)}</title>'
            "<style>:root{color-scheme:light dark}body{font:14px"
            " system-ui,sans-serif;margin:1em}</style></head>"
            f"<body>{body}{self._notes()}{shown}</body></html>\n"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:  # noqa: ARG002
        return {"text/plain": self.to_text(), "text/html": self.to_html(), PLOTLY: self.to_plotly()}

    def __repr__(self) -> str:
        return self.to_text()


def write_page(path: str | Path, text: str) -> Path:
    """Write a page whole, or leave the file that is there untouched; return its path.

    Raises:
        BadArguments: it cannot be written there.
    """
    from pathlib import Path

    from ctxkit.writers import save

    try:
        save(Path(path), [text.encode("utf-8", "replace")], 0o666)  # for whomever the umask lets
    except StoreError as e:
        raise BadArguments(str(e)) from None
    return Path(path)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """Return a small HTML table; cells that begin with a digit stand to the right."""
    if not head:
        return ""
    heads = "".join(f'<th scope="col" style="{_CELL}">{escape(h, 60)}</th>' for h in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    told = f'<caption style="text-align:left">{escape(caption, 600)}</caption>' if caption else ""
    return (
        f'<div style="overflow-x:auto"><table style="{_STYLE};border-collapse:collapse;'
        f'margin:6px 0">{told}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(text: str) -> str:
    style = _NUMBER if _FIGURE.fullmatch(text) else _CELL
    if len(text) > _LONG:
        style += ";min-width:12em"
    return f'<td style="{style}">{escape(text, 200)}</td>'


def safe(text: str, limit: int = 80) -> str:
    """Return untrusted text for a plotly label: plotly reads tags, entities and, with MathJax,
    dollars in its texts.
    """
    return html.escape(line(text, limit), quote=False).replace("$", "&#36;")


def safe_lines(text: str) -> str:
    """Lines of untrusted text as plotly's lines."""
    return "<br>".join(safe(part, 120) for part in text.split("\n"))
