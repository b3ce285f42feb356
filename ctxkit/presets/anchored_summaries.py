"""Summaries that leave the beginning where it is: only what follows it is summarised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.messages import Message, Sized, Text
from ctxkit.policies.summary import Summary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.tokens import Room


@dataclass(frozen=True, kw_only=True, repr=False)
class Anchored(Summary):
    """Summarise what stands between the beginning and the newest messages."""

    apart: bool = False
    keep_first: int = 0
    """Messages at the beginning that stay."""

    def front(self, history: History, first: int = 0) -> int:
        """Return the first position that may be summarised."""
        first = max(first, self.keep_first)
        if 0 < first < len(history):
            first = history.safe(first) or len(history)
        return super().front(history, min(first, len(history)))


@dataclass(frozen=True, kw_only=True, repr=False)
class OwnCut(Summary):
    """The base of summaries whose cut goes by no number of tokens: none are kept at least."""

    apart: bool = False

    @property
    def keeps(self) -> None:
        """No number of tokens is kept at least."""


@dataclass(frozen=True, kw_only=True, repr=False)
class FreshStart(OwnCut):
    """Summarise everything but the last few messages: the model goes on from the summary."""

    keep_end: int = 0
    """Messages at the end that stay."""

    def cut(self, history: History, _room: Room) -> int:
        """Return the end of what may go: before a call that still waits for its result."""
        return history.safe_before(min(end(history), max(len(history) - self.keep_end, 0)))


def fresh(history: History, start: int, stop: int) -> NDArray[Any]:
    """Return a mask of the positions start..stop: True where a message was said, and may go."""
    said = np.array([history.row(p) >= 0 for p in range(start, stop)], bool)
    return np.asarray(said & ~history.role("summary")[start:stop] & ~history.stays[start:stop])


def end(history: History) -> int:
    """Return the end of what can go at once: before a last reply that waits for a result."""
    answered: set[str | None] = set()
    for p in range(len(history) - 1, -1, -1):
        message = history[p]
        if message.role == "user":
            break
        if message.role == "tool":
            answered.add(message.call_id)
        elif any(call.id not in answered for call in message.tool_calls):
            return history.safe_before(p)
    return len(history)


def message_of(written: Message | str | int, prefix: str = "") -> Message:
    """Return a summary as a message; one of which only the size is known holds just that."""
    if isinstance(written, Message):
        return written
    if isinstance(written, int):
        return Message(role="summary", parts=(Sized("summary", tokens=written),))
    text = written if written.startswith(prefix) else prefix + written
    return Message(role="summary", parts=(Text(text),))
