"""The display of a board: filtered, sorted and grouped by hand, a session read at a click."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from ctxkit.boards.board_cells import HEADS, WAYS, row_of
from ctxkit.boards.tallied import opened
from ctxkit.display.amounts import dollars
from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.widgets.byhand.charted import Charted, code
from ctxkit.widgets.byhand.feeds import Feed
from ctxkit.widgets.explorer import CHUNK, Explorer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.boards.tallied import Tallied
    from ctxkit.plots.chart import Chart

_OFFERED, _SUMS, _SLICE, _PAUSE = 100, 8, 4.0, 3.0
"""Values of a filter; rows of sums; seconds that are read on at once; between two looks."""
_SHARE = 20
"""Looking takes a twentieth of the time at most."""
_FIELDS = {
    "day": "started",
    "calls": "calls_n",
    "spend": "usd",
    "peak": "peak",
    "cuts": "compactions_n",
    "misses": "misses_n",
    "errors": "errors_n",
}
"""The heads that sort, and what they sort by."""
_SPARK = 6


class BoardView(Charted):
    """The widget that shows a board.

    It reads on what the board has not read yet, and follows its folder where that was asked for,
    until `stop`; `board` is what it has by now.

    Args:
        board: a `Board`.
    """

    _esm = code("list.js", "explore.js", "board.js")

    def __init__(self, board: Any) -> None:
        self.board, self._serial, self._ended = board, 0, threading.Event()
        self._known: dict[tuple[str, str], int] = {}
        self._numbered: list[Tallied] = []
        self.reader: Explorer | None = None
        """What reads the session that was clicked last."""
        super().__init__(Feed(list))
        if board.waiting_n or board.follows:
            threading.Thread(target=self._go_on, daemon=True).start()

    def stop(self) -> None:
        """Read and follow no more; what is shown stays."""
        self._ended.set()

    def close(self) -> None:
        """Read no more, and take the widget away."""
        self.stop()
        super().close()

    def _go_on(self) -> None:
        while self.board.waiting_n and not self._ended.is_set():
            self._take(lambda: self.board.go_on(_SLICE))
        took = 0.0
        while self.board.follows and not self._ended.wait(max(_PAUSE, _SHARE * took)):
            if self.board.again is not None:
                began = time.monotonic()
                self._take(self.board.again)
                took = time.monotonic() - began

    def _take(self, look: Callable[[], Any]) -> None:
        try:
            new = look()
        except CtxkitError:
            return  # the folder is gone: what was read stays
        if new.rows != self.board.rows or new.waiting_n != self.board.waiting_n:
            self.board = new
            self.refresh()

    # -- what the browser is told ----------------------------------------

    def _data(self) -> dict[str, Any]:
        self._serial += 1
        heads = [[h.name or "prompts", h.hover, h.number, _FIELDS.get(h.name, "")] for h in HEADS]
        ways = {
            name: [
                [line(v, 100), n]
                for v, n in Counter(map(way, self.board.rows)).most_common(_OFFERED)
            ]
            for name, way in WAYS.items()
        }
        ways["day"] = sorted(ways["day"], reverse=True)
        return {
            "head": self.board.head,
            "heads": heads,
            "spark": _SPARK,
            "ways": ways,
            "serial": self._serial,
            "first": self._rows({}),
        }

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        kind = asked.get("kind")
        if kind == "rows":
            return self._rows(asked)
        if kind == "open":
            return self._open(asked.get("at"))
        if kind == "inner" and self.reader is not None and isinstance(asked.get("m"), dict):
            return self._inner(self.reader, asked["m"])
        return None

    def _wanted(self, asked: dict[str, Any]) -> list[Tallied]:
        words = asked.get("words")
        said = {n: asked[n] for n in WAYS if isinstance(asked.get(n), str) and asked[n]}
        rows = [
            r
            for r in self.board.where(words if isinstance(words, str) else "").rows
            if all(line(WAYS[n](r), 100) == v for n, v in said.items())
        ]
        field = asked.get("sort") if asked.get("sort") in _FIELDS.values() else "started"
        down = asked.get("down") is not False
        known = [r for r in rows if getattr(r, str(field)) is not None]
        unknown = [r for r in rows if getattr(r, str(field)) is None]
        return sorted(known, key=lambda r: getattr(r, str(field)), reverse=down) + unknown

    def _rows(self, asked: dict[str, Any]) -> dict[str, Any]:
        found, first = self._wanted(asked), asked.get("from")
        first = first if type(first) is int and first > 0 else 0
        told: dict[str, Any] = {
            "kind": "rows",
            "total": len(found),
            "of": len(self.board.rows),
            "rows": [self._row(r) for r in found[first : first + CHUNK]],
        }
        if not first:
            way = asked.get("by") if asked.get("by") in WAYS else "day"
            sums = self.board.of(found).by(str(way))
            told["sums"] = [[h.name for h in sums.heads], *map(list, sums.plain()[:_SUMS])]
            usd = [r.usd for r in found if r.usd is not None]
            told["usd"] = dollars(sum(usd)) if usd else ""
        return told

    def _row(self, row: Tallied) -> dict[str, Any]:
        """Return a row; its number stays the same while the board grows."""
        number = self._known.setdefault((row.path, row.id), len(self._numbered))
        if number == len(self._numbered):
            self._numbered.append(row)
        cells = row_of(number, row)
        return {
            "at": number,
            "cells": [line(c.text, 120) for c in cells],
            "hover": line(f"{row.title} · {cells[1].hover}", 500),
            "spark": list(row.spark),
            "bad": bool(row.thrash),
        }

    # -- one session -----------------------------------------------------

    def _open(self, number: Any) -> dict[str, Any] | None:
        if type(number) is not int or not 0 <= number < len(self._numbered):
            return None
        session = opened(self._numbered[number])
        calls = len(session.calls)
        self.reader = Explorer(session, max(calls - 1, 0))
        self.reader.send = lambda content, **_: self.send({"kind": "inner", "m": content})
        return {"kind": "open", "state": self._state(self.reader)}

    def _inner(self, reader: Explorer, asked: dict[str, Any]) -> dict[str, Any]:
        before = reader.data
        answer: dict[str, Any] = {"kind": "inner", "m": reader._answered(asked)}  # noqa: SLF001  ours
        if reader.data is not before:
            answer["state"] = self._state(reader)
        return answer

    def _state(self, reader: Explorer) -> dict[str, Any]:
        return {"data": reader.data, "call": reader.call}

    # -- twins -----------------------------------------------------------

    def _chart(self) -> Chart:
        raise BadArguments("A board has no chart; its rows are in `board.frame()`.")

    def to_text(self) -> str:
        """Return the board as lines of text."""
        return str(self.board.to_text())

    def to_html(self) -> str:
        """Return the board as HTML that needs no kernel."""
        return str(self.board._repr_html_())
