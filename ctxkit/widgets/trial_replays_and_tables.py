"""One session tried under many settings, and the tables and charts of a trial."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.chart_style import ALERT_TEXT_CSS
from ctxkit._internal.chart_style import TEXT_COLOUR as GREY
from ctxkit._internal.formatting_and_sanitizing import (
    escape_html,
    format_percent,
    format_usd,
    has_value,
    pluralize,
    sanitize_line,
)
from ctxkit.engine import get_run_of_replay, make_log_from_session, run_rules, with_message_ids
from ctxkit.engine.replay import (
    build_log_keeping_recorded_sizes,
    find_context_window,
    make_session_from_run,
)
from ctxkit.errors import CtxkitError
from ctxkit.experiments.cost_and_loss_scores import (
    SessionAnalysisCache,
    map_score_row_to_view_figures,
    map_session_score_to_view_figures,
    score_loss_and_rereads,
    score_run,
    score_session,
)
from ctxkit.metrics.compaction_savings_and_payback import MIN_PROGRESS, get_rules_run_compactions
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.optimal_trigger_floor_and_wait import when_to_compact
from ctxkit.metrics.prompt_sizes_and_contents import get_prompt_sizes as recorded_prompts
from ctxkit.plots.chart import render_small_table
from ctxkit.plots.xy_figure import LimitLine, Trace, VerticalMark, XyDrawing
from ctxkit.policies.offline_summarisers import ExtractiveSummariser, FixedSizeSummariser
from ctxkit.policies.policy_base_and_chains import Chain
from ctxkit.widgets.base_widget import SOFT_COLOUR, TEXT_COLOUR, wrap_in_scroll_box

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.engine import RulesRun
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.session import Session


class TrialCompaction(NamedTuple):
    """One compaction of a trial, or one that was suppressed (`after` is None then, and `why` says
    by what).
    """

    call: int
    before: int
    after: int | None
    messages: float | None
    """Share of the messages that it took out of the view."""
    why: str

    @property
    def saved(self) -> float | None:
        """Share of the tokens that it saved."""
        return None if self.after is None or not self.before else 1 - self.after / self.before


class Trial(NamedTuple):
    """A session under one setting."""

    prompts: Sequence[int | None]
    steps: tuple[TrialCompaction, ...]
    limit: int
    row: dict[str, Any]
    """Its score, as `ctxkit.score` names it; the columns of loss only where they were asked for."""
    done: RulesRun

    @property
    def wrote(self) -> bool:
        """True where a compaction put in a summary."""
        return bool(self.row.get("summary_tokens"))

    def with_loss(self, columns: dict[str, Any]) -> Trial:
        """Return the trial with the columns of loss in its score."""
        return self._replace(row={**self.row, **columns})


# A trial is a replay by `run_rules`. All that does not depend on the rules is made once: ids of
# messages, the window, prices (`SessionAnalysisCache`), and one `MessageLog` for each pair of token
# counter and estimator. A trial then costs one pass over the log plus the summaries of its policy;
# `at(rules, summary)` replaces each summary by a fixed size, which leaves the pass alone.
class TrialRunner:
    """One session to be tried under many rules; the log, its sizes and its prices are made once.

    Args:
        session: a recorded session.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.base = session, SessionAnalysisCache(session)
        self._whole, self._limit = with_message_ids(session), find_context_window(session)
        self._logs: dict[tuple[str, str, int], MessageLog] = {}

    @cached_property
    def prompts(self) -> list[int | None]:
        """The size of each prompt as the record has it."""
        return recorded_prompts(self.session)[0]

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """The score of the session as it was."""
        return score_session(self.session, self.base, loss=False)

    @property
    def loss_of_record(self) -> dict[str, Any]:
        """Loss of the recorded compactions."""
        return score_loss_and_rereads(self.base, self.session)

    @property
    def when(self) -> tuple[str, str]:
        """The recommended trigger of the log as HTML, else the reason why there is none."""
        try:
            memory = self.base.memory if self.session.has_text else None
            return when_to_compact(
                self.session, item_index=memory, progress=False
            )._repr_html_(), ""
        except CtxkitError as error:
            return "", str(error)

    def at(self, rules: Rules, summary: int | None = None) -> Trial:
        """Return the session under rules.

        Args:
            rules: any rules.
            summary: take each extractive summary to have so many tokens instead of writing it,
                which is what takes the time; None: write them, as a replay does.

        Raises:
            BadArguments: the rules cannot work on this session.
        """
        if summary is not None:
            rules = rules.but(policy=with_fixed_summary_size(rules.policy, summary))
        log = build_log_keeping_recorded_sizes(
            self._whole,
            self.base.message_sizes,
            rules,
            self._limit,
            lambda recorded_calls: self._message_log(rules, recorded_calls),
        )
        done = run_rules(log, rules, self._limit)
        suppressed = [TrialCompaction(h.call, 0, None, None, h.reason_text) for h in done.blocked]
        compactions = [
            TrialCompaction(s.call, s.before, s.after, s.message_savings, "")
            for s in get_rules_run_compactions(done)
        ]
        steps = tuple(sorted([*compactions, *suppressed], key=lambda s: s.call))
        row = score_run(self.base, done, rules.label)
        return Trial(done.prompts.tolist(), steps, done.budget.limit, row, done)

    def replayed(self, trial: Trial) -> Session:
        """Return the replay that a trial is, to be drawn by what takes sessions."""
        return make_session_from_run(self._whole, trial.done)

    def quick_loss(self, trial: Trial) -> dict[str, Any]:
        """Return the loss columns of a trial without a pruning; else nothing.

        It does without a pruning, which is worked out a second time for this.
        """
        return {} if trial.done.rules.pruning is not None else self.loss(trial)

    def loss(self, trial: Trial) -> dict[str, Any]:
        """Return what a trial would have lost, for any rules.

        The columns are missing where it cannot be said.
        """
        try:
            return score_loss_and_rereads(self.base, None, trial.done)
        except CtxkitError:
            return {}

    def _message_log(self, rules: Rules, recorded_calls: int) -> MessageLog:
        """Return the log of the session; rules that count otherwise have one of their own."""
        key = (_counter_name(rules.counter), _counter_name(rules.estimator), recorded_calls)
        if key not in self._logs:
            log = make_log_from_session(self._whole, rules, recorded_calls=recorded_calls)
            self._logs[key] = log
        return self._logs[key]


