"""The choice between settings, the cheapest within a bound on loss, and the displays of sweep and
advice that state it.
"""

# A choice between settings has two ends, the cheapest and the one that loses least. The advice is
# the cheapest setting that does not thrash and whose loss is within a bound: the user's, else the
# loss of the record, else none. A cheaper setting beyond the bound is mentioned with its loss.

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from ctxkit._internal.data_frame_display import AnnotatedTable, DisplayColumn, tabulate_columns
from ctxkit._internal.formatting_and_sanitizing import (
    format_percent,
    format_usd,
    has_value,
    pluralize,
    sanitize_line,
)
from ctxkit._internal.tables import Cell, Column
from ctxkit.errors import BadArguments
from ctxkit.metrics.bootstrap_and_paired_tests import FEW_SESSIONS, summarise_runs
from ctxkit.metrics.optimal_trigger_floor_and_wait import EXTRA_LOSS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class SettingOutcome(NamedTuple):
    """The dollars and the needed-later loss of a setting that can be chosen."""

    name: str
    usd: float
    loss: float | None = None
    """Share of the reused items that were out of sight when used; None: unknown."""
    flaw: str = ""
    """Reason why it cannot be the best, as the end of a sentence ("it thrashes")."""
    caution: str = ""
    """What to know of it although it can be the best, in the same form."""


class SettingChoice(NamedTuple):
    """The ends of a choice between settings; None: no setting qualifies."""

    best: SettingOutcome | None
    """The cheapest within the bound."""
    cheapest: SettingOutcome | None
    """The cheapest of all."""
    loses_least: SettingOutcome | None
    max_loss: float | None
    """The bound; None: there is none."""
    bound_origin: str = ""
    """Where the bound comes from, in words; empty: the user gave it."""
    record: SettingOutcome | None = None
    """The record, where it is among the settings."""
    outcomes_n: int = 0
    """Settings with a known cost that fit the window, the record among them."""

    @property
    def sentence(self) -> str:
        """The choice in words, with dollars and losses."""
        if self.cheapest is None:
            return "Nothing can be chosen: no setting that fits the window has a known cost."
        if self.outcomes_n == 1 and self.cheapest == self.record:
            return (
                "Nothing can be chosen: no setting that fits the window has a known cost, the"
                f" record {_describe(self.record, with_name=False)}."
            )
        first = self.best
        if self.max_loss is None:
            first = self.best or self.cheapest
            sound = "" if first == self.cheapest else " that does not thrash"
            start = f"Cheapest{sound}: {_describe(first)}"
        else:
            whose = f" ({self.bound_origin})" if self.bound_origin else ""
            bound = f"no more than {format_percent(self.max_loss)}{whose}"
            if self.best is None:
                sound = " and has no drawback" if self._has_flawed_within() else ""
                start = f"No setting loses {bound}{sound}"
            elif self.best == self.record:
                start = (
                    f"Nothing that loses {bound} is cheaper than the record:"
                    f" {_describe(self.best, with_name=False)}"
                )
            else:
                start = f"Cheapest of those that lose {bound}: {_describe(self.best)}"
        return f"{start}.{self._describe_ends(first)}"

    def name_ends(self, rules: str) -> list[tuple[str, str]]:
        """Return words and tone ("good" or "") for each that it is: best, cheapest, loses least.

        Args:
            rules: the name of the setting.
        """
        is_best, is_cheapest, loses_least = (
            end is not None and end.name == rules
            for end in (self.best, self.cheapest, self.loses_least)
        )
        words = []
        if is_cheapest and not is_best and self.cheapest is not None:
            loss = self.cheapest.loss
            much = "" if loss is None else f", {format_percent(loss)} lost"
            words.append((f"cheapest of all{much}", ""))
        if is_best:
            within = "within the bound" if self.max_loss is not None else "that does not thrash"
            words.append(("cheapest" if is_cheapest else f"cheapest {within}", "good"))
        if loses_least:
            words.append(("loses least", "good"))
        return words

    def _has_flawed_within(self) -> bool:
        least = self.loses_least
        return (
            least is not None
            and least.loss is not None
            and self.max_loss is not None
            and least.loss <= self.max_loss
        )

    def _describe_ends(self, first: SettingOutcome | None) -> str:
        """Describe the ends of the choice that were not described first."""
        out = ""
        if self.cheapest not in (None, first):
            out += f" Cheapest of all: {_describe(self.cheapest)}."
        if self.loses_least not in (None, first, self.cheapest):
            out += f" Loses least: {_describe(self.loses_least)}."
        elif self.loses_least not in (None, first):
            out += " No other loses less."
        return out


