"""`ctxkit.compare`: one session under several rules, with a summary table and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import pandas as pd

from ctxkit._internal.formatting import (
    NO_MATHJAX,
    escape_html,
    format_change,
    format_count,
    format_percent,
    format_tokens,
    format_usd,
    has_value,
    sanitize_line,
)
from ctxkit._internal.tables import TERMINAL_COLUMNS as WIDE
from ctxkit._internal.tables import TEXT_COLOR_CSS, Cell, Column, Table
from ctxkit.engine.cache_model.prediction import describe_prediction
from ctxkit.engine.replay import session_from_run
from ctxkit.experiments.score_columns import SCORE_COLUMNS, build_score_frame
from ctxkit.experiments.scores import score_session
from ctxkit.experiments.session_runner import RunOptions, SessionRunner
from ctxkit.experiments.sweep_runs import resolve_settings, run_settings
from ctxkit.formats.inputs import as_session
from ctxkit.metrics.elongation import INTERVAL_LEVEL, NOISE_FLOOR
from ctxkit.metrics.stats import find_pareto_front
from ctxkit.session.titles import get_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.engine import Run
    from ctxkit.experiments.grids import RejectedSetting, RulesArgument
    from ctxkit.formats.inputs import SessionLike
    from ctxkit.policies.rules import Rules
    from ctxkit.session.session import Session
    from ctxkit.teams.views import ViewComparison


DETAIL_HEADS = {
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
    "suppressed_n": "held back",
    "hidden_messages_n": "hidden messages",
    "hidden_results_n": "results",
}
"""Columns of the display and their heads; the frame has them all."""
_PRICE_TOLERANCE = 0.01
"""Own prices of a log and those of the table that differ by less are the same."""
_SHARES = ("token_savings", "message_savings", "needed_later_loss", "summary_recall")
_VERDICT_ORDER = {"cheaper": -1.0, "not told apart": 0.0, "dearer": 1.0}
_DETAIL_GROUPS = {
    "cost_usd": "dollars", "cost_low_usd": "dollars", "cost_high_usd": "dollars",
    "real_low_usd": "dollars", "told_apart": "dollars",
    "needed_later_loss": "loss", "summary_recall": "loss",
    "token_savings": "saved by compactions", "message_savings": "saved by compactions",
    "summary_tokens": "saved by compactions",
    "hidden_messages_n": "hidden", "hidden_results_n": "hidden",
}  # fmt: skip
"""Heads that stand together, and under what."""
_COLUMN_MEANINGS = {c.name: c.meaning for c in SCORE_COLUMNS}


class Comparison(pd.DataFrame):
    """A frame of scores, one row a setting, the recorded session first, indexed by the names of the
    rules.

    It takes every verb of a DataFrame (whose results are plain frames). Its display says the chief
    figures and one word of each setting, in the order asked for until a head is clicked; `detail`
    has the rest. `replays` holds the session of each row; ``plots.growth(comparison)`` charts them.
    """

    _metadata = ["replays"]  # noqa: RUF012  pandas' own way to carry attributes

    replays: Mapping[str, Session]

    @property
    def caption(self) -> str:
        """What the figures rest on, in a sentence or two."""
        first = self.iloc[0]
        names = ("prediction_error", "prediction_low", "prediction_high", "prediction_note")
        how = describe_prediction(*(first[n] if has_value(first[n]) else None for n in names))
        riddles = (
            f" {_percent(first['unexplained_misses'])} of the calls missed the cache without an "
            "explanation."
            if has_value(first["unexplained_misses"])
            else ""
        )
        return (
            f"{format_count(first['calls_n'])} calls. Replays keep the recorded trajectory: "
            "they tell the bill and what was out of sight, not what the agent would have done. "
            f"{how}{riddles} "
            f"Summaries are billed as fresh input and output.{self._prices()}{self._apart()}"
        )

    def _apart(self) -> str:
        """Say what the intervals of the costs are of, where there are some."""
        if not self["real_low_usd"].notna().any():
            return ""
        return (
            " Of real runs: the cost with as many calls as such policies were found to take "
            f"({INTERVAL_LEVEL:.0%} interval). Not told apart: the interval comes within "
            f"{NOISE_FLOOR:.0%} of the "
            "record, which is noise."
        )

    def _prices(self) -> str:
        """Say where the log's own prices are others than the table's."""
        own, table = self["cost_usd"].iloc[0], self["table_usd"].iloc[0]
        if not (has_value(own) and has_value(table)) or abs(own - table) <= _PRICE_TOLERANCE * own:
            return ""
        return (
            f" By the table of prices, as replays are billed, the record would cost ${table:,.4g}."
        )

    @property
    def notes(self) -> list[str]:
        """What the session's log cannot say or says wrongly."""
        told = self.replays.get("recorded") if hasattr(self, "replays") else None
        return [] if told is None else list(told.notes)

    @property
    def detail(self) -> Table:
        """Every figure that says how a setting did, as a table."""
        heads = [
            Column(h, _COLUMN_MEANINGS[c], group=_DETAIL_GROUPS.get(c, ""))
            for c, h in DETAIL_HEADS.items()
        ]
        rows = [
            (
                Cell(sanitize_line(str(name), 80)),
                *(Cell(_cell_text(c, row), _sort_value(c, row[c])) for c in DETAIL_HEADS),
            )
            for name, row in self.iterrows()
        ]
        return Table(
            (Column("rules", _COLUMN_MEANINGS["rules"], number=False), *heads), tuple(rows)
        )

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        errors = [
            f"{sanitize_line(str(n), 60)}: {sanitize_line(str(e), 300)}"
            for n, e in self["error"].items()
            if has_value(e)
        ]
        made = make_summary_table(self)
        under = [
            *errors,
            made.legend,
            self.caption,
            *(f"Note: {sanitize_line(n, 400)}" for n in self.notes),
        ]
        return "\n".join(
            [
                self._title(),
                "",
                made.to_text(),
                "",
                *(w for told in under for w in wrap(told, WIDE)),
            ]
        )

    def _title(self) -> str:
        told = self.replays.get("recorded") if hasattr(self, "replays") else None
        return (
            get_title(told, WIDE)
            if told is not None
            else sanitize_line(str(self["session"].iloc[0]), WIDE)
        )

    def _repr_html_(self) -> str:
        errors = "".join(
            f"<li>{escape_html(str(n), 60)}: {escape_html(str(e), 300)}</li>"
            for n, e in self["error"].items()
            if has_value(e)
        )
        told = "".join(f"<br>Note: {escape_html(n, 400)}" for n in self.notes)
        basis = (
            "<details><summary>What these figures rest"
            f" on</summary>{escape_html(self.caption, 1300)}</details>"
        )
        full = f"<details><summary>All figures</summary>{self.detail.to_html()}</details>"
        hover = escape_html(f"id {sanitize_line(str(self['session'].iloc[0]), 120)}", 200)
        return (
            f'<div class="ctxkit-comparison {NO_MATHJAX}" style="{TEXT_COLOR_CSS}">'
            f'<strong title="{hover}">{escape_html(self._title(), 120)}</strong>'
            f"{make_summary_table(self).to_html()}{f'<ul>{errors}</ul>' if errors else ''}"
            f"{basis}{full}{told}</div>"
        )

    def __repr__(self) -> str:
        return self.to_text()


