"""Part of docs/trust.md on the miss rates of the classes of calls, by developer."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ctxkit.engine.cache_model.training_counts import load_training_counts

if TYPE_CHECKING:
    from ctxkit.engine.cache_model.training_counts import CallClassCounts

FEW = 20
"""A class of fewer calls of a tool is left out."""
RATES = """### Miss rates behind a prediction

Miss rates of the classes of {few} calls or more, in {n} sessions. A class in which only a few of
many developers have misses widens the interval. A first call counts as a miss if it reads
nothing; the number after its slash is the time since the developer's last log (0: below 1 minute,
1: below 5, 2: below 30, 3: below 60 minutes, 4: below 4 hours, 5: longer, or no earlier log).

| tool | class | calls | misses | developers | with misses |
| --- | --- | --- | --- | --- | --- |
"""


def page() -> str:
    """Return the part."""
    rows = load_training_counts()
    found: dict[tuple[str, str], dict[str, list[CallClassCounts]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        for name, count in row.counts.items():
            found[row.tool, name][row.owner].append(count)
    lines = []
    for (tool, name), owners in found.items():
        calls = sum(c.calls for counts in owners.values() for c in counts)
        misses = sum(c.misses for counts in owners.values() for c in counts)
        missed = sum(any(c.misses for c in counts) for counts in owners.values())
        if calls >= FEW:
            rate = f"{misses:,} ({misses / calls:.1%})"
            text = f"| {tool} | {name} | {calls:,} | {rate} | {len(owners)} | {missed} |\n"
            lines.append((tool, -calls, text))
    return RATES.format(few=FEW, n=len(rows)) + "".join(text for *_, text in sorted(lines))
