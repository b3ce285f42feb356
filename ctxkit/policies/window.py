"""Fit the prompt without a summary: drop the oldest by tokens, turns or share, or trim harder and
harder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.policies.base import CompositePolicy, ConfiguredPolicy, ScheduledPruning, apply_policy
from ctxkit.policies.history.columns import ASSISTANT, USER
from ctxkit.policies.history.history import end_of_leading_summaries
from ctxkit.policies.shorten import Results
from ctxkit.policies.texts import content
from ctxkit.session.messages import plain_text

if TYPE_CHECKING:
    from ctxkit.policies.base import BasePolicy, Natural, Positive, Proportion
    from ctxkit.policies.history.history import History
    from ctxkit.policies.schedules.schedule_input import ScheduleView
    from ctxkit.session.messages import Message
    from ctxkit.tokens import ContextBudget


@dataclass(frozen=True, kw_only=True, repr=False)
class Window(ConfiguredPolicy):
    """Drop the oldest pairs until the rest fits a budget; leading summaries stay (fuseraft)."""

    keep_tokens: Positive = 60_000
    """Tokens that the messages may have."""
    estimated: bool = False
    """Count in the system's own measure instead of the bill's."""

    def __call__(self, history: History, _room: ContextBudget) -> History:
        """Return the history within the budget; one message is kept behind the pinned ones."""
        size = history.estimated if self.estimated else history.tokens
        if size <= self.keep_tokens:
            return history
        start = end_of_leading_summaries(history)
        cut = history.fitting(self.keep_tokens, start=start, estimated=self.estimated)
        cut = safe_pair_cut(history, min(cut, len(history) - 1))
        return history.drop(cut, "over the budget", start=start)


@dataclass(frozen=True, kw_only=True, repr=False)
class KeepTurns(ConfiguredPolicy):
    """Keep the newest turns, drop the older ones, but the first of them where wanted."""

    keep_turns: Positive = 10
    """Newest turns to keep, each from its user message on."""
    keep_first: Natural = 0
    """Turns at the beginning that are kept too, such as the task."""

    def __call__(self, history: History, _room: ContextBudget) -> History:
        """Return the first and the newest turns."""
        cut = history.nth_last("user", self.keep_turns)
        start = end_of_leading_summaries(history)
        for _ in range(self.keep_first):
            following = history.next(start + 1, "user")
            start = following if following > 0 else len(history)
        cut = history.safe_before(max(cut, 0))
        return history.drop(cut, f"older than the last {self.keep_turns} turns", start=start)


@dataclass(frozen=True, kw_only=True, repr=False)
class WindowShare(ConfiguredPolicy):
    """Drop the oldest until the prompt fits a share of the window."""

    keep_share: Proportion = 0.5
    """Share of the window that the prompt may fill."""

    def __call__(self, history: History, room: ContextBudget) -> History:
        """Return the history within that share."""
        budget = int(room.limit * self.keep_share)
        if history.tokens <= budget:
            return history
        start = end_of_leading_summaries(history)
        cut = min(history.fitting(budget, start=start), len(history) - 1)
        cut = history.safe(cut) or history.safe_before(cut)
        return history.drop(cut, f"over {self.keep_share:.0%} of the window", start=start)


def safe_pair_cut(history: History, position: int) -> int:
    """Return the first safe cut from a position on that parts no question from its reply."""
    p = cut = history.safe(position)
    while p and p < len(history) and _answers_user(history, p):
        p = history.safe(p + 1)
    return p or cut or history.safe_before(position)


def _answers_user(history: History, position: int) -> bool:
    log = history.log
    if position == 0 or history.item(position).role(log) != ASSISTANT:
        return False
    return history.item(position - 1).role(log) == USER


TRIM_SUFFIX = "\n[...context-trimmed — {n} chars removed to fit model limit...]"


@dataclass(frozen=True, kw_only=True, repr=False)
class TrimStage(Results):
    """One stage: results are cut, cut ones again; those whose file was written, shorter."""

    @property
    def cap(self) -> int:
        """Characters a result keeps."""
        return self.max_chars

    def _cut(self, message: Message) -> Message:
        return _trim_message(message, self.cap)

    def _consumed(self, message: Message) -> Message:
        return _trim_message(message, min(self.cap, self.consumed_chars))


@dataclass(frozen=True, kw_only=True, repr=False)
class WithoutTools(ScheduledPruning):
    """The last stage: neither tool calls nor results."""

    counts = False
    cap = 0
    """Characters a result keeps."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Leave out each result, and the calls of each reply, as soon as they are there."""
        for p in view.new("assistant", "tool"):
            view.change(p, _strip_tools, since=view.arrival(p), smaller=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class AdaptiveTrim(ScheduledPruning):
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
    def steps(self) -> tuple[TrimStage | WithoutTools, ...]:
        """The stages as parts, the mildest first; a live session applies them one by one."""
        cuts = (TrimStage(max_chars=n, consumed_chars=self.consumed_chars) for n in self.stages)
        return (*cuts, WithoutTools())

    def schedule(self, view: ScheduleView, room: ContextBudget) -> None:
        """Give each call the first stage that fits, each made from what came; else the last one."""
        parts = (None, *self.steps)
        last = len(parts) - 1
        view.stages(
            parts,
            lambda _, size: next((n for n in range(last) if size(n) <= room.limit), last),
        )

    def stepped(self, history: History, room: ContextBudget) -> History:
        """Return what the first stage leaves that fits, else the last one."""
        left = history
        for step in self.steps:
            if left.tokens <= room.limit:
                break
            left = apply_policy(step, history, room)
        return left


def last_resort_stages(pruning: BasePolicy | None) -> tuple[TrimStage | WithoutTools, ...]:
    """Return the stages of the first `AdaptiveTrim` in a pruning, else those of the usual one."""
    for part in pruning.parts if isinstance(pruning, CompositePolicy) else (pruning,):
        if isinstance(part, AdaptiveTrim):
            return part.steps
    return AdaptiveTrim().steps


def _trim_message(message: Message, keep: int) -> Message:
    text = plain_text(message)
    if len(text) <= keep or content.has_images(message):
        return message
    return content.replace_text(message, content.truncate_end(text, keep, TRIM_SUFFIX))


def _strip_tools(message: Message) -> Message | None:
    """Return a message without its tool calls, or None where nothing is left of it."""
    if message.role == "tool":
        return None
    if not message.tool_calls:
        return message
    text = content.without_calls(message, {c.id for c in message.tool_calls})
    return text if text.parts else None
