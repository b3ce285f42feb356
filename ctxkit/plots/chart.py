"""The `Chart` that every plot returns (plotly, static HTML, text); number formats, chart notes."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from os import PathLike
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, cast

from ctxkit._internal.chart_style import PLOTLY_TEXT_CSS, TEXT_COLOUR, read_plotly_javascript
from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    sanitize_line,
    sanitize_text,
)
from ctxkit._internal.lazy_exports_and_late_bound_calls import call_hook
from ctxkit._internal.tables import SCROLL_BOX_CSS
from ctxkit.errors import BadArguments, StoreError
from ctxkit.formats.sessions_from_arguments import as_session, as_sessions
from ctxkit.plots.plotly_to_svg import render_svg_html
from ctxkit.session.session import Session
from ctxkit.session.titles import get_title, make_names_unique

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd

    from ctxkit.formats.sessions_from_arguments import SessionLike, SessionsLike


PLOTLY_MIME_TYPE = "application/vnd.plotly.v1+json"
_STYLE = "color:var(--jp-content-font-color1,var(--vscode-foreground,inherit))"
_CELL = "text-align:left;padding:2px 10px 2px 0"
_NUMBER = (
    "text-align:right;padding:2px 10px 2px 0;font-variant-numeric:tabular-nums;white-space:nowrap"
)
FIGURE_CELL = re.compile(r"[-–$+±~\d.,:%kM→*\s]*\d[-–$+±~\d.,:%kM→*\s]*|–")
"""A cell of figures: `40,471`, `$3.32–$3.40`, `71 %`."""
LONG_CELL = 24
_SHORT_CAPTION = 50
"""Letters of a caption that is not wrapped where its table is narrow."""
_TITLE_LETTERS = {15: 80, 13: 92}
"""Size of a title in plotly's figures, and the letters of a line that fit a page of 700 pixels."""
_LIBRARY = "plotly.js"
"""File name by which plotly writes an element that loads it, in whose place its text is put."""
_TITLE_HEIGHT = 20
"""Pixels of the margin above a figure that its title takes."""


class Drawing:
    """The picture of a chart: plotly in a notebook, SVG where no script runs."""

    still_width: ClassVar[int] = 720
    """Pixels of the static picture."""

    @property
    def still_height(self) -> int | None:
        """Height of the static picture in pixels; None: a share of the figure's own."""
        return None

    @property
    def is_empty(self) -> bool:
        """True where there is nothing to draw: then the chart has only its sentences, no axes."""
        return False

    def plotly(self) -> dict[str, Any]:
        """Return the figure as plain JSON: `data` and `layout`."""
        raise NotImplementedError

    def svg(self) -> str:
        """Return the static picture of the figure."""
        return render_svg_html(self.plotly(), width=self.still_width, height=self.still_height)


