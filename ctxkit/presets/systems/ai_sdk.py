"""Vercel's AI SDK: `pruneMessages`, tool calls and reasoning left out before the last messages."""

from __future__ import annotations

from typing import Literal

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.message_hiding import PruneToolCalls
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset

DIFFERENCES = (
    DocumentationDifference(
        "reasoning of a reply that loses its calls",
        "not said",
        "goes with them, where nothing else follows it",
        "stays, unless `reasoning` says otherwise",
    ),
    DocumentationDifference(
        "when", "where the caller calls it", "nowhere by itself", "before each call"
    ),
    DocumentationDifference(
        "`all`",
        "its example prunes the messages with which a turn begins",
        "all messages that it is given",
        "what was said before the turn under way",
    ),
    DocumentationDifference(
        "several rules at once",
        "a list of rules, each for some tools",
        "one after the other",
        "one: chain `PruneToolCalls` for more",
    ),
)


@make_checked_preset
def ai_sdk(
    *,
    context_window: int | None = None,
    reasoning: Literal["none", "all", "before-last-message"] = "none",
    tool_calls: str = "before-last-message",
    tools: tuple[str, ...] = ("*",),
    empty_messages: Literal["remove", "keep"] = "remove",
) -> Rules:
    """Return rules that prune each call as `pruneMessages` of the package `ai` does.

    Source: `dist/index.js` of ai 7.0.173 (its default `toolCalls: []` drops no calls; the default
    here is `before-last-message`, as in its example).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        reasoning: whose reasoning is left out.
        tool_calls: `none`, `all`, `before-last-message` or `before-last-N-messages`.
        tools: names or globs of the tools that this concerns.
        empty_messages: what becomes of messages that hold nothing afterwards.

    Returns:
        Rules without a trigger: only the prompt of each call is pruned, the history stays.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.ai_sdk(context_window=128_000)
        >>> rules.parameters["context_window"]
        128000
    """
    pruning = PruneToolCalls(
        reasoning=reasoning,
        tool_calls=tool_calls,
        tools=tools,
        empty_messages=empty_messages,
    )
    return Rules(pruning=pruning, window=context_window)
