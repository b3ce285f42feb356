"""`ctxkit.board`: all sessions of a folder in one table, filtered and grouped."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.file_cache import FileCache, FileStamp
from ctxkit._internal.formatting import NO_MATHJAX, escape_html, format_count, format_usd, pluralize
from ctxkit._internal.installed_distribution import get_version
from ctxkit._internal.lazy import public_dir
from ctxkit._internal.safe_fs import cache_folder
from ctxkit._internal.tables import TEXT_COLOR_CSS, Column, Table
from ctxkit.errors import BadArguments, CtxkitError, did_you_mean
from ctxkit.formats.reading import LOG_SUFFIXES, find_log_files, read_all
from ctxkit.widgets.folder_board_rows import (
    BOARD_HEADS,
    GROUP_HEADS,
    GROUPINGS,
    BoardRow,
    count_main_sessions,
    iter_sessions_in_same_file,
    limit_rows,
    make_board_row,
    make_group_cells,
    make_row_cells,
    open_session,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from ctxkit.session.session import Session
    from ctxkit.widgets.folder_board_widget import BoardWidget

    Holds = Callable[[BoardRow], bool]

__all__ = ["Board", "board"]
__dir__ = public_dir(__all__)


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
        return open_session(self.rows[number])

    def where(self, words: str = "", **columns: str) -> Board:
        """Return the rows that hold every word, and whose columns are as given:
        ``where(project="cli")``.

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
        """Return one row a day, project, tool, model or agent, the dearest first.

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
        group_cells = [make_group_cells(name, rows) for name, rows in groups.items()]
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
        """Read on where the first look stopped, for so many seconds or to the end; return all rows.

        Of a board that `where` made, those that it asked for.
        """
        until = None if seconds is None else time.monotonic() + seconds
        rows, waiting, failed_n = list(self.rows), list[FileStamp](), self.failed_n
        file_cache = FileCache(
            cache_folder() / CACHE_FILE, FileBoardRows, CACHE_VERSION, get_version()
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

    def _repr_html_(self) -> str:
        head = f"<strong>{escape_html(self.head, 300)}</strong>"
        if not self.rows:
            return f'<div class="ctxkit-board {NO_MATHJAX}" style="{TEXT_COLOR_CSS}">{head}</div>'
        sums = "".join(
            "<details><summary>by "
            f"{way}</summary>{limit_rows(self.by(way), _PAGE).to_html(high=300)}"
            "</details>"
            for way in GROUPINGS
        )
        box = (
            '<input type="search" placeholder="words that a row must hold" aria-label="words that'
            f' a row must hold" style="width:24em;margin:4px 0" oninput="{escape_html(_FILTER)}">'
        )
        rows = (
            f'<div class="ctxkit-board-rows">{_NARROW_PAGE_STYLE}{box}'
            f"{self.table().to_html(high=_HIGH)}</div>"
        )
        return (
            f'<div class="ctxkit-board {NO_MATHJAX}" '
            f'style="{TEXT_COLOR_CSS}">{head}{sums}{rows}</div>'
        )

    def view(self) -> BoardWidget:
        """Return the widget that shows it: filters, sorted heads, a click that reads a session.

        Read on and followed it has more rows than this board: they are in its `board`.
        """
        from ctxkit.widgets.folder_board_widget import BoardWidget

        return BoardWidget(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:  # noqa: ARG002
        if "ipykernel" not in sys.modules:
            return {"text/plain": self.to_text(), "text/html": self._repr_html_()}
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

    In a notebook it is filtered, sorted and grouped by hand, a click reads a session, and what was
    not read yet comes by itself. What was read is kept in the cache folder (`CTXKIT_CACHE_DIR`,
    else the user's own: figures and titles, no messages), so that only files that changed are read
    again.

    Args:
        where: a folder (everything below it), a file or a glob; None: what the tools of this
            machine keep, as `ctxkit.discover` finds it.
        seconds: how long the newest files are read before the table is shown; None: until all are.
            The rest is read by `Board.go_on`.
        follow: whether its display continues looking for files that are new or have changed.

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
    new_board = Board([], waiting=find_files(where)).go_on(seconds)
    new_board.again = lambda: Board([], waiting=find_files(where)).go_on(_FIRST)
    new_board.follows = follow
    return new_board


def _search_text(r: BoardRow) -> str:
    return " ".join(
        filter(None, (r.title, r.project, r.tool, r.model, r.agent, r.id, r.path))
    ).lower()


CACHE_FILE, CACHE_VERSION = "board.jsonl", 2
"""The notes of what was read, and of what their lines mean."""


class FileBoardRows(FileStamp, frozen=True, kw_only=True, gc=False):
    """A file, and the rows of its sessions; none where it cannot be read."""

    rows: tuple[BoardRow, ...]


def find_files(where: str | os.PathLike[str] | None) -> list[FileStamp]:
    """Return the files that may be sessions, the newest first.

    Raises:
        BadArguments: there is none.
    """
    if where is None:
        from ctxkit.formats.discovery import iter_session_files

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
