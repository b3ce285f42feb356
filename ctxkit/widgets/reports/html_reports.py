"""The HTML reports of a session, a comparison and a sweep, with sentences on how accurate their
figures are.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.distribution_version_and_conflicts import get_version
from ctxkit._internal.formatting_and_sanitizing import (
    MISSING,
    escape_html,
    format_change,
    format_count,
    format_percent,
    format_usd,
    has_value,
    pluralize,
    sanitize_line,
)
from ctxkit.engine.cache_model.input_cost_prediction import describe_prediction, predict_input_cost
from ctxkit.errors import BadArguments
from ctxkit.experiments.score_columns import SCORE_COLUMN_NAMES, SCORE_COLUMNS
from ctxkit.experiments.sweep_runs import summarise_runs_with_pareto_front
from ctxkit.metrics.bootstrap_and_paired_tests import FEW_SESSIONS
from ctxkit.metrics.context_window_report import report
from ctxkit.metrics.cost.replay_cost_model import ReplayCostModel, closure_error
from ctxkit.metrics.frames import frame
from ctxkit.metrics.frames.frame_column import BOOL, FLOAT, INT
from ctxkit.metrics.prompt_sizes_and_contents import get_prompt_contents
from ctxkit.plots import composition, growth
from ctxkit.plots.chart import collect_session_notes
from ctxkit.plots.sweep_charts import frontier
from ctxkit.session.compactions_and_prunings import group_edits
from ctxkit.session.messages import Message, Text, Thinking, ToolCall
from ctxkit.session.titles import get_title
from ctxkit.tokens.message_sizes_from_recorded_prompts import measure_sizes
from ctxkit.widgets.reports.html_page import (
    PageSection,
    render_chart,
    render_name_value_pairs,
    render_page,
    render_sentence_list,
    render_table,
)
from ctxkit.widgets.reports.session_summary import (
    describe_session_origin,
    get_session_facts,
    tabulate_compactions,
    tabulate_turns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from ctxkit._internal.tables import Table
    from ctxkit.experiments.rules_comparison_on_one_session import Comparison
    from ctxkit.metrics.context_window_report import ContextReport, Contributor
    from ctxkit.plots.chart import Chart
    from ctxkit.session.session import Session


_ABILITIES = (
    (
        "Sizes of prompts are as the provider billed them.",
        "The log has no usage: sizes of prompts are estimated from the text.",
    ),
    (
        "Cached and uncached input are recorded apart.",
        (
            "The log does not tell cached from uncached input, so what the cache saved cannot be"
            " shown."
        ),
    ),
    (
        "Calls carry times.",
        "The log has no times: pauses, and what they cost in the cache, cannot be seen.",
    ),
    (
        "The messages carry their text.",
        "The log has no text: what filled the context cannot be read.",
    ),
)
"""Sentences on what a log with usage, cache, times and text allows, and one without them."""
_ROWS = 200
_SUMMARY_CHARS = 20_000


def render_session_report(session: Session) -> str:
    """Return the report as one HTML file.

    Args:
        session: recorded or a replay, also without calls.

    Returns:
        A document that needs no network.
    """
    row = frame(session, per="session").iloc[0]
    title = get_title(session, 160)
    sections = [
        PageSection(
            "What this report rests on", render_sentence_list(describe_figure_sources(session, row))
        ),
        PageSection(
            "How the context grew", render_chart(growth(session), "growth") if session.calls else ""
        ),
        PageSection(
            "What filled it",
            render_chart(composition(session), "composition") if session.calls else "",
        ),
        PageSection(
            f"Largest contributors {'at the last call' if session.calls else 'to the next prompt'}",
            render_largest_messages(session),
        ),
        PageSection("Compactions", _compactions_html(session)),
        PageSection("Turns", _tabular_html(tabulate_turns(session, _ROWS))),
    ]
    return render_page(title, _report_head(session, row), sections, plotly=bool(session.calls))


def _report_head(session: Session, row: Any) -> str:
    facts = [*describe_session_origin(session), f"session {session.id}", f"format {session.format}"]
    if session.path_:
        facts.append(f"read from {session.path_.replace(chr(92), '/').rsplit('/', 1)[-1]}")
    facts_html = " · ".join(
        escape_html(word, 80) for word in (*facts, get_program_name_and_version())
    )
    session_facts = render_name_value_pairs(get_session_facts(session, row))
    return f'<p class="soft">{facts_html}</p>{session_facts}'


def get_program_name_and_version() -> str:
    """Return the name and version of the program that made a report."""
    return f"ctxkit {get_version()}"


def describe_figure_sources(session: Session, row: Any) -> list[str]:
    """Describe in sentences what the log records, and how well its cache was predicted.

    Args:
        session: recorded or a replay.
        row: its row of `ck.frame(per="session")`.

    Returns:
        Sentences on the accuracy, then on each kind of fact that the log lacks.
    """
    able = [bool(row[name]) for name in ("has_usage", "has_cache", "has_time", "has_text")]
    lines = [*describe_session_cost_accuracy(session)] if session.calls else []
    lines += [no for can, (_, no) in zip(able, _ABILITIES, strict=True) if not can]
    lines += [yes for can, (yes, _) in zip(able, _ABILITIES, strict=True) if can]
    if not has_value(row.cost_usd):
        lines.append(
            "A cost is missing: at least one call has no usage, or its model no known price."
        )
    elif row.cost_source == "recorded":
        lines.append("Costs are as the log recorded them.")
    else:
        lines.append("Costs are derived from usage and a table of prices.")
    lines.append(
        "System prompts and tool schemas that a log leaves out are a remainder: what was billed"
        " less what is seen."
    )
    if session.skipped:
        names = ", ".join(
            f"{sanitize_line(k, 60)} ({n:,})" for k, n in sorted(session.skipped.items())[:30]
        )
        lines.append(f"The reader passed over records that hold no message: {names}.")
    if session.faults:
        faults = "; ".join(f"line {f.line}: {sanitize_line(f.why, 80)}" for f in session.faults[:5])
        n = len(session.faults)
        lines.append(f"{n:,} {'place' if n == 1 else 'places'} could not be read ({faults}).")
    return lines


def _compactions_html(session: Session) -> str:
    table = tabulate_compactions(session, _ROWS)
    if not table.rows:
        return "<p>None: the log holds no compaction.</p>"
    summaries = "".join(
        f"<details><summary>What compaction {i} wrote ({pluralize(len(m.text), 'character')})"
        "</summary>"
        f'<pre tabindex="0">{escape_html(m.text, _SUMMARY_CHARS)}</pre></details>'
        for i, _, edits in group_edits(session)[:_ROWS]
        for edit in edits
        for m in edit.inserted
        if edit.kind == "summarised" and m.text
    )
    return _tabular_html(table) + summaries


def _tabular_html(table: Table) -> str:
    numbers = frozenset(i for i, h in enumerate(table.heads) if h.number)
    return render_table(
        [h.name for h in table.heads], table.plain(), numbers=numbers, caption=table.caption
    )


_CHARS = 6_000


def render_largest_messages(session: Session) -> str:
    """Return the ten largest messages as HTML: size, origin, beginning; folded away, their text up
    to a bound.
    """
    context = report(session)
    if not context.contributors:
        return ""
    messages = {
        s.message.id: s.message for s in get_prompt_contents(session, context.call).messages
    }
    head = f"<p>{escape_html(_prompt_sentence(context))}</p>"
    return head + "".join(
        _contributor_html(c, messages[c.id], context.prompt_tokens) for c in context.contributors
    )


def _contributor_html(contributor: Contributor, message: Message, whole: int) -> str:
    share = f" ({format_percent(contributor.tokens / whole, 1)})" if whole else ""
    failed = ", failed" if message.is_error else ""
    was = contributor.raw_tokens
    changed = f" (of {was:,}, {contributor.changed_by})" if was > contributor.tokens else ""
    title = f"{pluralize(contributor.tokens, 'token')}{changed}{share} · {contributor.name}{failed}"
    text = _message_text(message)
    more = f"\n… the first {_CHARS:,} of {len(text):,} characters" if len(text) > _CHARS else ""
    body = f'<pre tabindex="0">{escape_html(text[:_CHARS] + more)}</pre>'
    return f"<details><summary>{escape_html(title, 200)}</summary>{body}</details>"


def _message_text(message: Message) -> str:
    blocks = [p.text for p in message.parts if isinstance(p, (Text, Thinking))]
    blocks += [
        f"{p.name} {p.arguments if p.raw is None else p.raw}"
        for p in message.parts
        if isinstance(p, ToolCall)
    ]
    return "\n\n".join(blocks)


def _prompt_sentence(context: ContextReport) -> str:
    window = "of an unknown window"
    if context.full is not None:
        share = format_percent(context.full)
        window = f"{share} of a window of {context.limit:,} ({context.limit_source})"
    size = pluralize(context.prompt_tokens, "token")
    return f"The prompt had {size} ({context.prompt_source}), {window}."


def render_comparison_report(frame: Comparison) -> str:
    """Return the report as one HTML file.

    Args:
        frame: result of `ck.compare`.

    Returns:
        A document that needs no network; sections without figures are left out.
    """
    session = str(frame["session"].iloc[0]) if len(frame) else ""
    replays = getattr(frame, "replays", {})
    sections = [
        PageSection(
            "What these figures rest on", render_sentence_list(describe_runs_cost_accuracy(frame))
        ),
        PageSection(
            "What each would have cost",
            render_runs_table(
                frame, COST_COLUMNS, caption=COLUMN_MEANINGS["cost_usd"].capitalize() + "."
            ),
        ),
        PageSection(
            "How the context would have grown",
            render_chart(growth(replays), "growth") if _has_calls(replays) else "",
        ),
        PageSection("How the compactions held", render_runs_table(frame, COMPACTION_COLUMNS)),
        PageSection("What was lost", render_runs_table(frame, LOSS_COLUMNS, caption=LOSS_CAPTION)),
        PageSection(
            "What is odd",
            render_table(("session", "rules", "note"), list_failed_runs(frame, "note")),
        ),
        PageSection(
            "What failed", render_table(("session", "rules", "why"), list_failed_runs(frame))
        ),
        PageSection("All figures", _all_columns_html(frame)),
    ]
    title = f"{sanitize_line(session, 80)}: {pluralize(len(frame), 'setting')} compared"
    head = f'<p class="soft">{escape_html(get_program_name_and_version())}</p>'
    return render_page(title, head, sections, plotly=_has_calls(replays))


def _has_calls(replays: dict[str, Session]) -> bool:
    return any(s.calls for s in replays.values())


def _all_columns_html(frame: Comparison) -> str:
    head = ("figure", *(sanitize_line(str(r), 60) for r in frame["rules"]), "meaning")
    rows = [
        (name, *(format_score(name, v) for v in frame[name]), meaning)
        for name, meaning in COLUMN_MEANINGS.items()
        if name not in ("session", "rules", "note", "error") and frame[name].notna().any()
    ]
    numbers = frozenset(range(1, len(frame) + 1))
    return (
        "<details><summary>Every column, with its"
        f" meaning</summary>{render_table(head, rows, numbers=numbers)}</details>"
    )


_CHOICE = ("cost_usd", "needed_later_loss", "not_paid_back_n")
_RUNS = (
    "cost_usd",
    "prompt_tokens",
    "peak_tokens",
    "compactions_n",
    "not_paid_back_n",
    "needed_later_loss",
)


def render_sweep_report(frame: pd.DataFrame) -> str:
    """Return the report as one HTML file.

    Args:
        frame: result of `ck.sweep`, failed runs included.

    Returns:
        A document that needs no network; tables have a bounded number of rows.
    """
    drawn = make_frontier_chart(frame)
    sections = [
        PageSection(
            "What these figures rest on",
            render_sentence_list(
                [*describe_runs_cost_accuracy(frame), *describe_sweep_caveats(frame)]
            ),
        ),
        PageSection("Dollars against loss", render_chart(drawn, "frontier") if drawn else ""),
        PageSection("Settings", _settings_html(frame)),
        PageSection(
            "What failed", render_table(("session", "rules", "why"), list_failed_runs(frame))
        ),
        PageSection(
            "What is odd",
            render_table(("session", "rules", "note"), list_failed_runs(frame, "note")),
        ),
        PageSection("Runs", render_runs_table(frame, list_run_columns(frame))),
    ]
    pairs = [
        ("runs", format_count(len(frame))),
        ("sessions", format_count(frame["session"].nunique())),
        ("settings", format_count(frame["rules"].nunique())),
        ("failed", format_count(int(frame["error"].notna().sum()))),
    ]
    program = escape_html(get_program_name_and_version())
    head = f'<p class="soft">{program}</p>{render_name_value_pairs(pairs)}'
    return render_page("A sweep of context settings", head, sections, plotly=drawn is not None)


def make_frontier_chart(frame: pd.DataFrame) -> Chart | None:
    """Return the frontier; None where no setting has both dollars and loss.

    Args:
        frame: result of `ck.compare` or `ck.sweep`.

    Returns:
        The chart of dollars against loss.
    """
    try:
        return frontier(frame)
    except BadArguments:
        return None


def list_run_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns of a run that are shown: its session, its settings, its chief figures.

    Args:
        frame: result of `ck.sweep`.

    Returns:
        Names of columns of the frame.
    """
    return ["session", *(c for c in frame.columns if c not in SCORE_COLUMN_NAMES), *_RUNS]


