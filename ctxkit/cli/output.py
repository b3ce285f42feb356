"""Output of the commands: tables that fit the screen, JSON, HTML pages."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from ctxkit._internal.formatting import sanitize_line, sanitize_text, strip_controls
from ctxkit._internal.redaction import redact_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import pandas as pd

CellKind = Literal["text", "count", "usd", "share", "yes", "when"]
TableRow = dict[str, Any]
DEFAULT_WIDTH = 80
"""Columns of a table where the width of the screen is unknown, as in a pipe."""


class TableColumn(NamedTuple):
    """A column of a table: which figure, under what head, and how it is written."""

    key: str
    title: str
    kind: CellKind = "text"
    wide: bool = False
    """True if it takes the remaining width, and is shortened if that is too small."""
    most: int | None = None
    """At most so many characters."""


SESSIONS_COLUMN = TableColumn("sessions_n", "sessions", "count")
CALLS_COLUMN = TableColumn("calls_n", "calls", "count")
PROMPTS_COLUMN = TableColumn("prompt_tokens", "prompts", "count")
PEAK_COLUMN = TableColumn("peak_tokens", "peak", "count")
COST_COLUMN = TableColumn("cost_usd", "cost", "usd")


@dataclass(frozen=True)
class CommandOutput:
    """Output of a command: the screen, JSON on stdout, or an HTML page."""

    json: bool = False
    html: Path | None = None

    def table(
        self,
        title: str,
        heads: Sequence[TableColumn],
        rows: Iterable[TableRow],
        notes: Sequence[str] = (),
    ) -> None:
        """Give the rows: all that they hold as JSON, else the columns asked for, and the notes."""
        rows = list(rows)
        if self.json:
            print_json(rows)
        elif self.html is not None:
            self.page(self.html, title, heads, rows, notes)
        else:
            print_table(heads, rows, notes)

    def page(
        self,
        path: Path,
        title: str,
        heads: Sequence[TableColumn],
        rows: list[TableRow],
        notes: Sequence[str],
    ) -> None:
        """Write the rows as one HTML file that opens offline."""
        from ctxkit.widgets.reports.html_page import (
            PageSection,
            render_list,
            render_page,
            render_table,
        )

        numbers = frozenset(i for i, h in enumerate(heads) if h.kind not in ("text", "when"))
        cells = [[format_value(r.get(h.key), h.kind) for h in heads] for r in rows]
        body = render_table([h.title for h in heads], cells, numbers=numbers) + render_list(notes)
        write_file(path, render_page(title, "", [PageSection("", body)], plotly=False))


def write_file(path: Path, text: str) -> None:
    """Write a file that the user named, and say so."""
    from ctxkit._internal.safe_fs import write_file

    write_file(path, [text.encode("utf-8", "replace")])
    print_message(f"written: {path}")


def print_message(sentence: str) -> None:
    """Tell the user something that is no part of the answer.

    Args:
        sentence: printed to stderr, so that stdout holds the answer alone.
    """
    sys.stderr.write(f"{sanitize_text(sentence, 2000)}\n")


def print_json(value: Any) -> None:
    """Print a value as JSON without secrets: what is missing is null, times are ISO 8601.

    Args:
        value: dictionaries, lists, texts, numbers, times and missing values.
    """
    redacted = redact_json(_to_plain(value))
    # without `indent` the encoder in C runs, which takes a fifth of the time
    text = json.dumps(redacted, ensure_ascii=True, allow_nan=False, default=str)
    sys.stdout.write(msgspec.json.format(text, indent=1) + "\n")


def list_records(frame: pd.DataFrame) -> list[TableRow]:
    """Return the rows of a frame as dictionaries, None where a figure is missing.

    Args:
        frame: of any shape; its index is left out.

    Returns:
        A dictionary of plain Python values for each row.
    """
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(k): _to_plain(v) for k, v in row.items()} for row in rows]


def get_screen_width() -> int:
    """Return the columns of the screen; 80 in a pipe."""
    import shutil

    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def print_table(
    heads: Sequence[TableColumn], rows: Sequence[TableRow], notes: Sequence[str] = ()
) -> None:
    """Print a table no wider than the screen, and sentences below it."""
    # widths depend on all cells, so everything is written as text first
    cells = [[format_value(r.get(h.key), h.kind) for h in heads] for r in rows]
    if cells:
        widths = fit_columns(heads, cells, get_screen_width())
        _print_row(heads, [h.title for h in heads], widths)
        sys.stdout.write("  ".join("─" * n for n in widths) + "\n")
        for row in cells:
            _print_row(heads, row, widths)
    for note in notes:
        print_lines(note)


def _print_row(heads: Sequence[TableColumn], row: Sequence[str], widths: Sequence[int]) -> None:
    fitted = [
        fit_text(cell, n, left=head.kind in ("text", "when"))
        for head, cell, n in zip(heads, row, widths, strict=True)
    ]
    sys.stdout.write("  ".join(fitted).rstrip() + "\n")


def fit_columns(
    heads: Sequence[TableColumn], cells: Sequence[Sequence[str]], width: int
) -> list[int]:
    """Return how wide each column is: as wide as its cells, the wide one no more than is left."""
    needed = [
        max(map(count_cells, (head.title, *(row[i] for row in cells))))
        for i, head in enumerate(heads)
    ]
    fixed = [min(n, h.most or n) for n, h in zip(needed, heads, strict=True)]
    others = sum(n for n, h in zip(fixed, heads, strict=True) if not h.wide)
    # two blanks are between columns; the wide one has 8 cells even on a narrow screen
    left = max(width - others - 2 * (len(heads) - 1), 8)
    return [min(n, left) if h.wide else n for n, h in zip(fixed, heads, strict=True)]


def print_lines(text: str) -> None:
    """Print lines no wider than the screen: those of a table are cut, sentences are wrapped.

    Args:
        text: lines that begin with a blank are rows of a table.
    """
    import textwrap

    width = get_screen_width()
    for line in strip_controls(text).splitlines():  # its parts are sanitized
        if line.startswith(" ") or not line:
            sys.stdout.write(fit_text(line.rstrip(), width) + "\n")
        else:
            wrapped = textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
            sys.stdout.write("\n".join(wrapped) + "\n")


def count_cells(text: str) -> int:
    """Return how many cells of a terminal a text takes; some characters take two, some none."""
    if text.isascii():
        return len(text)
    from wcwidth import wcwidth

    return sum(max(wcwidth(c), 0) for c in text)


def fit_text(text: str, width: int, *, left: bool | None = None) -> str:
    """Return a text cut to so many cells, filled up to them on one side or (None) not."""
    if count_cells(text) > width:
        # one cell is for the ellipsis; a character of two cells may leave one unused
        characters, left_cells = [], width - 1
        for character in text:
            left_cells -= count_cells(character)
            if left_cells < 0:
                break
            characters.append(character)
        text = "".join(characters) + "…"
    padding = "" if left is None else " " * (width - count_cells(text))
    return text + padding if left else padding + text


def format_value(value: Any, kind: CellKind) -> str:
    """Return a figure as it is in a table; what is missing is empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return _FORMATTERS[kind](value)


def _format_time(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return sanitize_line(str(value), 30)
    when = datetime.fromtimestamp(value, UTC).astimezone()
    recent = datetime.now(UTC) - when < timedelta(days=180)
    return when.strftime("%m-%d %H:%M" if recent else "%Y-%m-%d")


def _format_usd(value: float) -> str:
    small = 0 < abs(value) < 0.01
    return f"${value:,.4f}" if small else f"${value:,.2f}"


_FORMATTERS: dict[CellKind, Callable[[Any], str]] = {
    "text": lambda v: sanitize_line(str(v), 200),
    "count": lambda v: f"{v:,.0f}" if v == int(v) else f"{v:,.1f}",
    "usd": _format_usd,
    "share": lambda v: f"{v:.1%}",
    "yes": lambda v: "yes" if v else "no",
    "when": _format_time,
}


def _to_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(v) for v in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    # scalars of numpy; what is not finite is no JSON
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
