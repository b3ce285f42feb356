"""Trim harder and harder until the prompt fits (fuseraft's retry after a context error)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.policies.chain import Joined, applied
from ctxkit.policies.scheduled import Scheduled
from ctxkit.policies.shorten import Results
from ctxkit.texts import contents, trims

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.policies.chain import Part
    from ctxkit.policies.setting import Natural
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room

SUFFIX = "\n[...context-trimmed — {n} chars removed to fit model limit...]"


@dataclass(frozen=True, kw_only=True, repr=False)
class Stage(Results):
    """One stage: results are cut, cut ones again; those whose file was written, shorter."""

    @property
    def cap(self) -> int:
        """Characters a result keeps."""
        return self.max_chars

    def _cut(self, message: Message) -> Message:
        return _cut(message, self.cap)

    def _consumed(self, message: Message) -> Message:
        return _cut(message, min(self.cap, self.consumed_chars))


@dataclass(frozen=True, kw_only=True, repr=False)
class Untooled(Scheduled):
    """The last stage: neither tool calls nor results."""

    counts = False
    cap = 0
    """Characters a result keeps."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Leave out each result, and the calls of each reply, as soon as they are there."""
        for p in view.new("assistant", "tool"):
            view.change(p, _untooled, since=view.arrival(p), smaller=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class AdaptiveTrim(Scheduled):
    """Over the window: results to 4,000 characters, else to 500, else no tool messages at all."""

    counts = False
    stages: tuple[int, ...] = (4000, 500)
    """Characters a result keeps at each stage; after the last one tool calls and results go."""
    consumed_chars: Natural = 500
    """Characters that a read keeps at every stage once its file was written."""

    def __post_init__(self) -> None:
        if any(not isinstance(s, int) or s < 1 for s in self.stages):
            raise BadArguments(
                f"AdaptiveTrim needs stages of 1 character or more, not {self.stages}."
            )

    @property
    def steps(self) -> tuple[Stage | Untooled, ...]:
        """The stages as parts, the mildest first; a live session applies them one by one."""
        cuts = (Stage(max_chars=n, consumed_chars=self.consumed_chars) for n in self.stages)
        return (*cuts, Untooled())

    def schedule(self, view: ScheduleView, room: Room) -> None:
        """Give each call the first stage that fits, each made from what came; else the last one."""
        parts = (None, *self.steps)
        last = len(parts) - 1
        view.stages(
            parts,
            lambda _, size: next((n for n in range(last) if size(n) <= room.limit), last),
        )

    def stepped(self, history: History, room: Room) -> History:
        """Return what the first stage leaves that fits, else the last one."""
        left = history
        for step in self.steps:
            if left.tokens <= room.limit:
                break
            left = applied(step, history, room)
        return left


def last_resort(pruning: Part | None) -> tuple[Stage | Untooled, ...]:
    """Return the stages of the first `AdaptiveTrim` in a pruning, else those of the usual one."""
    for part in pruning.parts if isinstance(pruning, Joined) else (pruning,):
        if isinstance(part, AdaptiveTrim):
            return part.steps
    return AdaptiveTrim().steps


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
