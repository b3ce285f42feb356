"""`ctxkit.savings`: what each compaction kept and saved, and on click what it did, cost and
lost.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import traitlets as t

from ctxkit._internal.formatting_and_sanitizing import (
    format_message_number,
    format_percent,
    format_usd,
    sanitize_line,
)
from ctxkit.errors import BadArguments
from ctxkit.formats.snapshots.column_blocks_and_faults import SNAPSHOT_FIELDS
from ctxkit.metrics import compaction_outcomes, loss_tables
from ctxkit.metrics.cost.replay_cost_model import ReplayCostModel
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.frames import per_compaction
from ctxkit.plots.compaction_diff_chart import get_diff_data
from ctxkit.plots.savings_thrash_loss_charts import (
    CompactionSizes,
    draw_savings_chart,
    drop_unmarked_compactions,
    hides_all_compactions,
)
from ctxkit.widgets.base_widget import ChartWidget, build_javascript_module

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.metrics.compaction_outcomes import CompactionOutcome
    from ctxkit.plots.chart import Chart
    from ctxkit.session.session import Session
    from ctxkit.widgets.data_source import WidgetDataSource


MAX_EXPORTED_DETAILS = 60
"""Compactions whose details a page without a kernel holds."""


class SavingsWidget(ChartWidget):
    """The widget that `ctxkit.savings` returns: bars of kept and saved; a click tells what one did.

    `picked` is the compaction that is shown, and can be set; `detail` is what is known of it.
    """

    _esm = build_javascript_module("savings.js")
    shared: ClassVar = ("data", "picked")
    picked = t.Int(0, min=0).tag(sync=True)

    def __init__(self, feed: WidgetDataSource, **settings: Any) -> None:
        self._rows: list[CompactionRow] = []
        self._places: list[tuple[Session, int]] = []
        """For each row its session, and its number there."""
        self._details: dict[int, CompactionDetails] = {}
        super().__init__(feed, **settings)

    @property
    def compactions(self) -> tuple[CompactionRow, ...]:
        """The drawn compactions."""
        return tuple(self._rows)

    @property
    def detail(self) -> dict[str, Any] | None:
        """Details of the selected compaction; None if only its sizes are known."""
        return self._answer_request({"kind": "detail", "at": self.picked})

    def _build_data(self) -> dict[str, Any]:
        titles, table, note = self.feed.titles, self.feed.frame, ""
        self._rows, self._places, self._details = [], [], {}
        if table is not None:
            self._rows, note = list_frame_compactions(table)
        for session in self.feed.sessions() if table is None else ():
            compactions = list_session_compactions(session, titles[session.id])
            note = TURN_SUMS_NOTE if has_only_turn_sums(session) and compactions else note
            self._rows += compactions
            self._places += [(session, one.number) for one in compactions]
        return {
            "compactions": [one.pack() for one in self._rows],
            "several": len({one.name for one in self._rows}) > 1,
            "note": note,
            "hides": self._hides_compactions,
            "why": "No diff: see the note above." if note else "",
        }

    @property
    def _hides_compactions(self) -> bool:
        return self.feed.frame is None and hides_all_compactions(self.feed.sessions())

    def _answer_request(self, request: dict[str, Any]) -> dict[str, Any] | None:
        at = request.get("at")
        if request.get("kind") != "detail" or not isinstance(at, int):
            return None
        if not 0 <= at < len(self._rows) or not self._rows[at].detail:
            return None
        session, number = self._places[at]
        details = self._details.setdefault(id(session), CompactionDetails(session))
        return {"kind": "detail", **details.of(number, self._rows[at])}

    def _exported_requests(self) -> list[dict[str, Any]]:
        return [
            {"kind": "detail", "at": i}
            for i, r in enumerate(self._rows[:MAX_EXPORTED_DETAILS])
            if r.detail
        ]

    def _build_chart(self) -> Chart:
        data = [
            CompactionSizes(r.number, r.call, r.before, r.after, r.put, r.what, r.source, r.name)
            for r in self._rows
        ]
        titles = list(dict.fromkeys([*self.feed.titles.values(), *(r.name for r in self._rows)]))
        name = titles[0] if len(titles) == 1 else f"{len(titles)} sessions"
        chart = draw_savings_chart(
            name, data, several=len({r.name for r in self._rows}) > 1,
            is_unknown=self._hides_compactions,
        )  # fmt: skip
        note = self.data.get("note")
        return replace(chart, notes=(*chart.notes, note)) if note else chart


MAX_CHANGES, MAX_ITEMS = 24, 12
"""Maximum number of rows of messages and items; of the rest the number is shown."""
_ITEM_COLUMNS = ["needed_call", "calls_until_needed", "family", "item", "fate"]


class CompactionDetails:
    """Details of the compactions of a session, computed at first use."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @cached_property
    def _outcomes_by_call(self) -> dict[int, CompactionOutcome]:
        return {
            outcome.call: outcome
            for outcome in compaction_outcomes.get_compaction_outcomes(self.session)
        }

    @cached_property
    def _lost_facts(self) -> pd.DataFrame | None:
        return loss_tables.losses(self.session) if self.session.has_text else None

    @cached_property
    def _cost_model(self) -> ReplayCostModel:
        return ReplayCostModel.of(self.session.origin or self.session)

    def of(self, number: int, one: CompactionRow) -> dict[str, Any]:
        """Return the details of a compaction as plain values: sentences, diff and items.

        Args:
            number: number of the compaction, from 0.
            one: its row in the table.
        """
        changes = get_diff_data(self.session, number)
        changed = [c for c in changes if c.action != "kept"]
        changed.sort(key=lambda c: (c.action != "inserted", -c.before))
        counts = Counter(c.action for c in changes)
        counts_text = ", ".join(f"{n:,} {what}" for what, n in counts.items())
        more = len(changed) - MAX_CHANGES
        rows = [
            [
                format_message_number(c.position),
                sanitize_line(c.name, 80),
                c.action,
                f"{c.before:,}",
                f"{c.after:,}",
            ]
            for c in changed[:MAX_CHANGES]
        ]
        why = list(dict.fromkeys(sanitize_line(c.reason, 120) for c in changed if c.reason))
        needed, items = self._list_needed(one.call)
        head = f"Messages: {counts_text}." if counts_text else "No message stood in the window."
        return {
            "ledger": [
                *self._describe_costs(one),
                *([f"Why: {'; '.join(why[:3])}"] if why else []),
            ],
            "changed": head
            + (f" The {MAX_CHANGES} largest that changed; {more:,} more." if more > 0 else ""),
            "changes": rows,
            "needed": needed,
            "items": items,
        }

    def _describe_costs(self, one: CompactionRow) -> list[str]:
        """Return what it cost, when that is paid back, and how soon the window was full again."""
        outcome = self._outcomes_by_call.get(one.call) if one.call is not None else None
        out = [f"It inserted {one.put:,} tokens." if one.put else "It inserted nothing."]
        out.append(self._describe_price(one, outcome))
        if outcome is None:
            return [*out, "No call was shown its outcome, so nothing says how it held."]
        if outcome.pays_after is None:
            out.append("Without a price nothing says when it has paid for itself.")
        elif outcome.pays_after == float("inf"):
            out.append("It freed nothing, so it never pays for itself.")
        else:
            out.append(f"It has paid for itself after {outcome.pays_after:,.0f} calls (derived).")
        if outcome.interval is None:
            out.append("No compaction followed.")
        else:
            paid = {True: ": it was not paid back", False: ": it was paid back", None: ""}[
                outcome.not_paid_back
            ]
            out.append(f"The next one came {outcome.interval:,} calls later{paid}.")
        if outcome.refill_10 is not None:
            share = format_percent(outcome.refill_10)
            out.append(f"Ten calls later {share} of what it freed was full again.")
        return [" ".join(out)]

    def _describe_price(self, one: CompactionRow, outcome: CompactionOutcome | None) -> str:
        """Return what making it cost: as its frame says, else as the bill of a replay takes it."""
        if one.usd is not None:
            return f"Making it cost {format_usd(one.usd)} ({one.usd_source})."
        if outcome is not None and not outcome.summaries:
            return "No model made it."
        usd = None if outcome is None else self._cost_model.summaries_usd(outcome.summaries)
        if usd is None:
            return "No price of making it is known."
        return f"Making it would have cost {format_usd(usd)} (estimated)."

    def _list_needed(self, call: int | None) -> tuple[str, list[list[str]]]:
        """Return what of it was named later: a sentence, and rows in the order of need."""
        if self._lost_facts is None or call is None:
            why = "no call followed" if call is None else "the log has no text"
            return f"What was needed later cannot be said: {why}.", []
        mine = self._lost_facts[self._lost_facts["call"] == call]
        if mine.empty:
            return "It took nothing out of sight that the log could name later.", []
        needed = mine.dropna(subset=["needed_call"]).sort_values(["needed_call", "item"])
        gone = int((needed["fate"] == "lost").sum())
        sentence = (
            f"It took {len(mine):,} facts (paths, ids, numbers, errors ...) out of sight; "
            f"{len(needed):,} were named again later, {gone:,} of them could not be fetched again."
        )
        more = len(needed) - MAX_ITEMS
        rows = [
            [
                f"call {use:,}",
                f"{delay:,} calls",
                sanitize_line(family, 20),
                sanitize_line(item, 80),
                fate,
            ]
            for use, delay, family, item, fate in needed.head(MAX_ITEMS)[_ITEM_COLUMNS].itertuples(
                index=False
            )
        ]
        return sentence + (f" The first {MAX_ITEMS}; {more:,} more." if more > 0 else ""), rows


