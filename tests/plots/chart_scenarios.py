"""Charts of small sessions that bring out what each chart can draw.

`python tests/plots/chart_scenarios.py` writes their references anew after a chart was changed on
purpose; the difference is then read as code is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from example_sessions import (  # noqa: E402
    make_alternating,
    make_compacted,
    make_growing,
    make_pruned_replay,
    make_shrinking,
    make_team,
    make_with_suppressed_compaction,
    make_with_tools,
    make_with_user_rules,
)
from reference_texts import write_json, write_references  # noqa: E402

import ctxkit as ck  # noqa: E402
from ctxkit.plots.chart import PLOTLY_MIME_TYPE, Chart  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

REFERENCES = HERE / "chart_references"


def make_runs(sessions: int = 6) -> pd.DataFrame:
    settings = (
        ("a", 1.0, 0.5, 1, 10), ("b", 2.0, 0.1, 2, 10), ("<c>", 2.6, 0.2, 1, 20),
        ("d" * 40, 2.6, 0.2, 1, 20), ("e", 0.5, 0.05, 2, 20), ("f", 9.0, 0.9, 3, 30),
    )  # fmt: skip
    rows = [
        {
            "session": f"s{i}", "rules": rules, "cost_usd": cost + i, "cost_low_usd": cost + i - 2,
            "cost_high_usd": cost + i + 2, "needed_later_loss": loss, "keep": keep, "window": window,
            "first_call_over_window": 4 if rules == "e" else None,
            "session_notes": "The log has no prices." if i == 2 else None,
            "prediction_error": 0.01 * i, "unexplained_miss_share": 0.004 * i,
        }
        for i in range(sessions)
        for rules, cost, loss, keep, window in settings
    ]  # fmt: skip
    return pd.DataFrame(rows)


SCENARIOS: dict[str, Callable[[], Chart]] = {
    "budget": lambda: ck.plots.budget(make_team()),
    "budget of sessions": lambda: ck.plots.budget([make_team(), make_alternating()]),
    "cache": lambda: ck.plots.cache(make_growing(6, gap=400.0)),
    "cache of a replay": lambda: ck.plots.cache(make_pruned_replay()),
    "calibration": lambda: ck.plots.calibration(make_growing(6)),
    "composition": lambda: ck.plots.composition(make_compacted()),
    "composition of many calls": lambda: ck.plots.composition(make_growing(61)),
    "composition of one call": lambda: ck.plots.composition(make_with_tools(), 1),
    "diff": lambda: ck.plots.diff(make_with_tools(), 1),
    "diff of a shortened result": lambda: ck.plots.diff(make_with_tools(), 0),
    "frontier": lambda: ck.plots.frontier(make_runs()),
    "frontier of few": lambda: ck.plots.frontier(make_runs(2)),
    "growth": lambda: ck.plots.growth(make_compacted()),
    "growth of several": lambda: ck.plots.growth(
        [make_compacted(), make_alternating(), make_growing(4)]
    ),
    "growth of a replay": lambda: ck.plots.growth(
        {"pruned": make_pruned_replay(), "failed": make_compacted(), "pair": make_alternating()},
        small=True,
    ),
    "heatmap": lambda: ck.plots.heatmap(make_runs(), x="keep", y="window"),
    "heatmap of few": lambda: ck.plots.heatmap(
        make_runs(2), x="keep", y="window", z="needed_later_loss"
    ),
    "idle": lambda: ck.plots.idle(make_growing(5, gap=900.0)),
    "loss": lambda: ck.plots.loss(make_with_user_rules()),
    "loss of several": lambda: ck.plots.loss(make_pruned_replay()),
    "savings": lambda: ck.plots.savings(make_shrinking("one", (100, 40), (50, 60))),
    "savings of several": lambda: ck.plots.savings(
        [make_shrinking("one", (100, 40)), make_shrinking("two", (5000, 1200)), make_compacted()]
    ),
    "strip": lambda: ck.plots.strip(make_growing(4), 2),
    "strip of a replay": lambda: ck.plots.strip(make_pruned_replay(), -1),
    "thrash": lambda: ck.plots.thrash(make_with_suppressed_compaction(), window=2),
    "thrash by messages": lambda: ck.plots.thrash(make_with_tools(), by="messages"),
    "user_rules": lambda: ck.plots.user_rules(make_with_user_rules()),
    "views": lambda: ck.plots.views(ck.compare(make_alternating(), "views")),
}
"""The charts by name, which begins with that of the function."""


def write_forms(chart: Chart) -> str:
    """Return text, plotly figure and HTML of a chart, one part a line."""
    forms = chart._repr_mimebundle_()
    figure = forms.get(PLOTLY_MIME_TYPE, {})
    layout = figure.get("layout", {})
    lines = [
        *forms["text/plain"].splitlines(),
        *(f"trace {i}: {write_json(trace)}" for i, trace in enumerate(figure.get("data", ()))),
        *(f"layout {name}: {write_json(value)}" for name, value in sorted(layout.items())),
        *forms["text/html"].replace("><", ">\n<").splitlines(),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_references(
        REFERENCES,
        {name: lambda draw=draw: write_forms(draw()) for name, draw in SCENARIOS.items()},
    )