@dataclass(frozen=True)
class ExternalPlotlyFigure(Drawing):
    """A plotly figure that another library made."""

    go_figure: Any
    """A plotly ``go.Figure``."""

    def plotly(self) -> dict[str, Any]:
        """Return the figure as plain JSON."""
        figure: dict[str, Any] = json.loads(self.go_figure.to_json())
        return figure


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The result of every plot; a notebook cell displays it as its last value."""

    title: str
    """The title. Untrusted text is allowed in all fields; it is escaped in displays."""
    caption: str = ""
    """Description of the picture and the source of its numbers, also for screen readers."""
    drawing: Drawing
    head: tuple[str, ...] = ()
    """Headings of the columns of the table below the static picture."""
    rows: tuple[tuple[str, ...], ...] = ()
    shown: int = 12
    """Number of rows of the table that are displayed."""
    notes: tuple[str, ...] = ()
    """How accurate the figures are, and what the logs lack or state wrongly (`Session.notes`);
    displayed below the caption.
    """

    @classmethod
    def from_figure(cls, figure: Any, *, title: str = "", caption: str = "") -> Chart:
        """Wrap a plotly figure of your own, for a static picture and for reports.

        Args:
            figure: a ``go.Figure``, such as a changed result of `figure`.
            title: title of the chart; empty: the figure's own.
            caption: description of the picture.

        Example:
            >>> import ctxkit as ck
            >>> figure = ck.plots.growth(ck.samples.path()).figure().update_traces(opacity=0.5)
            >>> chart = ck.plots.chart.Chart.from_figure(figure, title="Half as strong")
            >>> "<svg" in chart.to_html()
            True
        """
        layout_title = figure.layout.title.text
        return cls(
            title=title or layout_title or "Figure",
            caption=caption,
            drawing=ExternalPlotlyFigure(figure),
        )

    def figure(self) -> Any:
        """Return a plotly ``go.Figure`` that you can change."""
        import plotly.graph_objects as go

        return go.Figure(self.to_plotly())

    def to_plotly(self) -> dict[str, Any]:
        """Return the plotly figure as plain JSON."""
        drawn = self.drawing.plotly()
        name, (size, smaller) = sanitize_line(self.title, 120), _TITLE_LETTERS
        size = size if len(name) <= _TITLE_LETTERS[size] else smaller
        lines = [escape_plotly_label(line, 120) for line in wrap(name, _TITLE_LETTERS[size])]
        title = {
            "text": "<br>".join(lines),
            "font": {"size": size},
            "x": 0,
            "xref": "container",
            "pad": {"l": 12},
        }
        return {"data": drawn["data"], "layout": {"title": title, **drawn["layout"]}}

    def to_text(self) -> str:
        """Return the chart as lines of text: title, caption, table."""
        out = [sanitize_line(self.title, 120)]
        if self.caption:
            out.append(sanitize_text(self.caption, 600))
        out += [f"Note: {sanitize_line(note, 400)}" for note in self.notes]
        table = [
            tuple(sanitize_line(cell, 40) for cell in row)
            for row in (self.head, *self.rows[: self.shown])
            if row and self.rows
        ]
        if table:
            widths = [max(len(row[i]) for row in table) for i in range(len(self.head))]
            out += [
                "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
                for row in table
            ]
        if len(self.rows) > self.shown:
            out.append(f"... and {len(self.rows) - self.shown} more")
        return "\n".join(out)

    def to_html(self) -> str:
        """Return a static picture and a table, without scripts, for light and dark themes."""
        return self._arrange_html(self._picture())

    def _picture(self) -> str:
        """Return the static picture as HTML; empty where there is nothing to draw."""
        if self.drawing.is_empty:
            return ""
        label = escape_html(f"{self.title}. {self.caption}", 700)
        return f'<div role="img" aria-label="{label}">{self.drawing.svg()}</div>'

    def _arrange_html(self, picture: str) -> str:
        """Return title, caption and notes above a picture, and the table below it."""
        table = ""
        if self.rows:  # heads alone say nothing
            rows = self.rows[: self.shown]
            table = render_small_table(self.head, rows, caption=self._table_caption())
        return (
            f'<figure class="ctxkit-chart {NO_MATHJAX}" style="margin:0;{_STYLE}">'
            f"<figcaption><strong>{escape_html(self.title, 120)}</strong>"
            f"{'<br>' + escape_html(self.caption, 600) if self.caption else ''}{self._notes()}"
            "</figcaption>"
            f"{picture}"
            f"{table}"
            "</figure>"
        )

    def _notes(self) -> str:
        return "".join(
            f'<br><small class="note">Note: {escape_html(note, 400)}</small>' for note in self.notes
        )

    def _table_caption(self) -> str:
        more = len(self.rows) - self.shown
        return (
            f"The same in figures; {more} more rows are not shown."
            if more > 0
            else "The same in figures."
        )

    def write_html(self, path: str | Path) -> Path:
        """Write a page that works offline, with plotly embedded (about 5 MB); return its path.

        Raises:
            BadArguments: the page cannot be written there.
        """
        return write_page(path, self.page())

    def page(self) -> str:
        """Return a page that works offline, with plotly embedded (about 5 MB)."""
        before, after = self._page_around_library()
        return f"{before}{read_plotly_javascript().decode()}{after}"

    def encode_page(self) -> tuple[bytes, bytes, bytes]:
        """Return `page` in UTF-8, in pieces of which plotly is the second.

        A writer of pieces then neither copies nor encodes the 5 MB.
        """
        before, after = (part.encode("utf-8", "replace") for part in self._page_around_library())
        return before, read_plotly_javascript(), after

    def _page_around_library(self) -> tuple[str, str]:
        body = self.figure().to_html(
            include_plotlyjs=_LIBRARY, include_mathjax=False, full_html=False, div_id="ctxkit"
        )
        before, _, after = body.partition(f'<script charset="utf-8" src="{_LIBRARY}">')
        table = render_small_table(self.head, self.rows, caption=sanitize_text(self.caption, 600))
        return (
            '<!doctype html><html lang="en"><head><meta'
            f' charset="utf-8"><title>{escape_html(self.title, 120)}</title>'
            "<style>:root{color-scheme:light dark}body{font:14px"
            " system-ui,sans-serif;margin:1em}"
            f"{PLOTLY_TEXT_CSS}</style></head>"
            f"<body>{before}<script>"
        ), f"{after}{self._notes()}{table}</body></html>\n"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:  # noqa: ARG002
        picture = self._picture()
        slot = self._live_view_slot(picture)
        html = self._arrange_html(slot or picture)
        bundle: dict[str, Any] = {"text/plain": self.to_text(), "text/html": html}
        if picture and slot is None:
            bundle[PLOTLY_MIME_TYPE] = apply_page_text_colours(self.to_plotly())
        return bundle

    # With plotly's MIME type beside the HTML, a lab would show plotly alone: a notebook opened
    # again would have neither sentence nor table, only a PNG without the colours of the page.
    def _live_view_slot(self, picture: str) -> str | None:
        """Return the picture with the place of its live view; None where none can be put there."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if not picture or not hasattr(shell, "kernel"):
            return None
        slot: str | None = call_hook(
            "chart.display",
            apply_page_text_colours(self._plotly_without_title()),
            sanitize_line(self.title, 120),
            picture,
        )
        return slot

    def _plotly_without_title(self) -> dict[str, Any]:
        """Return the figure for a place below its title."""
        drawn = self.drawing.plotly()
        layout = drawn["layout"]
        if "title" not in layout and "t" in layout.get("margin", {}):
            margin = layout["margin"]
            layout = {**layout, "margin": {**margin, "t": max(margin["t"] - _TITLE_HEIGHT, 0)}}
        return {"data": drawn["data"], "layout": layout}

    def __repr__(self) -> str:
        return self.to_text()