@overload
def compare(  # type: ignore[overload-overlap]  # "views" is the narrower case
    session: SessionLike,
    rules: Mapping[str, Any] | Literal["views"],
    *,
    loss: bool = ...,
    reuse: bool = ...,
    progress: bool = ...,
) -> ViewComparison: ...
@overload
def compare(
    session: SessionLike,
    rules: RulesArgument = ...,
    *,
    loss: bool = ...,
    reuse: bool = ...,
    progress: bool = ...,
) -> Comparison: ...
def compare(
    session: SessionLike,
    rules: RulesArgument | Mapping[str, Any] = "all",
    *,
    loss: bool = True,
    reuse: bool = False,
    progress: bool = True,
) -> Comparison | ViewComparison:
    """Return a session's score as recorded and under each of several rules, one row each.

    At a prompt, what would take longer than some seconds goes over all cores. Interrupted (Ctrl-C),
    it returns the rows that are done, and says so in ``frame.attrs["interrupted"]``.

    Of a team, `"views"` or a dictionary of views gives a row for each agent and view, as
    `teams.views.compare_views` says.

    Args:
        session: a recorded session, the path of a log, or a list of messages; of a replay the
            recorded one is taken.
        rules: rules, policies, names of presets or chains in a list, or ``"all"`` for every preset;
            of a team also views.
        loss: work out what was lost too.
        reuse: the call that writes a summary reads the cached prompt; else it sends what it
            summarises afresh.
        progress: show a bar where it takes longer than a second.

    Raises:
        BadArguments: it is no session, or there are no rules.
        UnknownPreset: a name means nothing; the sentence names the nearest.
    """
    session = as_session(session)
    if isinstance(rules, Mapping) or (isinstance(rules, str) and rules == "views"):
        from ctxkit.teams.views import compare_views

        return compare_views(session, rules, loss=loss, reuse=reuse)
    settings, bench = resolve_settings(rules), _CachingRunner(session.origin or session)
    recorded = score_session(bench.session, bench.base, loss=loss, reuse=reuse)
    given, options = [bench.session], RunOptions(loss, reuse)
    done, interrupted = run_settings(
        given, settings, options, "comparison", progress=progress, bench=lambda _: bench
    )
    rows = [recorded, *done]
    frame = Comparison(build_score_frame(rows).set_axis([r["rules"] for r in rows], axis=0))
    known = {row["rules"] for row in done if not row.get("error")}
    frame.replays = LazyReplays(bench, {s.label: s.rules for s in settings if s.label in known})
    frame.attrs["interrupted"] = interrupted
    return frame


