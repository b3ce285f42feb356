"""`ctxkit.thrash`: when an anti-thrash guard would stop compaction, and the cost of that."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import traitlets as t

from ctxkit.engine import get_run_of_replay
from ctxkit.errors import BadArguments
from ctxkit.metrics.frames import per_compaction
from ctxkit.plots.savings_thrash_loss_charts import (
    build_thrash_data,
    draw_thrash_chart,
    find_guard_closing,
    is_guard_off,
    is_saving_too_small,
    list_suppressed_compactions,
)
from ctxkit.policies.guards import AntiThrash, BaseGuard
from ctxkit.session.compactions_and_prunings import hides_compactions
from ctxkit.widgets.base_widget import ChartWidget, build_javascript_module
from ctxkit.widgets.session_compactions_widget import (
    CompactionRow,
    list_frame_compactions,
)
from ctxkit.widgets.trial_replays_and_tables import TrialRunner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.chart import Chart
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.protocols import PastCompactions, PromptForecast
    from ctxkit.session.session import Session
    from ctxkit.widgets.data_source import WidgetDataSource


MAX_EXPORTED_PRICES = 40
"""Places at which a guard can close whose dollars a page without a kernel holds."""


class ThrashWidget(ChartWidget):
    """The widget that `ctxkit.thrash` returns: what each compaction saved, and a guard to turn.

    `min_savings`, `window` and `by` can be set; `closes` is what the browser shows.
    """

    _esm = build_javascript_module(
        "thrash.js", rules=[is_saving_too_small, is_guard_off, find_guard_closing]
    )
    shared: ClassVar = ("data", "min_savings", "window", "by", "session", "usd")
    min_savings = t.Float(0.10, min=0.0, max=1.0).tag(sync=True)
    """Minimum share that a compaction must save; 0: off."""
    window = t.Int(10, min=0).tag(sync=True)
    """Compactions in a row below `min_savings` after which the guard closes; 0: off."""
    by = t.Enum(("tokens", "messages"), default_value="tokens").tag(sync=True)
    session = t.Int(0, min=0).tag(sync=True)
    """Number of the session that is drawn."""
    usd = t.Dict().tag(sync=True)
    """Dollars that were asked for, by ``"session/compaction"`` at which it closes, or ``none``."""

    def __init__(
        self,
        feed: WidgetDataSource,
        *,
        min_savings: float = 0.10,
        window: int = 10,
        by: str = "tokens",
    ) -> None:
        if by not in ("tokens", "messages"):
            raise BadArguments(f"ck.thrash counts by 'tokens' or 'messages', not by {by!r}.")
        AntiThrash(min_savings=min_savings, window=window)  # says what it cannot be
        super().__init__(feed, min_savings=min_savings, window=window, by=by)
        if self.rows and self._guarded[0] is not None and not self._guarded[0].why:
            self._price_session(0)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The drawn data: one dict per session."""
        sessions: list[dict[str, Any]] = self.data["sessions"]
        return sessions

    def shares(self, session: int | None = None) -> list[float | None]:
        """Return the saving of each compaction of a session, by tokens or by messages."""
        shares_saved: list[float | None] = self.rows[self.session if session is None else session][
            self.by
        ]
        return shares_saved

    @property
    def closes(self) -> int | None:
        """The compaction after which the guard allows no more; None: it stays open."""
        if not self.rows:
            return None
        return find_guard_closing(self.shares(), self.min_savings, self.window)

    def _build_data(self) -> dict[str, Any]:
        titles, table = self.feed.titles, self.feed.frame
        self._guarded: list[GuardCostComparison | None] = []
        note = ""
        if table is not None:
            compactions, note = list_frame_compactions(table)
            rows = _rows_of_sizes(compactions, note)
            self._guarded = [None] * len(rows)
        else:
            rows = [self._row_of(one, titles[one.id]) for one in self.feed.sessions()]
        self.usd = {}
        return {"sessions": rows, "note": note}

    def _row_of(self, session: Session, name: str) -> dict[str, Any]:
        self._guarded.append(guarded := GuardCostComparison(session))
        return _row_of_session(session, name, guarded.why)

    def _answer_request(self, request: dict[str, Any]) -> dict[str, Any] | None:
        number, at = request.get("session"), request.get("at")
        if not isinstance(number, int) or not 0 <= number < len(self._guarded):
            return None
        if request.get("kind") != "usd" or not isinstance(at, int | None):
            return None
        self._price_session(number, at)
        return {"kind": "usd", "usd": dict(self.usd)}

    def _price_session(self, number: int, at: int | None = None) -> None:
        """Work out the dollars of a session, as it is and with a guard that closes there."""
        guarded = self._guarded[number]
        if guarded is None or guarded.why:
            return
        priced = {f"{number}/none": guarded.usd(None)}
        if at is not None:
            priced[f"{number}/{at}"] = guarded.usd(at)
        self.usd = {**self.usd, **priced}

    def _exported_requests(self) -> list[dict[str, Any]]:
        if not self.rows or self._guarded[self.session] is None:
            return []
        places = [None, *range(min(len(self.shares()), MAX_EXPORTED_PRICES))]
        return [{"kind": "usd", "session": self.session, "at": at} for at in places]

    def _build_chart(self) -> Chart:
        rows = self.rows
        nothing = _chart_row("nothing", [], [], [], [], 0, "")
        number = min(self.session, len(rows) - 1)
        one = rows[number] if rows else nothing
        which = f" ({number + 1} of {len(rows)} sessions)" if len(rows) > 1 else ""
        suppressed = [(int(call), str(why)) for call, why in one["held"]]
        tries = list(zip(one["calls"], one[self.by], strict=True))
        guard = (self.min_savings, self.window, self.by)
        data = build_thrash_data(one["name"] + which, tries, suppressed, *guard)
        return draw_thrash_chart(data._replace(is_unknown=one.get("hides", False)))


