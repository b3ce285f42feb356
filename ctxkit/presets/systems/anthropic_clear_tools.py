"""Anthropic's context editing, `clear_tool_uses_20250919`: the server clears old tool results of
each request.
"""

from __future__ import annotations

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.result_clearing_and_cache_ttl import CLEARED_PLACEHOLDER
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.presets.shared_summaries_and_clearing import ClearToolUses
from ctxkit.tokens.provider_rules import get_value

_TRIGGER: int = get_value("clearing_trigger", "claude")
_KEEP: int = get_value("clearing_keep", "claude")

DIFFERENCES = (
    DocumentationDifference(
        "the placeholder",
        "a text that tells the model of it",
        "not documented",
        "a sentence of the kit's own",
    ),
    DocumentationDifference(
        "what the client holds",
        "the whole history; the server edits each request",
        "the same",
        "a pruning: the session keeps none of it",
    ),
    DocumentationDifference(
        "clear_at_least",
        "the strategy is not applied where it would free less",
        "not to be seen",
        "as documented",
    ),
)


@make_checked_preset
def anthropic_clear_tools(
    *,
    context_window: int | None = None,
    trigger: int = _TRIGGER,
    keep: int = _KEEP,
    clear_at_least: int = 0,
    exclude_tools: tuple[str, ...] = (),
    clear_tool_inputs: bool = False,
) -> Rules:
    """Return the rules of Anthropic's tool result clearing (beta `context-management-2025-06-27`).

    Source: platform.claude.com, "Context editing" (which strategies, `clear_at_least`, what is
    cleared); LangChain's mirror of it (the defaults of 100,000 tokens and three tool uses).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        trigger: tokens of the prompt above which results are cleared.
        keep: tool uses at the end that stay whole.
        clear_at_least: tokens that a clearing must free, or it is not done: a cached prefix has its
            price.
        exclude_tools: tools whose uses are never cleared.
        clear_tool_inputs: clear the arguments of the calls too.

    Returns:
        Rules without a trigger: each prompt above `trigger` has placeholders for old tool results.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.anthropic_clear_tools(clear_at_least=5_000)
        >>> rules.parameters["clear_at_least"]
        5000
    """
    pruning = ClearToolUses(
        trigger=trigger,
        keep=keep,
        exclude=exclude_tools,
        clear_inputs=clear_tool_inputs,
        clear_at_least=clear_at_least,
        placeholder=CLEARED_PLACEHOLDER,
    )
    return Rules(pruning=pruning, window=context_window)
