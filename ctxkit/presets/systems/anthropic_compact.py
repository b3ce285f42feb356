"""Anthropic's server-side compaction: a readable summary replaces everything before it, at a
threshold (`compact_20260112`) or on demand (`compact-2026-09-04`), which can keep recent turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.triggers import Above
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.presets.shared_summaries_and_clearing import SummariseAll
from ctxkit.tokens.provider_rules import get_value

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural
    from ctxkit.tokens import ContextBudget

_TRIGGER_TOKENS: int = get_value("compaction_trigger", "claude-opus-5-5")
MIN_TRIGGER_TOKENS: int = get_value("compaction_trigger_min", "claude-opus-5-5")
"""Minimum tokens of a trigger that the API accepts."""
INSTRUCTIONS = (
    "Summarise the transcript so that the task can go on without it: state, next steps, what was"
    " learnt."
)

DIFFERENCES = (
    DocumentationDifference(
        "when",
        "input tokens reach the trigger",
        "within the call that crosses it: the summary is a block at the head of its reply",
        "before that call, which is sent the summary",
    ),
    DocumentationDifference(
        "what is billed",
        "the summary is a sampling step of its own, in `usage.iterations`",
        "the top-level usage leaves it out",
        "the summary's tokens count as they do under all presets",
    ),
    DocumentationDifference(
        "compaction on demand",
        "the caller asks for a summary with a request of its own, and chooses which turns it keeps",
        "no setting says when, or how many: both are the caller's",
        "`keep_turns` says how many user's turns it keeps, `trigger` when it asks",
    ),
    DocumentationDifference(
        "pause_after_compaction",
        "the call stops behind the summary, so that the caller can add messages",
        "as documented",
        "keeps the last `keep_messages` messages, which is what the pause is for",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class OnDemandSummary(SummariseAll):
    """Summarise all but the last turns, which stay as they were, thinking included."""

    keep_turns: int = 0
    """Turns of the user's at the end that stay."""

    @property
    def is_written_by_api(self) -> bool:
        """True: thinking in the turns that stay is still valid
        (`engine.prompt_checks_and_repairs`).
        """
        return True

    def find_cut(self, history: History, budget: ContextBudget) -> int:
        """Return the first message of the turns that stay."""
        end = super().find_cut(history, budget)
        if not self.keep_turns:
            return end
        first = history.nth_last("user", self.keep_turns)
        return min(end, history.safe_before(max(first, 0)))


@make_checked_preset
def anthropic_compact(
    *,
    context_window: int | None = None,
    trigger: int = _TRIGGER_TOKENS,
    pause_after_compaction: bool = False,
    keep_messages: Natural = 2,
    keep_turns: Natural | None = None,
    instructions: str = "",
    summariser: Any = None,
) -> Rules:
    """Return the rules of the edit `compact_20260112` (beta `compact-2026-01-12`), or of
    compaction on demand (beta `compact-2026-09-04`).

    Source: platform.claude.com, "Compaction" (150,000 by default and 50,000 at least; the block
    replaces everything before it; `instructions` replace the standard prompt;
    `pause_after_compaction` is off; on demand, which it recommends, the caller chooses when, and
    which turns stay behind the block: neither has a default).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        trigger: tokens of the prompt from which the server compacts, at least 50,000, or from which
            the caller asks for it on demand.
        pause_after_compaction: let the caller keep messages behind the summary.
        keep_messages: how many it keeps; only with the pause.
        keep_turns: turns of the user's that stay behind the block, compacted on demand; None:
            compacted at the threshold.
        instructions: instructions for the summariser, instead of the standard prompt.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that put a readable summary in place of the messages before it, at a threshold or,
        with `keep_turns`, on demand.

    Raises:
        BadArguments: keep_turns and pause_after_compaction are both given, or trigger is below what
            the API accepts.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.anthropic_compact(trigger=100_000)
        >>> rules.parameters["trigger"]
        100000
    """
    is_on_demand = keep_turns is not None
    if is_on_demand and pause_after_compaction:
        raise BadArguments(
            "Choose keep_turns (compaction on demand) or pause_after_compaction (at a threshold)."
        )
    if trigger < MIN_TRIGGER_TOKENS and not is_on_demand:
        raise BadArguments(
            f"trigger must be {MIN_TRIGGER_TOKENS:,} tokens or more, as the API asks; got "
            f"{trigger:,}."
        )
    end_messages = keep_messages if pause_after_compaction else 0
    instructions = instructions or INSTRUCTIONS
    policy = SummariseAll(keep_end=end_messages, instructions=instructions)
    if keep_turns is not None:
        policy = OnDemandSummary(keep_turns=keep_turns, instructions=instructions)
    return Rules(
        policy=policy,
        trigger=Above(trigger, or_equal=True),
        window=context_window,
        summariser=summariser,
    )
