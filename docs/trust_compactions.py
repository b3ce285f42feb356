"""Chapter of docs/trust.md that compares recorded compactions with those of their presets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trust_presets import NEAR_CALLS, compare_with_preset

import ctxkit as ck

if TYPE_CHECKING:
    from pathlib import Path

    from trust_presets import PresetComparison

NOTES = """
Pi's log does not mark manual compactions. The one at 174,738 tokens was identified from the log:
afterwards the session sends larger prompts to the same model without a compaction, so no trigger
caused it. (It also follows the end of a turn, and the user then mentions having compacted.)

The training logs and those held out contain 11 more compactions of Codex and 2 of Claude Code
(0.118 to 0.145, 2.1.39), without copies. Both of Claude Code and 3 of Codex are within two calls.
Codex triggers at 90 % of a model's whole window, of which its log shows 95 %, and it counts old
reasoning by the size of its encrypted text, which public logs omit. This explains 5 of the other 8:
with twice the reasoning tokens in the log, they reach the trigger. The log does not explain 3.
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
        "## Automatic compactions compared with their presets\n\n"
        "Each compaction is compared alone: the preset starts from the history that the previous "
        "recorded compaction left, so an early difference does not carry over. Manual compactions "
        "are left out.\n\n"
        f"{near_n} of {len(automatic)} are within {NEAR_CALLS} calls ({share:.0%}; goal: 80 %, "
        f"{'reached' if share >= 0.8 else '**missed**'}); {unexplained_n} of the others have no "
        "known cause. "
        f"Left out: {test_logs_n} in test logs without a real conversation, and {by_hand_n} manual "
        "without a mark.\n\n" + HEAD + "".join(map(_format_row, comparisons)) + NOTES
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