def compute_mean_summary_tokens(trial: Trial) -> int:
    """Return the mean size of a trial's summaries in tokens; without any, 800."""
    written, compactions = trial.row.get("summary_tokens") or 0, trial.row.get("compactions_n") or 0
    return max(round(written / compactions), 1) if written and compactions else 800


def with_fixed_summary_size(policy: Any, tokens: int) -> Any:
    """Return a policy whose extractive summaries have a fixed size in tokens, without text.

    Args:
        policy: a policy; of a chain, all parts are changed.
        tokens: size of each summary.
    """
    if isinstance(policy, Chain):
        return replace(
            policy, parts=tuple(with_fixed_summary_size(p, tokens) for p in policy.parts)
        )
    if isinstance(getattr(policy, "summariser", None), ExtractiveSummariser):
        return replace(policy, summariser=FixedSizeSummariser(tokens))
    return policy


def _counter_name(counter: Any) -> str:
    return "" if counter is None else str(counter.name)


_MAX_MARKS, _MAX_ROWS = 40, 8
_FIGURE_NAMES = {
    "cost_usd": "cost",
    "needed_later_loss": "needed, lost",
    "prompt_tokens": "prompt tokens",
    "peak_tokens": "peak",
    "compactions_n": "compactions",
    "token_savings": "tokens saved",
    "paid_back_share": "paid back",
}
_SAME_USD = 0.005
"""Dollars below which two costs read alike."""
LOSS_IS_BOUND = "loss_is_bound"
"""Key of a row whose loss is the most that it can be, as its summaries are taken to say nothing."""
_SHARE_COLUMNS = ("token_savings", "paid_back_share", "needed_later_loss")


