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


def make_sawtooth(rng: np.random.Generator, n: int) -> Any:
    """Return the sizes of a context that grows by steps and is compacted at 150,000 tokens."""
    growth = np.minimum(30_000, rng.lognormal(6.3, 1.2, n)).astype(np.int64)
    total = np.cumsum(growth)
    is_compacted = np.diff(total // 150_000, prepend=0) > 0
    return total - np.maximum.accumulate(np.where(is_compacted, total, 0)) + 12_000


def measure_median_ms(work: Callable[[], Any], rounds: int) -> float:
    """Return the median CPU milliseconds of `work`, after a warm-up."""
    work()
    seconds = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds) * 1e3


def run() -> list[dict]:
    import plotly.graph_objects as go

    from ctxkit.plots.chart import Chart
    from ctxkit.plots.xy_figure import Trace, XyDrawing

    rng = np.random.default_rng(0)
    points = {agent: (np.arange(POINTS // 5), make_sawtooth(rng, POINTS // 5)) for agent in AGENTS}

    def ours() -> str:
        traces = tuple(
            Trace(name=agent, x=x, y=y, look=i) for i, (agent, (x, y)) in enumerate(points.items())
        )
        chart = Chart(title="Context", drawing=XyDrawing(x="call", y="tokens", traces=traces))
        return json.dumps(chart.to_plotly(), separators=(",", ":"))

    def peer() -> str:
        figure = go.Figure(
            [go.Scatter(x=x, y=y, name=agent, mode="lines") for agent, (x, y) in points.items()]
        )
        return figure.to_json()

    for trace in json.loads(ours())["data"]:
        y = points[trace["name"]][1]
        assert (min(trace["y"]), max(trace["y"])) == (y.min(), y.max()), "an extreme was lost"
        assert (trace["y"][0], trace["y"][-1]) == (y[0], y[-1]), "an end was lost"
    our_ms, peer_ms = measure_median_ms(ours, 15), measure_median_ms(peer, 5)
    our_bytes, peer_bytes = len(ours()), len(peer())
    name = "chart of 1,000,000 points in 5 traces, extremes exact"
    return [
        make_row(
            f"{name}: CPU, against plotly's figure",
            our_ms,
            peer_ms,
            our_ms / peer_ms,
            "<= 0.33",
            "ms",
        ),
        make_row(
            f"{name}: CPU, against the limit of 10 ms", our_ms, 10.0, our_ms / 10, "<= 1", "ms"
        ),
        make_row(
            f"{name}: bytes, plotly's figure against ours",
            our_bytes,
            peer_bytes,
            peer_bytes / our_bytes,
            ">= 200",
            "bytes",
        ),
        make_row(
            f"{name}: bytes, against the limit of 50 kB",
            our_bytes,
            50_000,
            our_bytes / 50_000,
            "<= 1",
            "bytes",
        ),
    ]


def make_row(name: str, ours: float, peer: float, ratio: float, goal: str, unit: str) -> dict:
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "ratio": round(ratio, 3),
        "goal": goal,
        "unit": unit,
    }


if __name__ == "__main__":
    for row in run():
        print(row)