def describe_sweep_caveats(frame: pd.DataFrame) -> list[str]:
    """Describe the caveats of a sweep: few sessions, missing figures.

    Args:
        frame: result of `ck.sweep`.

    Returns:
        Sentences; empty for a complete sweep over enough sessions with loss.
    """
    n, out = frame["session"].nunique(), []
    if n < FEW_SESSIONS:
        out.append(
            f"Only {n} {'session' if n == 1 else 'sessions'}: what holds here may not hold for"
            " others."
        )
    if not frame["needed_later_loss"].notna().any():
        out.append(
            "Loss was not worked out (loss=True of a sweep does), so the cheapest setting may lose"
            " the most."
        )
    if frame.attrs.get("interrupted"):
        out.append("The sweep was interrupted: not every session met every setting.")
    failed = int(frame["error"].notna().sum())
    if failed:
        out.append(f"{failed} of {len(frame)} runs failed and are in no mean.")
    return out


def _settings_html(frame: pd.DataFrame) -> str:
    failed = frame["error"].notna().groupby(frame["rules"]).sum()
    cells = [
        (
            sanitize_line(str(row["rules"]), 100),
            "yes" if row["on_pareto_front"] else "",
            f"{format_count(row['sessions_n'])}{'*' if row['few_sessions'] else ''}",
            format_count(failed[row["rules"]]),
            *(_mean_text(row, name) for name in _CHOICE),
        )
        for row in summarise_runs_with_pareto_front(frame).head(MAX_ROWS).to_dict("records")
    ]
    figures = ("cost $", "needed later, lost", "not paid back")
    head = ("rules", "on the Pareto front", "sessions", "failed", *figures)
    settings = (
        "Means over sessions with their 90 % intervals; on the Pareto front: dominated by none. *:"
        f" fewer than {FEW_SESSIONS} sessions."
    )
    return render_table(head, cells, numbers=frozenset(range(2, len(head))), caption=settings)


