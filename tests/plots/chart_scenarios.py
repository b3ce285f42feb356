"""Charts of small sessions that bring out what each chart can draw.

`python tests/plots/chart_scenarios.py` writes their references anew after a chart was changed on
purpose; the difference is then read as code is.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ctxkit.plots import Chart

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from builders import assistant, session, step, usage, user  # noqa: E402
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
from ctxkit.plots import render_svg_html  # noqa: E402
from ctxkit.session import Edit  # noqa: E402

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


def _list_refusals() -> list[str]:
    """Return the sentence of each refusal of a wrong argument."""
    runs, one = make_runs(), make_shrinking("one", (100, 40))
    tries: list[Callable[[], Any]] = [
        lambda: ck.plots.strip(session(user(), assistant()), 0),
        lambda: ck.plots.thrash(one, by="turns"),
        lambda: ck.plots.thrash([one, make_shrinking("two", (100, 40))]),
        lambda: ck.plots.savings(runs),
        lambda: ck.plots.diff(make_with_tools(), 7),
        lambda: ck.plots.diff(session(id="none")),
        lambda: ck.plots.budget(runs),
        lambda: ck.plots.views(runs),
        lambda: ck.plots.frontier(runs.assign(cost_usd=None)),
        lambda: ck.plots.heatmap(runs, x="keep", y="keep"),
        lambda: ck.plots.heatmap(runs, x=3),
        lambda: ck.plots.heatmap(runs),
        lambda: ck.plots.heatmap(runs.assign(calls_n=1), x="keep"),
        lambda: ck.plots.growth(3),
    ]
    sentences = []
    for attempt in tries:
        try:
            sentences.append(f"not refused: {attempt()!r}"[:100])
        except ck.CtxkitError as error:
            sentences.append(f"{type(error).__name__}: {error}")
    return sentences


def _make_snapshot_frame() -> pd.DataFrame:
    """Return turns of which one row is a marker of a compaction and no agent's."""
    rows = [
        ("Dev", 0, 10, 1, 10, 60, 100, False, "Rev"), ("Rev", 1, 50, 4, 50, 60, 100, False, ""),
        ("system", 2, 0, 0, 0, None, None, True, ""), ("Dev", 2, 7, 2, 7, 60, 100, False, ""),
    ]  # fmt: skip
    columns = (
        "agent", "turn", "turn_input_tokens", "turn_output_tokens", "cumulative_input_tokens",
        "warn_at", "cutover_at", "compaction_occurred", "to",
    )  # fmt: skip
    return pd.DataFrame(rows, columns=[*columns])


def _make_masked_replay() -> ck.Session:
    """Return a replay whose rules hide old results from each prompt, and compact."""
    log: list[Any] = [user("Look at it all.")]
    for n in range(12):
        log += [*step("read_file", f"{n} " + "word " * 400, path=f"src/a{n}.py")]
        log += [assistant(f"Seen {n}.", usage=usage(1000 + 900 * n))]
    above = ck.policies.triggers.Above(1100)
    rules = ck.policies.Rules("window:keep_tokens=500", above, pruning="clear:keep_last=2")
    return ck.replay(session(*log, id="masked", title="masked"), rules)


def _make_own_chart() -> Chart:
    import plotly.graph_objects as go

    figure = go.Figure(go.Bar(x=["a", "b"], y=[1, 2], marker={"color": "#123456"}))
    figure.update_layout(title={"text": "Two <b>bars</b>"}, height=300, template=None)
    return Chart.from_figure(figure, caption="Of my own: $3.")


