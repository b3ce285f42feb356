"""`ctxkit.board`: all sessions of a folder in one table and one widget, filtered, sorted and
grouped.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.disk_cache_by_file import FileCache, FileStamp
from ctxkit._internal.distribution_version_and_conflicts import get_version
from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_count,
    format_usd,
    pluralize,
    sanitize_line,
)
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.safe_files import get_ctxkit_cache_folder
from ctxkit._internal.tables import TEXT_COLOR_CSS, Column, Table
from ctxkit.errors import BadArguments, CtxkitError, did_you_mean
from ctxkit.formats.reading import LOG_SUFFIXES, find_log_files, read_all
from ctxkit.widgets.base_widget import ChartWidget, build_javascript_module
from ctxkit.widgets.data_source import WidgetDataSource
from ctxkit.widgets.folder_board_rows import (
    BOARD_HEADS,
    GROUP_HEADS,
    GROUPINGS,
    BoardRow,
    count_main_sessions,
    iter_sessions_in_same_file,
    limit_table_rows,
    make_board_row,
    make_group_sum_cells,
    make_row_cells,
    read_session_of_row,
)
from ctxkit.widgets.python_to_javascript import ROWS_PER_CHUNK
from ctxkit.widgets.session_explorer import Explorer

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from ctxkit.plots.chart import Chart
    from ctxkit.session.session import Session

    Holds = Callable[[BoardRow], bool]

__all__ = ["Board", "board"]
__dir__ = make_dunder_dir(__all__)


_TEXT, _PAGE = 12, 100
_NARROW_PAGE_STYLE = (
    "<style>@media(max-width:1000px){.ctxkit-board-rows tr>:is(:nth-child(7),:nth-child(9),"
    ":nth-child(10)){display:none}}</style>"
)
"""Hides sparkline, misses and errors, so that project, tool and model are in sight."""
_HIGH = 520
_FIRST = 2.0
"""Seconds that the first look reads; what is left is read by `go_on`."""
_FILTER = (
    "const w=this.value.toLowerCase().split(/\\s+/);"
    "for(const r of this.parentNode.querySelectorAll('tbody tr')){"
    "const t=(r.textContent+' '+[...r.cells].map(c=>c.title).join(' ')).toLowerCase();"
    "r.style.display=w.every(x=>t.includes(x))?'':'none'}"
)
"""Script that shows only the rows that contain every word."""


class Board:
    """Rows of sessions, newest first. `where` and `by` make smaller boards and sums; `open` reads
    one whole.
    """

    def __init__(
        self,
        rows: list[BoardRow],
        *,
        waiting: list[FileStamp] | None = None,
        failed_n: int = 0,
        holds: Holds = lambda _: True,
    ) -> None:
        self.rows = rows
        self.failed_n = failed_n
        """Files that could not be read."""
        self._waiting = waiting or []
        self._holds = holds
        self.again: Callable[[], Board] | None = None
        """Looks again at the files that it was made of."""
        self.follows = False

    @property
    def waiting_n(self) -> int:
        """Files that were not read yet: see `go_on`."""
        return len(self._waiting)

    def __len__(self) -> int:
        return len(self.rows)

    def open(self, number: int) -> Session:
        """Return the session of a row, read from its file.

        Raises:
            BadArguments: there is no such row, or its file holds it no more.
            ReadError: the file cannot be read.
        """
        if not 0 <= number < len(self.rows):
            raise BadArguments(f"The board has rows 0 to {len(self.rows) - 1}, not {number}.")
        return read_session_of_row(self.rows[number])

    def where(self, words: str = "", **columns: str) -> Board:
        """Return the board with some of its rows only.

        Args:
            words: words that a row must hold, separated by blanks; case is ignored. Empty: all
                rows.
            columns: a value by column, such as ``project="cli"``.

        Raises:
            BadArguments: there is no such column.
        """
        for name in columns:
            if name not in GROUPINGS:
                raise BadArguments(
                    f"where() takes {', '.join(GROUPINGS)}, not "
                    f"{name!r}.{did_you_mean(name, GROUPINGS)}"
                )
        search_words = words.lower().split()

        # The new condition includes the old one, so that `go_on` filters the rows read later alike.
        def holds(r: BoardRow) -> bool:
            same = all(GROUPINGS[name](r) == value for name, value in columns.items())
            return same and self._holds(r) and all(word in _search_text(r) for word in search_words)

        rows = list(filter(holds, self.rows))
        return Board(rows, waiting=self._waiting, failed_n=self.failed_n, holds=holds)

    def of(self, rows: list[BoardRow]) -> Board:
        """Return a board of some rows."""
        return Board(rows)

    def by(self, way: str) -> Table:
        """Return one row per day, project, tool, model or agent, the most expensive first.

        Raises:
            BadArguments: there is no such way.
        """
        if way not in GROUPINGS:
            raise BadArguments(
                f"by() takes one of {', '.join(GROUPINGS)}, not "
                f"{way!r}.{did_you_mean(str(way), GROUPINGS)}"
            )
        groups: dict[str, list[BoardRow]] = defaultdict(list)
        for row in self.rows:
            groups[GROUPINGS[way](row)].append(row)
        group_cells = [make_group_sum_cells(name, rows) for name, rows in groups.items()]
        # Column 2 is the spend; a group without a price counts as 0.
        group_cells.sort(key=lambda cells: -(cells[2].value or 0.0))
        return Table((Column(way, number=False), *GROUP_HEADS), tuple(group_cells))

    def frame(self) -> pd.DataFrame:
        """Return the rows as a DataFrame."""
        import pandas as pd

        columns = [n for n in BoardRow.__struct_fields__ if n != "spark"]
        table = pd.DataFrame([msgspec.structs.asdict(r) for r in self.rows], columns=columns)
        table["started"] = pd.to_datetime(table["started"].astype("float64"), unit="s", utc=True)
        return table.astype(
            {c: "Int64" for c in columns if c.endswith("_n") or c == "peak"} | {"usd": "Float64"}
        )

    # Incremental reading with a time budget. The cache maps the stamp of a file (path, time of
    # change, size) to its rows. A file in the cache costs no reading, so it is taken after the
    # deadline too; only files that must be read wait for the next call. The cache is written in
    # `finally`, so an interrupt loses nothing that was read. Rows are unique by path and id; the
    # newest reading of a session replaces an older one.
    def go_on(self, seconds: float | None = None) -> Board:
        """Read the rest of the logs, for a number of seconds or to the end; return all rows.

        Of a board that `where` made, those that it asked for.
        """
        until = None if seconds is None else time.monotonic() + seconds
        rows, waiting, failed_n = list(self.rows), list[FileStamp](), self.failed_n
        file_cache = FileCache(
            get_ctxkit_cache_folder() / CACHE_FILE, FileBoardRows, CACHE_VERSION, get_version()
        )
        try:
            for stamp in self._waiting:
                file_rows = file_cache.get(stamp)
                if file_rows is None and until is not None and time.monotonic() > until:
                    waiting.append(stamp)
                    continue
                if file_rows is None:
                    file_rows = FileBoardRows(
                        **msgspec.structs.asdict(stamp), rows=read_board_rows(stamp)
                    )
                    file_cache.put(file_rows)
                # A file without rows counts as failed only where its suffix is that of a log.
                failed_n += not file_rows.rows and Path(stamp.path).suffix.lower() in LOG_SUFFIXES
                rows += filter(self._holds, file_rows.rows)
        finally:
            file_cache.write()
        unique = {(r.path, r.id): r for r in rows}
        newest = sorted(unique.values(), key=lambda r: -(r.started or 0.0))
        updated = Board(newest, waiting=waiting, failed_n=failed_n, holds=self._holds)
        updated.again, updated.follows = self.again, self.follows
        return updated

    @property
    def head(self) -> str:
        """The number of sessions and their cost, in a sentence; subagents are counted apart."""
        usd = [r.usd for r in self.rows if r.usd is not None]
        sessions_n = count_main_sessions(self.rows)
        sentence = pluralize(sessions_n, "session")
        if subagents_n := len(self.rows) - sessions_n:
            sentence += f" and {pluralize(subagents_n, 'subagent')}"
        sentence += f", {format_usd(sum(usd))}" if usd else ""
        unknown = len(self.rows) - len(usd)
        sentence += f" ({format_count(unknown)} without a price)" if usd and unknown else ""
        sentence += (
            f"; {pluralize(self.failed_n, 'file')} could not be read" if self.failed_n else ""
        )
        if self._waiting:
            sentence += f"; {format_count(self.waiting_n)} files wait: board.go_on() reads them"
        return sentence

    def table(self, rows: int = _PAGE) -> Table:
        """Return the newest rows as a table."""
        cells = tuple(make_row_cells(i, r) for i, r in enumerate(self.rows[:rows]))
        more = len(self.rows) - len(cells)
        legend = f"and {format_count(more)} more: where() and by() see them all" if more else ""
        return Table(BOARD_HEADS, cells, legend=legend)

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        table, sums = self.table(_TEXT), self.by("project").to_text()
        parts = (self.head, table.to_text(), table.legend, sums)
        return "\n\n".join(filter(None, parts))

    def to_html(self, *, is_still: bool = False) -> str:
        """Return the board as HTML that needs no kernel.

        Args:
            is_still: leave out what a page without scripts cannot do: the search and the sorting,
                as in a notebook that is not trusted.
        """
        head = f"<strong>{escape_html(self.head, 300)}</strong>"
        if not self.rows:
            return f'<div class="ctxkit-board {NO_MATHJAX}" style="{TEXT_COLOR_CSS}">{head}</div>'
        tables = {way: limit_table_rows(self.by(way), _PAGE) for way in GROUPINGS}
        sums = "".join(
            f"<details><summary>by {way}</summary>"
            f"{t.to_html(max_height_px=300, is_sortable=not is_still)}</details>"
            for way, t in tables.items()
        )
        box = (
            '<input type="search" placeholder="words that a row must hold" aria-label="words that'
            f' a row must hold" style="width:24em;margin:4px 0" oninput="{escape_html(_FILTER)}">'
        )
        rows = (
            f'<div class="ctxkit-board-rows">{_NARROW_PAGE_STYLE}{"" if is_still else box}'
            f"{self.table().to_html(max_height_px=_HIGH, is_sortable=not is_still)}</div>"
        )
        return (
            f'<div class="ctxkit-board {NO_MATHJAX}" '
            f'style="{TEXT_COLOR_CSS}">{head}{sums}{rows}</div>'
        )

    def _repr_html_(self) -> str:
        return self.to_html()

    def view(self) -> BoardWidget:
        """Return the widget that shows it: filters, sorted heads, a click that reads a session.

        Read on and followed it has more rows than this board: they are in its `board`.
        """
        return BoardWidget(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:  # noqa: ARG002
        if "ipykernel" not in sys.modules:
            return {"text/plain": self.to_text(), "text/html": self.to_html()}
        return self.view()._repr_mimebundle_()

    def __repr__(self) -> str:
        return self.to_text()


def board(
    where: str | os.PathLike[str] | None = None,
    *,
    seconds: float | None = _FIRST,
    follow: bool = False,
) -> Board:
    """Return all sessions of a folder or a glob in one table, the newest first.

    In a notebook the table can be filtered, sorted and grouped; a click reads a session, and logs
    that were not read yet are added by themselves. Figures and titles (no messages) are kept in the
    cache folder (`CTXKIT_CACHE_DIR`, else the user's own), so that only files that changed are read
    again.

    Args:
        where: a folder (everything below it), a file or a glob; None: the logs of the tools on this
            machine, as `ctxkit.discover` finds them.
        seconds: seconds for which the newest files are read before the table is shown; None: until
            all are. `Board.go_on` reads the rest.
        follow: keep looking for new and changed files while it is displayed.

    Returns:
        The board, a sequence of rows; `where`, `by` and `of` make smaller boards and sums, `open`
        reads the session of a row.

    Raises:
        BadArguments: there is no file.

    Example:
        >>> import ctxkit as ck
        >>> board = ck.board(ck.samples.path("billing"), seconds=None)
        >>> len(board)
        1
    """
    new_board = Board([], waiting=find_board_files(where)).go_on(seconds)
    new_board.again = lambda: Board([], waiting=find_board_files(where)).go_on(_FIRST)
    new_board.follows = follow
    return new_board


def _search_text(r: BoardRow) -> str:
    return " ".join(
        filter(None, (r.title, r.project, r.tool, r.model, r.agent, r.id, r.path))
    ).lower()


CACHE_FILE, CACHE_VERSION = "board.jsonl", 2
"""The notes of what was read, and of what their lines mean."""


class FileBoardRows(FileStamp, frozen=True, gc=False):
    """A file, and the rows of its sessions; none where it cannot be read."""

    rows: tuple[BoardRow, ...]


def find_board_files(where: str | os.PathLike[str] | None) -> list[FileStamp]:
    """Return the files that may be sessions, the newest first.

    Raises:
        BadArguments: there is none.
    """
    if where is None:
        from ctxkit.formats.log_discovery import iter_session_files

        paths = [Path(entry.path) for _, entry, _ in iter_session_files()]
    else:
        place = Path(os.fspath(where)).expanduser()
        paths = [f.path for f in find_log_files(place, lambda _: None) if not f.why]
    stamps = [s for path in paths if (s := FileStamp.of(path)) is not None]
    if not stamps:
        raise BadArguments(
            f"There is no file at {str(where)!r}."
            if where is not None
            else "No tool keeps sessions on this machine: give a folder."
        )
    return sorted(stamps, key=lambda s: -s.modified)


def read_board_rows(stamp: FileStamp) -> tuple[BoardRow, ...]:
    """Return the rows of a file; none where it cannot be read."""
    try:
        return tuple(
            make_board_row(each, stamp.path)
            for s in read_all(stamp.path, progress=False)
            for each in iter_sessions_in_same_file(s)
        )
    except (CtxkitError, OSError, ValueError, ArithmeticError, LookupError):
        return ()


_OFFERED, _SUMS, _SLICE, _PAUSE = 100, 8, 4.0, 3.0
"""Values of a filter; rows of sums; seconds that are read on at once; between two looks."""
_SHARE = 20
"""Looking takes a twentieth of the time at most."""
_FIELDS = {
    "day": "started",
    "calls": "calls_n",
    "cost": "usd",
    "peak": "peak",
    "compactions": "compactions_n",
    "misses": "misses_n",
    "errors": "errors_n",
}
"""The heads that sort, and what they sort by."""
_SPARK = 6


class BoardWidget(ChartWidget):
    """The widget that shows a board.

    It reads on what the board has not read yet, and follows its folder where that was asked for,
    until `stop`; `board` is what it has by now.

    Args:
        board: a `Board`.
    """

    _esm = build_javascript_module("list.js", "explore.js", "board.js")

    def __init__(self, board: Any) -> None:
        self.board, self._serial, self._ended = board, 0, threading.Event()
        self._known: dict[tuple[str, str], int] = {}
        self._numbered: list[BoardRow] = []
        self.reader: Explorer | None = None
        """The explorer of the session that was clicked last."""
        super().__init__(WidgetDataSource(list))
        if board.waiting_n or board.follows:
            threading.Thread(target=self._go_on, daemon=True).start()

    def stop(self) -> None:
        """Stop reading and following; the display stays."""
        self._ended.set()

    def close(self) -> None:
        """Read no more, and take the widget away."""
        self.stop()
        super().close()

    # A thread of two phases. First it reads the waiting files in slices of `_SLICE` seconds and
    # shows the board after each. Then, if the board follows its folder, it looks again after a
    # pause of `_PAUSE` seconds or `_SHARE` times the length of the last look, whichever is longer,
    # which bounds the share of time that looking takes. `_ended` ends both phases.
    def _go_on(self) -> None:
        while self.board.waiting_n and not self._ended.is_set():
            self._show_board(lambda: self.board.go_on(_SLICE))
        seconds = 0.0
        while self.board.follows and not self._ended.wait(max(_PAUSE, _SHARE * seconds)):
            if self.board.again is not None:
                began = time.monotonic()
                self._show_board(self.board.again)
                seconds = time.monotonic() - began

    def _show_board(self, look: Callable[[], Any]) -> None:
        try:
            new = look()
        except CtxkitError:
            return  # the folder is gone: what was read stays
        if new.rows != self.board.rows or new.waiting_n != self.board.waiting_n:
            self.board = new
            self.refresh()

    # -- what the browser is told ----------------------------------------

    def _build_data(self) -> dict[str, Any]:
        self._serial += 1
        heads = [
            [h.name or "prompts", h.hover, h.number, _FIELDS.get(h.name, "")] for h in BOARD_HEADS
        ]
        ways = {
            name: [
                [sanitize_line(v, 100), n]
                for v, n in Counter(map(way, self.board.rows)).most_common(_OFFERED)
            ]
            for name, way in GROUPINGS.items()
        }
        ways["day"] = sorted(ways["day"], reverse=True)
        return {
            "head": self.board.head,
            "heads": heads,
            "spark": _SPARK,
            "ways": ways,
            "serial": self._serial,
            "first": self._answer_rows({}),
        }

    def _answer_request(self, request: dict[str, Any]) -> dict[str, Any] | None:
        kind = request.get("kind")
        if kind == "rows":
            return self._answer_rows(request)
        if kind == "open":
            return self._open_reader(request.get("at"))
        if kind == "inner" and self.reader is not None and isinstance(request.get("m"), dict):
            return self._ask_reader(self.reader, request["m"])
        return None

    def _selected_rows(self, request: dict[str, Any]) -> list[BoardRow]:
        words = request.get("words")
        choices = {
            n: request[n] for n in GROUPINGS if isinstance(request.get(n), str) and request[n]
        }
        rows = [
            r
            for r in self.board.where(words if isinstance(words, str) else "").rows
            if all(sanitize_line(GROUPINGS[n](r), 100) == v for n, v in choices.items())
        ]
        field = request.get("sort") if request.get("sort") in _FIELDS.values() else "started"
        down = request.get("down") is not False
        # None cannot be compared; rows without a value come last in both directions.
        sortable = [r for r in rows if getattr(r, str(field)) is not None]
        unknown = [r for r in rows if getattr(r, str(field)) is None]
        return sorted(sortable, key=lambda r: getattr(r, str(field)), reverse=down) + unknown

    def _answer_rows(self, request: dict[str, Any]) -> dict[str, Any]:
        rows, first = self._selected_rows(request), request.get("from")
        first = first if type(first) is int and first > 0 else 0
        answer: dict[str, Any] = {
            "kind": "rows",
            "total": len(rows),
            "of": len(self.board.rows),
            "rows": [self._pack_row(r) for r in rows[first : first + ROWS_PER_CHUNK]],
        }
        if not first:
            way = request.get("by") if request.get("by") in GROUPINGS else "day"
            sums = self.board.of(rows).by(str(way))
            answer["sums"] = [[h.name for h in sums.heads], *map(list, sums.plain()[:_SUMS])]
            usd = [r.usd for r in rows if r.usd is not None]
            answer["usd"] = format_usd(sum(usd)) if usd else ""
        return answer

    def _pack_row(self, row: BoardRow) -> dict[str, Any]:
        """Return a row; its number stays the same while the board grows."""
        number = self._known.setdefault((row.path, row.id), len(self._numbered))
        if number == len(self._numbered):
            self._numbered.append(row)
        cells = make_row_cells(number, row)
        return {
            "at": number,
            "cells": [sanitize_line(c.text, 120) for c in cells],
            "hover": sanitize_line(f"{row.title} · {cells[1].hover}", 500),
            "spark": list(row.spark),
            "bad": bool(row.is_thrashing),
        }

    # -- one session -----------------------------------------------------

    def _open_reader(self, number: Any) -> dict[str, Any] | None:
        if type(number) is not int or not 0 <= number < len(self._numbered):
            return None
        session = read_session_of_row(self._numbered[number])
        calls = len(session.calls)
        self.reader = Explorer(session, max(calls - 1, 0))
        # The reader is no widget of the page; its messages travel within those of the board.
        self.reader.send = lambda content, **_: self.send({"kind": "inner", "m": content})
        return {"kind": "open", "state": self._reader_state(self.reader)}

    def _ask_reader(self, reader: Explorer, request: dict[str, Any]) -> dict[str, Any]:
        before = reader.data
        answer: dict[str, Any] = {"kind": "inner", "m": reader._answer_or_error(request)}  # noqa: SLF001  ours
        if reader.data is not before:
            answer["state"] = self._reader_state(reader)
        return answer

    def _reader_state(self, reader: Explorer) -> dict[str, Any]:
        return {"data": reader.data, "call": reader.call}

    # -- twins -----------------------------------------------------------

    def _build_chart(self) -> Chart:
        raise BadArguments("A board has no chart; its rows are in `board.frame()`.")

    def to_text(self) -> str:
        """Return the board as lines of text."""
        return str(self.board.to_text())

    def to_html(self) -> str:
        """Return the board as HTML that needs no kernel and no script."""
        return str(self.board.to_html(is_still=True))
