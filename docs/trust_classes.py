"""Section of docs/trust.md on the miss rates of the classes of calls, by developer."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ctxkit.engine.cache_model.training_counts import load_training_counts

if TYPE_CHECKING:
    from ctxkit.engine.cache_model.training_counts import CallClassCounts

MIN_CALLS = 20
"""Classes with fewer calls of a tool are left out."""
HEAD = """### Miss rates behind a prediction

The classes have {few} calls or more, in {n} sessions. An interval is wider if few of many
developers have misses. A first call (`cold_start`) is a miss if it reads nothing; its number is the
time since the developer's last log:

| number | 0 | 1 | 2 | 3 | 4 | 5 |
| --- | --- | --- | --- | --- | --- | --- |
| below | 1 minute | 5 | 30 | 60 | 4 hours | longer, or no earlier log |

| tool | class | calls | misses | developers | with misses |
| --- | --- | --- | --- | --- | --- |
"""


def format_section() -> str:
    """Return the section in Markdown."""
    rows = load_training_counts()
    counts_by_class: dict[tuple[str, str], dict[str, list[CallClassCounts]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        for class_name, count in row.counts.items():
            counts_by_class[row.tool, class_name][row.owner].append(count)
    lines = []
    for (tool, class_name), owners in counts_by_class.items():
        calls = sum(count.calls for counts in owners.values() for count in counts)
        misses = sum(count.misses for counts in owners.values() for count in counts)
        owners_with_misses_n = sum(
            any(count.misses for count in counts) for counts in owners.values()
        )
        if calls >= MIN_CALLS:
            rate = f"{misses:,} ({misses / calls:.1%})"
            developers = f"{len(owners)} | {owners_with_misses_n}"
            text = f"| {tool} | {class_name} | {calls:,} | {rate} | {developers} |\n"
            lines.append((tool, -calls, text))
    return HEAD.format(few=MIN_CALLS, n=len(rows)) + "".join(text for *_, text in sorted(lines))
