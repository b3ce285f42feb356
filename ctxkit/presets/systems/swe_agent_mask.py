"""SWE-agent's observation masking, the simplest baseline: old tool results become one line."""

from __future__ import annotations

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.result_clearing_and_cache_ttl import Clear
from ctxkit.presets.registry_and_setting_checks import make_checked_preset

MASKED_PLACEHOLDER = "Old environment output: ({lines} lines omitted)"


@make_checked_preset
def swe_agent_mask(*, n: int = 10, polling: int = 1, context_window: int | None = None) -> Rules:
    """Return rules that show the last observations whole and mask the older ones, at every call.

    The task itself is the first observation for SWE-agent and is never masked; here it is a user
    message anyway.

    Source: `history_processors` of SWE-agent's configuration.

    Args:
        n: observations (tool results) at the end that stay whole.
        polling: mask only at every so many observations, so that the provider's cache lives in
            between.
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.

    Returns:
        Rules without a trigger: each prompt has placeholders for all but the newest results.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.swe_agent_mask(n=10)
        >>> rules.parameters["n"]
        10
    """
    return Rules(
        pruning=Clear(keep_last=n, polling=polling, placeholder=MASKED_PLACEHOLDER),
        window=context_window,
    )
