"""The interactive display of a board: filters, sorting, a session at a click."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import format_usd, sanitize_line
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.widgets.base import ChartWidget, build_esm
from ctxkit.widgets.data_source import WidgetDataSource
from ctxkit.widgets.explorer import Explorer
from ctxkit.widgets.folder_board_rows import BOARD_HEADS, GROUPINGS, make_row_cells, open_session
from ctxkit.widgets.python_to_javascript import ROWS_PER_CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.plots.chart import Chart
    from ctxkit.widgets.folder_board_rows import BoardRow

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

    _esm = build_esm("list.js", "explore.js", "board.js")

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
        session = open_session(self._numbered[number])
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
        """Return the board as HTML that needs no kernel."""
        return str(self.board._repr_html_())