def _mean_text(row: dict[Any, Any], name: str) -> str:
    figures = [row[n] for n in (name, f"{name}_low", f"{name}_high")]
    if not has_value(figures[0]):
        return MISSING
    whole = name == "not_paid_back_n"
    mean, low, high = (f"{n:,.1f}" if whole else format_score(name, n) for n in figures)
    return f"{mean} ({low} to {high})" if figures[1] != figures[2] else mean


MAX_ROWS = 300
COST_COLUMNS = (
    *("calls_n", "prompt_tokens", "peak_tokens"),
    *("cost_usd", "real_run_low_usd", "real_run_high_usd", "vs_recorded"),
    *("input_usd", "output_usd", "summaries_usd"),
)
COMPACTION_COLUMNS = (
    *("compactions_n", "not_paid_back_n", "token_savings", "message_savings"),
    *("summary_tokens", "refilled_share", "is_thrashing"),
)
LOSS_COLUMNS = (
    *("items_n", "retained", "recoverable", "lost"),
    *("reused_items_n", "needed_lost_n", "needed_later_loss", "next_interval_loss", "regret"),
    *("at_stake_items_n", "summary_recall", "user_rules_kept", "weighted_loss"),
)
LOSS_CAPTION = (
    "Needed-later loss: of the items that the record used again, the share that a compaction took"
    " away before that; each counts once. Window loss looks to the next compaction only. Regret:"
    " what the best choice of messages would have spared, a bound. Summary recall: of what was"
    " named later and only the texts put in could still say (at stake), the share that they did"
    " say."
)
_COUNTS = ("rebound_calls", "calls_to_first_write", "calls_to_first_use")
"""Columns of numbers that are neither shares nor dollars."""
_KINDS = {c.name: c.dtype for c in SCORE_COLUMNS}
COLUMN_MEANINGS = {c.name: c.meaning for c in SCORE_COLUMNS}


