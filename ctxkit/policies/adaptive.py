"""Trim harder and harder until the prompt fits the window (fuseraft's retry after a context error)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies import contents, trims
from ctxkit.policies.reads import consumed, stale
from ctxkit.policies.setting import Setting, at_least
from ctxkit.policies.traces import Traced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.policies.courses import Course
    from ctxkit.tokens import Room

SUFFIX = "\n[...context-trimmed — {n} chars removed to fit model limit...]"


@dataclass(frozen=True)
class Stage(Traced):
    """One stage: results to so many characters, reads whose file was written to fewer; or no tool messages at all."""

    number: int
    cap: int | None
    """Characters a result keeps; None: tool calls and results go."""
    consumed: int
    """Characters a read keeps once its file was written."""

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history as this stage leaves it."""
        if self.cap is None:
            return _without_tools(history)
        read = consumed(history)
        changes: dict[int, Message | str] = {}
        for p in np.flatnonzero(history.tool("*") & (history.chars > self._low)).tolist():
            message = history[p]
            new = self._short(message) if p in read else self._cut(message)
            if new is not message:
                changes[p] = new
        return history.shorten(changes, reason=f"over the window: stage {self.number}") if changes else history

    def trace(self, course: Course, _room: Room) -> None:
        """Cut each result as soon as it is there, a read again when its file is written; or leave out each of them."""
        if self.cap is None:
            for p in np.flatnonzero(course.shown.role("assistant", "tool")).tolist():
                course.change(p, 0, _untooled, smaller=False)
            return
        written = stale(course)
        for p in course.long(course.shown.tool("*"), self._low):
            late = written.get(p, inf)
            course.change(p, 0, self._cut, stop=late)
            course.change(p, late, self._short)

    @property
    def _low(self) -> int:
        """Characters up to which nothing is cut."""
        return self.consumed if self.cap is None else min(self.cap, self.consumed)

    def _cut(self, message: Message) -> Message:
        return message if self.cap is None else _cut(message, self.cap)

    def _short(self, message: Message) -> Message:
        return _cut(message, self._low)


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
        for stage in self.ladder:
            if new.tokens <= room.limit:
                break
            new = stage(history, room)
        return new

    @property
    def ladder(self) -> tuple[Stage, ...]:
        """The stages, of which a call is given the first that fits."""
        caps = (*self.stages, None)
        return tuple(Stage(n, cap, self.consumed_chars) for n, cap in enumerate(caps, 1))

    changes = ("assistant", "tool")
    removes = True

    def acts(self, _history: History, span: tuple[int, int], prompts: NDArray[Any], room: Room) -> list[int]:
        """Return the calls of a span at which it does anything, from the prompts that it would be given."""
        found: list[int] = (np.flatnonzero(prompts > room.limit) + span[0]).tolist()
        return found


def _cut(message: Message, keep: int) -> Message:
    text = contents.texts(message)
    if len(text) <= keep or contents.has_images(message):
        return message
    return contents.with_text(message, trims.cut(text, keep, SUFFIX))


def _untooled(message: Message) -> Message | None:
    """Return a message without its tool calls, or None where nothing is left of it."""
    if message.role == "tool":
        return None
    if not message.tool_calls:
        return message
    text = contents.without_calls(message, {c.id for c in message.tool_calls})
    return text if text.parts else None


def _without_tools(history: History) -> History:
    changes: dict[int, Message | None] = {}
    for p in np.flatnonzero(history.role("assistant", "tool") & ~history.stays).tolist():
        message = history[p]
        new = _untooled(message)
        if new is not message:
            changes[p] = new
    return history.replace(changes, reason="over the window: no tool messages") if changes else history