TURN_SUMS_NOTE = (
    "The log has what each turn was billed, not the size of the window, and no messages: what a "
    "compaction saved is unknown, and there is no diff. Try ck.budget."
)
SIZES_ONLY_NOTE = "A frame holds sizes only: give the session to see what each compaction did."
_WORD_COLUMNS = ("kind", "method", "trigger")
_SIZE_COLUMNS = ("compaction", "call", "turn", "tokens_before", "tokens_after", "summary_tokens")
_SOURCED_COLUMNS = ("cost_usd", "cost_source", "tokens_source")
_NEEDED_COLUMNS = ("session", "compaction", "call", "tokens_before", "tokens_after")


class CompactionRow(NamedTuple):
    """One compaction; None: the log does not tell."""

    name: str
    """The session."""
    number: int
    call: int | None = None
    """The first call that was shown its outcome."""
    turn: int | None = None
    """The turn after which it fired, where calls are not known."""
    before: int | None = None
    after: int | None = None
    """Tokens in the window."""
    put: int | None = None
    """Tokens that it inserted."""
    usd: float | None = None
    """Dollars of the compaction itself."""
    usd_source: str | None = None
    what: str = ""
    source: str | None = None
    detail: bool = False
    """True where the kernel can say what it did."""

    @property
    def saved(self) -> float | None:
        """Share of the tokens that it saved; negative where the window grew."""
        return 1 - self.after / self.before if self.before and self.after is not None else None

    def pack(self) -> dict[str, Any]:
        """Return it as the browser takes it, with the share saved and the tokens of its bars."""
        bars = {"kept": 0, "freed": 0, "grown": 0}
        if self.before is not None and self.after is not None:
            freed = self.before - self.after
            remaining = min(self.before, self.after)
            bars = {"kept": remaining, "freed": max(freed, 0), "grown": max(-freed, 0)}
        return {**self._asdict(), "saved": self.saved, **bars}


