"""Anthropic's server-side compaction (`compact_20260112`): a readable summary takes the place of
all before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.policies.rules import Rules
from ctxkit.policies.triggers import Above
from ctxkit.presets.common import SummariseAll
from ctxkit.presets.registry import Difference, typed

if TYPE_CHECKING:
    from ctxkit.policies.base import Natural

MIN_TRIGGER_TOKENS = 50_000
"""Least tokens of the trigger that the API takes."""
INSTRUCTIONS = (
    "Summarise the transcript so that the task can go on without it: state, next steps, what was"
    " learnt."
)

DIFFERENCES = (
    Difference(
        "when",
        "input tokens reach the trigger",
        "within the call that crosses it: the summary is a block at the head of its reply",
        "before that call, which is sent the summary",
    ),
    Difference(
        "what is billed",
        "the summary is a sampling step of its own, in `usage.iterations`",
        "the top-level usage leaves it out",
        "the summary's tokens count as they do under all presets",
    ),
    Difference(
        "pause_after_compaction",
        "the call stops behind the summary, so that the caller can add messages",
        "as documented",
        "keeps the last `keep_messages` messages, which is what the pause is for",
    ),
)


@typed
def anthropic_compact(
    *,
    context_window: int | None = None,
    trigger: int = 150_000,
    pause_after_compaction: bool = False,
    keep_messages: Natural = 2,
    instructions: str = "",
    summariser: Any = None,
) -> Rules:
    """Return the rules of the edit `compact_20260112` (beta `compact-2026-01-12`).

    Read on platform.claude.com, "Compaction": 150,000 by default and 50,000 at least, the block
    takes the place of all before it, `instructions` replace the standard prompt,
    `pause_after_compaction` is off. How many messages a caller keeps is no setting of the API; two
    is not confirmed.

    Args:
        context_window: tokens that the model takes; None: as the price table has it, else 200,000.
        trigger: tokens of the prompt from which the server compacts; at least 50,000.
        pause_after_compaction: let the caller keep messages behind the summary.
        keep_messages: how many it keeps; only with the pause.
        instructions: what the summariser is told instead of the standard prompt.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.anthropic_compact(trigger=100_000)
        >>> rules.parameters["trigger"]
        100000
    """
    if trigger < MIN_TRIGGER_TOKENS:
        raise BadArguments(
            f"trigger must be {MIN_TRIGGER_TOKENS:,} tokens or more, as the API asks; got "
            f"{trigger:,}."
        )
    end_messages = keep_messages if pause_after_compaction else 0
    return Rules(
        policy=SummariseAll(keep_end=end_messages, instructions=instructions or INSTRUCTIONS),
        trigger=Above(trigger, or_equal=True),
        window=context_window,
        summariser=summariser,
    )