def render_trial_growth_chart(
    recorded: Sequence[int | None], trial: Trial, error: str = "", pinned: Trial | None = None
) -> str:
    """Return how the context grew and how it would have grown, with the compactions as lines.

    Args:
        recorded: prompt tokens of each recorded call; None: unknown.
        trial: the session under the settings that are tried.
        error: why the settings cannot be run; empty: they can.
        pinned: a trial to compare with; None: none.
    """
    calls = range(len(trial.prompts))
    traces = [Trace(name="recorded", x=range(len(recorded)), y=recorded, colour=GREY, dash="dot")]
    if pinned:
        traces.append(Trace(name="pinned", x=range(len(pinned.prompts)), y=pinned.prompts, look=1))
    traces.append(Trace(name="with these settings", x=calls, y=trial.prompts, look=0))
    compactions = [s for s in trial.steps if s.after is not None]
    # A compaction happens before its call, so its line stands half a step to the left.
    marks = (
        tuple(VerticalMark(x=s.call - 0.5) for s in compactions)
        if len(compactions) <= _MAX_MARKS
        else ()
    )
    peak = max((n for n in (*recorded, *trial.prompts) if n), default=0)
    # A limit above four times the peak would flatten the curves, so only the legend names it.
    limit = LimitLine(y=trial.limit, label=f"limit {trial.limit:,}", shown=4 * peak >= trial.limit)
    axes = XyDrawing(
        x="call", y="tokens in the prompt", traces=tuple(traces), limits=(limit,), marks=marks
    )
    wrong = error and (
        f'<div role="alert" style="{ALERT_TEXT_CSS};line-height:1.5">These settings'
        f" cannot work: {escape_html(error, 400)} The picture is the last one that could.</div>"
    )
    return (
        f'{wrong}<div role="img" '
        f'aria-label="{escape_html(describe_trial_compaction_savings(trial), 300)}">'
        f"{axes.svg()}</div>"
    )


def describe_trial_verdict(
    label: str, recorded: Mapping[str, Any], tried: Mapping[str, Any]
) -> str:
    """Return what the settings cost and lose, against the record.

    An example: `pi costs $6.29, $3.00 more than recorded; 9 % of what is used again is out of sight
    by then; it thrashes.`

    Args:
        label: name of the settings.
        recorded: the figures of the record, by their columns.
        tried: those of the trial.
    """
    cost: Any = tried.get("cost_usd")
    was: Any = recorded.get("cost_usd")
    if not has_value(cost):
        words = "has no known cost"
    elif not has_value(was):
        words = f"costs {format_usd(cost)}"
    elif abs(difference := cost - was) < _SAME_USD:
        words = f"costs {format_usd(cost)}, as recorded"
    else:
        comparison = "more" if difference > 0 else "less"
        words = (
            f"costs {format_usd(cost)}, {format_usd(abs(difference))} {comparison} than recorded"
        )
    lost = _format_cell("needed_later_loss", tried)
    words += f"; {lost} of what is used again is out of sight by then" if lost else ""
    return f"{label} {words}{'; it thrashes' if tried.get('is_thrashing') else ''}."


def render_trial_verdict(verdict: str) -> str:
    """Return the verdict as HTML."""
    return (
        f'<div style="color:{TEXT_COLOUR};line-height:1.6"><strong>{escape_html(verdict, 400)}'
        "</strong></div>"
    )


def describe_trial_compaction_savings(trial: Trial) -> str:
    """Return the compactions in a sentence."""
    done = [s for s in trial.steps if s.saved is not None]
    low = sum((s.saved or 0) < MIN_PROGRESS for s in done)
    suppressed_compactions_n = len(trial.steps) - len(done)
    verdict = "they hold" if done else "nothing was compacted"
    if trial.row.get("is_thrashing"):
        verdict = "they thrash"
    return (
        f"{pluralize(len(done), 'compaction')}, {low:,} saved less than"
        f" {format_percent(MIN_PROGRESS)} of the tokens,"
        f" {suppressed_compactions_n:,} suppressed: {verdict}."
    )