class _CachingRunner(SessionRunner):
    """A bench that runs rules once: what a worker ran, when it is asked for."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._runs: dict[int, tuple[Any, Run]] = {}

    def run(self, rules: Rules | RejectedSetting) -> Run:
        """Return the run of the session under rules."""
        if id(rules) not in self._runs:
            self._runs[id(rules)] = rules, super().run(rules)
        return self._runs[id(rules)][1]


class LazyReplays(Mapping[str, "Session"]):
    """A recorded session and its replays by name, each made of its run when it is asked for."""

    def __init__(self, bench: SessionRunner, rules: Mapping[str, Rules | RejectedSetting]) -> None:
        self._bench, self._rules = bench, rules
        self._made = {"recorded": bench.session}

    def __getitem__(self, name: str) -> Session:
        if name not in self._made:
            run = self._bench.run(self._rules[name])
            self._made[name] = session_from_run(self._bench.session, run)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(["recorded", *self._rules])

    def __len__(self) -> int:
        return 1 + len(self._rules)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _cell_text(column: str, row: Any) -> str:
    """Return a cell; an interval stands in one, and is sorted by its lower end."""
    if column != "real_low_usd" or not has_value(row[column]):
        return _cell(column, row[column])
    low, high = row[column], row["real_high_usd"]
    return _cell("cost_usd", low) + (f"–{high:,.2f}" if high > low else "")


def _sort_value(column: str, value: Any) -> float | None:
    """Return what a cell is sorted by."""
    if not has_value(value):
        return None
    return _VERDICT_ORDER.get(str(value)) if column == "told_apart" else float(value)


def _cell(column: str, value: Any) -> str:
    if not has_value(value):
        return ""
    if column == "thrash":
        return "yes" if value else "no"
    if column in _SHARES:
        return _percent(value)
    if column == "told_apart":
        return sanitize_line(str(value), 40)
    return f"${value:,.2f}" if column.endswith("_usd") else format_count(value)


def _percent(value: Any) -> str:
    return f"{value:.1%}" if abs(value) < 0.1 else f"{value:.0%}"


RECORDED_LABEL = "recorded"
ON_FRONT = "on the front"
INDISTINGUISHABLE = "not told apart"
SUMMARY_HEADS = (
    Column("rules", "the setting; several that come to the same stand in one row", number=False),
    Column("cost", "dollars of prompts, replies and summaries", group="dollars"),
    Column("change", "the cost against what was recorded", group="dollars"),
    Column("peak", "the largest prompt, in tokens", group="largest prompt", spare=True),
    Column("window", "the largest prompt as a share of the model's window", group="largest prompt"),
    Column("cuts", "compactions", group="compactions"),
    Column(
        "lost",
        "of the items that the record used again, the share that was out of sight by then",
        group="compactions",
    ),
    Column("verdict", "in a word; all that holds when pointed at", number=False, firm=True),
)
SUMMARY_LEGEND = (
    "Change: the cost against the record. Window: the largest prompt as a share of it; in grey what"
    " does not fit. Cuts: compactions. Lost: of the items needed again, the share out of sight by"
    " then. Front: nothing that fits is both cheaper and loses less. Thrashes: compactions follow"
    " each other before they have paid. Not told apart: from the record, as real runs differ by"
    " more. In a notebook a click on a head sorts; .detail has every figure."
)
_MAX_NAMES = 20
"""Letters of a row's names; of longer ones the first is told, and how many more there are."""
_EQUAL_COLUMNS = (
    "prompt_tokens",
    "peak_tokens",
    "cost_usd",
    "cuts_n",
    "hidden_messages_n",
    "needed_later_loss",
)
"""Two settings that agree in these come to the same."""


