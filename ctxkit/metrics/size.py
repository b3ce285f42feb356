"""The compactions of a run and of a replay, with their sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.faces import renamed
from ctxkit.frames.recorded_cuts import cuts
from ctxkit.frames.summary_costs import NO_MODEL
from ctxkit.messages import Message
from ctxkit.metrics.bills import WrittenSummary
from ctxkit.metrics.compaction import Compaction
from ctxkit.metrics.shared_prefixes import Sent, SentByRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.engine import Run
    from ctxkit.messages import Edit
    from ctxkit.session import Session


def spots_of(done: Run, prompts: Sent | None = None) -> list[Compaction]:
    """Return the compactions of a run; `prompts` are those that it sent, where they are known."""
    out, calls = [], prompts or SentByRun(done)
    for number, cut in enumerate(done.cuts):
        was, new, steps = cut.was, cut.new, cut.new.steps
        first, after = was.tokens, new.tokens
        summary, written, before = 0, [], first
        for i, step in enumerate(steps, 1):
            then = steps[i].was.tokens if i < len(steps) else after
            kind, _, method, usage = step.words
            if kind == "summarised" and not step.added and step.new is not None:
                size = sum([item.tokens for item in step.new])
                summary += size
                if size and method not in NO_MODEL:
                    usd = usage.cost_usd if usage is not None else None
                    wrote = step.written(done.log)
                    written.append(
                        WrittenSummary(cut.call, before - then + size, before, wrote, usd)
                    )
            before = then
        counts = len(was), len(new)
        warm = _warm(calls, cut.call, done.call)
        out.append(
            Compaction(cut.call, first, after, *counts, summary, tuple(written), number, *warm)
        )
    return out


def spots_in(session: Session) -> list[Compaction]:
    """Return the compactions that a replay placed in its session, as `spots_of` has them."""
    calls, reached = {}, 0
    for position, entry in enumerate(session.path):
        calls[position] = reached
        reached += isinstance(entry, Message) and entry.role == "assistant"
    out, prompts = [], sent_in(session)
    for cut in cuts(session):
        call, first, last = calls[cut.position], cut.edits[0], cut.edits[-1]
        made = [w for e in cut.edits if (w := _written(call, e)) is not None]
        summary = sum(e.details.get("summary_tokens", 0) for e in cut.edits)
        counts = first.details.get("messages_before", 0), last.details.get("messages_after", 0)
        sizes = first.tokens_before or 0, last.tokens_after or 0
        warm = _warm(prompts, call, len(prompts))
        out.append(Compaction(call, *sizes, *counts, summary, tuple(made), cut.number, *warm))
    return out


def _warm(calls: Sent, call: int, stop: int) -> tuple[int, int | None]:
    """Return what a call shares with the one before, and the size of that; nobody knows of none."""
    return (calls.shared(call), calls.prompt(call - 1)) if 0 < call < stop else (0, None)


def _written(call: int, edit: Edit) -> WrittenSummary | None:
    size = edit.details.get("summary_tokens")
    if not size or edit.method in NO_MODEL:
        return None
    usd = edit.usage.cost_usd if edit.usage is not None else None
    wrote = edit.details.get("written_tokens", size)
    return WrittenSummary(call, edit.details["source_tokens"], edit.tokens_before or 0, wrote, usd)


def sent_in(session: Session) -> Sent:
    """Return the prompts of a replay."""
    return Sent(*(of.tolist() for of in sent(session)))


def sent(session: Session) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return prompt tokens and shared tokens of each call of a replay."""
    replies = [c.message for c in session.calls]
    told = (m.usage.prompt_tokens if m.usage else m.details.get("prompt_tokens") for m in replies)
    prompts = [n or 0 for n in told]
    shared = [m.details.get("shared_tokens", 0) for m in replies]
    return np.array(prompts, np.int64), np.array(shared, np.int64)


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Spot": "Compaction"})
