"""pulse-coder (hua-bang) at 527e790: a summary up to a target share, two fallbacks that keep the
last turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ctxkit._internal.setting_value_validation import POSITIVE
from ctxkit.errors import BadArguments, ModelError
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.guards import CompactionCountLimit, keep_if_smaller
from ctxkit.policies.history.history import has_summarisable_messages
from ctxkit.policies.message_hiding import PruneToolCalls
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.triggers import Above, ReplyCutShort
from ctxkit.policies.unpruned_prompt_forecast import estimate_tokens_rounded_as_system
from ctxkit.presets.config_key_mapping import (
    ConfigKey,
    ConfigKeyTable,
    ConfigWriter,
    ParsedConfig,
    SystemConfigFile,
    ignore_single_matching_key,
)
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.session.messages import SENT_ROLE_KEY, Message, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.policies.history.history import History
    from ctxkit.tokens import ContextBudget


SUMMARY_PREFIX = "[COMPACTED_CONTEXT]\n"
PULSE_SECTIONS = ("目标", "进展", "关键结果", "文件与变更", "关键片段", "待确认")
FALLBACK_PRUNE = PruneToolCalls(tool_calls="all", reasoning="all")
"""What is done to all messages before the last turns are taken, where no summary came about."""
DEFAULT_WINDOW = 64_000
"""Tokens, whatever the model (`CONTEXT_WINDOW_TOKENS`); the system prompt is never weighed."""

DIFFERENCES = (
    DocumentationDifference(
        "summary too large",
        "fall back to the last turns",
        "the summary that was paid for is thrown away, and the result may still be above the"
        " target",
        "as the document says",
    ),
    DocumentationDifference(
        "who writes the new messages back",
        "the caller must commit them",
        "where it does not, both attempts are spent on the same summary and nothing changes",
        "they are committed",
    ),
    DocumentationDifference(
        "system messages before the first kept user message",
        "not said",
        "dropped (the system prompt is passed apart)",
        "they stay",
    ),
    DocumentationDifference(
        "a result that is not smaller",
        "not said",
        "is taken (refused from a later version on)",
        "is refused",
        "is taken",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class PulseSummary(Summary):
    """Summarise all but the last turns, in the assistant's words; keep only those where no summary
    comes about or the result is too large.
    """

    on_failure: ClassVar[str] = (
        "the last turns are kept alone, their thinking and tool calls pruned"
    )
    target: int = 32_000
    """Tokens, by its own estimate, that the result may have."""
    prefix: str = SUMMARY_PREFIX
    sections: tuple[str, ...] = PULSE_SECTIONS
    apart: bool = False

    # There are three results, tried in this order. (1) A summary and the last turns, where both
    # together are within the target. (2) Where the summariser fails, all calls and thinking are
    # pruned and the last turns alone are kept. (3) Where the result of (1) is above the target, its
    # summary is discarded and the last turns alone are kept, unpruned. The model was paid for in
    # that case, too. No result is checked against the target a second time.
    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return summary and last turns, or the last turns alone."""
        start, first = self.front(history), self.find_cut(history, budget)
        if first <= start or not has_summarisable_messages(history, first, start):
            return history
        try:
            summary = self.write_summary(history, first)
            if isinstance(summary, str):
                details = {SENT_ROLE_KEY: "assistant"}
                summary = Message(role="summary", parts=(Text(summary),), details=details)
            method = self.name_method()
            new = history.summarise(first, summary, "summary", start=start, method=method)
        except ModelError as error:
            return self.keep_last_turns_only(
                FALLBACK_PRUNE(history, budget), "fallback"
            ).instead_of(str(error))
        if is_above_target(new, self.target):
            return self.keep_last_turns_only(history, "summary-too-large")
        return keep_if_smaller(history, new) if self.must_shrink else new

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the `keep_turns`-th user message from the end; 0 where there are not more."""
        return (
            self.find_last_turns(history)
            if history.nth_last_request((self.keep_turns or 1) + 1) >= 0
            else 0
        )

    def keep_last_turns_only(self, history: History, why: str) -> History:
        """Return the last turns alone."""
        first, start = self.find_last_turns(history), self.front(history)
        return history.drop(first, why, start=start, method="fallback")

    def find_last_turns(self, history: History) -> int:
        """Return where the last turns begin."""
        return history.safe_before(max(history.nth_last_request(self.keep_turns or 1), 0))


def is_above_target(history: History, target: int) -> bool:
    """Return whether its estimate is above a target; recomputed only where rounding decides."""
    # `estimated` adds up one rounded number for each message, the program rounds once. Both differ
    # by less than a token a message; only within that distance the exact sum is worked out.
    over = history.estimated - target
    return over > 0 and (over > len(history) or estimate_tokens_rounded_as_system(history) > target)


@make_checked_preset
def pulse_coder(
    *,
    context_window_tokens: int = DEFAULT_WINDOW,
    compact_trigger: int | None = None,
    compact_target: int | None = None,
    keep_last_turns: int = 6,
    compact_summary_max_tokens: int = 1200,
    max_compaction_attempts: int = 2,
    summariser: Any = None,
    quirks: bool = False,
) -> Rules:
    """Return pulse-coder's rules: compact from 75 % of the window on, to 50 % at most.

    Source: hua-bang's pulse-coder at 527e790.

    Args:
        context_window_tokens: tokens that pulse-coder believes the model takes, whatever model it
            is; what it assumes by itself is no bound: a larger prompt is sent all the same.
        compact_trigger: tokens, by its own estimate, from which a compaction is due; None: 0.75 of
            the window.
        compact_target: tokens that the result may have; None: 0.5 of the window.
        keep_last_turns: user messages from the end that are kept with what follows them (later
            versions: 4).
        compact_summary_max_tokens: tokens that a summary may have.
        max_compaction_attempts: compactions in one turn.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.
        quirks: take a result that is not smaller.

    Returns:
        Rules that summarise all but the last turns, due at the trigger by its own estimate or after
        a reply that was cut off.

    Raises:
        BadArguments: compact_trigger is not above compact_target.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.pulse_coder(keep_last_turns=4)
        >>> rules.parameters["keep_last_turns"]
        4
    """
    trigger = int(0.75 * context_window_tokens) if compact_trigger is None else compact_trigger
    target = int(0.5 * context_window_tokens) if compact_target is None else compact_target
    if not trigger > target:
        raise BadArguments(
            f"compact_trigger ({trigger:,}) must lie above compact_target ({target:,}): "
            "otherwise each compaction is due again at once."
        )
    policy = PulseSummary(
        keep_turns=keep_last_turns,
        target=target,
        limit=compact_summary_max_tokens,
        must_shrink=not quirks,
    )
    return Rules(
        policy=policy,
        trigger=Above(trigger, or_equal=True, estimated=True) | ReplyCutShort(),
        guards=(CompactionCountLimit(max_compaction_attempts, per="turn"),),
        window=context_window_tokens,
        assumed=context_window_tokens == DEFAULT_WINDOW,
        estimator="pulse_coder",
        summariser=summariser,
        config=ConfigWriter("pulse_coder"),
    )


CONFIG_TABLE = ConfigKeyTable(
    keys=(
        ConfigKey("CONTEXT_WINDOW_TOKENS", "context_window_tokens", POSITIVE),
        ConfigKey("COMPACT_TRIGGER", "compact_trigger", POSITIVE),
        ConfigKey("COMPACT_TARGET", "compact_target", POSITIVE),
        ConfigKey("KEEP_LAST_TURNS", "keep_last_turns", POSITIVE),
        ConfigKey("COMPACT_SUMMARY_MAX_TOKENS", "compact_summary_max_tokens", POSITIVE),
        ConfigKey("MAX_COMPACTION_ATTEMPTS", "max_compaction_attempts", POSITIVE),
    ),
    unrepresented=frozenset({"MAX_TOOL_OUTPUT_LENGTH", "MAX_STEPS", "MAX_ERROR_COUNT"}),
    ignored=frozenset({"COMPACT_SUMMARY_MODEL", "DEFAULT_MODEL"}),
)


def count_identifying_keys(config: Mapping[str, Any]) -> int:
    """Count the keys that identify pulse-coder."""
    return ignore_single_matching_key(sum(k.path in config for k in CONFIG_TABLE.keys)) * 3


def read_config(config: Mapping[str, Any], _agent: str | None) -> ParsedConfig:
    """Parse the settings of environment variables, without notes on all other variables.

    The program reads text that is no number as NaN, and then compacts before every call; here
    such text is refused.
    """
    names = {k.path for k in CONFIG_TABLE.keys} | CONFIG_TABLE.unrepresented
    variables = {
        k: _parse_whole(v) for k, v in config.items() if k in names and v not in ("", None)
    }
    return CONFIG_TABLE.parse(variables)


def _parse_whole(value: Any) -> Any:
    """Return a whole number out of a text, where it is one."""
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isdecimal() and len(text) < 16 else value


CONFIG = SystemConfigFile(
    "pulse_coder",
    ".env",
    count_identifying_keys,
    read_config,
    CONFIG_TABLE.to_config_tree,
    CONFIG_TABLE.paths,
)