class SettingVerdict(NamedTuple):
    """What is to be said of a setting in a word, and all that holds of it."""

    word: str
    tone: str = ""
    all: tuple[str, ...] = ()


def judge_settings(frame: pd.DataFrame) -> list[SettingVerdict]:
    """Return the verdict on each row of scores of one session."""
    best, rows = find_pareto_rows(frame), frame.to_dict("records")
    cheapest = min(
        (i for i, on in enumerate(best) if on), key=lambda i: rows[i]["cost_usd"], default=-1
    )
    told = enumerate(zip(rows, best, strict=True))
    return [_judge_setting(row, front=on, cheapest=i == cheapest) for i, (row, on) in told]


def find_pareto_rows(frame: pd.DataFrame) -> list[bool]:
    """Return for each row whether no other one that fits the window is cheaper and loses
    no more.
    """
    fits = frame["over_call"].isna() & frame["error"].isna()
    columns = (frame[c].astype("Float64").where(fits) for c in ("cost_usd", "needed_later_loss"))
    best: list[bool] = find_pareto_front(
        *(c.to_numpy(float, na_value=nan).tolist() for c in columns)
    ).tolist()
    return best


def _judge_setting(row: dict[Any, Any], *, front: bool, cheapest: bool) -> SettingVerdict:
    if has_value(row["error"]):
        return SettingVerdict("failed", "bad", (sanitize_line(str(row["error"]), 300),))
    told: list[tuple[str, str]] = []
    if has_value(row["over_call"]):
        told.append((f"over the window from call {format_count(row['over_call'])}", "grey"))
    if has_value(row["thrash"]) and row["thrash"]:
        told.append(("thrashes", "bad"))
    if front:
        told.append((f"cheapest {ON_FRONT}" if cheapest else ON_FRONT, "good"))
    if row["rules"] == RECORDED_LABEL:
        told.append(("as it was", ""))
    elif has_value(row["told_apart"]):
        apart = sanitize_line(str(row["told_apart"]), 40)
        told.append((apart if apart == INDISTINGUISHABLE else f"{apart} than the record", ""))
    if not told:
        return SettingVerdict("")
    whole = tuple(word for word, _ in told)
    if whole[0].endswith(ON_FRONT) and whole[-1] == INDISTINGUISHABLE:
        return SettingVerdict(f"{whole[0]}, {INDISTINGUISHABLE}", "", whole)
    return SettingVerdict(*told[0], whole)


