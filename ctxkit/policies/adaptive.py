"""Trim harder and harder until the prompt fits the window (fuseraft's retry after a context error)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies import contents, trims
from ctxkit.policies.reads import consumed
from ctxkit.policies.setting import Setting, at_least

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.tokens import Room

SUFFIX = "\n[...context-trimmed — {n} chars removed to fit model limit...]"


@dataclass(frozen=True, kw_only=True, repr=False)
class AdaptiveTrim(Setting):
    """Where the prompt is over the window: results to 4,000 characters, else to 500, else no tool messages at all."""

    stages: tuple[int, ...] = (4000, 500)
    """Characters a result keeps at each stage; after the last one tool calls and results go."""
    consumed_chars: int = 500
    """Characters that a read keeps at every stage once its file was written."""

    def __post_init__(self) -> None:
        at_least(self, 0, "consumed_chars")
        if any(not isinstance(s, int) or s < 1 for s in self.stages):
            raise BadArguments(f"AdaptiveTrim needs stages of 1 character or more, not {self.stages}.")

    def __call__(self, history: History, room: Room) -> History:
        """Return the first stage that fits, each made from the history as it came; else the last one."""
        new = history
        for stage in range(len(self.stages) + 1):
            if new.tokens <= room.limit:
                break
            new = self.stage(history, stage)
        return new

    changes = ("assistant", "tool")
    removes = True

    def acts(self, _history: History, span: tuple[int, int], prompts: NDArray[Any], room: Room) -> list[int]:
        """Return the calls of a span at which it does anything, from the prompts that it would be given."""
        found: list[int] = (np.flatnonzero(prompts > room.limit) + span[0]).tolist()
        return found

    def stage(self, history: History, stage: int) -> History:
        """Return the history as one stage leaves it, counted from 0."""
        if stage >= len(self.stages):
            return _without_tools(history)
        read, cap = consumed(history), self.stages[stage]
        changes: dict[int, Message | str] = {}
        for p in np.flatnonzero(history.tool("*") & (history.chars > min(cap, self.consumed_chars))).tolist():
            message = history[p]
            text = contents.texts(message)
            keep = min(cap, self.consumed_chars) if p in read else cap
            if len(text) > keep and not contents.has_images(message):
                changes[p] = contents.with_text(message, trims.cut(text, keep, SUFFIX))
        return history.shorten(changes, reason=f"over the window: stage {stage + 1}") if changes else history


def _without_tools(history: History) -> History:
    changes: dict[int, Message | None] = {}
    for p in np.flatnonzero(history.role("assistant", "tool") & ~history.stays).tolist():
        message = history[p]
        if message.role == "tool":
            changes[p] = None
        elif message.tool_calls:
            text = contents.without_calls(message, {c.id for c in message.tool_calls})
            changes[p] = text if text.parts else None
    return history.replace(changes, reason="over the window: no tool messages") if changes else history