def format_score(name: str, value: Any) -> str:
    """Return one figure of a score as text; what is missing is a dash.

    Args:
        name: column of the score.
        value: its value; None or NaN is missing.
    """
    if not has_value(value):
        return MISSING
    kind = _KINDS.get(name)
    if kind == BOOL:
        return "yes" if value else "no"
    if kind == INT:
        return format_count(value)
    if kind == FLOAT and name in _COUNTS:
        return f"{value:,.1f}"
    if kind == FLOAT and name.endswith("_usd"):
        return format_usd(value)
    if kind == FLOAT:
        return format_percent(value) if abs(value) >= 0.1 else f"{100 * value:.1f} %"
    value = value.item() if hasattr(value, "item") else value
    whole = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if whole else sanitize_line(str(value), 160)


def render_runs_table(frame: pd.DataFrame, names: Sequence[str], *, caption: str = "") -> str:
    """Return rows of scores as an HTML table of these columns, a bounded number of rows; empty
    without figures.

    Args:
        frame: one row per run, as `compare` returns it.
        names: columns to show; one without any value is left out.
        caption: a sentence above the table; empty: none.
    """
    names = [n for n in names if frame[n].notna().any()]
    if not names:
        return ""
    rows = [
        (sanitize_line(str(rules), 100), *map(format_score, names, values))
        for rules, *values in frame[["rules", *names]].head(MAX_ROWS).itertuples(index=False)
    ]
    more = f"The first {MAX_ROWS} of {len(frame):,}. " if len(frame) > MAX_ROWS else ""
    numbers = frozenset(i for i, n in enumerate(names, 1) if _KINDS.get(n) in (INT, FLOAT))
    return render_table(
        ("rules", *map(format_column_heading, names)), rows, numbers=numbers, caption=more + caption
    )


