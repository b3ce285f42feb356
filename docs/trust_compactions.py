"""Chapter of docs/trust.md that compares recorded compactions with those of their presets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trust_presets import NEAR_CALLS, compare_with_preset

import ctxkit as ck

if TYPE_CHECKING:
    from pathlib import Path

    from trust_presets import PresetComparison

NOTES = """
In the training and held-out logs:

| program | within two calls | if reasoning counts twice | unexplained |
| --- | --- | --- | --- |
| Codex 0.118 to 0.145 | 3 of 11 | 5 | 3 |
| Claude Code 2.1.39 | 2 of 2 | 0 | 0 |

Codex triggers at 90 % of a model's whole window, of which its log shows 95 %, and counts old
reasoning by its encrypted text, which public logs omit.
"""
HEAD = (
    "| session | compaction | preset | recorded: before call | tokens | preset: before call "
    "| tokens | cause |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
)


def format_chapter(folder: Path) -> str:
    """Return the chapter in Markdown."""
    comparisons = [
        comparison
        for s in ck.read_all(folder, progress=False)
        for comparison in compare_with_preset(s)
    ]
    by_hand_n = sum(comparison.by_hand for comparison in comparisons)
    automatic = [
        comparison
        for comparison in comparisons
        if "shapes, not" not in comparison.cause and not comparison.by_hand
    ]
    near_n = sum(comparison.is_near for comparison in automatic)
    share = near_n / max(len(automatic), 1)
    unexplained_n = sum(
        not comparison.is_near and "does not show" in comparison.cause for comparison in automatic
    )
    test_logs_n = len(comparisons) - len(automatic) - by_hand_n
    return (
        "## Automatic compactions and their presets\n\n"
        "Each compaction is compared alone, from the history that the previous recorded one left. "
        f"{near_n} of {len(automatic)} are within {NEAR_CALLS} calls ({share:.0%}; goal: 80 %, "
        f"{'reached' if share >= 0.8 else '**missed**'}); {unexplained_n} of the others have no "
        "known cause. "
        f"Manual ones ({by_hand_n} without a mark) and {test_logs_n} in test logs are left out.\n\n"
        f"{HEAD}{''.join(map(_format_row, comparisons))}{NOTES}"
    )


def _format_row(comparison: PresetComparison) -> str:
    cells = (
        comparison.session[:24],
        comparison.compaction,
        comparison.rules,
        comparison.call,
        _format_tokens(comparison.recorded_tokens),
        "none" if comparison.preset_call is None else comparison.preset_call,
        _format_tokens(comparison.preset_tokens),
        comparison.cause or "within two calls",
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def _format_tokens(tokens: int | None) -> str:
    return "-" if tokens is None else f"{tokens:,}"
