"""The guard turned by hand: where it closes on what compactions saved, and the dollars of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import traitlets as t

from ctxkit.errors import BadArguments
from ctxkit.frames import per_compaction
from ctxkit.plots._thrash import closes, held_back, thrash_chart, thrash_of
from ctxkit.policies.guards import AntiThrash
from ctxkit.widgets.byhand.charted import Charted, code
from ctxkit.widgets.byhand.compaction_rows import (
    BILLED,
    Compacted,
    has_whole_turns,
    of_frame,
    of_session,
)
from ctxkit.widgets.byhand.guarded import Guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.chart import Chart
    from ctxkit.session import Session
    from ctxkit.widgets.byhand.feeds import Feed

HELD = 40
"""Places at which a guard can close whose dollars a page without a kernel holds."""


class ThrashChart(Charted):
    """The widget that `ctxkit.thrash` returns: what each compaction saved, and a guard to turn.

    `min_savings`, `window` and `by` can be set; `closes` is what the browser shows.
    """

    _esm = code("thrash.js")
    shared: ClassVar = ("data", "min_savings", "window", "by", "session", "usd")
    min_savings = t.Float(0.10, min=0.0, max=1.0).tag(sync=True)
    """Share that a compaction has to save; 0: off."""
    window = t.Int(10, min=0).tag(sync=True)
    """So many in a row that save less close the guard; 0: off."""
    by = t.Enum(("tokens", "messages"), default_value="tokens").tag(sync=True)
    session = t.Int(0, min=0).tag(sync=True)
    """Which of several is drawn."""
    usd = t.Dict().tag(sync=True)
    """Dollars that were asked for, by ``"session/compaction"`` at which it closes, or ``none``."""

    def __init__(
        self, feed: Feed, *, min_savings: float = 0.10, window: int = 10, by: str = "tokens"
    ) -> None:
        if by not in ("tokens", "messages"):
            raise BadArguments(f"ck.thrash counts by 'tokens' or 'messages', not by {by!r}.")
        AntiThrash(min_savings=min_savings, window=window)  # says what it cannot be
        self._guarded: list[Guarded | None] = []
        super().__init__(feed, min_savings=min_savings, window=window, by=by)
        if self.rows and self._guarded[0] is not None and not self._guarded[0].why:
            self._price(0)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What is drawn: one a session."""
        found: list[dict[str, Any]] = self.data["sessions"]
        return found

    def shares(self, session: int | None = None) -> list[float | None]:
        """Return what each compaction of a session saved, by what is chosen."""
        found: list[float | None] = self.rows[self.session if session is None else session][self.by]
        return found

    @property
    def closes(self) -> int | None:
        """The compaction after which the guard allows no more; None: it stays open."""
        if not self.rows:
            return None
        return closes(self.shares(), self.min_savings, self.window)

    def _data(self) -> dict[str, Any]:
        titles, table = self.feed.titles, self.feed.frame
        self._guarded, note = [], ""
        if table is not None:
            cuts, note = of_frame(table)
            rows = _of_sizes(cuts, note)
            self._guarded = [None] * len(rows)
        else:
            rows = [self._row_of(one, titles[one.id]) for one in self.feed.sessions()]
        self.usd = {}
        return {"sessions": rows, "note": note}

    def _row_of(self, session: Session, name: str) -> dict[str, Any]:
        self._guarded.append(guarded := Guarded(session))
        if has_whole_turns(session):
            empty = _row(name, [], [], [], [], 0, "")
            return (_of_sizes(of_session(session, name), BILLED) or [empty])[0]
        return _of_session(session, name, guarded.why)

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        number, at = asked.get("session"), asked.get("at")
        if not isinstance(number, int) or not 0 <= number < len(self._guarded):
            return None
        if asked.get("kind") != "usd" or not isinstance(at, int | None):
            return None
        self._price(number, at)
        return {"kind": "usd", "usd": dict(self.usd)}

    def _price(self, number: int, at: int | None = None) -> None:
        """Work out the dollars of a session, as it is and with a guard that closes there."""
        guarded = self._guarded[number]
        if guarded is None or guarded.why:
            return
        found = {f"{number}/none": guarded.usd(None)}
        if at is not None:
            found[f"{number}/{at}"] = guarded.usd(at)
        self.usd = {**self.usd, **found}

    def _questions(self) -> list[dict[str, Any]]:
        if not self.rows or self._guarded[self.session] is None:
            return []
        places = [None, *range(min(len(self.shares()), HELD))]
        return [{"kind": "usd", "session": self.session, "at": at} for at in places]

    def _chart(self) -> Chart:
        rows = self.rows
        nothing = _row("nothing", [], [], [], [], 0, "")
        one = rows[min(self.session, len(rows) - 1)] if rows else nothing
        held = [(int(call), str(why)) for call, why in one["held"]]
        tries = list(zip(one["calls"], one[self.by], strict=True))
        guard = (self.min_savings, self.window, self.by)
        return thrash_chart(thrash_of(one["name"], tries, held, *guard))


def _row(  # noqa: PLR0917
    name: str, calls: list[int], tokens: list[float | None], messages: list[float | None],
    held: list[tuple[int, str]], n: int, why: str, unit: str = "call",
) -> dict[str, Any]:  # fmt: skip
    rounded = [
        [None if v is None else round(v, 5) for v in shares] for shares in (tokens, messages)
    ]
    return {"name": name, "calls": calls, "tokens": rounded[0], "messages": rounded[1],
            "held": [[call, why[:120]] for call, why in held],
            "n": n, "why": why, "unit": unit}  # fmt: skip


def _of_session(session: Session, name: str, why: str) -> dict[str, Any]:
    found, n = per_compaction.rows([session]), len(session.calls)
    calls = [n if c is None else c for c in found["call"]]
    held = [(one.call, one.why) for one in held_back(session)]
    return _row(name, calls, found["token_savings"], found["message_savings"], held, n, why)


def _of_sizes(cuts: Sequence[Compacted], why: str) -> list[dict[str, Any]]:
    """Return a row a session of a frame or a log of whole turns, which know no messages."""
    by_name: dict[str, list[Compacted]] = {}
    for one in cuts:
        by_name.setdefault(one.name, []).append(one)
    rows = []
    for name, mine in by_name.items():
        unit = "call" if any(c.call is not None for c in mine) else "turn"
        places = [_place(i, c) for i, c in enumerate(mine)]
        shares = [c.saved for c in mine]
        end = max(places, default=0)
        rows.append(_row(name, places, shares, [None] * len(mine), [], end, why, unit))
    return rows


def _place(i: int, one: Compacted) -> int:
    return next((n for n in (one.call, one.turn) if n is not None), i)
