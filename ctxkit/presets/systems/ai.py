"""tiancaiamao/ai at 7bc6f19, a Go port of Pi: sizes in bytes, tool output truncated on arrival,
digests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ctxkit._internal.setting_value_validation import FLAG, WHOLE, make_choice_kind
from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.history.history import find_first_since_compaction, find_turn_start
from ctxkit.policies.message_shortening import OutputShortening
from ctxkit.policies.policy_base_and_chains import Chain
from ctxkit.policies.result_excerpts_and_offload import OldResultsDigest, ResultExcerpts
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.texts.summary_prompts_and_audits import PI_SECTIONS
from ctxkit.policies.triggers import Above, Count, Never, Overflow, Share
from ctxkit.presets.config_key_mapping import (
    ConfigKey,
    ConfigKeyTable,
    ConfigWriter,
    SystemConfigFile,
)
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.policies.history.history import History
    from ctxkit.tokens import ContextBudget


SUMMARY_PREFIX = "[Previous conversation summary]\n"

DIFFERENCES = (
    DocumentationDifference(
        "which compaction runs",
        "Compactor.Compact: keep what fits a token budget, digest old tool results",
        "Session.Compact: keep from the turn in which the budget is reached on, no digest",
        "the document's",
        "as the program",
    ),
    DocumentationDifference(
        "pairs",
        "not said",
        "the document's split can part a call from its result (mended in 0cda15b)",
        "the cut moves to the next safe place",
        "never parted either",
    ),
    DocumentationDifference(
        "archived tool results",
        "hidden from the agent, visible to the user",
        "hidden: their calls are left without a result",
        "a stub of one line stays as the result",
        "no archive in a compaction; the stub in the loop",
    ),
    DocumentationDifference(
        "characters",
        "limits in characters",
        "Go's len, so bytes",
        "the estimate counts bytes",
        "as the program",
    ),
    DocumentationDifference(
        "tool summaries in the loop",
        "one by one, appended as user messages",
        "in batches, when the model has answered",
        "an excerpt stands in the place of the result, made at once",
    ),
    DocumentationDifference(
        "spilled output",
        "output of more than 204,800 characters goes to a file",
        "so the limit of characters is never reached",
        "a live session writes the file; in a replay the other limits cut it",
    ),
    DocumentationDifference(
        "second compaction",
        "old messages are summarised",
        "messages kept by the compaction before are neither summarised nor kept",
        "they are summarised",
        "as the program",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class AiSummary(Summary):
    """The document's compaction (the newest messages that fit a budget), or with quirks the
    session's (whole turns).
    """

    estimated: bool = True
    apart: bool = False
    sections: tuple[str, ...] = PI_SECTIONS
    prefix: str = SUMMARY_PREFIX
    digest: Any = None
    """A policy that works on what is left, where something was summarised."""
    quirks: bool = False
    """Keep from the user message before the budget on; lose what the compaction before had kept."""

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history, its old part summarised, old results of the rest behind a digest."""
        new = super().__call__(history, budget)
        return new if new is history or self.digest is None else self.digest(new, budget)

    def find_cut(self, history: History, budget: ContextBudget) -> int:
        """Return the first position that is kept."""
        if not self.keep_tokens:
            return super().find_cut(history, budget)
        # at most half of the trigger, so that the next compaction is not due at once
        target_tokens = min(self.keep_tokens, max(budget.prompt_limit // 2, 1))
        if self.quirks:
            return self._find_turn_cut(history, target_tokens)
        if history.estimated <= target_tokens:
            return 0
        # the longest suffix within the budget; the next safe cut behind it may keep less
        first = min(history.back(target_tokens + 1, estimated=True) + 1, len(history) - 1)
        return history.safe(first) or history.safe_before(first)

    def _find_turn_cut(self, history: History, target_tokens: int) -> int:
        start = self.find_read_start(history)
        # The message with which the budget is reached, counted from the end; its whole turn is
        # kept. Where the budget is not reached behind the last compaction, nothing is cut.
        crossing = max(history.back(target_tokens, estimated=True), start)
        return (
            history.safe_before(max(find_turn_start(history, crossing), 0))
            if crossing > start
            else 0
        )

    def find_read_start(self, history: History) -> int:
        """Return the first position that is looked at: with quirks behind the last compaction."""
        return find_first_since_compaction(history) if self.quirks else 0


def get_effective_limit(
    context_window: int, reserve_tokens: int = 16_384, max_tokens: int = 8000
) -> tuple[int, str]:
    """Return the prompt size at which a compaction is due.

    Args:
        context_window: tokens; 0: not set.
        reserve_tokens: tokens held free in the window; 0 or less: 16,384.
        max_tokens: limit where the window is not set or too small; 0: none.

    Returns:
        Tokens, and the name of the setting that decides; ``(0, "none")`` where nothing does.
    """
    reserve = reserve_tokens if reserve_tokens > 0 else 16_384
    if context_window > 0 and context_window - reserve > 0:
        return context_window - reserve, "context_window"
    return (max_tokens, "max_tokens") if max_tokens > 0 else (0, "none")


def parse_tool_summary_strategy(word: str) -> Literal["llm", "heuristic", "off"]:
    """Return the strategy that a word means: `llm` for an empty or unknown one, as the program."""
    low = word.strip().lower()
    return low if low in ("heuristic", "off") else "llm"  # type: ignore[return-value]


@make_checked_preset
def ai(
    *,
    context_window: int | None = None,
    auto_compact: bool = True,
    max_messages: int = 50,
    max_tokens: int = 8000,
    keep_recent: int = 5,
    keep_recent_tokens: int = 20_000,
    reserve_tokens: int = 16_384,
    tool_call_cutoff: int = 10,
    tool_summary_strategy: str = "llm",
    max_lines: int = 2000,
    max_bytes: int = 51_200,
    max_chars: int = 204_800,
    large_output_threshold: int = 204_800,  # noqa: ARG001  live sessions read it of the rules
    truncate_mode: Literal["head", "head_tail", "middle"] = "head_tail",
    summariser: Any = None,
    quirks: bool = False,
) -> Rules:
    """Return ai's rules: compact at the window less the reserve, or else at `max_tokens`, or at
    `max_messages`.

    Source: tiancaiamao/ai at 7bc6f19.

    Args:
        context_window: tokens that the model takes; None: as the price table has it, else not
            known; 0: not known to the agent. Where it is not known, `max_tokens` is the limit.
        auto_compact: whether to compact automatically.
        max_messages: messages at which a compaction is due where neither a window nor `max_tokens`
            is set.
        max_tokens: tokens at which it is due where the window is not known, or not above the
            reserve.
        keep_recent: messages that are kept where `keep_recent_tokens` is 0.
        keep_recent_tokens: tokens, by ai's estimate, that are kept; at most half of what triggers.
        reserve_tokens: reserved tokens of the window.
        tool_call_cutoff: tool results that stay whole; older ones become excerpts, in a compaction
            a digest.
        tool_summary_strategy: `llm`, `heuristic` or `off`.
        max_lines: lines of a tool's output that enter the history.
        max_bytes: bytes of it.
        max_chars: characters of it.
        large_output_threshold: characters above which a live session keeps all of it in a file and
            shows where; a replay writes no file.
        truncate_mode: `head` or `head_tail` of the lines; `middle` for characters and bytes too.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.
        quirks: reproduce the program: compact by whole turns, without a digest.

    Returns:
        Rules with a summary of old messages, due also after an overflow error, and with prunings
        that cut tool output as it comes and turn old results into excerpts.

    Raises:
        BadArguments: context_window is below 0.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.ai(reserve_tokens=8_000)
        >>> rules.parameters["reserve_tokens"]
        8000
    """
    if context_window is not None and context_window < 0:
        raise BadArguments(
            f"A window of {context_window} tokens holds nothing: give 0 for an unknown one."
        )
    window = 200_000 if context_window is None else context_window
    limit, source = get_effective_limit(window, reserve_tokens, max_tokens)
    policy = AiSummary(
        keep_tokens=min(keep_recent_tokens, limit // 2)
        if limit and keep_recent_tokens > 0
        else keep_recent_tokens or None,
        keep_messages=None if keep_recent_tokens > 0 else keep_recent,
        prefix="" if quirks else SUMMARY_PREFIX,
        must_shrink=not quirks,
        digest=None if quirks else OldResultsDigest(keep_last=tool_call_cutoff),
        quirks=quirks,
    )
    by_window = source == "context_window"
    reserve = (reserve_tokens if reserve_tokens > 0 else 16_384) if by_window else 0
    outputs = OutputShortening(
        max_lines=max_lines, max_chars=max_chars, max_bytes=max_bytes, mode=truncate_mode
    )
    return Rules(
        policy=policy,
        trigger=_make_trigger(source, limit, max_messages) | Overflow(recorded=True),
        pruning=Chain.of(
            outputs,
            ResultExcerpts(
                keep_last=tool_call_cutoff,
                strategy=parse_tool_summary_strategy(tool_summary_strategy),
            ),
        ),
        window=context_window or None,
        unknown_window=max_tokens + reserve if by_window and max_tokens > 0 else 200_000,
        reserve=reserve,
        estimator="ai",
        summariser=summariser,
        auto=auto_compact,
        config=ConfigWriter("ai"),
    )


def _make_trigger(source: str, limit: int, max_messages: int) -> Any:
    if source == "context_window":
        return Share(1.0, of="budget", or_equal=True)
    if source == "max_tokens":
        return Above(limit, or_equal=True)
    return Count(max_messages) if max_messages > 0 else Never()


CONFIG_TABLE = ConfigKeyTable(
    keys=(
        ConfigKey("compactor.maxMessages", "max_messages", WHOLE),
        ConfigKey("compactor.maxTokens", "max_tokens", WHOLE),
        ConfigKey("compactor.keepRecent", "keep_recent", WHOLE),
        ConfigKey("compactor.keepRecentTokens", "keep_recent_tokens", WHOLE),
        ConfigKey("compactor.reserveTokens", "reserve_tokens", WHOLE),
        ConfigKey("compactor.toolCallCutoff", "tool_call_cutoff", WHOLE),
        ConfigKey(
            "compactor.toolSummaryStrategy",
            "tool_summary_strategy",
            make_choice_kind("llm", "heuristic", "off"),
        ),
        ConfigKey("compactor.autoCompact", "auto_compact", FLAG),
        ConfigKey("toolOutput.maxLines", "max_lines", WHOLE),
        ConfigKey("toolOutput.maxBytes", "max_bytes", WHOLE),
        ConfigKey("toolOutput.maxChars", "max_chars", WHOLE),
        ConfigKey("toolOutput.largeOutputThreshold", "large_output_threshold", WHOLE),
        ConfigKey(
            "toolOutput.truncateMode",
            "truncate_mode",
            make_choice_kind("head", "head_tail", "middle"),
        ),
    ),
    unrepresented=frozenset({"compactor.toolSummaryAutomation"}),
    ignored=frozenset({"model", "concurrency", "log"}),
    any_case=True,
)


def count_identifying_keys(config: Mapping[str, Any]) -> int:
    """Count the keys that identify ai."""
    names = {str(k).casefold() for k in config}
    return 4 * ("compactor" in names) + 2 * ("tooloutput" in names)


CONFIG = SystemConfigFile(
    "ai",
    "config.json",
    count_identifying_keys,
    CONFIG_TABLE.parse,
    CONFIG_TABLE.to_config_tree,
    CONFIG_TABLE.paths,
)