def choose_setting(
    outcomes: Sequence[SettingOutcome],
    max_loss: float | None = None,
    *,
    record: SettingOutcome | None = None,
    bound_origin: str = "",
) -> SettingChoice:
    """Return the ends of the choice between some settings.

    Args:
        outcomes: the settings that can be chosen, including the record if it can be chosen.
        max_loss: share of the reused items that may be lost; None: the loss of the record.
        record: the record, whose loss is the default bound.
        bound_origin: where `max_loss` comes from, in words; empty: the user gave it.

    Returns:
        The cheapest within the bound, the cheapest of all and the one that loses least; None in
        place of one that no setting qualifies for.

    Raises:
        BadArguments: `max_loss` is not a share.

    Example:
        >>> from ctxkit.experiments import setting_choice_and_sweep_display as choice
        >>> cheap = choice.SettingOutcome("a", 1.0, 0.4)
        >>> safe = choice.SettingOutcome("b", 2.0, 0.1)
        >>> choice.choose_setting([cheap, safe], max_loss=0.2).best.name
        'b'
    """
    check_max_loss(max_loss)
    if max_loss is None and record is not None:
        max_loss, bound_origin = record.loss, "as the record did"
    by_cost = sorted(outcomes, key=lambda o: (o.usd, o.loss or 0.0))
    sound = [o for o in by_cost if not o.flaw]
    within = [o for o in sound if max_loss is None or (o.loss is not None and o.loss <= max_loss)]
    with_loss = [o for o in by_cost if o.loss is not None]
    return SettingChoice(
        best=within[0] if within else None,
        cheapest=by_cost[0] if by_cost else None,
        loses_least=min(with_loss, key=lambda o: (o.loss, o.usd), default=None),
        max_loss=max_loss,
        bound_origin=bound_origin,
        record=record,
        outcomes_n=len(by_cost),
    )


def check_max_loss(max_loss: float | None) -> None:
    """Refuse a bound that is not a share.

    Args:
        max_loss: share of the items needed later that may be lost; None: no bound is given.

    Raises:
        BadArguments: the bound is not between 0 and 1.
    """
    if max_loss is not None and (isinstance(max_loss, bool) or not 0 <= max_loss <= 1):
        raise BadArguments(f"max_loss is a share from 0 to 1, as 0.2, not {max_loss!r}.")


def _describe(outcome: SettingOutcome | None, *, with_name: bool = True) -> str:
    if outcome is None:
        return ""
    lost = "loss unknown" if outcome.loss is None else f"{format_percent(outcome.loss)} lost"
    name = f"{sanitize_line(outcome.name, 60)}, " if with_name else ""
    drawback = outcome.flaw or outcome.caution
    but = f", but {drawback}" if drawback else ""
    return f"{name}{format_usd(outcome.usd)}, {lost}{but}"