def group_equal_rows(frame: pd.DataFrame) -> list[list[int]]:
    """Return the places of rows that come to the same, each group at its first; the
    record alone.
    """
    groups: dict[Any, list[int]] = {}
    for i, row in enumerate(frame.to_dict("records")):
        figures = tuple(None if pd.isna(row[c]) else float(row[c]) for c in _EQUAL_COLUMNS)
        alone = row["rules"] == RECORDED_LABEL or has_value(row["error"]) or figures[0] is None
        groups.setdefault((i,) if alone else figures, []).append(i)
    return list(groups.values())


def make_summary_table(frame: pd.DataFrame) -> Table:
    """Return a comparison as a table that reads at a glance."""
    names = [sanitize_line(str(n), 80) for n in frame.index]
    rows, said = frame.to_dict("records"), judge_settings(frame)
    record = next((r["cost_usd"] for r in rows if r["rules"] == RECORDED_LABEL), None)
    made = []
    for group in group_equal_rows(frame):
        i = group[0]
        found = said[i] if len(group) == 1 else _merge_verdicts([said[k] for k in group])
        made.append(_summary_row([names[k] for k in group], rows[i], found, record))
    return Table(SUMMARY_HEADS, tuple(made), legend=SUMMARY_LEGEND)


def _merge_verdicts(found: Iterable[SettingVerdict]) -> SettingVerdict:
    """Return one verdict for rows that come to the same: that of the one that has most to say."""
    return max(found, key=lambda v: (v.word.startswith("cheapest"), len(v.all)))


def _summary_row(
    names: list[str], row: dict[Any, Any], said: SettingVerdict, record: Any
) -> tuple[Cell, ...]:
    tone = "grey" if said.tone == "grey" or has_value(row["error"]) else ""
    cost, peak, window = (row[c] for c in ("cost_usd", "peak_tokens", "window_tokens"))
    first, *others = sorted(names, key=lambda n: (n != "none", len(n)))
    name = ", ".join([first, *others])
    if others and len(name) > _MAX_NAMES:
        name = f"{first} and {len(others)} more"
    replayed = row["rules"] != RECORDED_LABEL and has_value(cost) and has_value(record) and record
    against = cost / record - 1 if replayed else None
    return (
        Cell(name, None, ", ".join(names), tone),
        _box(format_usd(cost) if has_value(cost) else "", cost, tone, _interval_text(row)),
        _box(format_change(against) if has_value(against) else "", against, tone),
        _box(format_tokens(peak) if has_value(peak) else "", peak, tone),
        _window_share(peak, window, tone),
        _box(
            format_count(row["cuts_n"]) if has_value(row["cuts_n"]) else "",
            row["cuts_n"],
            tone,
            _unpaid_text(row),
        ),
        _box(
            format_percent(row["needed_later_loss"]) if has_value(row["needed_later_loss"]) else "",
            row["needed_later_loss"],
            tone,
        ),
        Cell(said.word, None, "; ".join(said.all), said.tone),
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
    out = []
    if (
        has_value(row["cost_low_usd"])
        and has_value(row["cost_high_usd"])
        and row["cost_low_usd"] < row["cost_high_usd"]
    ):
        out.append(
            f"{format_usd(row['cost_low_usd'])} to {format_usd(row['cost_high_usd'])} by what "
            "the cache"
            " model misses"
        )
    if has_value(row["real_low_usd"]):
        out.append(
            f"of real runs {format_usd(row['real_low_usd'])} to {format_usd(row['real_high_usd'])}"
        )
    return "; ".join(out)


def _unpaid_text(row: dict[Any, Any]) -> str:
    n = row["unpaid_cuts_n"]
    return f"{format_count(n)} of them never paid" if has_value(n) and n else ""


def _box(text: str, value: Any, tone: str, hover: str = "") -> Cell:
    return Cell(text, float(value) if has_value(value) else None, hover, tone)
