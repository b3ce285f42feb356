"""A chart of 1,000,000 points: CPU and bytes against plotly's own figure of the same points."""

from __future__ import annotations

import gc
import json
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS, AGENTS = 1_000_000, ("planner", "coder", "reviewer", "tester", "researcher")


def sawtooth(rng: np.random.Generator, n: int) -> Any:
    """A context that grows by steps and is compacted at 150,000 tokens."""
    steps = np.minimum(30_000, rng.lognormal(6.3, 1.2, n)).astype(np.int64)
    total = np.cumsum(steps)
    fired = np.diff(total // 150_000, prepend=0) > 0
    return total - np.maximum.accumulate(np.where(fired, total, 0)) + 12_000


def median_ms(do: Callable[[], Any], times: int) -> float:
    """CPU milliseconds, median, after a warm-up."""
    do()
    found = []
    for _ in range(times):
        gc.collect()
        start = time.process_time()
        do()
        found.append(time.process_time() - start)
    return statistics.median(found) * 1e3


def run() -> list[dict]:
    import plotly.graph_objects as go

    from ctxkit.plots.chart import Chart
    from ctxkit.plots.xy_figure import Trace, XyDrawing

    rng = np.random.default_rng(0)
    data = {agent: (np.arange(POINTS // 5), sawtooth(rng, POINTS // 5)) for agent in AGENTS}

    def ours() -> str:
        traces = tuple(
            Trace(name=a, x=x, y=y, look=i) for i, (a, (x, y)) in enumerate(data.items())
        )
        chart = Chart(title="Context", drawing=XyDrawing(x="call", y="tokens", traces=traces))
        return json.dumps(chart.to_plotly(), separators=(",", ":"))

    def peer() -> str:
        figure = go.Figure(
            [go.Scatter(x=x, y=y, name=a, mode="lines") for a, (x, y) in data.items()]
        )
        return figure.to_json()

    for trace in json.loads(ours())["data"]:
        y = data[trace["name"]][1]
        assert (min(trace["y"]), max(trace["y"])) == (y.min(), y.max()), "an extreme was lost"
        assert (trace["y"][0], trace["y"][-1]) == (y[0], y[-1]), "an end was lost"
    mine, theirs = median_ms(ours, 15), median_ms(peer, 5)
    small, large = len(ours()), len(peer())
    what = "chart of 1,000,000 points in 5 traces, extremes exact"
    return [
        row(f"{what}: CPU, against plotly's figure", mine, theirs, mine / theirs, "<= 0.33", "ms"),
        row(f"{what}: CPU, against the limit of 10 ms", mine, 10.0, mine / 10, "<= 1", "ms"),
        row(
            f"{what}: bytes, plotly's figure against ours",
            small,
            large,
            large / small,
            ">= 200",
            "bytes",
        ),
        row(
            f"{what}: bytes, against the limit of 50 kB",
            small,
            50_000,
            small / 50_000,
            "<= 1",
            "bytes",
        ),
    ]


def row(name: str, ours: float, peer: float, ratio: float, goal: str, unit: str) -> dict:
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "ratio": round(ratio, 3),
        "goal": goal,
        "unit": unit,
    }


if __name__ == "__main__":
    for found in run():
        print(found)
