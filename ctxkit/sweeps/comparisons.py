"""One session under several rules, beside what was recorded: a frame with a display of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from ctxkit.cache.words import foretold
from ctxkit.errors import CtxkitError
from ctxkit.markup import escape, line
from ctxkit.metrics.elongation import FLOOR, LEVEL
from ctxkit.readers.given import of_session
from ctxkit.replays import session_of
from ctxkit.sweeps.batches import Bench
from ctxkit.sweeps.columns import typed
from ctxkit.sweeps.grids import labels, rules_of
from ctxkit.sweeps.renamed import Scores
from ctxkit.sweeps.scores import row_of

if TYPE_CHECKING:

    from ctxkit.session import Session
    from ctxkit.sweeps.grids import Several

SHOWN = {
    "prompt_tokens": "prompt tokens",
    "peak_tokens": "peak",
    "cost_usd": "cost",
    "cost_low_usd": "80 %: from",
    "cost_high_usd": "to",
    "real_low_usd": "of real runs",
    "told_apart": "told apart",
    "needed_later_loss": "needed, lost",
    "summary_recall": "kept by summaries",
    "cuts_n": "cuts",
    "token_savings": "saved: tokens",
    "message_savings": "messages",
    "summary_tokens": "summaries",
    "thrash": "thrash",
    "unpaid_cuts_n": "unpaid",
    "suppressed_n": "suppressed",
    "hidden_messages_n": "hidden messages",
    "hidden_results_n": "results",
}
"""Columns of the display and their heads; the frame has them all."""
_SAME = 0.01
"""Own prices of a log and those of the table that differ by less are the same."""
_SHARES = ("token_savings", "message_savings", "needed_later_loss", "summary_recall")
_ORDER = {"cheaper": -1.0, "not told apart": 0.0, "dearer": 1.0}
_NUMBER = "text-align:right;padding:2px 5px;font-variant-numeric:tabular-nums"
_TEXT = "text-align:left;padding:2px 5px"
_HEAD = "background:none;border:0;padding:0;margin:0;font:inherit;color:inherit;text-align:inherit;cursor:pointer"
_SORT = (
    "const h=this.parentNode,i=h.cellIndex,b=h.closest('table').tBodies[0],"
    "d=h.getAttribute('aria-sort')==='descending'?1:-1;"
    "for(const o of h.parentNode.cells)o.removeAttribute('aria-sort');"
    "h.setAttribute('aria-sort',d>0?'ascending':'descending');"
    "const v=r=>parseFloat(r.cells[i].dataset.value);"
    "b.append(...[...b.rows].sort((r,s)=>(isNaN(v(r))-isNaN(v(s)))||d*(v(r)-v(s))||0))"
)
"""A click on a head sorts the rows by its figures, the largest first; the next click turns them round."""


class Comparison(Scores):
    """A frame of scores, one row a setting, the recorded session first, indexed by the names of the rules.

    It takes every verb of a DataFrame (whose results are plain frames). Its display is in the order asked for until a
    head is clicked. `replays` holds the session of each row; ``plots.growth(comparison)`` charts them.
    """

    _metadata = ["replays"]  # noqa: RUF012  pandas' own way to carry attributes

    replays: dict[str, Session]

    @property
    def caption(self) -> str:
        """What the figures rest on, in a sentence or two."""
        first = self.iloc[0]
        names = ("prediction_error", "prediction_low", "prediction_high", "prediction_note")
        how = foretold(*(first[n] if _is(first[n]) else None for n in names))
        riddles = (
            f" {_percent(first['unexplained_misses'])} of the calls missed the cache without an "
            "explanation."
            if _is(first["unexplained_misses"])
            else ""
        )
        return (
            f"{line(str(first['session']), 60)}: {_int(first['calls_n'])} calls. Replays keep the recorded trajectory: "
            f"they tell the bill and what was out of sight, not what the agent would have done. "
            f"{how}{riddles} "
            f"Summaries are billed as fresh input and output.{self._prices()}{self._apart()}"
        )

    def _apart(self) -> str:
        """Say what the intervals of the costs are of, where there are some."""
        if not self["real_low_usd"].notna().any():
            return ""
        return (
            f" Of real runs: the cost with as many calls as such policies were found to take "
            f"({LEVEL:.0%} interval). Not told apart: the interval comes within {FLOOR:.0%} of the "
            "record, which is noise."
        )

    def _prices(self) -> str:
        """Say where the log's own prices are others than the table's."""
        own, table = self["cost_usd"].iloc[0], self["table_usd"].iloc[0]
        if not (_is(own) and _is(table)) or abs(own - table) <= _SAME * own:
            return ""
        return f" By the table of prices, as replays are billed, the record would cost ${table:,.4g}."

    @property
    def notes(self) -> list[str]:
        """What the session's log cannot say or says wrongly."""
        told = self.replays.get("recorded") if hasattr(self, "replays") else None
        return [] if told is None else list(told.notes)

    def to_text(self) -> str:
        """Return the display as lines of text."""
        rows = [["rules", *SHOWN.values()], *_rows(self)]
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        out = [
            "  ".join([r[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(r[1:], widths[1:], strict=True))])
            for r in rows
        ]
        errors = [f"{line(str(n), 60)}: {line(str(e), 300)}" for n, e in self["error"].items() if _is(e)]
        return "\n".join([*out, *errors, self.caption, *(f"Note: {line(n, 400)}" for n in self.notes)])

    def _repr_html_(self) -> str:
        heads = _head("rules", _TEXT) + "".join(_head(h, _NUMBER) for h in SHOWN.values())
        apart = self["told_apart"].map(_ORDER).astype("Float64")
        shown = pd.DataFrame(self)[list(SHOWN)].assign(told_apart=apart)
        values = shown.astype(float).to_numpy(na_value=float("nan")).tolist()
        body = "".join(
            f'<tr><th scope="row" style="{_TEXT};min-width:9em" data-value="{-i}">{escape(r[0], 80)}</th>'
            + "".join(
                f'<td style="{_NUMBER}" data-value="{v:.9g}">{escape(c, 40)}</td>'
                for c, v in zip(r[1:], numbers, strict=True)
            )
            + "</tr>"
            for i, (r, numbers) in enumerate(zip(_rows(self), values, strict=True))
        )
        errors = "".join(
            f"<li>{escape(str(n), 60)}: {escape(str(e), 300)}</li>" for n, e in self["error"].items() if _is(e)
        )
        told = "".join(f"<br>Note: {escape(n, 400)}" for n in self.notes)
        caption = f'<caption style="text-align:left">{escape(self.caption, 1300)}{told}</caption>'
        return (
            '<div class="ctxkit-comparison" style="color:var(--jp-content-font-color1,inherit);overflow-x:auto">'
            f'<table style="border-collapse:collapse">{caption}'
            f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
            f"{f'<ul>{errors}</ul>' if errors else ''}</div>"
        )

    def __repr__(self) -> str:
        return self.to_text()