def format_column_heading(name: str) -> str:
    """Return a column's name as a head of a table."""
    return name.removesuffix("_n").removesuffix("_usd").replace("_", " ") + (
        " $" if name.endswith("_usd") else ""
    )


def list_failed_runs(frame: pd.DataFrame, column: str = "error") -> list[tuple[str, str, str]]:
    """Return session, rules and text of the runs that have a text in a column, at most `MAX_ROWS`.

    Args:
        frame: one row per run, as `compare` returns it.
        column: `error`: why there are no figures; `note`: what is unusual about a run with figures.
    """
    failed = frame[frame[column].notna()]
    return [
        (
            sanitize_line(str(session), 80),
            sanitize_line(str(rules), 100),
            sanitize_line(str(why), 300),
        )
        for session, rules, why in (
            failed[["session", "rules", column]].head(MAX_ROWS).itertuples(index=False)
        )
    ]


OPEN_LOOP_SENTENCE = (
    "Open loop: a replay keeps the recorded trajectory. It tells the bill and what was out of sight"
    " when the record needed it, not what the agent would have done instead."
)
_MILD = 0.03
"""A prediction error up to here is small beside the differences that a report is read for."""


_ERRORS = (
    "prediction_error",
    "prediction_low",
    "prediction_high",
    "prediction_note",
    "closure_error",
)


class SessionEstimateAccuracy(NamedTuple):
    """The accuracy that one recorded session allows; None: unknown."""

    session: str
    error: float | None
    """The prediction error of its input side."""
    low: float | None
    high: float | None
    note: str | None
    closure: float | None
    unexplained: float | None
    priced: float | None
    counter: str
    counter_error: float | None


