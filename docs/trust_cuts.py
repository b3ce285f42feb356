"""The chapter on recorded compactions beside their presets'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trust_presets import NEAR_CALLS, compare_with_preset

import ctxkit as ck

if TYPE_CHECKING:
    from pathlib import Path

    from trust_presets import PresetComparison

OTHERS = """
Pi's log does not mark what a person asked for. The one at 174,738 tokens is told from the log
itself: the session continues to send larger prompts to the same model, which nothing compacts, so
no trigger made it. (The turn was over, too, and what the user says next is of having compacted.)

Beside the folder's, 11 of Codex and 2 of Claude Code (0.118 to 0.145, 2.1.39) were found in the
logs that taught the cache or were kept from it, copies left out: both of Claude Code and 3 of Codex
come within two calls. Codex's own trigger is nine tenths of a model's whole window, of which its
log shows 95 % (until now 232,560 was taken for 244,800), and it counts old reasoning by the size of
its encrypted text, which is cut out of public logs: 5 of the other 8 have that cause (with twice
the reasoning that the log counts the trigger holds), 3 have none that the log shows.
"""
HEAD = (
    "| session | compaction | preset | before call | at tokens | preset's: before call "
    "| at tokens | cause |\n"
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
        "## Automatic compactions beside their presets'\n\n"
        "Each is taken alone: the preset begins with what the log's own compactions before it had "
        "left, so that an early difference does not carry over. What a person asked for is left "
        "out.\n\n"
        f"{near} of {len(real)} come within {NEAR_CALLS} calls ({share:.0%}; goal: 80 %, "
        f"{'reached' if share >= 0.8 else '**missed**'}), {left} of the others without a cause. "
        f"{len(found) - len(real) - hand} more are in logs that show shapes and no conversation, "
        f"{hand} was made by hand without a mark.\n\n" + HEAD + "".join(map(_row, found)) + OTHERS
    )


def _row(a: PresetComparison) -> str:
    due = "none" if a.due is None else str(a.due)
    return (
        f"| {a.session[:24]} | {a.compaction} | {a.rules} | {a.call} | {_n(a.before)} "
        f"| {due} | {_n(a.at)} | {a.cause or 'within two calls'} |\n"
    )


def _n(tokens: int | None) -> str:
    return "-" if tokens is None else f"{tokens:,}"
