"""Compaction without a summary: drop the oldest, trim results, or leave it to the provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies.guards import keep_if_smaller
from ctxkit.policies.history.growing_columns_and_sums import ASSISTANT, USER
from ctxkit.policies.history.history import find_end_of_leading_summaries
from ctxkit.policies.message_shortening import ResultShortening
from ctxkit.policies.policy_base_and_chains import PolicyWithParts, apply_policy
from ctxkit.policies.result_clearing_and_cache_ttl import Clear
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.validated_settings_and_scheduled_prunings import (
    DataclassPolicy,
    ScheduledPruning,
)
from ctxkit.session.messages import Message, SizeOnly, get_plain_text
from ctxkit.tokens.provider_rules import get_value

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.policy_base_and_chains import BasePolicy
    from ctxkit.policies.schedules.pruning_changes_at_new_calls import ScheduleView
    from ctxkit.policies.validated_settings_and_scheduled_prunings import (
        Natural,
        Positive,
        Proportion,
    )
    from ctxkit.tokens import ContextBudget


@dataclass(frozen=True, kw_only=True, repr=False)
class Window(DataclassPolicy):
    """Drop the oldest pairs until the rest fits a budget; summaries stay (fuseraft).

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(8_000)
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", above)
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('dropped', 8127, 3705)]
    """

    keep_tokens: Positive = 60_000
    """Maximum tokens of the prompt after the compaction."""
    estimated: bool = False
    """Count tokens by the system's own estimate instead of the billed ones."""

    def __call__(self, history: History, _context_budget: ContextBudget) -> History:
        """Return the history within the budget; one message behind the pinned ones stays."""
        size = history.estimated if self.estimated else history.tokens
        if size <= self.keep_tokens:
            return history
        start = find_end_of_leading_summaries(history)
        cut = self._find_cut(history, start, self.keep_tokens)
        pinned = _find_summaries(history, start, cut)
        if not pinned:
            return history.drop(cut, "over the budget", start=start)
        # A summary behind other messages stays too, so that less is left for the newest ones.
        rows = [history.item(p) for p in pinned]
        kept = sum(i.estimate if self.estimated else i.tokens for i in rows)
        cut = self._find_cut(history, start, max(self.keep_tokens - kept, 0))
        mask = np.zeros(len(history), dtype=bool)
        mask[start:cut] = True
        mask[_find_summaries(history, start, cut)] = False
        return history.drop(mask, "over the budget")

    def _find_cut(self, history: History, start: int, budget: int) -> int:
        cut = history.fitting(budget, start=start, estimated=self.estimated)
        # At least the last message stays, even where it does not fit by itself.
        return find_cut_keeping_request_reply(history, min(cut, len(history) - 1))


@dataclass(frozen=True, kw_only=True, repr=False)
class KeepTurns(DataclassPolicy):
    """Keep the newest turns, and some at the beginning; drop the turns between.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("turns:keep_turns=10", above)
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('dropped', 4242, 2862)]
    """

    keep_turns: Positive = 10
    """Newest turns to keep, each from its user message on."""
    keep_first: Natural = 0
    """Turns at the beginning to keep, such as the task."""

    def __call__(self, history: History, _context_budget: ContextBudget) -> History:
        """Return the first and the newest turns."""
        cut = history.nth_last_request(self.keep_turns)
        start = find_end_of_leading_summaries(history)
        for _ in range(self.keep_first):
            following = history.next(start + 1, "user")
            start = following if following > 0 else len(history)
        cut = history.safe_before(max(cut, 0))
        return history.drop(cut, f"older than the last {self.keep_turns} turns", start=start)


@dataclass(frozen=True, kw_only=True, repr=False)
class WindowShare(DataclassPolicy):
    """Drop the oldest messages until the prompt fits a share of the window.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("window_share:keep_share=0.02", above)
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('dropped', 4242, 3729)]
    """

    keep_share: Proportion = 0.5
    """Share of the window that the prompt may fill, 0 to 1."""

    def __call__(self, history: History, context_budget: ContextBudget) -> History:
        """Return the history within the share."""
        budget = int(context_budget.limit * self.keep_share)
        if history.tokens <= budget:
            return history
        start = find_end_of_leading_summaries(history)
        cut = min(history.fitting(budget, start=start), len(history) - 1)
        cut = history.safe(cut) or history.safe_before(cut)
        return history.drop(cut, f"over {self.keep_share:.0%} of the window", start=start)