SCENARIOS: dict[str, Callable[[], Chart]] = {
    "budget": lambda: ck.plots.budget(make_team()),
    "budget of snapshots": lambda: ck.plots.budget(_make_snapshot_frame()),
    "budget without turns": lambda: ck.plots.budget(_make_snapshot_frame().iloc[:0]),
    "budget of sessions": lambda: ck.plots.budget([make_team(), make_alternating()]),
    "cache": lambda: ck.plots.cache(make_growing(6, gap=400.0)),
    "cache of a replay": lambda: ck.plots.cache(make_pruned_replay()),
    "calibration": lambda: ck.plots.calibration(make_growing(6)),
    "composition": lambda: ck.plots.composition(make_compacted()),
    "composition of many calls": lambda: ck.plots.composition(make_growing(61)),
    "composition of nothing": lambda: ck.plots.composition(session(id="none")),
    "composition of no call": lambda: ck.plots.composition(session(user("Hi."), id="none"), -1),
    "composition of one call": lambda: ck.plots.composition(make_with_tools(), 1),
    "diff": lambda: ck.plots.diff(make_with_tools(), 1),
    "diff of a shortened result": lambda: ck.plots.diff(make_with_tools(), 0),
    "chart of a figure": _make_own_chart,
    "diff of a masked replay": lambda: ck.plots.diff(_make_masked_replay(), 0),
    "frontier": lambda: ck.plots.frontier(make_runs()),
    "frontier of few": lambda: ck.plots.frontier(make_runs(2)),
    "growth": lambda: ck.plots.growth(make_compacted()),
    "growth of settings": lambda: ck.plots.growth(
        ck.compare(make_growing(9), ["none", "swe_agent_mask"], progress=False)
    ),
    "growth without sizes": lambda: ck.plots.growth(make_team()),
    "growth of several": lambda: ck.plots.growth(
        [make_compacted(), make_alternating(), make_growing(4)]
    ),
    "growth of a replay": lambda: ck.plots.growth(
        {"pruned": make_pruned_replay(), "failed": make_compacted(), "pair": make_alternating()},
        small=True,
    ),
    "heatmap": lambda: ck.plots.heatmap(make_runs(), x="keep", y="window"),
    "heatmap of the settings that vary": lambda: ck.plots.heatmap(
        make_runs()[["session", "rules", "keep", "window"]].assign(calls_n=3, cost_usd=2.0)
    ),
    "heatmap of few": lambda: ck.plots.heatmap(
        make_runs(2), x="keep", y="window", z="needed_later_loss"
    ),
    "idle": lambda: ck.plots.idle(make_growing(5, gap=900.0)),
    "loss": lambda: ck.plots.loss(make_with_user_rules()),
    "loss of several": lambda: ck.plots.loss(make_pruned_replay()),
    "savings": lambda: ck.plots.savings(make_shrinking("one", (100, 40), (50, 60))),
    "savings of a frame": lambda: ck.plots.savings(
        ck.frame([make_compacted(), make_shrinking("one", (9000, 100))], per="compaction")
    ),
    "savings of many": lambda: ck.plots.savings(
        make_shrinking("many", *((1000 + n, 1000 - 40 * n) for n in range(15)))
    ),
    "savings without sizes": lambda: ck.plots.savings(
        session(make_team().log[0], Edit(kind="summarised"), make_team().log[0], id="unknown")
    ),
    "savings of several": lambda: ck.plots.savings(
        [make_shrinking("one", (100, 40)), make_shrinking("two", (5000, 1200)), make_compacted()]
    ),
    "strip": lambda: ck.plots.strip(make_growing(4), 2),
    "strip of a replay": lambda: ck.plots.strip(make_pruned_replay(), -1),
    "thrash": lambda: ck.plots.thrash(make_with_suppressed_compaction(), window=2),
    "thrash of a frame": lambda: ck.plots.thrash(
        ck.frame(make_shrinking("one", (100, 99), (100, 98), (90, 20)), per="compaction"), window=2
    ),
    "thrash by messages": lambda: ck.plots.thrash(make_with_tools(), by="messages"),
    "user_rules": lambda: ck.plots.user_rules(make_with_user_rules()),
    "views": lambda: ck.plots.views(ck.compare(make_alternating(), "views")),
}
"""The charts by name, which begins with that of the function."""


def write_page_without_plotly(chart: Chart) -> str:
    """Return the page of a chart, one element a line, without plotly's script and its data."""
    return re.sub(r"<script.*?</script>", "", chart.page(), flags=re.DOTALL).replace("><", ">\n<")


