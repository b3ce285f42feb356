"""Tyrum at 999cf580: a checkpoint of goals, open work and approvals replaces old messages; tool
calls are pruned before each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.lesson_extraction_and_recall import MemoryFlushSettings
from ctxkit.policies.message_hiding import MessageCountCap, PruneToolCalls
from ctxkit.policies.policy_base_and_chains import Chain
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.triggers import Above, Both, Overflow, Share
from ctxkit.presets.registry_and_setting_checks import (
    DocumentationDifference,
    check_between,
    make_checked_preset,
)
from ctxkit.presets.shared_summaries_and_clearing import is_request_pending
from ctxkit.presets.systems.tyrum_checkpoint import CheckpointSummariser

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.offline_summarisers import SummariserInput
    from ctxkit.tokens import ContextBudget

DIFFERENCES = (
    DocumentationDifference(
        "what pruning touches",
        "only tool results, never user or assistant turns",
        "calls are cut out of assistant messages, and messages left empty disappear",
        "as the program: a result without its call would be refused by providers",
    ),
    DocumentationDifference(
        "when",
        "not said",
        "before a turn, and after an overflow; not between the calls of a turn",
        "before each call, and after an overflow",
        "as the program",
    ),
    DocumentationDifference(
        "audit for lost identifiers",
        "a checkpoint that lost identifiers is asked for again",
        "cannot fail: the identifiers are merged in before the checkpoint is searched",
        "the model's own output is audited",
        "as the program",
    ),
    DocumentationDifference(
        "audit for lost obligations",
        "approvals, constraints, preferences, decisions and obligations stay; nothing is invented",
        "a model's checkpoint is taken as it is",
        "what the checkpoint without a model holds must be in it, and decisions and approvals need"
        " a ground, else it is asked for again and then replaced",
        "as the program",
    ),
    DocumentationDifference(
        "identifiers of paths",
        "paths are kept",
        "only the part of a path after its first name is found",
        "whole paths are found",
        "as the program",
    ),
    DocumentationDifference(
        "long lists",
        "nothing is dropped silently",
        "lists are cut to 8 items, names to 20, silently",
        "cut too, and the text says how many went",
    ),
    DocumentationDifference(
        "a stale pending item",
        "approvals stay intact",
        "one at the first message blocks every compaction",
        "as the program",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class TyrumSummary(Summary):
    """Keep the last messages (a reply with all its steps is one), from before the first pending one
    on.
    """

    on_failure: ClassVar[str] = "a checkpoint made without a model, after two attempts"
    apart: bool = False

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the first position that is kept."""
        first = find_last_units_start(history, self.keep_messages or 0)
        # Pending messages are protected, so only protected positions are looked at. The first one
        # moves the cut in front of it: no open approval or call is summarised.
        for p in np.flatnonzero(history.stays[:first]).tolist():
            if history[p].pending:
                first = p
                break
        return history.safe_before(first)


def find_last_units_start(history: History, units: int) -> int:
    """Return where the last `units` messages begin; a reply with its tools and steps is one."""
    if not units:
        return len(history)
    starts = np.flatnonzero(_unit_starts(history))
    return int(starts[-units]) if units < len(starts) else 0


def _unit_starts(history: History) -> NDArray[Any]:
    """Return a mask: True where a message of Tyrum begins."""
    replies = history.role("assistant", "tool")
    # a reply or result begins no unit where a reply or result is right before it
    return np.asarray(~(replies & np.concatenate(([False], replies[:-1]))))


@dataclass(frozen=True)
class VisibleMessageCountTrigger:
    """Due at a number of visible user messages and replies; a reply with all its steps is one."""

    n: int

    def __call__(self, history: History, _budget: ContextBudget) -> bool:
        """Return True from that many on."""
        replies = _unit_starts(history) & history.role("assistant")
        return history.count("user") + int(replies.sum()) >= self.n


