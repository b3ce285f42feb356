"""What commands print: a table that fits the screen, JSON, or a page of HTML."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ctxkit.display.markup import line, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import pandas as pd

Kind = Literal["text", "count", "usd", "share", "yes", "when"]
Row = dict[str, Any]
NARROW = 80
"""Columns of a table where the width of the screen is unknown, as in a pipe."""


class TableHead(NamedTuple):
    """A column of a table: which figure, under what head, and how it is written."""

    key: str
    title: str
    kind: Kind = "text"
    wide: bool = False
    """It takes the room that is left, and is cut where there is too little."""
    most: int | None = None
    """At most so many characters."""


RULES = TableHead("rules", "rules", wide=True)
SESSIONS = TableHead("sessions_n", "sessions", "count")
CALLS = TableHead("calls_n", "calls", "count")
PROMPTS = TableHead("prompt_tokens", "prompts", "count")
PEAK = TableHead("peak_tokens", "peak", "count")
COST = TableHead("cost_usd", "cost", "usd")
LOSS = TableHead("needed_later_loss", "lost", "share")
UNPAID = TableHead("unpaid_cuts_n", "unpaid", "count")


@dataclass(frozen=True)
class Out:
    """Where a command's answer goes: the screen, JSON on stdout, or a page."""

    json: bool = False
    html: Path | None = None

    def table(
        self, title: str, heads: Sequence[TableHead], rows: Iterable[Row], notes: Sequence[str] = ()
    ) -> None:
        """Give the rows: all that they hold as JSON, else the columns asked for, and the notes."""
        rows = list(rows)
        if self.json:
            dump(rows)
        elif self.html is not None:
            self.page(self.html, title, heads, rows, notes)
        else:
            show(heads, rows, notes)

    def page(
        self,
        path: Path,
        title: str,
        heads: Sequence[TableHead],
        rows: list[Row],
        notes: Sequence[str],
    ) -> None:
        """Write the rows as one HTML file that opens offline."""
        from ctxkit.reports.page import PageSection, items, page, table

        numbers = frozenset(i for i, h in enumerate(heads) if h.kind not in ("text", "when"))
        cells = [[written(r.get(h.key), h.kind) for h in heads] for r in rows]
        body = table([h.title for h in heads], cells, numbers=numbers) + items(notes)
        keep(path, page(title, "", [PageSection("", body)], plotly=False))


def keep(path: Path, text: str) -> None:
    """Write a file that the user named, and say so."""
    from ctxkit.writers import save

    save(path, [text.encode("utf-8", "replace")])
    say(f"written: {path}")


def say(sentence: str) -> None:
    """Tell the user something that is no part of the answer."""
    sys.stderr.write(f"{plain(sentence, 2000)}\n")


def dump(value: Any) -> None:
    """Print a value as JSON: what is missing is null, times are ISO 8601."""
    told = json.dumps(_plain(value), indent=1, ensure_ascii=True, allow_nan=False, default=str)
    sys.stdout.write(told + "\n")


def records(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of a frame as dictionaries, None where a figure is missing."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(k): _plain(v) for k, v in row.items()} for row in rows]


def width() -> int:
    """Return the columns of the screen; 80 in a pipe."""
    import shutil

    return shutil.get_terminal_size((NARROW, 24)).columns


def show(heads: Sequence[TableHead], rows: Sequence[Row], notes: Sequence[str] = ()) -> None:
    """Print a table no wider than the screen, and sentences below it."""
    cells = [[written(r.get(h.key), h.kind) for h in heads] for r in rows]
    if cells:
        wide = widths(heads, cells, width())
        _line(heads, [h.title for h in heads], wide)
        sys.stdout.write("  ".join("─" * n for n in wide) + "\n")
        for row in cells:
            _line(heads, row, wide)
    for note in notes:
        lines(note)


def _line(heads: Sequence[TableHead], row: Sequence[str], wide: Sequence[int]) -> None:
    out = [
        fitted(cell, n, left=head.kind in ("text", "when"))
        for head, cell, n in zip(heads, row, wide, strict=True)
    ]
    sys.stdout.write("  ".join(out).rstrip() + "\n")


def widths(heads: Sequence[TableHead], cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return how wide each column is: as wide as its cells, the wide one no more than is left."""
    needed = [
        max(map(cells_of, (head.title, *(row[i] for row in cells)))) for i, head in enumerate(heads)
    ]
    fixed = [min(n, h.most or n) for n, h in zip(needed, heads, strict=True)]
    others = sum(n for n, h in zip(fixed, heads, strict=True) if not h.wide)
    left = max(room - others - 2 * (len(heads) - 1), 8)
    return [min(n, left) if h.wide else n for n, h in zip(fixed, heads, strict=True)]


def lines(text: str) -> None:
    """Print lines no wider than the screen: those of a table are cut, sentences are wrapped."""
    import textwrap

    wide = width()
    for each in plain(text).splitlines():
        if each.startswith(" ") or not each:
            sys.stdout.write(fitted(each.rstrip(), wide) + "\n")
        else:
            rows = textwrap.wrap(each, wide, break_long_words=False, break_on_hyphens=False)
            sys.stdout.write("\n".join(rows) + "\n")


def cells_of(text: str) -> int:
    """Return how many cells of a terminal a text takes; some characters take two, some none."""
    if text.isascii():
        return len(text)
    from wcwidth import wcwidth

    return sum(max(wcwidth(c), 0) for c in text)


def fitted(text: str, wide: int, *, left: bool | None = None) -> str:
    """Return a text cut to so many cells, filled up to them on one side or (None) not."""
    if cells_of(text) > wide:
        out, room = [], wide - 1
        for character in text:
            room -= cells_of(character)
            if room < 0:
                break
            out.append(character)
        text = "".join(out) + "…"
    fill = "" if left is None else " " * (wide - cells_of(text))
    return text + fill if left else fill + text


def written(value: Any, kind: Kind) -> str:
    """Return a figure as it stands in a table; what is missing is empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return _WAYS[kind](value)


def _when(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return line(str(value), 30)
    when = datetime.fromtimestamp(value, UTC).astimezone()
    recent = datetime.now(UTC) - when < timedelta(days=180)
    return when.strftime("%m-%d %H:%M" if recent else "%Y-%m-%d")


def _usd(value: float) -> str:
    small = 0 < abs(value) < 0.01
    return f"${value:,.4f}" if small else f"${value:,.2f}"


_WAYS: dict[Kind, Callable[[Any], str]] = {
    "text": lambda v: line(str(v), 200),
    "count": lambda v: f"{v:,.0f}" if v == int(v) else f"{v:,.1f}",
    "usd": _usd,
    "share": lambda v: f"{v:.1%}",
    "yes": lambda v: "yes" if v else "no",
    "when": _when,
}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