def render_trial_figures(rows: Mapping[str, Mapping[str, Any]], note: str = "") -> str:
    """Return the figures of the record and of settings as an HTML table.

    Args:
        rows: scores by title of the row; a figure that is missing in all rows is left out.
        note: a sentence below the table; empty: none.
    """
    head, table_rows = _figures_table(rows)
    note_html = (
        f'<div style="color:{SOFT_COLOUR};font-size:12px">{escape_html(note, 200)}</div>'
        if note
        else ""
    )
    return wrap_in_scroll_box(render_small_table(head, table_rows) + note_html)


def format_trial_figures(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the same as lines of text."""
    head, table_rows = _figures_table(rows)
    widths = [max(len(row[i]) for row in (head, *table_rows)) for i in range(len(head))]
    return [
        "  ".join(cell.rjust(n) for cell, n in zip(row, widths, strict=True))
        for row in (head, *table_rows)
    ]


def render_trial_compaction_savings(trial: Trial) -> str:
    """Return the savings of each compaction, in tokens and messages, beside a guard's threshold."""
    words = (
        "<div "
        f'style="color:{TEXT_COLOUR};line-height:1.6">'
        f"{escape_html(describe_trial_compaction_savings(trial), 300)}</div>"
    )
    if not trial.steps:
        return words
    more = len(trial.steps) - _MAX_ROWS
    caption = f"The last {_MAX_ROWS} of {len(trial.steps):,}" if more > 0 else "Each compaction"
    head = ("before call", "tokens", "after", "saved", "of messages", "verdict")
    return wrap_in_scroll_box(
        words
        + render_small_table(
            head, [_compaction_cells(s) for s in trial.steps[-_MAX_ROWS:]], caption=caption
        )
    )


def render_trigger_advice(advice_html: str, error: str = "") -> str:
    """Return the log's own advice on when to compact, as a section that can be opened.

    Args:
        advice_html: the advice; empty: there is none.
        error: why there is none.
    """
    body = advice_html or f"<p>{escape_html(error, 400)}</p>"
    return wrap_in_scroll_box(
        f'<details><summary style="color:{TEXT_COLOUR};cursor:pointer">When to'
        f" compact</summary>{body}</details>"
    )


def _compaction_cells(step: TrialCompaction) -> tuple[str, ...]:
    if step.saved is None or step.after is None:
        return (str(step.call), "", "", "", "", sanitize_line(step.why, 60))
    messages = "" if step.messages is None else format_percent(step.messages)
    verdict = "too little" if step.saved < MIN_PROGRESS else "pays"
    sizes = (f"{step.before:,}", f"{step.after:,}")
    return (str(step.call), *sizes, format_percent(step.saved, 1), messages, verdict)


def _figures_table(
    rows: Mapping[str, Mapping[str, Any]],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    columns = [c for c in _FIGURE_NAMES if any(has_value(row.get(c)) for row in rows.values())]
    head = ("", *(_FIGURE_NAMES[c] for c in columns))
    return head, [(name, *(_format_cell(c, row) for c in columns)) for name, row in rows.items()]


def _format_cell(column: str, row: Mapping[str, Any]) -> str:
    value: Any = row.get(column)
    if not has_value(value):
        return ""
    if column in _SHARE_COLUMNS:
        is_bound = row.get(LOSS_IS_BOUND) and column == "needed_later_loss" and value
        return f"{'at most ' if is_bound else ''}{format_percent(value)}"
    return format_usd(value) if column == "cost_usd" else f"{int(value):,}"


@register_view_values("tune")
def _read_figures(session: Session) -> dict[str, Any]:
    """Return what the table of `tune` shows: the record, or a trial of the replay's rules."""
    if session.origin is None:
        return map_session_score_to_view_figures(TrialRunner(session).recorded, session)
    run = get_run_of_replay(session)
    if run is None:
        return {}
    return map_score_row_to_view_figures(TrialRunner(session.origin).at(run.rules).row)
