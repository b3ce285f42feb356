"""The HTML reports of a comparison and of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import (
    MISSING,
    escape_html,
    format_count,
    format_percent,
    format_usd,
    has_value,
    sanitize_line,
)
from ctxkit.errors import BadArguments
from ctxkit.experiments.score_columns import SCORE_COLUMN_NAMES, SCORE_COLUMNS
from ctxkit.experiments.sweep_runs import mark_pareto_front
from ctxkit.metrics.frames.columns import BOOL, FLOAT, INT
from ctxkit.metrics.run_statistics import FEW_SESSIONS
from ctxkit.plots import growth
from ctxkit.plots.sweep_charts import frontier
from ctxkit.widgets.reports.assumptions import describe_runs_basis
from ctxkit.widgets.reports.html_page import (
    PageSection,
    render_chart,
    render_facts,
    render_list,
    render_page,
    render_table,
)
from ctxkit.widgets.reports.session_report import get_generator_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ctxkit.experiments.comparison import Comparison
    from ctxkit.plots.chart import Chart
    from ctxkit.session.session import Session


def render_comparison_report(frame: Comparison) -> str:
    """Return the report as one HTML file.

    Args:
        frame: of `ck.compare`.

    Returns:
        A document that needs no network; sections without figures are left out.
    """
    session = str(frame["session"].iloc[0]) if len(frame) else ""
    replays = getattr(frame, "replays", {})
    sections = [
        PageSection("What these figures rest on", render_list(describe_runs_basis(frame))),
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
    title = f"{sanitize_line(session, 80)}: {len(frame)} settings compared"
    head = f'<p class="soft">{escape_html(get_generator_name())}</p>'
    return render_page(title, head, sections, plotly=_has_calls(replays))


def _has_calls(replays: dict[str, Session]) -> bool:
    return any(s.calls for s in replays.values())


def _all_columns_html(frame: Comparison) -> str:
    head = ("figure", *(sanitize_line(str(r), 60) for r in frame["rules"]), "meaning")
    rows = [
        (name, *(format_cell(name, v) for v in frame[name]), meaning)
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
        frame: of `ck.sweep`, failed runs included.

    Returns:
        A document that needs no network; tables have a bounded number of rows.
    """
    drawn = make_frontier_chart(frame)
    sections = [
        PageSection(
            "What these figures rest on",
            render_list([*describe_runs_basis(frame), *describe_caveats(frame)]),
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
        PageSection("Runs", render_runs_table(frame, select_run_columns(frame))),
    ]
    pairs = [
        ("runs", format_count(len(frame))),
        ("sessions", format_count(frame["session"].nunique())),
        ("settings", format_count(frame["rules"].nunique())),
        ("failed", format_count(int(frame["error"].notna().sum()))),
    ]
    head = f'<p class="soft">{escape_html(get_generator_name())}</p>{render_facts(pairs)}'
    return render_page("A sweep of context settings", head, sections, plotly=drawn is not None)


def make_frontier_chart(frame: pd.DataFrame) -> Chart | None:
    """Return the frontier; None where no setting has both dollars and loss.

    Args:
        frame: of `ck.compare` or `ck.sweep`.

    Returns:
        The chart of dollars against loss.
    """
    try:
        return frontier(frame)
    except BadArguments:
        return None


def select_run_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns of a run that are shown: its session, its settings, its chief figures.

    Args:
        frame: of `ck.sweep`.

    Returns:
        Names of columns of the frame.
    """
    return ["session", *(c for c in frame.columns if c not in SCORE_COLUMN_NAMES), *_RUNS]


def describe_caveats(frame: pd.DataFrame) -> list[str]:
    """Return what is to be said about a sweep beyond its sessions: how few they are, and what is
    missing.

    Args:
        frame: of `ck.sweep`.

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
        for row in mark_pareto_front(frame).head(MAX_ROWS).to_dict("records")
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
    mean, low, high = (f"{n:,.1f}" if whole else format_cell(name, n) for n in figures)
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


def format_cell(name: str, value: Any) -> str:
    """Return one figure of a score as text; what is missing is a dash."""
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
    """
    names = [n for n in names if frame[n].notna().any()]
    if not names:
        return ""
    rows = [
        (sanitize_line(str(rules), 100), *map(format_cell, names, values))
        for rules, *values in frame[["rules", *names]].head(MAX_ROWS).itertuples(index=False)
    ]
    more = f"The first {MAX_ROWS} of {len(frame):,}. " if len(frame) > MAX_ROWS else ""
    numbers = frozenset(i for i, n in enumerate(names, 1) if _KINDS.get(n) in (INT, FLOAT))
    return render_table(
        ("rules", *map(format_heading, names)), rows, numbers=numbers, caption=more + caption
    )


def format_heading(name: str) -> str:
    """Return a column's name as a head of a table."""
    return name.removesuffix("_n").removesuffix("_usd").replace("_", " ") + (
        " $" if name.endswith("_usd") else ""
    )


def list_failed_runs(frame: pd.DataFrame, column: str = "error") -> list[tuple[str, str, str]]:
    """Return session, rules and reason of the runs without figures; with `note`, what was odd about
    the others.
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