def has_only_turn_sums(session: Session) -> bool:
    """Return whether the log tells what turns were billed, and no size of a window."""
    return not session.has_sizes and any(c.message.kind == "turn" for c in session.calls)


def list_session_compactions(session: Session, name: str) -> list[CompactionRow]:
    """Return the compactions of a session.

    Args:
        session: any session.
        name: name of the session in each row.
    """
    columns = per_compaction.rows([session])
    words = zip(*(columns[n] for n in _WORD_COLUMNS), strict=True)
    descriptions = [_join_words(row) for row in words]
    numbers = zip(*(columns[n] for n in (*_SIZE_COLUMNS, "cost_usd", "cost_source")), strict=True)
    rows = zip(numbers, descriptions, columns["tokens_source"], strict=True)
    has_sizes = session.has_sizes
    return [
        CompactionRow._make((name, *row, what, source, has_sizes)) for row, what, source in rows
    ]


def list_frame_compactions(table: pd.DataFrame) -> tuple[list[CompactionRow], str]:
    """Return the compactions of a frame of snapshots or of compactions, and a note on it.

    Args:
        table: result of `ck.read_snapshots`, or `ck.frame(..., per="compaction")`.

    Returns:
        A row for each compaction, in the order of the frame, and a sentence on what such a frame
        does not say.

    Raises:
        BadArguments: it is neither.
    """
    if set(SNAPSHOT_FIELDS) <= set(table.columns):
        return list_snapshot_compactions(table), TURN_SUMS_NOTE
    lacking = [n for n in _NEEDED_COLUMNS if n not in table.columns]
    if lacking:
        raise BadArguments(
            "Give sessions, a frame of snapshots, or a frame of compactions "
            f"(ck.frame(..., per='compaction')); this frame lacks {', '.join(lacking)}."
        )
    names = [
        n for n in ("session", *_SIZE_COLUMNS, *_WORD_COLUMNS, *_SOURCED_COLUMNS) if n in table
    ]
    table_part = drop_unmarked_compactions(table)[names]
    # pandas has NaN and NA for missing values; as objects all of them become None.
    plain = table_part.astype(object).where(table_part.notna(), None)
    rows: list[dict[Any, Any]] = plain.to_dict("records")
    return [_row_of_frame(i, row) for i, row in enumerate(rows)], SIZES_ONLY_NOTE