def make_pruning(max_messages: int = 0, last_messages: int = 4) -> Any:
    """Return Tyrum's pruning: `pruneMessages` before the last messages, then a cap on how many.

    Args:
        max_messages: cap on messages, at least 8; 0 or less: no cap.
        last_messages: newest messages that keep their tool calls, at least 2.
    """
    # Tyrum's least values: a cap of 8 messages, the calls of 2. With a cap, fewer messages than it
    # allows keep their calls.
    cap = 0 if max_messages <= 0 else max(8, max_messages)
    last_messages = max(2, last_messages)
    if cap:
        last_messages = min(last_messages, max(2, cap - 1))
    prune = PruneToolCalls(tool_calls=f"before-last-{last_messages}-messages")
    return Chain.of(prune, MessageCountCap(max_messages=cap))


@make_checked_preset
def tyrum(
    *,
    context_window: int | None = None,
    limit_input: int | None = None,
    limit_output: int | None = None,
    auto: bool = True,
    reserved_input_tokens: int = 20_000,
    keep_last_messages_after_compaction: int = 2,
    max_turns: int = 0,
    max_messages: int = 0,
    tool_prune_keep_last_messages: int = 4,
    memory_flush: bool = True,
    summariser: Callable[[SummariserInput], Any] | None = None,
    quirks: bool = False,
) -> Rules:
    """Return Tyrum's rules; sizes are its own estimate from characters, not the provider's count.

    Source: Tyrum at 999cf580.

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        limit_input: tokens of prompt that the model takes, where the provider names them apart.
        limit_output: tokens of reply that it gives; None: `reserved_input_tokens` are held back
            instead.
        auto: whether to compact automatically.
        reserved_input_tokens: tokens below the limit at which a compaction is due.
        keep_last_messages_after_compaction: messages kept, where a reply with all its steps is one.
        max_turns: user messages and replies, counted in pairs, at which one is due besides; 0: off.
        max_messages: messages that a call is sent at most (8 or more); 0: all.
        tool_prune_keep_last_messages: messages at the end whose tool calls stay (2 or more).
        memory_flush: whether a live session saves to memory what a compaction takes: one write, in
            2.5 s at most.
        summariser: ``(passage) -> JSON`` of a checkpoint; None: the deterministic checkpoint,
            without a model.
        quirks: find only inner parts of paths, audit nothing and look only before a turn, as the
            program.

    Returns:
        Rules that replace old messages by a checkpoint of goals and open work, and prune tool calls
        of each prompt.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.tyrum(reserved_input_tokens=30_000)
        >>> rules.parameters["reserved_input_tokens"]
        30000
    """
    last_messages = keep_last_messages_after_compaction
    check_between(0, 400_000, reserved_input_tokens=reserved_input_tokens)
    check_between(0, 200, keep_last_messages_after_compaction=last_messages)
    # a limit on input sets the trigger; without one the window less the reserve does
    if limit_input and limit_input > reserved_input_tokens:
        trigger: Any = Above(limit_input - reserved_input_tokens, or_equal=True, estimated=True)
    else:
        trigger = Share(1.0, of="budget", or_equal=True, estimated=True)
    if max_turns:
        # a turn counts twice: its request and its reply
        trigger = trigger | VisibleMessageCountTrigger(2 * max_turns)
    if quirks:
        trigger = Both((trigger, is_request_pending))
    policy = TyrumSummary(
        keep_messages=max(last_messages, 1),
        summariser=CheckpointSummariser(model=summariser, quirks=quirks),
        must_shrink=not quirks,
    )
    flush = MemoryFlushSettings(writes=1, message_chars=2000, seconds=2.5, turn_share=0.1)
    return Rules(
        policy=policy,
        trigger=trigger | Overflow(recorded=True),
        pruning=make_pruning(max_messages, tool_prune_keep_last_messages),
        window=context_window,
        reserve=limit_output or reserved_input_tokens,
        estimator="tyrum",
        auto=auto,
        flush=flush if memory_flush else None,
    )
