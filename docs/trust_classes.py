"""The part on what the cache's intervals are made of: rates by class, and their sum."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.engine.cache_model.call_features import get_call_features
from ctxkit.engine.cache_model.miss_rates import load_counts, simulate_reads
from ctxkit.engine.cache_model.prediction import (
    compute_input_costs,
    compute_interval_stretch,
    estimate_session_rates,
)

if TYPE_CHECKING:
    from ctxkit.engine.cache_model.miss_rates import ClassCount
    from ctxkit.engine.cache_model.prediction import InputCosts, Prediction
    from ctxkit.session.session import Session

FEW = 20
"""A class of fewer calls of a tool is left out."""
HEAD = """### What an interval is made of

Width of the middle 80 of 100 draws over what was recorded, median of the sessions above:

| with | width |
| --- | --- |
"""
RATES = """
Rates of the classes of {few} calls or more, by what {n} sessions taught. Sessions differ: a class
that missed in a few of many is what widens an interval. First calls have no rate: all that they
read is drawn.

| tool | class | calls | misses | sessions | of them missed |
| --- | --- | --- | --- | --- | --- |
"""


def page(priced: list[tuple[Session, Prediction]]) -> str:
    """Return the part."""
    lines = [(s, line) for s, _ in priced if (line := compute_input_costs(s, get_call_features(s)))]
    rows = zip(*(_widths(*each) for each in lines), strict=True)
    words = (
        "chance call by call, at the rates of the tool",
        "each session with rates and reads of its own",
        "stretched by how far other sessions were off",
    )
    told = [f"| {w} | {median(v):.1%} |\n" for w, v in zip(words, rows, strict=True)]
    return HEAD + "".join(told) + RATES.format(few=FEW, n=len(load_counts())) + _classes()


def _widths(session: Session, line: InputCosts) -> tuple[float, float, float]:
    known, rates = get_call_features(session), estimate_session_rates(session, load_counts())
    own = line.of(simulate_reads(known, rates))
    down, up = compute_interval_stretch(rates)
    rates.drawn = []
    plain = line.of(simulate_reads(known, rates))
    true = float(np.median(own))
    low, mid, high = np.percentile(own, [10, 50, 90]).tolist()
    whole = (mid - low) * down + (high - mid) * up
    spread = float(np.subtract(*np.percentile(plain, [90, 10])))
    return spread / true, (high - low) / true, whole / true


def _classes() -> str:
    found: dict[tuple[str, str], list[ClassCount]] = defaultdict(list)
    for t in load_counts():
        for name, count in t.counts.items():
            if not name.startswith(("cold_start", "prefix_change")):
                found[t.tool, name].append(count)
    rows = [
        (tool, name, sum(c.calls for c in each), sum(c.misses for c in each), each)
        for (tool, name), each in found.items()
    ]
    return "".join(
        f"| {tool} | {name} | {calls:,} | {misses:,} ({misses / calls:.1%}) | {len(each)} "
        f"| {sum(c.misses > 0 for c in each)} |\n"
        for tool, name, calls, misses, each in sorted(rows, key=lambda r: (r[0], -r[2]))
        if calls >= FEW
    )
