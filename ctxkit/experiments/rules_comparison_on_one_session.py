"""Comparison of one session under several rules (`ctxkit.compare`): scores, table and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

import pandas as pd

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_count,
    format_percent,
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
    check_max_loss,
)
from ctxkit.experiments.setting_verdicts_and_summary_table import (
    RECORDED_LABEL,
    choose_setting_from_frame,
    make_summary_table,
)
from ctxkit.experiments.sweep_runs import resolve_settings, run_settings
from ctxkit.experiments.sweep_workers import SessionRunner, SweepScoreOptions
from ctxkit.formats.sessions_from_arguments import as_session
from ctxkit.metrics.run_elongation_from_studies import (
    INTERVAL_LEVEL,
    NOISE_FLOOR,
    load_closed_loop_runs,
)
from ctxkit.session.titles import get_title
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.engine import RulesRun
    from ctxkit.experiments.setting_grids_and_labels import RejectedSetting, RulesArgument
    from ctxkit.formats.sessions_from_arguments import SessionLike
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.session.session import Session
    from ctxkit.teams.prompts_under_other_views import ViewComparison


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
        cause = _describe_unpriced_model(record) if record.has_usage else "the log has no usage"
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
        that `teams.prompts_under_other_views.compare_views` returns.

    Raises:
        BadArguments: the session or the rules cannot be understood, or there are no rules.
        UnknownName: a name is unknown; the sentence names the nearest one.

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
        from ctxkit.teams.prompts_under_other_views import compare_views

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
        self._runs: dict[int, tuple[Any, RulesRun]] = {}

    def run(self, rules: Rules | RejectedSetting) -> RulesRun:
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


def _describe_unpriced_model(record: Session) -> str:
    """Return the words that name the first model of a session's calls that has no price."""
    models = dict.fromkeys(call.message.model or record.model for call in record.calls)
    model = next((m for m in models if price(m) is None), None)
    return f"model {sanitize_line(model, 80)!r} has no price" if model else "no model is named"


def _describe_closed_loops() -> str:
    """Return the families of policies that closed loops were run under, with the longest run."""
    longest: dict[str, float] = {}
    for run in load_closed_loop_runs():
        longest[run.kind] = max(run.ratio, longest.get(run.kind, 0.0))
    return ", ".join(f"{kind} (up to {ratio:.2f} times)" for kind, ratio in longest.items())


def _format_share(value: Any) -> str:
    return format_percent(value, 1) if abs(value) < 0.1 else format_percent(value)
