"""The part on the rates of the classes of calls, by developer."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ctxkit.engine.cache_model.training_counts import load_counts

if TYPE_CHECKING:
    from ctxkit.engine.cache_model.training_counts import ClassCount

FEW = 20
"""A class of fewer calls of a tool is left out."""
RATES = """### What a prediction is made of

Rates of the classes of {few} calls or more, by what {n} sessions taught. Developers differ: a class
that missed with a few of many is what widens an interval. Of first calls a miss is one that read
nothing; the number behind the slash is the time since the developer's last log (0: below a minute,
1: below 5, 2: 30, 3: 60 minutes, 4: 4 hours, 5: longer or none).

| tool | class | calls | misses | developers | of them missed |
| --- | --- | --- | --- | --- | --- |
"""


def page() -> str:
    """Return the part."""
    rows = load_counts()
    found: dict[tuple[str, str], dict[str, list[ClassCount]]] = defaultdict(
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