def write_page(path: str | Path, text: str) -> Path:
    """Write a page atomically: a failure leaves an existing file unchanged.

    Args:
        path: the file.
        text: the HTML.

    Returns:
        The path.

    Raises:
        BadArguments: the page cannot be written there.
    """
    from pathlib import Path

    from ctxkit._internal.safe_files import write_file_atomically

    try:
        write_file_atomically(
            Path(path), [text.encode("utf-8", "replace")], 0o666
        )  # readable as the umask allows
    except StoreError as e:
        raise BadArguments(str(e)) from None
    return Path(path)


def render_small_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = ""
) -> str:
    """Return a small HTML table; cells with numbers are aligned to the right.

    Args:
        head: titles of the columns; they are escaped. Empty: no table.
        rows: texts of the cells.
        caption: text above the table; empty: none.
    """
    if not head:
        return ""
    heads = "".join(
        f'<th scope="col" style="{_head_style(rows, i)}">{escape_html(h, 60)}</th>'
        for i, h in enumerate(head)
    )
    body = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in rows)
    one_line = ";white-space:nowrap" if len(caption) <= _SHORT_CAPTION else ""
    caption_style = f"text-align:left{one_line}"
    caption_html = (
        f'<caption style="{caption_style}">{escape_html(caption, 600)}</caption>' if caption else ""
    )
    return (
        f'<div style="{SCROLL_BOX_CSS}"><table style="{_STYLE};border-collapse:collapse;'
        f'margin:6px 0">{caption_html}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def _head_style(rows: Sequence[Sequence[str]], i: int) -> str:
    """Return the style of a column's head: to the right over figures alone, as its cells are."""
    cells = [row[i] for row in rows if i < len(row) and row[i]]
    return _NUMBER if cells and all(map(FIGURE_CELL.fullmatch, cells)) else _CELL


def _html_cell(text: str) -> str:
    style = _NUMBER if FIGURE_CELL.fullmatch(text) else _CELL
    if len(text) > LONG_CELL:
        style += ";min-width:12em"
    return f'<td style="{style}">{escape_html(text, 200)}</td>'


def escape_plotly_label(text: str, limit: int = 80) -> str:
    """Return untrusted text escaped for a plotly label.

    Plotly interprets tags, entities and, with MathJax, dollar signs in its texts.

    Args:
        text: untrusted text.
        limit: characters of the text before it is escaped; a longer text is cut.
    """
    return html.escape(sanitize_line(text, limit), quote=False).replace("$", "&#36;")


def escape_plotly_label_lines(text: str) -> str:
    """Return lines of untrusted text, escaped, as lines of a plotly label."""
    return "<br>".join(escape_plotly_label(part, 120) for part in text.split("\n"))


class HasReplays(Protocol):
    """The result of ``ck.compare``: sessions by the name of their setting."""

    replays: Mapping[str, Session]


def map_sessions_by_name(
    sessions: SessionsLike | Mapping[str, SessionLike] | HasReplays,
) -> dict[str, Session]:
    """Return the sessions by distinct names for a legend.

    Raises:
        BadArguments: an item is no session.
    """
    source: Any = getattr(sessions, "replays", sessions)
    named = isinstance(source, Mapping) and "role" not in source
    pairs = (
        [(name, as_session(s)) for name, s in source.items()]
        if named
        else [(get_title(s, _MAX_NAME), s) for s in as_sessions(source)]
    )
    return dict(
        zip(make_names_unique(str(n) for n, _ in pairs), (s for _, s in pairs), strict=True)
    )


_MAX_NAME = 48
"""Maximum letters of a session's name in a legend."""
_NOTES = 6
"""Maximum number of notes that a chart shows; of more it states the number."""
_P = ParamSpec("_P")


def add_session_notes(chart: Callable[_P, Chart]) -> Callable[_P, Chart]:
    """Make a chart function add the notes of the sessions or runs in its first argument."""
    first = next(iter(signature(chart).parameters))

    @wraps(chart)
    def made(*args: Any, **kwargs: Any) -> Chart:
        of = args[0] if args else kwargs.pop(first, None)
        if isinstance(of, (str, PathLike, list, Iterator)):  # read once
            of = as_sessions(of)
        drawn = chart(of, *args[1:], **kwargs)
        return replace(drawn, notes=(*filter(None, drawn.notes), *collect_session_notes(of)))

    return cast("Callable[_P, Chart]", made)


def collect_session_notes(source_data: Any) -> list[str]:
    """Return the notes of sessions, a comparison or a frame of runs; of several with the name.

    Args:
        source_data: a session, several, a comparison, or a frame of `sweep` or `compare`.

    Returns:
        Each note once, in order; after `_NOTES` of them a line says how many more there are.
    """
    replays = getattr(source_data, "replays", None)
    if hasattr(source_data, "columns") and not replays:
        notes_by_name = _notes_of_runs(source_data)
    else:
        source = [source_data] if isinstance(source_data, Session) else replays or source_data
        if isinstance(source, Mapping):
            source = list(source.values())
        sessions = source if isinstance(source, Sequence) else ()
        notes_by_name = dict.fromkeys((s.id, s.notes) for s in sessions if isinstance(s, Session))
    is_single = len(notes_by_name) == 1
    matches = [
        n if is_single else f"{sanitize_line(name, 40)}: {n}"
        for name, notes in notes_by_name
        for n in notes
    ]
    more = len(matches) - _NOTES
    if more > 0:
        matches[_NOTES:] = [f"{more} more notes: see `notes` of the sessions."]
    return matches


def format_exact_token_count(n: int | None) -> str:
    """Return a number of tokens as text for hovers and tables."""
    return "unknown" if n is None else f"{n:,}"


def _notes_of_runs(runs: pd.DataFrame) -> dict[tuple[str, tuple[str, ...]], None]:
    if not {"session", "session_notes"} <= set(runs.columns):
        return {}
    each = runs.drop_duplicates("session")[["session", "session_notes"]].dropna()
    return dict.fromkeys((str(name), (str(note),)) for name, note in each.itertuples(index=False))


PAGE_TEXT_COLOUR = f"var(--jp-content-font-color1,var(--vscode-foreground,{TEXT_COLOUR}))"
"""The colour of text in JupyterLab's and VS Code's themes; elsewhere the grey of all figures."""
_SPAN = f"<span style='color:{PAGE_TEXT_COLOUR}'>"
_AXIS = re.compile(r"[xy]axis\d*")
_SHARED_HOVER_TITLE = "%{x:,d}"
"""Head of a shared hover box: the number of a call, without the tags of its tick."""


# A colour of a layout must be a constant, and no grey has a contrast of 4.5 on white and on black.
# Plotly's texts may hold `<span style=...>`, whose style reaches the browser as it is: there a
# variable of the page's theme can stand. It so acts in a notebook that was reopened without a
# kernel, where no script and no style sheet of ours runs. Hover labels drop such tags of a trace's
# name; the header of a shared hover box shows the tick with its tags, so it gets a text of its own.


def apply_page_text_colours(figure: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plotly figure whose grey words have the text colour of the page.

    Titles, labels of ticks, names in the legend and beside points, and annotations change; words
    with a colour of their own and words on marks do not.

    Args:
        figure: `data` and `layout` as plain JSON; it is not changed.
    """
    layout = dict(figure["layout"])
    if (layout.get("font") or {}).get("color") != TEXT_COLOUR:
        return dict(figure)  # a figure of one's own, with colours of its own
    has_shared_hover = str(layout.get("hovermode", "")).startswith("x unified")
    for name, value in layout.items():
        if name == "title":
            layout[name] = _colour_text(value)
        elif name == "annotations":
            layout[name] = [_colour_text(each) for each in value]
        elif _AXIS.fullmatch(name):
            layout[name] = _colour_axis(value)
            if has_shared_hover and name.startswith("x"):
                layout[name]["unifiedhovertitle"] = {"text": _SHARED_HOVER_TITLE}
    return {**figure, "data": [_colour_trace(trace) for trace in figure["data"]], "layout": layout}


def _wrap_words(text: Any) -> str:
    return f"{_SPAN}{text}</span>" if text else ""


def _is_grey(font: Any) -> bool:
    return bool((font or {}).get("color", TEXT_COLOUR) == TEXT_COLOUR)


def _colour_text(part: Any) -> Any:
    """Colour the `text` of a title or an annotation."""
    if not isinstance(part, dict) or not part.get("text") or not _is_grey(part.get("font")):
        return part
    return {**part, "text": _wrap_words(part["text"])}


def _colour_axis(axis: dict[str, Any]) -> dict[str, Any]:
    """Colour the title and the ticks of an axis or of a colour bar."""
    axis = {**axis, "title": _colour_text(axis.get("title"))}
    if not _is_grey(axis.get("tickfont")):
        return axis
    if axis.get("ticktext") is not None:
        return {**axis, "ticktext": [_wrap_words(text) for text in axis["ticktext"]]}
    before, after = axis.get("tickprefix", ""), axis.get("ticksuffix", "")
    return {**axis, "tickprefix": f"{_SPAN}{before}", "ticksuffix": f"{after}</span>"}


def _colour_trace(trace: dict[str, Any]) -> dict[str, Any]:
    trace = {**trace}
    if trace.get("name"):
        trace["name"] = _wrap_words(trace["name"])
    if trace.get("colorbar"):
        trace["colorbar"] = _colour_axis(trace["colorbar"])
    is_beside_points = "text" in str(trace.get("mode", "")) and trace.get("hovertemplate")
    if is_beside_points and isinstance(trace.get("text"), list) and _is_grey(trace.get("textfont")):
        trace["text"] = [_wrap_words(text) for text in trace["text"]]
    return trace
