"""`ctxkit.board`: all sessions of a folder in one table, grouped and filtered by hand,
read once.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.boards.board_cells import GROUPED, HEADS, WAYS, first, group_of, row_of
from ctxkit.boards.board_files import FILE, VERSION, FileRows, rows_of, stamps
from ctxkit.boards.kept import FileNotes, Stamp
from ctxkit.boards.tallied import Tallied, opened
from ctxkit.caches import cache_folder
from ctxkit.display.amounts import counted, dollars, number
from ctxkit.display.markup import NO_MATH, escape
from ctxkit.display.sheets import INK, Heading, Tabular
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.readers.log_folders import LOGS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import pandas as pd

    from ctxkit.boards.board_view import BoardView
    from ctxkit.session import Session

    Holds = Callable[[Tallied], bool]

_TEXT, _PAGE = 12, 100
_HIGH = 520
_FIRST = 2.0
"""Seconds that the first look reads; what is left is read by `go_on`."""
_FILTER = (
    "const w=this.value.toLowerCase().split(/\\s+/);"
    "for(const r of this.parentNode.querySelectorAll('tbody tr')){"
    "const t=(r.textContent+' '+[...r.cells].map(c=>c.title).join(' ')).toLowerCase();"
    "r.style.display=w.every(x=>t.includes(x))?'':'none'}"
)
"""Shows the rows that hold every word."""


class Board:
    """Rows of sessions, newest first. `where` and `by` make smaller boards and sums; `open` reads
    one whole.
    """

    def __init__(
        self,
        rows: list[Tallied],
        *,
        waiting: list[Stamp] | None = None,
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
        return opened(self.rows[number])

    def where(self, words: str = "", **columns: str) -> Board:
        """Return the rows that hold every word, and whose columns are as given:
        ``where(project="cli")``.

        Raises:
            BadArguments: there is no such column.
        """
        for name in columns:
            if name not in WAYS:
                raise BadArguments(
                    f"where() takes {', '.join(WAYS)}, not {name!r}.{did_you_mean(name, WAYS)}"
                )
        asked = words.lower().split()

        def holds(r: Tallied) -> bool:
            same = all(WAYS[name](r) == value for name, value in columns.items())
            return same and self._holds(r) and all(word in _said(r) for word in asked)

        rows = list(filter(holds, self.rows))
        return Board(rows, waiting=self._waiting, failed_n=self.failed_n, holds=holds)

    def of(self, rows: list[Tallied]) -> Board:
        """Return a board of some rows."""
        return Board(rows)

    def by(self, way: str) -> Tabular:
        """Return one row a day, project, tool, model or agent, the dearest first.

        Raises:
            BadArguments: there is no such way.
        """
        if way not in WAYS:
            raise BadArguments(
                f"by() takes one of {', '.join(WAYS)}, not {way!r}.{did_you_mean(str(way), WAYS)}"
            )
        groups: dict[str, list[Tallied]] = defaultdict(list)
        for row in self.rows:
            groups[WAYS[way](row)].append(row)
        made = [group_of(name, rows) for name, rows in groups.items()]
        made.sort(key=lambda cells: -(cells[2].value or 0.0))
        return Tabular((Heading(way, number=False), *GROUPED), tuple(made))

    def frame(self) -> pd.DataFrame:
        """Return the rows as a DataFrame."""
        import pandas as pd

        columns = [n for n in Tallied.__struct_fields__ if n != "spark"]
        made = pd.DataFrame([msgspec.structs.asdict(r) for r in self.rows], columns=columns)
        made["started"] = pd.to_datetime(made["started"].astype("float64"), unit="s", utc=True)
        return made.astype(
            {c: "Int64" for c in columns if c.endswith("_n") or c == "peak"} | {"usd": "Float64"}
        )

    def go_on(self, seconds: float | None = None) -> Board:
        """Read on where the first look stopped, for so many seconds or to the end; return all rows.

        Of a board that `where` made, those that it asked for.
        """
        until = None if seconds is None else time.monotonic() + seconds
        rows, waiting, failed_n = list(self.rows), list[Stamp](), self.failed_n
        kept = FileNotes(cache_folder() / FILE, FileRows, VERSION, version("ctxkit"))
        try:
            for stamp in self._waiting:
                found = kept.get(stamp)
                if found is None and until is not None and time.monotonic() > until:
                    waiting.append(stamp)
                    continue
                if found is None:
                    found = FileRows(**msgspec.structs.asdict(stamp), rows=rows_of(stamp))
                    kept.put(found)
                failed_n += not found.rows and Path(stamp.path).suffix.lower() in LOGS
                rows += filter(self._holds, found.rows)
        finally:
            kept.write()
        unique = {(r.path, r.id): r for r in rows}
        newest = sorted(unique.values(), key=lambda r: -(r.started or 0.0))
        made = Board(newest, waiting=waiting, failed_n=failed_n, holds=self._holds)
        made.again, made.follows = self.again, self.follows
        return made

    @property
    def head(self) -> str:
        """How many sessions there are and what they cost, in a sentence."""
        usd = [r.usd for r in self.rows if r.usd is not None]
        told = counted(len(self.rows), "session") + (f", {dollars(sum(usd))}" if usd else "")
        unknown = len(self.rows) - len(usd)
        told += f" ({number(unknown)} without a price)" if usd and unknown else ""
        told += f"; {counted(self.failed_n, 'file')} could not be read" if self.failed_n else ""
        if self._waiting:
            told += f"; {number(self.waiting_n)} files wait: board.go_on() reads them"
        return told

    def table(self, rows: int = _PAGE) -> Tabular:
        """Return the newest rows as a table."""
        made = tuple(row_of(i, r) for i, r in enumerate(self.rows[:rows]))
        more = len(self.rows) - len(made)
        legend = f"and {number(more)} more: where() and by() see them all" if more else ""
        return Tabular(HEADS, made, legend=legend)

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        made, sums = self.table(_TEXT), self.by("project").to_text()
        parts = (self.head, made.to_text(), made.legend, sums)
        return "\n\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        head = f"<strong>{escape(self.head, 300)}</strong>"
        if not self.rows:
            return f'<div class="ctxkit-board {NO_MATH}" style="{INK}">{head}</div>'
        sums = "".join(
            f"<details><summary>by {way}</summary>{first(self.by(way), _PAGE).to_html(high=300)}"
            "</details>"
            for way in WAYS
        )
        box = (
            '<input type="search" placeholder="words that a row must hold" aria-label="words that'
            f' a row must hold" style="width:24em;margin:4px 0" oninput="{escape(_FILTER)}">'
        )
        rows = f"<div>{box}{self.table().to_html(high=_HIGH)}</div>"
        return f'<div class="ctxkit-board {NO_MATH}" style="{INK}">{head}{sums}{rows}</div>'

    def view(self) -> BoardView:
        """Return the widget that shows it: filters, sorted heads, a click that reads a session.

        Read on and followed it has more rows than this board: they are in its `board`.
        """
        from ctxkit.boards.board_view import BoardView

        return BoardView(self)

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
        follow: whether its display goes on looking for files that are new or have changed.

    Raises:
        BadArguments: there is no file.
    """
    made = Board([], waiting=stamps(where)).go_on(seconds)
    made.again = lambda: Board([], waiting=stamps(where)).go_on(_FIRST)
    made.follows = follow
    return made


def _said(r: Tallied) -> str:
    return " ".join(
        filter(None, (r.title, r.project, r.tool, r.model, r.agent, r.id, r.path))
    ).lower()