@of_session
def compare(
    session: Session,
    rules: Several = "all",
    *,
    loss: bool = True,
    reuse: bool = False,
    progress: bool = True,
) -> Comparison:
    """Return a session's score as recorded and under each of several rules, one row each.

    Args:
        session: a recorded session, the path of a log, or a list of messages; of a replay the
            recorded one is taken.
        rules: rules, policies, names of presets or chains in a list, or ``"all"`` for every preset.
        loss: work out what was lost too.
        reuse: the call that writes a summary reads the cached prompt; else it sends what it summarises afresh.
        progress: show a bar where it takes longer than a second.

    Raises:
        BadArguments: it is no session, or there are no rules.
        UnknownPreset: a name means nothing; the sentence names the nearest.
    """
    from tqdm.auto import tqdm

    given = rules_of(rules)
    bench = Bench(session.origin or session)
    session, base = bench.session, bench.base
    rows, replays = [row_of(session, base, loss=loss, reuse=reuse)], {"recorded": session}
    bar = tqdm(zip(given, labels(given), strict=True), "compare", len(given), delay=1, disable=not progress)
    for each, label in bar:
        row: dict[str, Any] = {"session": session.id}
        try:
            done = bench.run(each)
            again = session_of(session, done)
            row = row_of(again, base, done, loss=loss, reuse=reuse)
            replays[label] = again
        except CtxkitError as error:
            row["error"] = str(error)
        except Exception as error:  # noqa: BLE001  whatever rules raise, the other rows are told
            row["error"] = f"{type(error).__name__}: {error}"
        rows.append(row | {"rules": label})
    frame = Comparison(typed(rows).set_axis([r["rules"] for r in rows], axis=0))
    frame.replays = replays
    return frame


def _rows(frame: pd.DataFrame) -> list[list[str]]:
    return [[line(str(name), 80), *(_shown(column, row) for column in SHOWN)] for name, row in frame.iterrows()]


def _shown(column: str, row: Any) -> str:
    """Return a cell; an interval stands in one, and is sorted by its lower end."""
    if column != "real_low_usd" or not _is(row[column]):
        return _cell(column, row[column])
    low, high = row[column], row["real_high_usd"]
    return _cell("cost_usd", low) + (f"–{high:,.2f}" if high > low else "")


def _head(name: str, style: str) -> str:
    button = f'<button type="button" style="{_HEAD}" title="Sort" onclick="{_SORT}">{name}</button>'
    return f'<th scope="col" style="{style}">{button}</th>'


def _cell(column: str, value: Any) -> str:
    if not _is(value):
        return ""
    if column == "thrash":
        return "yes" if value else "no"
    if column in _SHARES:
        return _percent(value)
    if column == "told_apart":
        return line(str(value), 40)
    return f"${value:,.2f}" if column.endswith("_usd") else _int(value)


def _is(value: Any) -> bool:
    return not pd.isna(value)


def _int(value: Any) -> str:
    return f"{int(value):,}" if _is(value) else ""


def _percent(value: Any) -> str:
    return f"{value:.1%}" if abs(value) < 0.1 else f"{value:.0%}"
