"""Displays of the results of sweep, advise and score: a sentence above at most eight columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from ctxkit._internal.display_frame import DisplayColumn, FrameDisplay, tabulate_columns
from ctxkit._internal.formatting import (
    format_percent,
    format_usd,
    has_value,
    pluralize,
)
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.experiments.score_columns import SCORE_COLUMNS
from ctxkit.experiments.setting_choice import SettingChoice, SettingOutcome, choose_setting
from ctxkit.metrics.run_statistics import FEW_SESSIONS, summarise_runs

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOST = "share of what was used again that was out of sight by then"
SWEEP_COLUMNS = (
    DisplayColumn("rules", "rules"),
    DisplayColumn("sessions_n", "sessions", "count", "sessions with figures under every setting"),
    DisplayColumn("cost_usd", "cost", "usd", "mean dollars of a session"),
    DisplayColumn("cost_usd_low", "from", "usd", "lower end of its 90 % interval", spare=True),
    DisplayColumn("cost_usd_high", "to", "usd", "upper end of it", spare=True),
    DisplayColumn("needed_later_loss", "lost", "share", _LOST),
    DisplayColumn(
        "not_paid_back_n", "not paid back", "count", "the next one came before they had paid"
    ),
)
ADVICE_COLUMNS = (
    DisplayColumn("rules", "rules"),
    DisplayColumn("advised", "advised", "yes"),
    DisplayColumn("cost_usd", "cost", "usd", "mean dollars of a session"),
    DisplayColumn("saved_usd", "saved", "usd", "against no context management, a session"),
    DisplayColumn("saved_usd_low", "from", "usd", "lower end of its 90 % interval", spare=True),
    DisplayColumn("saved_usd_high", "to", "usd", "upper end of it", spare=True),
    DisplayColumn("needed_later_loss", "lost", "share", _LOST),
    DisplayColumn(
        "not_paid_back_n", "not paid back", "count", "the next one came before they had paid"
    ),
)
_MAX_NOTES = 3
"""Most notes on settings that a sweep shows; `.detail` has all."""
_SCORE_ROWS = (
    ("cost_usd", "usd"), ("calls_n", "count"), ("prompt_tokens", "count"), ("peak_tokens", "count"),
    ("compactions_n", "count"), ("not_paid_back_n", "count"), ("needed_later_loss", "share"),
    ("is_thrashing", "yes"),
)  # fmt: skip
"""The figures of a score that are shown, each with its kind."""


@dataclass(frozen=True)
class SweepDisplay:
    """Shows a sweep: its settings by mean cost, and the cheapest within a bound on loss."""

    max_loss: float | None = None

    def __call__(self, runs: pd.DataFrame) -> FrameDisplay:
        """Return the display."""
        summary = summarise_runs(pd.DataFrame(runs)).sort_values("cost_usd", kind="stable")
        table = tabulate_columns(summary, SWEEP_COLUMNS)
        outcomes = _list_outcomes(summary, _over_the_window(runs))
        outcomes = _note_thrashing(outcomes, runs)
        choice = choose_setting(outcomes, self.max_loss)
        verdict = " ".join([choice.sentence, *_describe_sweep(runs)])
        return FrameDisplay(verdict, table, (".detail has every run and every figure.",))


def _over_the_window(runs: pd.DataFrame) -> set[str]:
    """Return the rules under which a prompt of some session is larger than the window."""
    return set(runs["rules"][runs["first_call_over_window"].notna()])


def _note_thrashing(outcomes: list[SettingOutcome], runs: pd.DataFrame) -> list[SettingOutcome]:
    """Return outcomes that say where their setting thrashes; half of the sessions rule it out."""
    is_thrashing = runs["is_thrashing"].fillna(value=False).astype(bool)
    names = runs["rules"].astype(str)
    thrashing_by_rules = is_thrashing.groupby(names).sum().to_dict()
    runs_by_rules = is_thrashing.groupby(names).count().to_dict()
    out = []
    for outcome in outcomes:
        thrashing_n, runs_n = thrashing_by_rules[outcome.name], runs_by_rules[outcome.name]
        where = "it thrashes" if runs_n == 1 else f"it thrashes in {thrashing_n} of {runs_n} runs"
        if 2 * thrashing_n >= runs_n:
            out.append(outcome._replace(flaw=where))
        else:
            out.append(outcome._replace(caution=where if thrashing_n else ""))
    return out


def _list_outcomes(summary: pd.DataFrame, excluded: Iterable[str] = ()) -> list[SettingOutcome]:
    return [
        SettingOutcome(
            str(row["rules"]),
            float(row["cost_usd"]),
            float(row["needed_later_loss"]) if has_value(row["needed_later_loss"]) else None,
        )
        for row in summary.to_dict("records")
        if has_value(row["cost_usd"]) and row["rules"] not in excluded
    ]


def _describe_sweep(runs: pd.DataFrame) -> list[str]:
    """Return sentences on runs that failed, did not fit, or are too few."""
    out, sessions = [], runs["session"].nunique()
    if over := len(_over_the_window(runs)):
        out.append(f"Left out: {pluralize(over, 'setting')} over the window.")
    if failed := int(runs["error"].notna().sum()):
        out.append(f"{failed} of {len(runs)} runs failed and are in no mean.")
    out += _describe_notes(runs)
    if sessions < FEW_SESSIONS:
        verb = "says" if sessions == 1 else "say"
        out.append(f"{pluralize(sessions, 'session')} {verb} little about others.")
    return out


def _describe_notes(runs: pd.DataFrame) -> list[str]:
    """Return what is odd about settings, each sentence once, with the number of its settings."""
    rules_by_note = runs.dropna(subset=["note"]).groupby("note")["rules"].nunique()
    whole = runs["rules"].nunique()
    return [
        f"In {n} of {whole} settings {note}" for note, n in rules_by_note.head(_MAX_NOTES).items()
    ]


def display_advice(advice: pd.DataFrame) -> FrameDisplay:
    """Return the display of advice: the sentence of the cheapest advised setting above all."""
    rows = advice.to_dict("records")
    advised = next((row["advice"] for row in rows if row["advised"]), None)
    if not advice.empty and rows[0]["sessions_n"] < FEW_SESSIONS:
        # the mean of a few sessions has no interval, and one reason stands against all rows
        columns = tuple(c for c in ADVICE_COLUMNS if not c.key.startswith("saved_usd_"))
        return FrameDisplay(_describe_few(advice), tabulate_columns(advice, columns))
    verdict = advised or _describe_no_advice(advice)
    others = tuple(row["advice"] for row in rows if row["advice"] != advised)
    return FrameDisplay(verdict, tabulate_columns(advice, ADVICE_COLUMNS), others)


def _describe_few(advice: pd.DataFrame) -> str:
    n = int(advice["sessions_n"].iloc[0])
    these = "this one session" if n == 1 else f"these {n} sessions"
    return (
        f"{_choose_from(advice).sentence} This holds for {these} and says little about the next:"
        f" advice needs {FEW_SESSIONS}."
    )


def _choose_from(advice: pd.DataFrame) -> SettingChoice:
    max_loss = advice["max_loss"].iloc[0]
    return choose_setting(_list_outcomes(advice), float(max_loss) if has_value(max_loss) else None)


def _describe_no_advice(advice: pd.DataFrame) -> str:
    if advice.empty:
        return "Nothing is advised: no setting has a cost on every session."
    return f"Nothing is advised; the table says why. {_choose_from(advice).sentence}"


def display_score(score: pd.Series) -> FrameDisplay:
    """Return the display of a score: its chief figures with their meanings."""
    meanings = {c.name: c.meaning for c in SCORE_COLUMNS}
    rows = tuple(
        (Cell(name), Cell(_format(score[name], kind)), Cell(meanings[name]))
        for name, kind in _SCORE_ROWS
        if has_value(score[name])
    )
    heads = (
        Column("figure", number=False, firm=True),
        Column("value"),
        Column("meaning", number=False),
    )
    more = f".detail has all {len(score)} figures (docs/scores.md)."
    return FrameDisplay(_describe_score(score), Table(heads, rows), (more,))


def _describe_score(score: pd.Series) -> str:
    figure: dict[str, Any] = {str(n): v if has_value(v) else None for n, v in score.items()}
    cost = "cost unknown" if figure["cost_usd"] is None else format_usd(figure["cost_usd"])
    calls = "" if figure["calls_n"] is None else f" for {pluralize(int(figure['calls_n']), 'call')}"
    compactions_n, loss = figure["compactions_n"], figure.get("needed_later_loss")
    compactions = (
        "" if compactions_n is None else f", {pluralize(int(compactions_n), 'compaction')}"
    )
    lost = (
        "; what was lost is unknown"
        if loss is None
        else f"; {format_percent(loss)} of what was used again was out of sight by then"
    )
    return f"{score.name}: {cost}{calls}{compactions}{lost}."


def _format(value: Any, kind: str) -> str:
    if kind == "yes":
        return "yes" if value else "no"
    if kind == "usd":
        return format_usd(value)
    return format_percent(value) if kind == "share" else f"{value:,.0f}"
