"""No context management at all: the baseline of every comparison."""

from __future__ import annotations

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.presets.registry_and_setting_checks import make_checked_preset


@make_checked_preset
def none(*, context_window: int | None = None) -> Rules:
    """Return rules that never change anything.

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.

    Returns:
        Rules without policy, trigger and pruning; only the window of a replay differs.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.none(context_window=128_000)
        >>> rules.parameters["context_window"]
        128000
    """
    return Rules(window=context_window)