def _find_summaries(history: History, start: int, stop: int) -> list[int]:
    positions, position = [], history.next(start, "summary")
    while 0 <= position < stop:
        positions.append(position)
        position = history.next(position + 1, "summary")
    return positions


def find_cut_keeping_request_reply(history: History, position: int) -> int:
    """Return the first safe cut from a position on that does not part a request from its reply.

    Args:
        history: the messages in force.
        position: index among the messages at which the search begins.

    Returns:
        A position; where no later cut is safe, the last safe one before; 0 where there is none.
    """
    # Move on while the cut would separate a user message from the reply right after it.
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
class TrimStage(ResultShortening):
    """A stage: cut results, even cut ones; cut reads of files written later even shorter.

    Example:
        >>> from ctxkit.policies import TrimStage
        >>> TrimStage(max_chars=4_000).cap
        4000
    """

    @property
    def cap(self) -> int:
        """Characters of a result."""
        return self.max_chars

    def _cut(self, message: Message) -> Message:
        return _trim_message(message, self.cap)

    def _consumed(self, message: Message) -> Message:
        return _trim_message(message, min(self.cap, self.consumed_chars))


@dataclass(frozen=True, kw_only=True, repr=False)
class WithoutTools(ScheduledPruning):
    """The last stage: remove tool calls and results.

    Example:
        >>> import ctxkit as ck
        >>> incident = ck.read(ck.samples.path("incident"))
        >>> rules = ck.policies.Rules(pruning=ck.policies.WithoutTools())
        >>> pruned = ck.replay(incident, rules)
        >>> [sum(item.tokens for item in s.sent(-1)) for s in (incident, pruned)]
        [75761, 2603]
    """

    counts = False
    cap = 0
    """Characters of a result."""

    def schedule(self, view: ScheduleView, _context_budget: ContextBudget) -> None:
        """Remove each result, and the calls of each reply, on arrival."""
        for p in view.new("assistant", "tool"):
            view.change(p, _strip_tools, since=view.arrival(p), only_if_smaller=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class AdaptiveTrim(ScheduledPruning):
    """Over the window, cut results to 4,000 characters, else to 500, else remove all tool messages.

    Example:
        >>> import ctxkit as ck
        >>> incident = ck.read(ck.samples.path("incident"))
        >>> rules = ck.policies.Rules(pruning=AdaptiveTrim(), window=6_000)
        >>> pruned = ck.replay(incident, rules)
        >>> [sum(item.tokens for item in s.sent(-1)) for s in (incident, pruned)]
        [75761, 2603]
    """

    counts = False
    stages: tuple[int, ...] = (4000, 500)
    """Characters of a result at each stage; after the last one, tool calls and results go."""
    consumed_chars: Natural = 500
    """Characters of a read result at every stage once its file is written."""

    def __post_init__(self) -> None:
        if any(not isinstance(s, int) or s < 1 for s in self.stages):
            raise BadArguments(
                f"AdaptiveTrim needs stages of 1 character or more, not {self.stages}."
            )

    @property
    def steps(self) -> tuple[TrimStage | WithoutTools, ...]:
        """The stages as prunings, the mildest first; a live session applies them one by one."""
        cuts = (TrimStage(max_chars=n, consumed_chars=self.consumed_chars) for n in self.stages)
        return (*cuts, WithoutTools())

    def schedule(self, view: ScheduleView, context_budget: ContextBudget) -> None:
        """Give each call the first stage under which it fits the window, else the last one."""
        # Stage 0 is the unchanged prompt; `size` computes a stage only if it is asked for.
        parts = (None, *self.steps)
        last = len(parts) - 1
        view.stages(
            parts,
            lambda _, size: next((n for n in range(last) if size(n) <= context_budget.limit), last),
        )

    def stepped(self, history: History, context_budget: ContextBudget) -> History:
        """Return the result of the first stage that fits the window, else of the last one."""
        trimmed = history
        for step in self.steps:
            if trimmed.tokens <= context_budget.limit:
                break
            trimmed = apply_policy(step, history, context_budget)
        return trimmed


def get_last_resort_stages(pruning: BasePolicy | None) -> tuple[TrimStage | WithoutTools, ...]:
    """Return the stages of the first `AdaptiveTrim` of a pruning, else the default stages."""
    for part in pruning.parts if isinstance(pruning, PolicyWithParts) else (pruning,):
        if isinstance(part, AdaptiveTrim):
            return part.steps
    return AdaptiveTrim().steps


def _trim_message(message: Message, max_chars: int) -> Message:
    text = get_plain_text(message)
    if len(text) <= max_chars or message_content_and_truncation.has_images(message):
        return message
    return message_content_and_truncation.replace_text(
        message, message_content_and_truncation.truncate_end(text, max_chars, TRIM_SUFFIX)
    )


def _strip_tools(message: Message) -> Message | None:
    """Return a message without its tool calls, or None where nothing is left of it."""
    if message.role == "tool":
        return None
    if not message.tool_calls:
        return message
    text = message_content_and_truncation.without_calls(message, {c.id for c in message.tool_calls})
    return text if text.parts else None


OPENAI_COMPACT_SHARE = 0.7
"""Share of the window at which Fased lets OpenAI compact; 80,000 tokens where it is unknown."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ProviderCompaction(DataclassPolicy):
    """Compaction by the provider: Anthropic clears old tool results, OpenAI inserts an opaque item.

    OpenAI replaces the old messages by an encrypted item, which nobody can read. It is modelled
    as a message with an assumed size and no text.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(ProviderCompaction(threshold=4_000), above)
        >>> replay = ck.replay(ck.read(ck.samples.path("incident")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('shortened', 6713, 3927)]
    """

    provider: Literal["anthropic", "openai"] = "anthropic"
    """`anthropic` clears tool uses, `openai` compacts."""
    threshold: Positive | None = None
    """Prompt tokens above which it acts; None: 100,000 (Anthropic), 0.7 of the window (OpenAI)."""
    keep_last: Natural = 3
    """Newest tool results that Anthropic keeps; newest user messages that OpenAI keeps."""
    clear_at_least: Natural = 0
    """Minimum number of tokens that Anthropic must free."""
    item_tokens: Positive = 1500
    """Size of OpenAI's item in tokens: an assumption, as no log records it."""

    def limit(self, budget: ContextBudget) -> int:
        """Return the prompt tokens above which the provider acts."""
        if self.threshold is not None:
            return self.threshold
        if self.provider == "anthropic":
            return int(get_value("clearing_trigger", "claude"))
        return int(OPENAI_COMPACT_SHARE * budget.limit)

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history after the provider's compaction."""
        if history.tokens <= self.limit(budget):
            return history
        if self.provider == "anthropic":
            return Clear(keep_last=self.keep_last, at_least=self.clear_at_least)(history, budget)
        # OpenAI keeps the newest user messages and all that follows them.
        cut = history.safe_before(max(history.nth_last("user", max(self.keep_last, 1)), 0))
        return replace_with_opaque_item(history, cut, self.item_tokens)


def replace_with_opaque_item(history: History, first: int, tokens: int) -> History:
    """Return the history with an item of `tokens` in place of all before `first`, if smaller.

    Args:
        history: the messages of the prompt.
        first: first position that is kept.
        tokens: size of the item.
    """
    item = make_opaque_item(tokens)
    new = history.summarise(first, item, "the provider compacts", tokens=tokens, method="native")
    return keep_if_smaller(history, new)


def make_opaque_item(tokens: int) -> Message:
    """Return OpenAI's encrypted item as a message with an assumed size and no text."""
    return Message(role="summary", kind="native", parts=(SizeOnly("compaction", tokens=tokens),))
