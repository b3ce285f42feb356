"""Chapter of docs/trust.md that compares recorded compactions with those of their presets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trust_presets import NEAR_CALLS, compare_with_preset

import ctxkit as ck

if TYPE_CHECKING:
    from pathlib import Path

    from trust_presets import PresetComparison

OTHERS = """
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


def page(folder: Path) -> str:
    """Return the chapter."""
    found = [a for s in ck.read_all(folder, progress=False) for a in compare_with_preset(s)]
    hand = sum(a.by_hand for a in found)
    real = [a for a in found if "shapes, not" not in a.cause and not a.by_hand]
    near = sum(a.near for a in real)
    share = near / max(len(real), 1)
    left = sum(not a.near and "does not show" in a.cause for a in real)
    return (
        "## Automatic compactions compared with their presets\n\n"
        "Each compaction is compared alone: the preset starts from the history that the previous "
        "recorded compaction left, so an early difference does not carry over. Manual compactions "
        "are left out.\n\n"
        f"{near} of {len(real)} are within {NEAR_CALLS} calls ({share:.0%}; goal: 80 %, "
        f"{'reached' if share >= 0.8 else '**missed**'}); {left} of the others have no known "
        "cause. "
        f"Left out: {len(found) - len(real) - hand} in test logs without a real conversation, and "
        f"{hand} manual without a mark.\n\n" + HEAD + "".join(map(_row, found)) + OTHERS
    )


def _row(a: PresetComparison) -> str:
    due = "none" if a.due is None else str(a.due)
    return (
        f"| {a.session[:24]} | {a.compaction} | {a.rules} | {a.call} | {_n(a.before)} "
        f"| {due} | {_n(a.at)} | {a.cause or 'within two calls'} |\n"
    )


def _n(tokens: int | None) -> str:
    return "-" if tokens is None else f"{tokens:,}"
