"""Data frames with their own display: a sentence and at most eight columns; `.detail` has all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pandas as pd

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_message_number,
    format_percent,
    format_usd,
    has_value,
    sanitize_line,
    wrap_lines,
)
from ctxkit._internal.tables import TERMINAL_COLUMNS, TEXT_COLOR_CSS, Cell, Column, Table

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_ROWS = 20
"""Rows of a display."""


class AnnotatedTable(NamedTuple):
    """The display of a frame: a sentence, a table, and sentences below the table."""

    verdict: str
    table: Table
    notes: tuple[str, ...] = ()

    def to_text(self, columns: int = TERMINAL_COLUMNS) -> str:
        """Return the display as lines of at most `columns` terminal columns."""
        blocks = [_wrap(self.verdict, columns), self.table.to_text(columns)]
        blocks += [_wrap(note, columns) for note in self.notes]
        return "\n\n".join(filter(None, blocks)) or "None."

    def to_html(self) -> str:
        """Return the display as HTML in the colours of the notebook's theme."""
        verdict = f"<strong>{escape_html(self.verdict, 2000)}</strong>" if self.verdict else ""
        table = self.table.to_html(is_sortable=False)
        notes = "".join(f"<div>{escape_html(note, 2000)}</div>" for note in self.notes)
        body = f"{verdict}{table}{notes}" or "<p>None.</p>"
        return f'<div class="ctxkit-frame {NO_MATHJAX}" style="{TEXT_COLOR_CSS}">{body}</div>'


def _wrap(text: str, columns: int) -> str:
    return "\n".join(wrap_lines(sanitize_line(text, 2000), columns))


class _Displayed:
    """A display that replaces pandas' own; `render` makes it when it is needed."""

    render: Callable[[Any], AnnotatedTable]

    @property
    def display(self) -> AnnotatedTable:
        """The display, made by `render`."""
        return self.render(self)

    def _repr_html_(self) -> str:
        return self.display.to_html()

    def __repr__(self) -> str:
        return self.display.to_text()


class DisplayFrame(_Displayed, pd.DataFrame):
    """A frame with its own display; the results of its methods are plain frames.

    `render` makes the display from the frame when it is shown. `detail` is the plain frame with all
    rows and columns.
    """

    _metadata = ["render"]  # noqa: RUF012  pandas' own way to carry attributes

    @property
    def detail(self) -> pd.DataFrame:
        """All rows and columns, as pandas shows them."""
        return pd.DataFrame(self)


class DisplaySeries(_Displayed, pd.Series):
    """A series with its own display, like `DisplayFrame`."""

    _metadata = ["_name", "render"]  # noqa: RUF012  "_name" is pandas' own

    @property
    def detail(self) -> pd.Series:
        """All values, as pandas shows them."""
        return pd.Series(self)


def with_display(
    frame: pd.DataFrame, render: Callable[[pd.DataFrame], AnnotatedTable] | Table
) -> DisplayFrame:
    """Return a frame that displays itself as a table, with the same data and `attrs`.

    Args:
        frame: the data.
        render: the table, or a function that makes one from the frame whenever it is displayed.
    """
    displayed = DisplayFrame(frame)
    displayed.attrs = frame.attrs
    displayed.render = _FixedTableRenderer(render) if isinstance(render, Table) else render
    return displayed


@dataclass(frozen=True)
class _FixedTableRenderer:
    """A `render` that shows the same table for any frame."""

    table: Table

    def __call__(self, _: Any) -> AnnotatedTable:
        """Return the display."""
        return AnnotatedTable("", self.table)


class DisplayColumn(NamedTuple):
    """A column of a frame as it is displayed."""

    key: str
    """Its name in the frame, or that of the index."""
    title: str
    kind: Literal["text", "count", "message", "usd", "share", "when", "yes"] = "text"
    hover: str = ""
    spare: bool = False
    """True if it may be left out of a table that is too wide."""


@dataclass(frozen=True)
class FramePreviewRenderer:
    """A `render` that shows a sentence and the first rows of some columns."""

    columns: tuple[DisplayColumn, ...]
    verdict: str | Callable[[pd.DataFrame], str]

    def __call__(self, frame: pd.DataFrame) -> AnnotatedTable:
        """Return the display."""
        is_cut = len(frame) > MAX_ROWS
        note = f"The first {MAX_ROWS} of {len(frame):,} rows: .detail has all rows and columns."
        notes = (note,) if is_cut else ()
        verdict = self.verdict if isinstance(self.verdict, str) else self.verdict(frame)
        return AnnotatedTable(verdict, tabulate_columns(frame, self.columns), notes)


def tabulate_columns(frame: pd.DataFrame, columns: tuple[DisplayColumn, ...]) -> Table:
    """Return a table of some columns of a frame, of at most `MAX_ROWS` rows.

    Args:
        frame: the data; its index may be a column of the table.
        columns: key, title and kind of each column, from left to right.
    """
    heads = tuple(
        Column(c.title, c.hover, number=c.kind not in ("text", "when", "yes"), spare=c.spare)
        for c in columns
    )
    first_rows = frame.head(MAX_ROWS).reset_index()
    rows = (
        tuple(_make_cell(row[c.key], c.kind) for c in columns)
        for row in first_rows.to_dict("records")
    )
    return Table(heads, tuple(rows))


def _make_cell(value: Any, kind: str) -> Cell:
    if not has_value(value):
        return Cell("")
    if kind in _NUMBER_FORMATS:
        return Cell(_NUMBER_FORMATS[kind](value), float(value))
    if kind == "when":
        return Cell(value.strftime("%Y-%m-%d %H:%M"), value.timestamp())
    if kind == "yes":
        return Cell("yes" if value else "no", float(value))
    return Cell(sanitize_line(str(value), 400))


_NUMBER_FORMATS: dict[str, Callable[[Any], str]] = {
    "message": format_message_number,
    "count": lambda v: f"{v:,.0f}" if float(v).is_integer() else f"{v:,.1f}",
    "usd": format_usd,
    "share": format_percent,
}
