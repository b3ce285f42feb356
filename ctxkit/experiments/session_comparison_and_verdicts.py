"""Comparison of one session under several rules (`ctxkit.compare`): scores, table and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import pandas as pd

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_change,
    format_count,
    format_percent,
    format_tokens,
    format_usd,
    has_value,
    sanitize_line,
    wrap_lines,
)
from ctxkit._internal.tables import TERMINAL_COLUMNS as WIDE
from ctxkit._internal.tables import TEXT_COLOR_CSS, Cell, Column, Table
from ctxkit.engine.cache_model.input_cost_prediction import describe_prediction
from ctxkit.engine.replay import make_session_from_run
from ctxkit.experiments.cost_and_loss_scores import score_session
from ctxkit.experiments.score_columns import SCORE_COLUMNS, build_score_frame
from ctxkit.experiments.setting_choice_and_sweep_display import (
    SettingChoice,
    SettingOutcome,
    check_max_loss,
    choose_setting,
    mark_thrashing,
)
from ctxkit.experiments.sweep_runs import resolve_settings, run_settings
from ctxkit.experiments.sweep_workers import SessionRunner, SweepScoreOptions
from ctxkit.formats.sessions_from_arguments import as_session
from ctxkit.metrics.bootstrap_and_paired_tests import find_pareto_front
from ctxkit.metrics.run_elongation import INTERVAL_LEVEL, NOISE_FLOOR, load_closed_loop_runs
from ctxkit.session.titles import get_title

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ctxkit.engine import Run
    from ctxkit.experiments.setting_grids_and_labels import RejectedSetting, RulesArgument
    from ctxkit.formats.sessions_from_arguments import SessionLike
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.session.session import Session
    from ctxkit.teams.context_view_comparison import ViewComparison


DETAIL_HEADS = {
    "prompt_tokens": "prompt tokens",
    "peak_tokens": "peak",
    "cost_usd": "cost",
    "cost_low_usd": "80 %: from",
    "cost_high_usd": "to",
    "real_run_low_usd": "of real runs",
    "vs_recorded": "against the record",
    "needed_later_loss": "needed, lost",
    "summary_recall": "kept by summaries",
    "compactions_n": "compactions",
    "token_savings": "saved: tokens",
    "message_savings": "messages",
    "summary_tokens": "summaries",
    "is_thrashing": "is_thrashing",
    "not_paid_back_n": "not paid back",
    "suppressed_compactions_n": "suppressed",
    "hidden_messages_n": "hidden messages",
    "hidden_results_n": "results",
}
"""Columns of `Comparison.detail` and their headings; the frame has all score columns."""
_PRICE_TOLERANCE = 0.01
"""Relative difference up to which the prices of a log and of the price table count as equal."""
_SHARES = ("token_savings", "message_savings", "needed_later_loss", "summary_recall")
_VERDICT_ORDER = {"cheaper": -1.0, "within noise": 0.0, "dearer": 1.0}
_DETAIL_GROUPS = {
    "cost_usd": "dollars", "cost_low_usd": "dollars", "cost_high_usd": "dollars",
    "real_run_low_usd": "dollars", "vs_recorded": "dollars",
    "needed_later_loss": "loss", "summary_recall": "loss",
    "token_savings": "saved by compactions", "message_savings": "saved by compactions",
    "summary_tokens": "saved by compactions",
    "hidden_messages_n": "hidden", "hidden_results_n": "hidden",
}  # fmt: skip
"""Group heading of each column of `Comparison.detail`."""
_COLUMN_MEANINGS = {c.name: c.meaning for c in SCORE_COLUMNS}


class Comparison(pd.DataFrame):
    """A DataFrame of scores: one row per setting, the recorded session first.

    The index holds the names of the rules; the columns are defined in
    `experiments.score_columns.SCORE_COLUMNS`. Methods of DataFrame return plain frames. The display
    shows the chief figures and a verdict for each setting; `detail` has all figures. `replays` maps
    each name to its session, which ``plots.growth(comparison)`` charts.

    Example:
        >>> import ctxkit as ck
        >>> table = ck.compare(ck.samples.path("billing"), ["none"], progress=False)
        >>> table.index.tolist()
        ['recorded', 'none']
    """

    _metadata = ["replays", "max_loss"]  # noqa: RUF012  pandas' own way to carry attributes

    replays: Mapping[str, Session]
    max_loss: float | None
    """The bound on loss that was asked for; None: what the record lost."""

    @property
    def choice(self) -> SettingChoice:
        """The cheapest setting within the bound on loss, and both ends."""
        return choose_setting_from_frame(self, getattr(self, "max_loss", None))

    @property
    def verdict(self) -> str:
        """The choice in one sentence, with dollars and losses, and why no dollars are known."""
        return f"{self.choice.sentence}{self._explain_missing_costs()}"

    def _explain_missing_costs(self) -> str:
        record = self.replays.get(RECORDED_LABEL) if hasattr(self, "replays") else None
        if record is None or self.loc[self["rules"] != RECORDED_LABEL, "cost_usd"].notna().any():
            return ""
        model = sanitize_line(record.model or "without a name", 80)
        cause = f"model {model!r} has no price" if record.has_usage else "the log has no usage"
        return f" As {cause}, settings are compared by size and loss alone."

    @property
    def caption(self) -> str:
        """The assumptions behind the figures, in a few sentences."""
        first = self.iloc[0]
        names = ("prediction_error", "prediction_low", "prediction_high", "prediction_note")
        prediction = describe_prediction(
            *(first[n] if has_value(first[n]) else None for n in names)
        )
        unexplained = (
            f" {_format_share(first['unexplained_miss_share'])} of the calls missed the cache "
            "without an explanation."
            if has_value(first["unexplained_miss_share"])
            else ""
        )
        return (
            f"{format_count(first['calls_n'])} calls. Replays keep the recorded trajectory: "
            "they tell the bill and what was out of sight, not what the agent would have done. "
            f"{prediction}{unexplained} "
            f"Summaries are billed as fresh input and output."
            f"{self._describe_prices()}{self._describe_interval()}"
        )

    def _describe_interval(self) -> str:
        """Return the sentence on the cost intervals; empty where there are none."""
        if not self["real_run_low_usd"].notna().any():
            return ""
        return (
            " Of real runs: the cost with as many calls as such policies were found to take "
            f"({format_percent(INTERVAL_LEVEL)} interval of published studies, widened to the"
            f" closed-loop runs of scripted agents, of {_describe_closed_loops()}). Within noise:"
            f" the interval comes within {format_percent(NOISE_FLOOR)} of the record, which is"
            " noise."
        )

    def _describe_prices(self) -> str:
        """Return the sentence on a log whose prices differ from the price table; else empty."""
        log_usd, list_price_usd = self["cost_usd"].iloc[0], self["list_price_usd"].iloc[0]
        if (
            not (has_value(log_usd) and has_value(list_price_usd))
            or abs(log_usd - list_price_usd) <= _PRICE_TOLERANCE * log_usd
        ):
            return ""
        return (
            " By the table of prices, as replays are billed, the record would cost "
            f"${list_price_usd:,.4g}."
        )

    @property
    def notes(self) -> list[str]:
        """What the session's log does not record or records wrongly."""
        record = self.replays.get("recorded") if hasattr(self, "replays") else None
        return [] if record is None else list(record.notes)

    @property
    def detail(self) -> Table:
        """All figures that judge a setting, as a table."""
        heads = [
            Column(h, _COLUMN_MEANINGS[c], group=_DETAIL_GROUPS.get(c, ""))
            for c, h in DETAIL_HEADS.items()
        ]
        rows = [
            (
                Cell(sanitize_line(str(name), 80)),
                *(Cell(_format_cell(c, row), _sort_value(c, row[c])) for c in DETAIL_HEADS),
            )
            for name, row in self.iterrows()
        ]
        return Table(
            (Column("rules", _COLUMN_MEANINGS["rules"], number=False), *heads), tuple(rows)
        )

    @property
    def summary(self) -> Table:
        """The chief figures, the cheapest first."""
        return make_summary_table(self, getattr(self, "max_loss", None))

    @property
    def _oddities(self) -> list[tuple[str, str]]:
        """The settings that failed, or of which something is odd, each with a sentence."""
        columns = self[["error", "note"]].items()
        return [
            (str(n), str(t)) for _, column in columns for n, t in column.items() if has_value(t)
        ]

    def to_text(self, *, why: bool = False) -> str:
        """Return the display as lines of text, 80 columns wide.

        Args:
            why: add what the columns mean and what the figures rest on.
        """
        errors = [
            f"{sanitize_line(n, 60)}: {sanitize_line(text, 300)}" for n, text in self._oddities
        ]
        table = self.summary
        notes = [f"Note: {sanitize_line(n, 400)}" for n in self.notes]
        below = [*errors, *([table.legend, self.caption, *notes] if why else [])]
        lines = [*wrap_lines(self.verdict, WIDE), "", self._make_title(), table.to_text()]
        return "\n".join(
            [*lines, *(line for text in below for line in ["", *wrap_lines(text, WIDE)])]
        )

    def _make_title(self) -> str:
        record = self.replays.get("recorded") if hasattr(self, "replays") else None
        return (
            get_title(record, WIDE)
            if record is not None
            else sanitize_line(str(self["session"].iloc[0]), WIDE)
        )

    def _repr_html_(self) -> str:
        errors = "".join(
            f"<li>{escape_html(n, 60)}: {escape_html(text, 300)}</li>" for n, text in self._oddities
        )
        notes = "".join(f"<br>Note: {escape_html(n, 400)}" for n in self.notes)
        basis = (
            "<details><summary>What these figures rest"
            f" on</summary>{escape_html(self.caption, 1300)}</details>"
        )
        full = f"<details><summary>All figures</summary>{self.detail.to_html()}</details>"
        hover = escape_html(f"id {sanitize_line(str(self['session'].iloc[0]), 120)}", 200)
        return (
            f'<div class="ctxkit-comparison {NO_MATHJAX}" style="{TEXT_COLOR_CSS}">'
            f'<strong style="font-size:120%">{escape_html(self.verdict, 600)}</strong>'
            f'<div title="{hover}">{escape_html(self._make_title(), 120)}</div>'
            f"{self.summary.to_html()}{f'<ul>{errors}</ul>' if errors else ''}"
            f"{basis}{full}{notes}</div>"
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
    max_loss: float | None = ...,
) -> Comparison: ...
def compare(
    session: SessionLike,
    rules: RulesArgument | Mapping[str, Any] = "all",
    *,
    loss: bool = True,
    reuse: bool = False,
    progress: bool = True,
    max_loss: float | None = None,
) -> Comparison | ViewComparison:
    """Score a session as recorded and under each of several rules.

    In a notebook or console, work that would take more than a few seconds runs on all cores. After
    an interrupt (Ctrl-C) the rows finished so far are returned and
    ``frame.attrs["interrupted"]`` is True.

    Args:
        session: a recorded session, the path of a log, or a list of messages. For a replay, its
            recorded session is used.
        rules: a list of rules, policies, preset names or policy chains, or ``"all"`` for every
            preset. For a team also ``"views"`` or a dictionary of views.
        loss: also compute the columns of information loss.
        reuse: bill the call that writes a summary as reading the cached prompt; otherwise it sends
            what it summarises as fresh input.
        progress: show a progress bar where the work takes longer than a second.
        max_loss: share of what was used again that a setting may lose to be called the cheapest, 0
            to 1; None: what the record lost.

    Returns:
        A `Comparison`: one row per setting, columns as in `score`. For views of a team, the frame
        that `teams.context_view_comparison.compare_views` returns.

    Raises:
        BadArguments: the session or the rules cannot be understood, or there are no rules.
        UnknownPreset: a name is unknown; the sentence names the nearest one.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path())
        >>> frame = ck.compare(session, ["none"], loss=False, progress=False)
        >>> frame["compactions_n"].tolist()
        [2, 0]
    """
    session = as_session(session)
    check_max_loss(max_loss)
    if isinstance(rules, Mapping) or (isinstance(rules, str) and rules == "views"):
        from ctxkit.teams.context_view_comparison import compare_views

        return compare_views(session, rules, loss=loss, reuse=reuse)
    settings, runner = resolve_settings(rules), _CachingRunner(session.origin or session)
    recorded = score_session(runner.session, runner.base, loss=loss, reuse=reuse)
    recorded_sessions, options = [runner.session], SweepScoreOptions(loss, reuse)
    replay_rows, interrupted = run_settings(
        recorded_sessions,
        settings,
        options,
        "comparison",
        progress=progress,
        make_runner=lambda _: runner,
    )
    rows = [recorded, *replay_rows]
    frame = Comparison(build_score_frame(rows).set_axis([r["rules"] for r in rows], axis=0))
    succeeded = {row["rules"] for row in replay_rows if not row.get("error")}
    frame.replays = LazyReplays(
        runner, {s.label: s.rules for s in settings if s.label in succeeded}
    )
    frame.max_loss = max_loss
    frame.attrs["interrupted"] = interrupted
    return frame