def describe_session_cost_accuracy(session: Session) -> list[str]:
    """Return the sentences for a session; of a replay those of its record, and what a replay is.

    Args:
        session: a session with calls.

    Returns:
        Sentences on cache prediction, cache misses, prices and counter, then the notes of the log.
    """
    base = session.origin or session
    sentences = collect_session_notes(base)
    anchored, sheet = measure_sizes(base), ReplayCostModel.of(base)
    prediction = predict_input_cost(base)
    closure = closure_error(base, sheet.misses)
    errors = (prediction.error, prediction.low, prediction.high, prediction.why, closure)
    counted = (anchored.counter, anchored.plain_count_error)
    basis = SessionEstimateAccuracy(
        base.id, *errors, sheet.unexplained_share, sheet.priced_share, *counted
    )
    return [*_accuracy_sentences([basis], replayed=session.origin is not None), *sentences]


def describe_runs_cost_accuracy(frame: pd.DataFrame) -> list[str]:
    """Return the sentences for rows of scores.

    Args:
        frame: rows of `ck.compare` or `ck.sweep`.

    Returns:
        Sentences on cache prediction, cache misses, prices and counter, then notes of the frame;
        runs of one session are counted once.
    """
    names = [
        "session",
        *_ERRORS,
        "unexplained_miss_share",
        "priced_share",
        "counter",
        "counter_error",
    ]
    # All runs of a session share one basis; a run that failed has no counter.
    rows = frame[names][frame["counter"].notna()].drop_duplicates("session").itertuples(index=False)
    bases = [
        SessionEstimateAccuracy._make(v if has_value(v) else None for v in row) for row in rows
    ]
    return [*_accuracy_sentences(bases, replayed=True), *collect_session_notes(frame)]


def _accuracy_sentences(
    bases: Sequence[SessionEstimateAccuracy], *, replayed: bool
) -> Iterator[str]:
    if replayed:
        yield OPEN_LOOP_SENTENCE
    if not bases:
        yield "No run has a figure, so nothing could be checked."
        return
    yield _error_sentence(bases)
    shares = [b.unexplained for b in bases if b.unexplained is not None]
    if shares:
        most = (
            f" (the most of a session: {format_percent(max(shares), 1)})" if len(shares) > 1 else ""
        )
        share = format_percent(median(shares), 1)
        yield f"{share} of the calls missed the cache without an explanation{most}."
    priced = [b.priced for b in bases if b.priced is not None]
    if priced and min(priced) < 1:
        yield (
            f"{format_percent(sum(priced) / len(priced))} of the billed calls have a price; without"
            " one, dollars are missing."
        )
    yield _counter_sentence(bases)


def _error_sentence(bases: Sequence[SessionEstimateAccuracy]) -> str:
    errors = {b.session: b.error for b in bases if b.error is not None}
    if not errors:
        return (
            "Prediction error: unknown. Without a cache split and known prices the cache "
            "model cannot be checked against the record, so trust its dollars less than their "
            "order."
        )
    worst = max(errors, key=lambda name: abs(errors[name]))
    if len(bases) == 1:
        (one,) = bases
        sentence = (
            f"Prediction error: {describe_prediction(one.error, one.low, one.high, one.note)}"
        )
    else:
        sentence = (
            "Prediction error, without the reads of the session: median "
            f"{format_percent(median(map(abs, errors.values())), 1)}, largest"
            f" {format_change(errors[worst], 1)} ({sanitize_line(worst, 60)}), over {len(errors)}"
            f" of {len(bases)} sessions."
        )
    closures = [abs(b.closure) for b in bases if b.closure is not None]
    if closures:
        sentence += (
            f" The books close within {format_percent(max(closures), 2)}, which says that prices"
            " are put right, and no more."
        )
    if abs(errors[worst]) > _MILD:
        sentence += " Differences in dollars of about that size mean nothing."
    return sentence


def _counter_sentence(bases: Sequence[SessionEstimateAccuracy]) -> str:
    names = ", ".join(dict.fromkeys(sanitize_line(b.counter, 40) for b in bases))
    errors = [b.counter_error for b in bases if b.counter_error is not None]
    if not errors:
        return f"Tokens are counted by {names}; no recorded usage shows how far off that is."
    off = format_change(min(errors)) + (
        f" to {format_change(max(errors))}" if len(errors) > 1 else ""
    )
    return (
        f"Tokens are counted by {names}, whose plain count is {off} off the recorded growth; sizes"
        " are scaled to the recorded usage where there is one."
    )
