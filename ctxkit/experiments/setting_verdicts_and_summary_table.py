"""Verdicts on settings compared on a session, and their summary table."""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from ctxkit._internal.formatting_and_sanitizing import (
    format_change,
    format_count,
    format_percent,
    format_tokens,
    format_usd,
    has_value,
    sanitize_line,
)
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.experiments.setting_choice_and_sweep_display import (
    SettingChoice,
    SettingOutcome,
    choose_setting,
    make_thrashing_verdict,
)
from ctxkit.metrics.bootstrap_and_paired_tests import find_pareto_front

if TYPE_CHECKING:
    from collections.abc import Callable


RECORDED_LABEL = "recorded"
ON_FRONT = "Pareto front"
INDISTINGUISHABLE = "within noise"
SUMMARY_HEADS = (
    Column("rules", "the setting; several that come to the same stand in one row", number=False),
    Column("cost", "dollars of prompts, replies and summaries", group="dollars"),
    Column("change", "the cost against what was recorded", group="dollars"),
    Column("peak", "the largest prompt, in tokens", group="largest prompt", spare=True),
    Column("window", "the largest prompt as a share of the model's window", group="largest prompt"),
    Column("compacted", "number of compactions", group="compactions"),
    Column(
        "lost",
        "of the items that the record used again, the share that was out of sight by then",
        group="compactions",
    ),
    Column("verdict", "in a word; all that holds when pointed at", number=False, firm=True),
)
SUMMARY_LEGEND = (
    "Change: the cost against the record. Window: the largest prompt as a share of it; in grey what"
    " does not fit. Lost: of the items needed again, the share out of sight by then. Cheapest"
    " within the bound: of those that lose no more than max_loss, or than the record did. Pareto"
    " front: nothing that fits is both cheaper and loses less. Thrashes: compactions follow each"
    " other before they have paid. Within noise: real runs differ by more than this and the record."
    " In a trusted notebook a click on a head sorts; .detail has every figure."
)
_MAX_NAMES = 20
"""Characters of a row's joined names; longer ones become the first name and a count."""
_EQUAL_COLUMNS = (
    "prompt_tokens",
    "peak_tokens",
    "window_tokens",
    "cost_usd",
    "compactions_n",
    "hidden_messages_n",
    "needed_later_loss",
)
"""Columns in which two settings must agree to share one row of the summary table."""


class SettingVerdict(NamedTuple):
    """Verdict on a setting: the word shown, its tone (CSS class), and all words that apply."""

    word: str
    tone: str = ""
    all: tuple[str, ...] = ()


# Verdicts and the summary table. A setting is judged by five facts of its row: it failed; a prompt
# exceeds the window; it thrashes; it is on the Pareto front of dollars and needed-later loss (both
# minimised, only rows that fit); its cost differs from the record by more than real runs vary. Rows
# with equal figures are one setting in effect (a trigger that never fires, for instance) and share
# a row of the table, with the verdict of the first, which is the one that `choose_setting` names.
def judge_settings(frame: pd.DataFrame, max_loss: float | None = None) -> list[SettingVerdict]:
    """Return the verdict on each row of a frame of scores.

    Args:
        frame: scores of one session, one row per rules.
        max_loss: largest acceptable loss, as a share from 0 to 1; None: no limit.
    """
    on_front, choice = find_pareto_rows(frame), choose_setting_from_frame(frame, max_loss)
    return [
        _judge_setting(row, choice.name_ends(str(row["rules"])), front=on)
        for row, on in zip(frame.to_dict("records"), on_front, strict=True)
    ]


def choose_setting_from_frame(frame: pd.DataFrame, max_loss: float | None) -> SettingChoice:
    """Return the choice between the rows of a frame of scores of one session.

    A row that failed or does not fit the window is left out, and one that thrashes is never the
    best; the record always can be.

    Args:
        frame: scores, one row per setting.
        max_loss: largest allowed loss, 0 to 1; None: the loss of the record.
    """
    outcomes, record = [], None
    for row in frame.to_dict("records"):
        if not has_value(row["cost_usd"]) or has_value(row["error"]):
            continue
        loss, is_record = row["needed_later_loss"], row["rules"] == RECORDED_LABEL
        thrashes = not is_record and has_value(row["is_thrashing"]) and row["is_thrashing"]
        outcome = SettingOutcome(
            str(row["rules"]),
            float(row["cost_usd"]),
            float(loss) if has_value(loss) else None,
            "it thrashes" if thrashes else "",
        )
        record = outcome if is_record else record
        if is_record or not has_value(row["first_call_over_window"]):
            outcomes.append(outcome)
    return choose_setting(outcomes, max_loss, record=record)


def find_pareto_rows(frame: pd.DataFrame) -> list[bool]:
    """Return for each row whether it is on the Pareto front of dollars and needed-later loss.

    Rows that failed or do not fit the window are never on the front.
    """
    # NaN in either objective takes a row out of the comparison
    fits = frame["first_call_over_window"].isna() & frame["error"].isna()
    columns = (frame[c].astype("Float64").where(fits) for c in ("cost_usd", "needed_later_loss"))
    on_front: list[bool] = find_pareto_front(
        *(c.to_numpy(float, na_value=nan).tolist() for c in columns)
    ).tolist()
    return on_front


