"""LangChain's `ContextEditingMiddleware` with `ClearToolUsesEdit`: old tool results are cleared for
each call.
"""

from __future__ import annotations

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.presets.shared_summaries_and_clearing import ClearToolUses

DIFFERENCES = (
    DocumentationDifference(
        "clear_at_least",
        "a minimum that is reclaimed",
        "the oldest are cleared one by one, and it stops once so much is freed; where all free"
        " less, all are cleared",
        "as the program",
    ),
    DocumentationDifference(
        "arguments of cleared calls",
        "cleared with `clear_tool_inputs`",
        "become an empty table",
        "as the program, where that is smaller",
    ),
    DocumentationDifference(
        "size",
        "tokens of the messages",
        "an estimate, unless the model is asked",
        "the prompt's tokens",
    ),
)


@make_checked_preset
def langchain_clear_tools(
    *,
    context_window: int | None = None,
    trigger: int = 100_000,
    clear_at_least: int = 0,
    keep: int = 3,
    clear_tool_inputs: bool = False,
    exclude_tools: tuple[str, ...] = (),
    placeholder: str = "[cleared]",
) -> Rules:
    """Return the rules of LangChain's context editing, 1.5.0: beyond the trigger old results say
    only `[cleared]`.

    Source: `langchain/agents/middleware/context_editing.py` of langchain 1.5.0.

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        trigger: tokens of the prompt above which results are cleared.
        clear_at_least: tokens after which the clearing stops; 0: all that may be cleared is.
        keep: results at the end that stay whole; excluded tools count among them.
        clear_tool_inputs: clear the arguments of the calls too.
        exclude_tools: tools whose results are never cleared.
        placeholder: text of a cleared result.

    Returns:
        Rules without a trigger: each prompt above `trigger` has placeholders for old tool results.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.langchain_clear_tools(keep=5)
        >>> rules.parameters["keep"]
        5
    """
    pruning = ClearToolUses(
        trigger=trigger,
        keep=keep,
        exclude=exclude_tools,
        clear_inputs=clear_tool_inputs,
        clear_at_least=clear_at_least,
        enough=True,
        placeholder=placeholder,
    )
    return Rules(pruning=pruning, window=context_window)
