"""The report of a sweep: the choice between dollars and loss, the settings, and every run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.display.amounts import MISSING, known, number
from ctxkit.display.markup import escape, line
from ctxkit.errors import BadArguments
from ctxkit.metrics.pooled import FEW
from ctxkit.plots._frontier import frontier
from ctxkit.reports.assumptions import of_runs
from ctxkit.reports.page import PageSection, chart, facts, items, page, table
from ctxkit.reports.run_tables import ROWS, cell, failures, runs_table
from ctxkit.reports.session_report import made_by
from ctxkit.sweeps import front
from ctxkit.sweeps.score_columns import NAMES

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.plots.chart import Chart

_CHOICE = ("cost_usd", "needed_later_loss", "unpaid_cuts_n")
_RUNS = ("cost_usd", "prompt_tokens", "peak_tokens", "cuts_n", "unpaid_cuts_n", "needed_later_loss")


def sweep_page(frame: pd.DataFrame) -> str:
    """Return the report as one HTML file."""
    drawn = front_chart(frame)
    sections = [
        PageSection("What these figures rest on", items([*of_runs(frame), *caveats(frame)])),
        PageSection("Dollars against loss", chart(drawn, "frontier") if drawn else ""),
        PageSection("Settings", _settings(frame)),
        PageSection("What failed", table(("session", "rules", "why"), failures(frame))),
        PageSection("What is odd", table(("session", "rules", "note"), failures(frame, "note"))),
        PageSection("Runs", runs_table(frame, run_columns(frame))),
    ]
    pairs = [
        ("runs", number(len(frame))),
        ("sessions", number(frame["session"].nunique())),
        ("settings", number(frame["rules"].nunique())),
        ("failed", number(int(frame["error"].notna().sum()))),
    ]
    head = f'<p class="soft">{escape(made_by())}</p>{facts(pairs)}'
    return page("A sweep of context settings", head, sections, plotly=drawn is not None)


def front_chart(frame: pd.DataFrame) -> Chart | None:
    """Return the frontier; None where no setting has both dollars and loss."""
    try:
        return frontier(frame)
    except BadArguments:
        return None


def run_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns of a run that are shown: its session, its settings, its chief figures."""
    return ["session", *(c for c in frame.columns if c not in NAMES), *_RUNS]


def caveats(frame: pd.DataFrame) -> list[str]:
    """Return what is to be said about a sweep beyond its sessions: how few they are, and what is
    missing.
    """
    n, out = frame["session"].nunique(), []
    if n < FEW:
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


def _settings(frame: pd.DataFrame) -> str:
    failed = frame["error"].notna().groupby(frame["rules"]).sum()
    cells = [
        (
            line(str(row["rules"]), 100), "yes" if row["front"] else "",
            f"{number(row['sessions_n'])}{'*' if row['few'] else ''}", number(failed[row["rules"]]),
            *(_mean(row, name) for name in _CHOICE),
        )
        for row in front(frame).head(ROWS).to_dict("records")
    ]  # fmt: skip
    figures = ("cost $", "needed later, lost", "unpaid cuts")
    head = ("rules", "on the front", "sessions", "failed", *figures)
    told = (
        "Means over sessions with their 90 % intervals; on the front: beaten by none. *: fewer"
        f" than {FEW} sessions."
    )
    return table(head, cells, numbers=frozenset(range(2, len(head))), caption=told)


def _mean(row: dict[Any, Any], name: str) -> str:
    found = [row[n] for n in (name, f"{name}_low", f"{name}_high")]
    if not known(found[0]):
        return MISSING
    whole = name == "unpaid_cuts_n"
    mean, low, high = (f"{n:,.1f}" if whole else cell(name, n) for n in found)
    return f"{mean} ({low} to {high})" if found[1] != found[2] else mean