TEXTS: dict[str, Callable[[], str]] = {
    "page": lambda: write_page_without_plotly(ck.plots.growth(make_compacted())),
    "refusals": lambda: "\n".join(_list_refusals()) + "\n",
}
"""Texts beside the charts: a page that opens offline, and what is said of wrong arguments."""
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "triangle-down", "x", "star")
PICTURES: dict[str, dict[str, Any]] = {
    "areas": {
        "data": [
            {"x": [0, 1, 2, 3], "y": [1, 3, None, 2], "stackgroup": "one", "name": "low"},
            {"x": [0, 2, 3], "y": [2, 1, 4], "stackgroup": "one", "name": "high"},
            {"x": [0, 3], "y": [6, 9], "fill": "tozeroy", "fillcolor": "rgba(1,2,3,0.5)", "name": "veil"},
            {"x": [0, 3], "y": [9, 5], "fill": "tozeroy", "line": {"color": "#123456"}, "name": "plain"},
        ],
        "layout": {"xaxis": {"title": {"text": "x &amp; <b>more</b>"}}, "yaxis": {"title": {"text": "y"}}},
    },
    "bars": {
        "data": [
            {"type": "bar", "x": ["a", "b", "c"], "y": [3, -2, 1], "name": "one", "text": ["3", "", "1"]},
            {"type": "bar", "x": ["a", "b", "c"], "y": [1, -1, 2], "name": "two",
             "marker": {"color": ["#111111", "nonsense(", "rgb(1, 2, 3)"], "line": {"width": 1}},
             "hovertext": ["<i>first</i>", "second", "third"], "hoverinfo": "text"},
        ],
        "layout": {"barmode": "relative", "height": 500},
    },
    "bars beside each other": {
        "data": [
            {"type": "bar", "x": [1, 2, 4], "y": [3, 2, 1], "name": "one", "width": 0.2},
            {"type": "bar", "x": [1, 2, 4], "y": [1, 4, 2], "name": "two"},
            {"type": "bar", "x": [1, 2, 4], "y": [2, 2, 2], "name": "three", "base": [1, 0, 3]},
        ],
        "layout": {"colorway": ["#aa0000", "#00aa00"], "height": 90},
    },
    "cells": {
        "data": [{
            "type": "heatmap", "x": ["p", "q", "r"], "y": [1, 3], "z": [[1, None, 9], [4, 5, 0]],
            "text": [["1", "", "9"], ["4", "5", "0"]], "texttemplate": "%{text}",
        }],
        "layout": {},
    },
    "cells in colours of their own": {
        "data": [{"type": "heatmap", "z": [[0, 1], [2, 4]], "colorscale": [[0, "#000000"], [1, "#ffffff"]]}],
        "layout": {"yaxis": {"autorange": "reversed"}},
    },
    "dates": {
        "data": [{"x": ["2024-01-01", "2024-01-02", "2024-01-09"], "y": [1, 2, 3], "name": "days"}],
        "layout": {},
    },
    "dates within a day": {
        "data": [{"x": ["2024-01-01 10:00", "2024-01-01 16:30"], "y": [1, 2], "mode": "lines"}],
        "layout": {"xaxis": {"range": ["2024-01-01 09:00", "2024-01-01 18:00"]}},
    },
    "histogram": {
        "data": [{"type": "histogram", "x": [1, 1, 2, 2, 2, 3, 5, 8, 9], "name": "sizes"}],
        "layout": {},
    },
    "long line": {
        "data": [{"y": [(i * 7919) % 1000 if i % 97 else 5000 + i for i in range(5000)], "name": "long"}],
        "layout": {},
    },
    "marks and notes": {
        "data": [{"x": [0, 10], "y": [0, 100], "mode": "lines+text", "text": ["", "end"],
                  "textposition": "top left", "name": "line",
                  "line": {"color": "#00aa00", "width": 3, "dash": "dot"}}],
        "layout": {
            "shapes": [
                {"type": "line", "x0": 2, "x1": 2, "yref": "paper", "y0": 0, "y1": 1,
                 "line": {"color": "#ff0000", "dash": "dash"}},
                {"type": "rect", "x0": 4, "x1": 6, "y0": 10, "y1": 50, "fillcolor": "#abcdef"},
                {"type": "rect", "xref": "x domain", "x0": 0.5, "x1": 1, "y0": 60, "y1": 70},
                {"type": "circle", "x0": 1, "x1": 2, "y0": 1, "y1": 2},
                {"type": "line", "x0": None, "x1": 1, "y0": 1, "y1": 2},
            ],
            "annotations": [
                {"x": 3, "y": 30, "text": "with an arrow"},
                {"x": 5, "y": 80, "text": "at the left", "showarrow": False, "xanchor": "left",
                 "yanchor": "top", "xshift": 5, "yshift": 7},
                {"x": 0.5, "y": 0, "xref": "paper", "yref": "paper", "text": "below",
                 "showarrow": False, "yanchor": "bottom", "xanchor": "right"},
                {"x": 0, "y": 0.5, "xref": "paper", "yref": "paper", "text": "turned",
                 "showarrow": False, "textangle": -90},
            ],
            "showlegend": False,
        },
    },
    "names of many points": {
        "data": [{"x": [5 + i % 4 for i in range(16)], "y": [7 + i % 3 for i in range(16)],
                  "mode": "markers+text", "text": [f"point {i}" for i in range(16)]}],
        "layout": {},
    },
    "pie": {
        "data": [{"type": "pie", "labels": ["a", "b", "a", "c"], "values": [1, 5, 2, 0],
                  "marker": {"colors": ["#111111", "#222222", "#333333", "#444444"]}}],
        "layout": {},
    },
    "small and large numbers": {
        "data": [
            {"x": [1, 10, 1000, -1], "y": [0.25, 0.5, 0.75, 1], "mode": "markers", "name": "shares"},
            {"x": [2, 20, 2000], "y": [2e9, 1.5e6, 999], "yaxis": "y2", "name": "sizes"},
        ],
        "layout": {
            "xaxis": {"type": "log", "anchor": "y"},
            "yaxis": {"tickformat": ".1%", "nticks": 9, "range": [0, 1.2]},
            "yaxis2": {"side": "right", "tickprefix": "$", "title": {"text": "dollars"}},
            "height": 2000,
        },
    },
    "symbols": {
        "data": [
            {"x": [i], "y": [i % 3], "mode": "markers", "name": symbol + hollow,
             "marker": {"symbol": symbol + hollow, "size": 6 + i}, "showlegend": i != 3}
            for hollow in ("", "-open")
            for i, symbol in enumerate(SYMBOLS)
        ],
        "layout": {"yaxis": {"rangemode": "tozero", "ticktext": ["none", "two"], "tickvals": [0, 2]}},
    },
    "two areas of the page": {
        "data": [
            {"x": [1, 2], "y": [1, 2], "name": "left"},
            {"x": [1, 2], "y": [3, 3], "xaxis": "x2", "yaxis": "y2", "name": "right"},
            {"x": [1], "y": [1], "visible": "legendonly", "name": "hidden"},
            {"type": "box", "y": [1, 2]},
        ],
        "layout": {
            "xaxis": {"domain": [0, 0.45], "title": {"text": "first"}},
            "xaxis2": {"domain": [0.55, 1], "showticklabels": False},
            "yaxis2": {"anchor": "x2", "showgrid": False},
        },
    },
    "treemap": {
        "data": [{"type": "treemap", "ids": ["w", "a", "b", "c"], "labels": ["whole", "A", "B", "C"],
                  "parents": ["", "w", "w", "a"], "values": [10, 7, 3, 2]}],
        "layout": {},
    },
}  # fmt: skip
"""Plotly figures of any kind, as JSON, that the static picture draws."""


def write_picture(figure: dict[str, Any]) -> str:
    """Return the static picture of a figure, one element a line."""
    return render_svg_html(figure).replace("><", ">\n<") + "\n"


def write_forms(chart: Chart) -> str:
    """Return text, plotly figure and HTML of a chart, one part a line."""
    forms = chart._repr_mimebundle_()
    figure = forms.get("application/vnd.plotly.v1+json", {})
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
        {name: lambda draw=draw: write_forms(draw()) for name, draw in SCENARIOS.items()}
        | {f"picture {name}": lambda of=of: write_picture(of) for name, of in PICTURES.items()}
        | TEXTS,
    )
