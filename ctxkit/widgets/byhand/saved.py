"""The savings turned by hand: what each compaction kept and saved, and at a click all that is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import traitlets as t

from ctxkit.errors import BadArguments
from ctxkit.frames import compactions, frame
from ctxkit.frames.columns import Column, build
from ctxkit.markup import line
from ctxkit.plots._savings import Saving, savings_chart
from ctxkit.snapshots.columns import NAMES
from ctxkit.widgets.byhand.charted import Charted, code
from ctxkit.widgets.byhand.taken import Taken

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.plots.chart import Chart
    from ctxkit.session import Session
    from ctxkit.widgets.byhand.feeds import Feed

HELD = 60
"""Compactions whose details a page without a kernel holds."""
BILLED = (
    "Sizes are derived: the turns around each compaction, which is what was billed, not the window; "
    "such a log has no messages, so there is no diff."
)
_WORDS = ("kind", "method", "trigger")
_FRAME = ("session", "compaction", "call", "tokens_before", "tokens_after")


class Compacted(NamedTuple):
    """One compaction, as the browser takes it."""

    name: str
    """The session."""
    number: int
    call: int | None
    turn: int | None
    """The turn before it, where calls are not known."""
    before: int | None
    after: int | None
    put: int | None
    """Tokens that it put in."""
    usd: float | None
    what: str
    source: str | None
    detail: bool
    """True where the kernel can say what it did."""


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
        self._taken: dict[int, Taken] = {}
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
        rows: list[Compacted] = []
        self._places, note = [], ""
        self._taken = {}
        table = self.feed.frame
        if table is not None:
            rows, note = _of_frame(table)
        titles = self.feed.titles
        for session in self.feed.sessions() if table is None else ():
            if any(c.message.kind == "turn" for c in session.calls):
                found, note = around(_log(session)), BILLED
                rows += [one._replace(name=titles[session.id]) for one in found]
                self._places += [(session, one.number) for one in found]
                continue
            found = _of_session(session, titles[session.id])
            rows += found
            self._places += [(session, one.number) for one in found]
        self._rows = rows
        names = {one.name for one in rows}
        return {
            "compactions": [one._asdict() for one in rows],
            "several": len(names) > 1,
            "note": note,
            "why": "No diff: see the note above." if note else "",
        }

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        at = asked.get("at")
        if asked.get("kind") != "detail" or not isinstance(at, int) or not 0 <= at < len(self._rows):
            return None
        if not self._rows[at].detail:
            return None
        session, number = self._places[at]
        taken = self._taken.setdefault(id(session), Taken(session))
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
        return chart if not note else _with_note(chart, note)


def _with_note(chart: Chart, note: str) -> Chart:
    from dataclasses import replace

    return replace(chart, notes=(*chart.notes, note))


def _of_session(session: Session, name: str) -> list[Compacted]:
    found = compactions.rows([session])
    names = ("compaction", "call", "turn", "tokens_before", "tokens_after", "summary_tokens", "cost_usd")
    words = zip(*(found[n] for n in _WORDS), strict=True)
    told = [line(" · ".join(w for w in row if w), 120) for row in words]
    rows = zip(*(found[n] for n in names), told, found["tokens_source"], strict=True)
    return [Compacted(name, *row, detail=session.has_sizes) for row in rows]


def _of_frame(table: pd.DataFrame) -> tuple[list[Compacted], str]:
    """Return the compactions of a frame of snapshots or of compactions.

    Raises:
        BadArguments: it is neither.
    """
    if set(NAMES) <= set(table.columns):
        return around(table), BILLED
    lacking = [n for n in _FRAME if n not in table.columns]
    if lacking:
        raise BadArguments(
            "ck.savings takes sessions, a frame of snapshots, or a frame of compactions "
            f"(ck.frame(..., per='compaction')); this frame lacks {', '.join(lacking)}."
        )
    def read(row: dict[str, Any], key: str) -> Any:
        value = row.get(key)
        return None if value is None or value != value or str(value) == "<NA>" else value  # noqa: PLR0124

    out = []
    for i, row in enumerate(table.to_dict("records")):
        number, call, before, after, put = (
            None if (v := read(row, k)) is None else int(v) for k in (*_FRAME[1:], "summary_tokens")
        )
        what = line(" · ".join(str(v) for k in _WORDS if (v := read(row, k))), 120)
        usd, source = read(row, "cost_usd"), read(row, "tokens_source")
        one = Compacted(
            str(row["session"]), i if number is None else number, call, None, before, after, put,
            None if usd is None else float(usd), what, source, detail=False,
        )  # fmt: skip
        out.append(one)
    return out, "A frame holds sizes only: give the session to see what each compaction did."


def around(log: pd.DataFrame) -> list[Compacted]:
    """Return the compactions of a log of snapshots, with sizes derived from the turns around each.

    Before and after are the input of the last and the first turn of the agents that have both;
    a resume is none.
    """
    from ctxkit.snapshots.markers import compactions as resets

    table = resets(log)
    table = table[table["kind"] == "compaction"]
    out = []
    for (session, _), rows in table.groupby(["session", "compaction"], sort=False, observed=True):
        both = rows.dropna(subset=["turn_input_tokens_before", "turn_input_tokens_after"])
        sizes = [int(both[f"turn_input_tokens_{side}"].sum()) if len(both) else None
                 for side in ("before", "after")]  # fmt: skip
        turn = rows["after_turn"].iloc[0]
        number = sum(one.name == str(session) for one in out)
        out.append(Compacted(
            str(session), number, None, None if turn != turn or str(turn) == "<NA>" else int(turn),  # noqa: PLR0124
            *sizes, None, None, "marked in the log", "derived" if len(both) else None, detail=False,
        ))  # fmt: skip
    return out


def _log(session: Session) -> pd.DataFrame:
    """Return the turns of a session as a log of snapshots, a marker behind each turn that was followed by one."""
    import pandas as pd

    turns = frame(session, per="turn")
    fired = turns[turns["compaction_occurred"].fillna(False)]  # noqa: FBT003
    zeros = dict.fromkeys((n for n in NAMES if n.endswith("_tokens")), 0)
    marks = fired.assign(agent="system", turn=fired["turn"] + 1, **zeros)
    turns = turns.assign(compaction_occurred=False)
    marks.index = marks.index + 0.5
    both = pd.concat([turns, marks]) if len(marks) else turns
    return both.sort_index().reset_index(drop=True)