def _chart_row(  # noqa: PLR0917
    name: str, calls: list[int], tokens: list[float | None], messages: list[float | None],
    suppressed: list[tuple[int, str]], n: int, why: str, unit: str = "call",
) -> dict[str, Any]:  # fmt: skip
    rounded = [
        [None if v is None else round(v, 5) for v in shares] for shares in (tokens, messages)
    ]
    return {"name": name, "calls": calls, "tokens": rounded[0], "messages": rounded[1],
            "held": [[call, why[:120]] for call, why in suppressed],
            "n": n, "why": why, "unit": unit}  # fmt: skip


def _row_of_session(session: Session, name: str, why: str) -> dict[str, Any]:
    columns, n = per_compaction.rows([session]), len(session.calls)
    # A compaction that no call follows comes after the last call.
    calls = [n if c is None else c for c in columns["call"]]
    suppressed = [(one.call, one.why) for one in list_suppressed_compactions(session)]
    row = _chart_row(
        name, calls, columns["token_savings"], columns["message_savings"], suppressed, n, why
    )
    return row | {"hides": hides_compactions(session)}


def _rows_of_sizes(compactions: Sequence[CompactionRow], why: str) -> list[dict[str, Any]]:
    """Return a row a session of a frame, which knows no messages."""
    by_name: dict[str, list[CompactionRow]] = {}
    for one in compactions:
        by_name.setdefault(one.name, []).append(one)
    rows = []
    for name, mine in by_name.items():
        unit = "call" if any(c.call is not None for c in mine) else "turn"
        places = [_place_of(i, c) for i, c in enumerate(mine)]
        shares = [c.saved for c in mine]
        end = max(places, default=0)
        rows.append(_chart_row(name, places, shares, [None] * len(mine), [], end, why, unit))
    return rows


def _place_of(i: int, one: CompactionRow) -> int:
    return next((n for n in (one.call, one.turn) if n is not None), i)


class MaxCompactionsGuard(BaseGuard):
    """Guard that allows a fixed number of compactions, as an anti-thrash guard does once closed."""

    word = "closed"

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def first(self, past: PastCompactions, forecast: PromptForecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return `stop` once they are spent."""
        return stop if len(past.compactions) >= self.limit else start


# A guard that closes after compaction k changes nothing before it: the calls up to there are those
# of the replay, and no compaction comes after. So the dollars for a guard are those of one more
# run of the same rules with `MaxCompactionsGuard(k + 1)` beside their guards, whatever threshold
# and window led to k. They are kept by k; a run costs what a replay costs.
class GuardCostComparison:
    """Dollars of a replay without a guard and with one that closes, computed on demand.

    Args:
        session: any session; only a replay that this process made can be replayed on.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._known: dict[int | None, float | None] = {}

    @cached_property
    def rules(self) -> Rules | None:
        """The rules of the replay; None where it is none."""
        done = get_run_of_replay(self.session)
        return None if done is None or self.session.origin is None else done.rules

    @property
    def why(self) -> str:
        """Reason why the dollars are unknown; empty if they are known."""
        if self.rules is not None:
            return ""
        if self.session.origin is not None or self.session.format == "replay":
            return "Dollars need the replay as it was made here: call ck.replay again."
        return (
            "What a guard would have saved in dollars is known of a replay only: "
            "ck.thrash(ck.replay(session, rules))."
        )

    @cached_property
    def _trial_runner(self) -> TrialRunner:
        return TrialRunner(self.session.origin or self.session)

    def usd(self, closes: int | None) -> float | None:
        """Return the US dollars of the replay without compactions after one; None: with all.

        Raises:
            BadArguments: the rules cannot work.
        """
        rules = self.rules
        if rules is None:
            return None
        if closes not in self._known:
            guards = (
                rules.guards if closes is None else (*rules.guards, MaxCompactionsGuard(closes + 1))
            )
            cost = self._trial_runner.at(rules.but(guards=guards)).row.get("cost_usd")
            self._known[closes] = None if cost is None or math.isnan(cost) else float(cost)
        return self._known[closes]
