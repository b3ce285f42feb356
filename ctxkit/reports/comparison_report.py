"""The report of a comparison: one session under several rules, what each would have cost
and lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.display.markup import escape, line
from ctxkit.plots import growth
from ctxkit.reports.assumptions import of_runs
from ctxkit.reports.page import PageSection, chart, items, page, table
from ctxkit.reports.run_tables import COST, CUTS, LOSS, LOST, MEANINGS, cell, failures, runs_table
from ctxkit.reports.session_report import made_by

if TYPE_CHECKING:
    from ctxkit.session import Session
    from ctxkit.sweeps.comparisons import Comparison


def comparison_page(frame: Comparison) -> str:
    """Return the report as one HTML file."""
    session = str(frame["session"].iloc[0]) if len(frame) else ""
    replays = getattr(frame, "replays", {})
    sections = [
        PageSection("What these figures rest on", items(of_runs(frame))),
        PageSection(
            "What each would have cost",
            runs_table(frame, COST, caption=MEANINGS["cost_usd"].capitalize() + "."),
        ),
        PageSection(
            "How the context would have grown",
            chart(growth(replays), "growth") if _calls(replays) else "",
        ),
        PageSection("How the compactions held", runs_table(frame, CUTS)),
        PageSection("What was lost", runs_table(frame, LOSS, caption=LOST)),
        PageSection("What is odd", table(("session", "rules", "note"), failures(frame, "note"))),
        PageSection("What failed", table(("session", "rules", "why"), failures(frame))),
        PageSection("All figures", _all(frame)),
    ]
    title = f"{line(session, 80)}: {len(frame)} settings compared"
    head = f'<p class="soft">{escape(made_by())}</p>'
    return page(title, head, sections, plotly=_calls(replays))


def _calls(replays: dict[str, Session]) -> bool:
    return any(s.calls for s in replays.values())


def _all(frame: Comparison) -> str:
    head = ("figure", *(line(str(r), 60) for r in frame["rules"]), "meaning")
    rows = [
        (name, *(cell(name, v) for v in frame[name]), meaning)
        for name, meaning in MEANINGS.items()
        if name not in ("session", "rules", "note", "error") and frame[name].notna().any()
    ]
    numbers = frozenset(range(1, len(frame) + 1))
    return (
        "<details><summary>Every column, with its"
        f" meaning</summary>{table(head, rows, numbers=numbers)}</details>"
    )
