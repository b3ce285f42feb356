"""What the last call of a session added, and when its next compaction is due."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from ctxkit.display.amounts import counted
from ctxkit.display.markup import line
from ctxkit.frames.occupancy import prompts
from ctxkit.messages import Edit, Message
from ctxkit.sizes.windows import window_of
from ctxkit.subjects import answered, what
from ctxkit.tokens.lengths import tokens

if TYPE_CHECKING:
    from ctxkit.session import Session

_LATELY = 20
"""Calls whose growth tells how fast the context grows."""
_NAMED = 3


def last_call(session: Session) -> str:
    """Return what came between the last two prompts, in a sentence; empty where it cannot be said.

    The sum is as recorded where the log has usage; the parts are estimates of their text.
    """
    sizes, source = prompts(session)
    if len(session.calls) < 2 or sizes[-1] is None or sizes[-2] is None:
        return ""
    first, last = (session.calls[i].position for i in (-2, -1))
    between = session.path[first:last]
    number, grown = session.calls[-1].index, sizes[-1] - sizes[-2]
    if any(isinstance(e, Edit) for e in between):
        return f"Before call {number} it was compacted: {sizes[-2]:,} to {sizes[-1]:,} tokens."
    came = [e for e in between if isinstance(e, Message) and e.visible]
    calls = {id(m): c for m, c in answered(came)}
    came.sort(key=tokens, reverse=True)
    told = [
        f"{what(m, calls.get(id(m)), session.cwd)} (about {tokens(m):,})" for m in came[:_NAMED]
    ]
    more = len(came) - len(told)
    parts = "; ".join([*told, *([f"{more} more"] if more else [])])
    word = "added" if grown >= 0 else "fell by"
    return line(f"Call {number} {word} {abs(grown):,} tokens ({source}): {parts}.", 400)


def next_compaction(session: Session) -> str:
    """Return when the next compaction is due, in a sentence, from what this log itself shows.

    It is due where the last one that came by itself was; without one, where the window is full.
    """
    sizes, _ = prompts(session)
    known = [n for n in sizes if n]
    if not known:
        return "When a compaction is due cannot be said: the log has no sizes of prompts."
    due, why = _due(session, sizes)
    if due is None:
        return (
            "When a compaction is due cannot be said: neither the log nor the price table names the"
            " window."
        )
    left, grows = due - known[-1], _growth(sizes)
    if left <= 0:
        return f"The next compaction is due now ({why})."
    if not grows:
        return f"The next compaction is due in {left:,} tokens ({why}); it has not grown lately."
    calls = max(-(-left // grows), 1)
    return (
        f"The next compaction is due in about {counted(calls, 'call')} ({left:,} tokens, "
        f"{grows:,} a call lately; {why})."
    )


def _due(session: Session, sizes: list[int | None]) -> tuple[int | None, str]:
    size, found = 0, None
    call = 0
    for entry in session.path:
        if isinstance(entry, Edit):
            if entry.kind == "summarised" and (entry.trigger or "auto") != "manual":
                found = entry.tokens_before or size or found
        elif entry.role == "assistant":
            size, call = sizes[call] or size, call + 1
    if found:
        return found, f"its last one came at {found:,}"
    last = session.calls[-1].message
    window = window_of(session, last.model or session.model, last).tokens
    return window, f"no compaction yet; its window holds {window:,}" if window else ""


def _growth(sizes: list[int | None]) -> int:
    """Return by how many tokens a call made the context grow lately, in the median."""
    lately = sizes[-_LATELY:]
    steps = [b - a for a, b in pairwise(n for n in lately if n) if b > a]
    return round(median(steps)) if steps else 0
