"""The savings turned by hand: what each compaction kept and saved, and at a click what it did."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import traitlets as t

from ctxkit.plots._savings import Saving, savings_chart
from ctxkit.widgets.byhand.charted import Charted, code
from ctxkit.widgets.byhand.compaction_rows import (
    BILLED,
    Compacted,
    has_whole_turns,
    of_frame,
    of_session,
)
from ctxkit.widgets.byhand.taken import TakenOut

if TYPE_CHECKING:
    from ctxkit.plots.chart import Chart
    from ctxkit.session import Session
    from ctxkit.widgets.byhand.feeds import Feed

HELD = 60
"""Compactions whose details a page without a kernel holds."""


class SavingsChart(Charted):
    """The widget that `ctxkit.savings` returns: bars of kept and saved; a click tells what one did.

    `picked` is the compaction that is shown, and can be set; `detail` is what is known of it.
    """

    _esm = code("savings.js")
    shared: ClassVar = ("data", "picked")
    picked = t.Int(0, min=0).tag(sync=True)

    def __init__(self, feed: Feed, **settings: Any) -> None:
        self._rows: list[Compacted] = []
        self._places: list[tuple[Session, int]] = []
        """For each row its session, and its number there."""
        self._taken: dict[int, TakenOut] = {}
        super().__init__(feed, **settings)

    @property
    def compactions(self) -> tuple[Compacted, ...]:
        """What is drawn."""
        return tuple(self._rows)

    @property
    def detail(self) -> dict[str, Any] | None:
        """What is known of the compaction that is shown; None where that is only its sizes."""
        return self._answer({"kind": "detail", "at": self.picked})

    def _data(self) -> dict[str, Any]:
        titles, table, note = self.feed.titles, self.feed.frame, ""
        self._rows, self._places, self._taken = [], [], {}
        if table is not None:
            self._rows, note = of_frame(table)
        for session in self.feed.sessions() if table is None else ():
            found = of_session(session, titles[session.id])
            note = BILLED if has_whole_turns(session) and found else note
            self._rows += found
            self._places += [(session, one.number) for one in found]
        return {
            "compactions": [one._asdict() for one in self._rows],
            "several": len({one.name for one in self._rows}) > 1,
            "note": note,
            "why": "No diff: see the note above." if note else "",
        }

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        at = asked.get("at")
        if asked.get("kind") != "detail" or not isinstance(at, int):
            return None
        if not 0 <= at < len(self._rows) or not self._rows[at].detail:
            return None
        session, number = self._places[at]
        taken = self._taken.setdefault(id(session), TakenOut(session))
        return {"kind": "detail", **taken.of(number, self._rows[at])}

    def _questions(self) -> list[dict[str, Any]]:
        return [{"kind": "detail", "at": i} for i, r in enumerate(self._rows[:HELD]) if r.detail]

    def _chart(self) -> Chart:
        data = [
            Saving(r.number, r.call, r.before, r.after, r.put, r.what, r.source, r.name)
            for r in self._rows
        ]
        titles = list(dict.fromkeys([*self.feed.titles.values(), *(r.name for r in self._rows)]))
        name = titles[0] if len(titles) == 1 else f"{len(titles)} sessions"
        chart = savings_chart(name, data, several=len({r.name for r in self._rows}) > 1)
        note = self.data.get("note")
        return replace(chart, notes=(*chart.notes, note)) if note else chart