def make_thrashing_verdict(words_and_tones: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the words and tone of a setting that thrashes.

    Args:
        words_and_tones: what else the choice calls the setting (`SettingChoice.name_ends`).
    """
    words = [
        word.partition(",")[0] for word, _ in words_and_tones
    ]  # its loss stands in a column of its own
    return "; ".join([*filter(None, [", ".join(words)]), "thrashes"]), "bad"


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
    DisplayColumn("saved_usd", "saved", "usd", "against no compaction at all, a session"),
    DisplayColumn("saved_usd_low", "from", "usd", "lower end of its 90 % interval", spare=True),
    DisplayColumn("saved_usd_high", "to", "usd", "upper end of it", spare=True),
    DisplayColumn("needed_later_loss", "lost", "share", _LOST),
    DisplayColumn(
        "not_paid_back_n", "not paid back", "count", "the next one came before they had paid"
    ),
)
_VERDICT_COLUMN = Column("verdict", "in a word", number=False, firm=True)
_INTERVAL_KEYS = ("_low", "_high")
_SAVED_NOTE = "Saved: against no compaction at all; ck.compare measures against the record."
_MAX_NOTES = 3
"""Most notes on settings that a sweep shows; `.detail` has all."""


@dataclass(frozen=True)
class SweepDisplay:
    """Shows a sweep: its settings by mean cost, and the cheapest within a bound on loss."""

    max_loss: float | None = None

    def __call__(self, runs: pd.DataFrame) -> AnnotatedTable:
        """Return the display."""
        summary = summarise_runs(pd.DataFrame(runs)).sort_values("cost_usd", kind="stable")
        over = _over_the_window(runs)
        outcomes = _note_thrashing(_list_outcomes(summary, over), runs)
        choice = choose_setting(outcomes, self.max_loss)
        has_few = runs["session"].nunique() < FEW_SESSIONS
        columns = _without_intervals(SWEEP_COLUMNS) if has_few else SWEEP_COLUMNS
        flaws = {o.name: o.flaw for o in outcomes}
        table = tabulate_columns(summary, columns)
        rows = [
            _add_verdict(cells, rules, choice, flaws.get(rules, ""), is_over=rules in over)
            for cells, rules in zip(table.rows, summary["rules"].astype(str), strict=False)
        ]
        table = replace(table, heads=(*table.heads, _VERDICT_COLUMN), rows=tuple(rows))
        verdict = " ".join([choice.sentence, *_describe_sweep(runs)])
        return AnnotatedTable(verdict, table, (".detail has every run and every figure.",))


def _without_intervals(columns: tuple[DisplayColumn, ...]) -> tuple[DisplayColumn, ...]:
    """Return columns without intervals, which the mean of a few sessions does not have."""
    return tuple(c for c in columns if not c.key.endswith(_INTERVAL_KEYS))


def _add_verdict(
    cells: tuple[Cell, ...], rules: str, choice: SettingChoice, flaw: str, *, is_over: bool
) -> tuple[Cell, ...]:
    """Return a row with its verdict; one that does not fit the window is grey."""
    if is_over:
        grey = (cell._replace(tone="grey") for cell in cells)
        return (*grey, Cell("over window, left out", None, "", "grey"))
    ends = choice.name_ends(rules)
    word, tone = ", ".join(word for word, _ in ends), ends[0][1] if ends else ""
    if flaw:
        word, tone = make_thrashing_verdict(ends)
    return (*cells, Cell(word, None, flaw, tone))


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


def display_advice(advice: pd.DataFrame) -> AnnotatedTable:
    """Return the display of advice: the sentence of the cheapest advised setting above all."""
    rows = advice.to_dict("records")
    advised = next((row["advice"] for row in rows if row["advised"]), None)
    if not advice.empty and rows[0]["sessions_n"] < FEW_SESSIONS:
        # one reason stands against all rows
        columns = tuple(c for c in _without_intervals(ADVICE_COLUMNS) if c.key != "advised")
        table = tabulate_columns(advice, columns)
        return AnnotatedTable(_describe_few(advice), table, (_SAVED_NOTE,))
    verdict = advised or _describe_no_advice(advice)
    others = tuple(row["advice"] for row in rows if row["advice"] != advised)
    table = tabulate_columns(advice, ADVICE_COLUMNS)
    return AnnotatedTable(verdict, table, (_SAVED_NOTE, *others))


def _describe_few(advice: pd.DataFrame) -> str:
    n = int(advice["sessions_n"].iloc[0])
    these = "this one session" if n == 1 else f"these {n} sessions"
    return (
        f"{_choose_from(advice).sentence} This holds for {these} and says little about the next:"
        f" advice needs {FEW_SESSIONS}."
    )


def _choose_from(advice: pd.DataFrame) -> SettingChoice:
    max_loss = advice["max_loss"].iloc[0]
    if not has_value(max_loss):
        return choose_setting(_list_outcomes(advice))
    origin = (
        f"{100 * EXTRA_LOSS:g} points above the {format_percent(max_loss - EXTRA_LOSS)} that"
        " compacting at the window puts at stake"
    )
    return choose_setting(_list_outcomes(advice), float(max_loss), bound_origin=origin)


def _describe_no_advice(advice: pd.DataFrame) -> str:
    if advice.empty:
        return "Nothing is advised: no setting has a cost on every session."
    return f"Nothing is advised; the table says why. {_choose_from(advice).sentence}"
