"""How far the compactions of a replay went, and how they held: from their sizes and those of the prompts."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.frames.cuts import cuts
from ctxkit.frames.summaries import NO_MODEL
from ctxkit.messages import Message
from ctxkit.metrics.bills import Written
from ctxkit.metrics.breakeven import requests_until_reset_pays
from ctxkit.metrics.thrash import FULL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.engine import Run
    from ctxkit.messages import Edit
    from ctxkit.metrics.bills import Sheet
    from ctxkit.metrics.quick import Prompts as Quickly
    from ctxkit.session import Session

NO_PROGRESS = 0.1
"""A cut that saves less than this share made no progress (OpenHands' minimum progress)."""
SPIRAL = 3
"""So many cuts without progress in a row count as thrash (where Codex stops trying)."""


class Spot(NamedTuple):
    """One compaction of a replay. Sizes are tokens of the prompt at its call without and with it."""

    call: int
    before: int
    after: int
    messages_before: int
    messages_after: int
    summary: int
    """Tokens that it put in."""
    written: tuple[Written, ...] = ()

    @property
    def savings(self) -> float:
        """Share of the tokens that it saved; negative where the prompt grew."""
        return 1 - self.after / self.before if self.before else 0.0

    @property
    def message_savings(self) -> float:
        """Share of the messages that it took out of sight."""
        return 1 - self.messages_after / self.messages_before if self.messages_before else 0.0


def spots_of(done: Run) -> list[Spot]:
    """Return the compactions of a run."""
    out = []
    for cut in done.cuts:
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
                    written.append(Written(cut.call, before - then + size, before, size, usd))
            before = then
        out.append(Spot(cut.call, first, after, len(was), len(new), summary, tuple(written)))
    return out


def spots_in(session: Session) -> list[Spot]:
    """Return the compactions that a replay placed in its session, as `spots_of` has them."""
    calls, reached = {}, 0
    for position, entry in enumerate(session.path):
        calls[position] = reached
        reached += isinstance(entry, Message) and entry.role == "assistant"
    out = []
    for cut in cuts(session):
        call, first, last = calls[cut.position], cut.edits[0], cut.edits[-1]
        made = [w for e in cut.edits if (w := _written(call, e)) is not None]
        summary = sum(e.details.get("summary_tokens", 0) for e in cut.edits)
        counts = first.details.get("messages_before", 0), last.details.get("messages_after", 0)
        out.append(Spot(call, first.tokens_before or 0, last.tokens_after or 0, *counts, summary, tuple(made)))
    return out


def _written(call: int, edit: Edit) -> Written | None:
    size = edit.details.get("summary_tokens")
    if not size or edit.method in NO_MODEL:
        return None
    usd = edit.usage.cost_usd if edit.usage is not None else None
    return Written(call, edit.details["source_tokens"], edit.tokens_before or 0, size, usd)


class Prompts:
    """The prompts of a replay, one by one."""

    def __init__(self, prompts: NDArray[Any]) -> None:
        self.prompts = prompts

    def __len__(self) -> int:
        return len(self.prompts)

    def at(self, call: int, spot: Spot) -> int:  # noqa: ARG002  `quick.Prompts` needs it
        """Return the prompt of a call between a cut and the next one."""
        return int(self.prompts[call])

    def reaches(self, full: float, spot: Spot, stop: int) -> int | None:
        """Return how many calls after a cut the prompt is at least `full` again; None: not before the call `stop`."""
        over = self.prompts[spot.call : stop] >= full
        return int(over.argmax()) if over.any() else None


def holds(spots: Sequence[Spot], prompts: Prompts | Quickly, sheet: Sheet) -> dict[str, Any]:
    """Return how compactions held, under the names of a score's columns; None where nothing can be said.

    Definitions are those of `thrash`; the sizes before and after are the engine's, at the same call.
    """
    savings, told, refills, rebounds = [], [], [], []
    last = len(prompts)
    for i, spot in enumerate(spots):
        stop = spots[i + 1].call if i + 1 < len(spots) else last
        before, after = spot.before, spot.after
        savings.append(spot.savings)
        if i + 1 < len(spots) and (pays := pays_after(spot, sheet)) is not None:
            told.append(stop - spot.call < pays)
        if spot.call + 10 < stop and before > after:
            refills.append((prompts.at(spot.call + 10, spot) - after) / (before - after))
        back = prompts.reaches(FULL * before, spot, stop)
        if back is not None:
            rebounds.append(back)
    run = longest([s < NO_PROGRESS for s in savings])
    anti = 1 - sum(told) / len(told) if told else None
    return {
        "cuts_n": len(spots),
        "unpaid_cuts_n": sum(told) if told or len(spots) < 2 else None,
        "anti_thrash": anti,
        "refill": sum(refills) / len(refills) if refills else None,
        "rebound_calls": float(median(rebounds)) if rebounds else None,
        "no_progress_n": run,
        "token_savings": sum(savings) / len(savings) if savings else None,
        "message_savings": sum([s.message_savings for s in spots]) / len(spots) if spots else None,
        "summary_tokens": sum([s.summary for s in spots]),
        "thrash": thrashes(run, len(told), anti),
    }


def thrashes(no_progress: int, told: int, anti: float | None) -> bool:
    """Say whether cuts thrash: three without progress in a row, or of at least two, most did not pay for themselves."""
    return no_progress >= SPIRAL or (told >= 2 and anti is not None and anti < 0.5)


def pays_after(spot: Spot, sheet: Sheet) -> float | None:
    """Return after how many requests a cut has paid for itself at the least: its summary call reads the warm prefix."""
    known = sheet.at(spot.call)
    if known is None or known.cache_read is None:
        return None
    p = known.at(spot.before) if known.tiers else known
    read = p.input if p.cache_read is None else p.cache_read
    asked = spot.before * read
    cost = sum([asked + w.summary * p.output if w.usd is None else w.usd for w in spot.written])
    write = p.cache_write or p.input
    return requests_until_reset_pays(spot.before, spot.after, cost_usd=cost, read_price=read, write_price=write)


def longest(flags: Sequence[bool]) -> int:
    """Return the length of the longest run of True."""
    best = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        best = max(best, run)
    return best


def sent(session: Session) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return prompt tokens and shared tokens of each call of a replay."""
    replies = [c.message for c in session.calls]
    prompts = [(m.usage.prompt_tokens if m.usage else m.details.get("prompt_tokens")) or 0 for m in replies]
    return np.array(prompts, np.int64), np.array([m.details.get("shared_tokens", 0) for m in replies], np.int64)