class _CachingRunner(SessionRunner):
    """A runner that makes each run once and returns it again on later requests."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._runs: dict[int, tuple[Any, Run]] = {}

    def run(self, rules: Rules | RejectedSetting) -> Run:
        """Return the run of the session under rules, made at the first request."""
        if id(rules) not in self._runs:
            self._runs[id(rules)] = rules, super().run(rules)
        return self._runs[id(rules)][1]


class LazyReplays(Mapping[str, "Session"]):
    """Mapping of names to the recorded session and its replays, each made at first access."""

    def __init__(self, runner: SessionRunner, rules: Mapping[str, Rules | RejectedSetting]) -> None:
        self._runner, self._rules = runner, rules
        self._sessions = {"recorded": runner.session}

    def __getitem__(self, name: str) -> Session:
        if name not in self._sessions:
            run = self._runner.run(self._rules[name])
            self._sessions[name] = make_session_from_run(self._runner.session, run)
        return self._sessions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(["recorded", *self._rules])

    def __len__(self) -> int:
        return 1 + len(self._rules)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _format_cell(column: str, row: Any) -> str:
    """Return the text of a cell; the interval of real runs takes one cell."""
    if column != "real_run_low_usd" or not has_value(row[column]):
        return _format_value(column, row[column])
    low, high = row[column], row["real_run_high_usd"]
    return _format_value("cost_usd", low) + (f"–{high:,.2f}" if high > low else "")


def _sort_value(column: str, value: Any) -> float | None:
    """Return the number by which a cell is sorted; None where the value is missing."""
    if not has_value(value):
        return None
    return _VERDICT_ORDER.get(str(value)) if column == "vs_recorded" else float(value)


def _format_value(column: str, value: Any) -> str:
    if not has_value(value):
        return ""
    if column == "is_thrashing":
        return "yes" if value else "no"
    if column in _SHARES:
        return _format_share(value)
    if column == "vs_recorded":
        return sanitize_line(str(value), 40)
    return f"${value:,.2f}" if column.endswith("_usd") else format_count(value)


def _describe_closed_loops() -> str:
    """Return the families of policies that closed loops were run under, with the longest run."""
    longest: dict[str, float] = {}
    for run in load_closed_loop_runs():
        longest[run.kind] = max(run.ratio, longest.get(run.kind, 0.0))
    return ", ".join(f"{kind} (up to {ratio:.2f} times)" for kind, ratio in longest.items())


def _format_share(value: Any) -> str:
    return format_percent(value, 1) if abs(value) < 0.1 else format_percent(value)


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
# a row of the table, which keeps the verdict with most words.
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
        verdicts.append(mark_thrashing(ends))
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
        verdict = verdicts[i] if len(group) == 1 else _merge_verdicts([verdicts[k] for k in group])
        table_rows.append(
            _make_summary_row([names[k] for k in group], rows[i], verdict, recorded_usd)
        )
    return Table(SUMMARY_HEADS, tuple(table_rows), legend=SUMMARY_LEGEND)


def _merge_verdicts(verdicts: Iterable[SettingVerdict]) -> SettingVerdict:
    """Return the verdict that stands for rows with equal figures: the one with most words."""
    return max(verdicts, key=lambda v: (v.word.startswith("cheapest"), len(v.all)))


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
    if (
        has_value(row["cost_low_usd"])
        and has_value(row["cost_high_usd"])
        and row["cost_low_usd"] < row["cost_high_usd"]
    ):
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