def _judge_setting(
    row: dict[Any, Any], ends: list[tuple[str, str]], *, front: bool
) -> SettingVerdict:
    if has_value(row["error"]):
        return SettingVerdict("failed", "bad", (sanitize_line(str(row["error"]), 300),))
    # Words in order of importance; the first becomes the verdict, all of them its tooltip.
    verdicts: list[tuple[str, str]] = []
    if has_value(row["first_call_over_window"]):
        verdicts.append(
            (f"over window at call {format_count(row['first_call_over_window'])}", "grey")
        )
    if has_value(row["is_thrashing"]) and row["is_thrashing"]:
        verdicts.append(make_thrashing_verdict(ends))
    elif ends:
        verdicts.append((", ".join(word for word, _ in ends), ends[0][1]))
    if front and not ends:
        verdicts.append((ON_FRONT, ""))
    if row["rules"] == RECORDED_LABEL:
        verdicts.append(("as it was", ""))
    elif has_value(row["vs_recorded"]):
        apart = sanitize_line(str(row["vs_recorded"]), 40)
        verdicts.append((apart if apart == INDISTINGUISHABLE else f"{apart} than the record", ""))
    if not verdicts:
        return SettingVerdict("")
    words = tuple(word for word, _ in verdicts)
    # a gain within the noise of real runs is no gain: it is named without the colour of one
    if verdicts[0][1] == "good" and words[-1] == INDISTINGUISHABLE:
        return SettingVerdict(f"{words[0]}, {INDISTINGUISHABLE}", "", words)
    return SettingVerdict(*verdicts[0], words)


def group_equal_rows(frame: pd.DataFrame) -> list[list[int]]:
    """Group rows whose figures are equal, as lists of row positions.

    Groups are ordered by their first row. The record, and rows that failed, stay alone.
    """
    groups: dict[Any, list[int]] = {}
    for i, row in enumerate(frame.to_dict("records")):
        figures = tuple(None if pd.isna(row[c]) else float(row[c]) for c in _EQUAL_COLUMNS)
        # a row number as key keeps the row alone; the figures as key join equal rows
        alone = row["rules"] == RECORDED_LABEL or has_value(row["error"]) or figures[0] is None
        groups.setdefault((i,) if alone else figures, []).append(i)
    return list(groups.values())


def make_summary_table(frame: pd.DataFrame, max_loss: float | None = None) -> Table:
    """Return the summary table of a comparison: a row per group of equal settings, by cost.

    Args:
        frame: scores, one row per setting.
        max_loss: largest allowed loss, 0 to 1; None: the loss of the record.
    """
    names = [sanitize_line(str(n), 80) for n in frame.index]
    rows, verdicts = frame.to_dict("records"), judge_settings(frame, max_loss)
    recorded_usd = next((r["cost_usd"] for r in rows if r["rules"] == RECORDED_LABEL), None)
    table_rows = []
    costs = [float(r["cost_usd"]) if has_value(r["cost_usd"]) else inf for r in rows]
    for group in sorted(group_equal_rows(frame), key=lambda g: costs[g[0]]):
        i = group[0]
        table_rows.append(
            _make_summary_row([names[k] for k in group], rows[i], verdicts[i], recorded_usd)
        )
    return Table(SUMMARY_HEADS, tuple(table_rows), legend=SUMMARY_LEGEND)


def _make_summary_row(
    names: list[str], row: dict[Any, Any], verdict: SettingVerdict, recorded_usd: Any
) -> tuple[Cell, ...]:
    # rows that do not fit the window, and failed rows, are greyed
    tone = "grey" if verdict.tone == "grey" or has_value(row["error"]) else ""
    cost, peak, window = (row[c] for c in ("cost_usd", "peak_tokens", "window_tokens"))
    # a group is named by `none` where it is in it, else by its shortest name
    first, *others = sorted(names, key=lambda n: (n != "none", len(n)))
    name = ", ".join([first, *others])
    if others and len(name) > _MAX_NAMES:
        name = f"{first} and {len(others)} more"
    replayed = (
        row["rules"] != RECORDED_LABEL
        and has_value(cost)
        and has_value(recorded_usd)
        and recorded_usd
    )
    change = cost / recorded_usd - 1 if replayed else None
    return (
        Cell(name, None, ", ".join(names), tone),
        _make_cell(cost, format_usd, tone, _interval_text(row)),
        _make_cell(change, format_change, tone),
        _make_cell(peak, format_tokens, tone),
        _window_share(peak, window, tone),
        _make_cell(row["compactions_n"], format_count, tone, _not_paid_back_text(row)),
        _make_cell(row["needed_later_loss"], format_percent, tone),
        Cell(verdict.word, None, "; ".join(verdict.all), verdict.tone),
    )


def _window_share(peak: Any, window: Any, tone: str) -> Cell:
    if not (has_value(peak) and has_value(window) and window):
        return Cell("", None, "the window is not known", tone)
    return Cell(
        format_percent(peak / window),
        float(peak / window),
        f"of {format_tokens(window)} tokens",
        tone,
    )


def _interval_text(row: dict[Any, Any]) -> str:
    parts = []
    # both ends are known, or neither
    if has_value(row["cost_low_usd"]) and row["cost_low_usd"] < row["cost_high_usd"]:
        parts.append(
            f"{format_usd(row['cost_low_usd'])} to {format_usd(row['cost_high_usd'])} by what "
            "the cache"
            " model misses"
        )
    if has_value(row["real_run_low_usd"]):
        parts.append(
            f"of real runs {format_usd(row['real_run_low_usd'])} to "
            f"{format_usd(row['real_run_high_usd'])}"
        )
    return "; ".join(parts)


def _not_paid_back_text(row: dict[Any, Any]) -> str:
    n = row["not_paid_back_n"]
    return f"{format_count(n)} of them never paid" if has_value(n) and n else ""


def _make_cell(value: Any, format_value: Callable[[Any], str], tone: str, hover: str = "") -> Cell:
    """Return the cell of a figure; empty where it is missing."""
    if not has_value(value):
        return Cell("", None, hover, tone)
    return Cell(format_value(value), float(value), hover, tone)
