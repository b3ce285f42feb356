"""OpenClaw's and Fased's guarded summary: in stages, large messages noted, failures listed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import ModelError
from ctxkit.history import USER
from ctxkit.policies.structured import PiSummary
from ctxkit.policies.summarisers import text_of
from ctxkit.policies.summary import LOCAL
from ctxkit.policies.summary_places import turn_start
from ctxkit.texts import contents, plans, records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.policies.setting import Proportion
    from ctxkit.policies.summarisers import Passage
    from ctxkit.tokens import Room

MERGE = (
    "Merge these partial summaries into one. Keep active tasks and their state, progress of batches"
    " (such as 5/17), the last request, decisions with their reasons, open questions, constraints"
    " and promises; newer before older."
)
FAILURES = 8
"""Tool failures that are listed."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Safeguard(PiSummary):
    """Pi's summary, made in stages where it is long, with the failures of tools appended."""

    max_history_share: Proportion = 0.5
    """Share of the window that one summary's history may have; older is summarised first."""
    by_new: bool = False
    """Only where what is not summarised is over that share, too (OpenClaw from 2026.9 on)."""
    parts: int = 2
    """Parts of a long history that are summarised apart and merged."""
    window: int = 200_000
    """The window in tokens by which stages are planned; at work it is the room's."""

    def __call__(self, history: History, room: Room) -> History:
        """Return the history with its old part summarised.

        Raises:
            ModelError: no summary came about; with quirks also where all that could be summarised
                is one split turn.
        """
        if self.quirks:
            first = self.cut(history, room)
            splits = first and history.item(first).role(history.log) != USER
            if splits and turn_start(history, first) <= 0:
                raise ModelError(
                    "Compaction cancelled: there is nothing to summarise but the turn at work."
                )
        known = self if isinstance(self.summariser, LOCAL) else replace(self, window=room.limit)
        return PiSummary.__call__(known, history, room)

    def written(self, history: History, first: int) -> Message | str | int:
        """Return the summary with the failures of tools behind it."""
        made = super().written(history, first)
        if not isinstance(made, str):
            return made
        places = np.arange(self.front(history), first)
        return made + failures(records.of_each(history, places, failed_line))

    def asked(self, maker: Any, passage: Passage) -> Message | str | int:
        """Return the summary of a passage: chunk by chunk where it is long, earlier ones told."""
        if isinstance(maker, LOCAL):
            return super().asked(maker, passage)
        messages = passage.messages
        sizes = [passage.history.item(p).estimate for p in passage.positions]
        fit, notes = plans.oversized(messages, sizes, self.window)
        at = [passage.positions[i] for i in fit]
        kept, kept_sizes = [messages[i] for i in fit], [sizes[i] for i in fit]
        partial: list[str] = []
        others = passage.history.tokens - sum(sizes)
        for rows in self.portions(kept, kept_sizes, others):
            told = passage.instructions
            for chunk in rows:
                start, before = at[chunk[0]], at[chunk[-1]] + 1
                part = replace(passage, start=start, before=before, instructions=told)
                made = super().asked(maker, part)
                if isinstance(made, int):
                    return made
                text = text_of(made)
                told = f"{passage.instructions}\n\nThe summary so far:\n{text}"
            partial.append(text)
        if len(partial) > 1:
            told = f"{MERGE}\n\n{passage.instructions}\n\n" + "\n\n---\n\n".join(partial)
            last = replace(passage, start=at[-1], before=at[-1] + 1, instructions=told)
            made = super().asked(maker, last)
            partial = [made if isinstance(made, str) else "\n\n".join(partial)]
        return "\n\n".join([*partial, *notes])

    def portions(
        self, messages: Sequence[Message], sizes: Sequence[int], others: int = 0
    ) -> list[list[plans.Rows]]:
        """Return the chunks of each part; what is beyond the history's share comes first, as a part
        of its own.

        Args:
            messages: what is summarised.
            sizes: their tokens.
            others: tokens of the prompt that are not summarised; counted with `by_new`.
        """
        budget = int(self.window * self.max_history_share)
        kept, dropped, _ = plans.within_share(messages, sizes, budget)
        if self.by_new and others <= int(self.window * self.max_history_share * plans.MARGIN):
            kept, dropped = (*dropped, *kept), ()
        out: list[list[plans.Rows]] = []
        for rows in (dropped, kept):
            if rows:
                told, own = [messages[r] for r in rows], [sizes[r] for r in rows]
                staged = plans.stages(told, own, self.window, self.parts)
                out += [[tuple(rows[r] for r in chunk) for chunk in part] for part in staged]
        return out


def failures(lines: Sequence[str]) -> str:
    """Return the section of failed tools, at most eight; empty without any."""
    if not lines:
        return ""
    more = [f"- ...and {len(lines) - FAILURES} more"] if len(lines) > FAILURES else []
    return "\n\n## Tool Failures\n" + "\n".join([*lines[:FAILURES], *more])


def failed_line(message: Message) -> str | None:
    """Return what is said of a failed tool, in a line of 240 characters; None: it did not fail."""
    if message.role != "tool" or not records.failed(message):
        return None
    text = contents.texts(message)
    acts = records.Action(message.tool or "tool", "", "", "failed", text, 0, "", 0)
    status = "" if acts.exit is None else f" (exitCode={acts.exit})"
    return f"- {acts.tool}{status}: {contents.one_line(acts.output, 240)}"