def _row_of_frame(i: int, row: dict[Any, Any]) -> CompactionRow:
    number, *sizes = (_int_or_none(row.get(n)) for n in _SIZE_COLUMNS)
    usd = row.get("cost_usd")
    cost = (None if usd is None else float(usd), row.get("cost_source"))
    description = (_join_words(row.get(n) for n in _WORD_COLUMNS), row.get("tokens_source"))
    name = str(row["session"])
    return CompactionRow._make(
        (name, i if number is None else number, *sizes, *cost, *description, False)
    )


# A compaction is in a log of snapshots as one row an agent. Resumes are removed first,
# therefore numbers are counted again for each session, from 0.
def list_snapshot_compactions(log: pd.DataFrame) -> list[CompactionRow]:
    """Return the compactions of a log of snapshots, which has no sizes of a window."""
    from ctxkit.formats.snapshots.turn_segment_compaction_frames import compactions as resets

    table = resets(log)
    table = table[table["kind"] == "compaction"]
    out: list[CompactionRow] = []
    counts: dict[str, int] = {}
    for _, rows in table.groupby(["session", "compaction"], sort=False, observed=True):
        name = str(rows["session"].iloc[0])
        counts[name] = counts.get(name, -1) + 1
        turn = rows["after_turn"].astype(object).where(rows["after_turn"].notna(), None).iloc[0]
        out.append(
            CompactionRow(name, counts[name], turn=_int_or_none(turn), what="marked in the log")
        )
    return out


def _int_or_none(value: Any) -> int | None:
    return None if value is None else int(value)


def _join_words(row: Any) -> str:
    return sanitize_line(" · ".join(str(word) for word in row if word), 120)


@register_view_values("savings")
def _read_figures(session: Session) -> dict[str, Any]:
    compactions = list_session_compactions(session, "")
    if not compactions:
        return {}
    shares = [one.saved for one in compactions]
    return {
        "compactions_n": len(compactions),
        **({} if None in shares else {"token_savings": fmean(s for s in shares if s is not None)}),
    }
