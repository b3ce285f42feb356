"""Gemini CLI (google-gemini/gemini-cli): at half the window a snapshot and the last 30 %, or a
pipeline of budgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ctxkit._internal.setting_value_validation import FLAG, NUMBER, WHOLE
from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.message_shortening import ReplyShortening, ResultShortening
from ctxkit.policies.policy_base_and_chains import Chain
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Above, Share
from ctxkit.presets.config_key_mapping import (
    ConfigKey,
    ConfigKeyTable,
    ConfigWriter,
    ParsedConfig,
    SystemConfigFile,
    get_section,
    ignore_single_matching_key,
    parse_keys,
)
from ctxkit.presets.registry_and_setting_checks import (
    LAST_CALL_DIFFERENCE,
    DocumentationDifference,
    make_checked_preset,
)
from ctxkit.presets.shared_summaries_and_clearing import BaseCustomCutSummary
from ctxkit.session.messages import get_plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.policies.history.history import History
    from ctxkit.session.messages import Message
    from ctxkit.tokens import ContextBudget


INSTRUCTIONS = (
    "Write a state snapshot from which the work goes on: goal, constraints, facts found, files and"
    " what was done to them, what happened last, the plan with what is done. Integrate an earlier"
    " snapshot; lose none of its constraints."
)
MASKED_SUFFIX = "\n[...{n} characters masked; the full output was saved to a file...]"
TRUNCATED_MARK = "\n... [output truncated; the full output was saved to a file] ...\n"

DIFFERENCES = (
    LAST_CALL_DIFFERENCE,
    DocumentationDifference(
        "size of a message",
        "characters",
        "characters of its JSON",
        "characters of its text, names and arguments",
    ),
    DocumentationDifference(
        "second look",
        "the model is asked once more whether the snapshot lost anything",
        "two calls for each compaction",
        "one: hand in a summariser that asks twice",
    ),
    DocumentationDifference(
        "after a failed compaction",
        "not said",
        "only truncation from then on, no summary",
        "every attempt summarises",
    ),
    DocumentationDifference(
        "long outputs beyond the budget",
        "truncated to their last lines",
        "to head and tail of the limit of characters, and saved to a file",
        "head and tail; no file is written by a replay",
    ),
    DocumentationDifference(
        "pipeline: distillation",
        "nodes over 3,000 (at once: 15,000) tokens are condensed by a model",
        "in the background, as nodes age out",
        "they are cut to the truncation's limit, without a model, in the step in which it is due",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class GeminiSummary(Summary):
    """Keep the last share of the characters, from a user message on; cut long outputs beyond a
    budget first.
    """

    apart: bool = False
    preserve: float = 0.3
    """Share of the characters that is kept."""
    result_tokens: int = 50_000
    """Tokens of tool outputs, newest first, that are left whole."""
    result_chars: int = 40_000
    """Characters that an output beyond that keeps."""

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history with its old part in a snapshot."""
        return super().__call__(self.truncate_outputs(history), budget)

    def truncate_outputs(self, history: History) -> History:
        """Return the history with outputs beyond the budget cut to head and tail."""
        tools = history.role("tool")
        # the mark counts, too: an output just above the limit would not become shorter
        long = tools & (history.chars > self.result_chars + len(TRUNCATED_MARK))
        if not long.any():
            return history
        total, sizes = 0, history.estimates
        head, tail = self.result_chars // 5, self.result_chars * 4 // 5
        changes: dict[int, Message | str] = {}
        # newest first: outputs within the budget stay whole, older long ones are shortened
        for p in np.flatnonzero(tools)[::-1].tolist():
            size = int(sizes[p])
            if total + size > self.result_tokens and long[p]:
                text = message_content_and_truncation.truncate_middle(
                    get_plain_text(history[p]), head, tail, TRUNCATED_MARK
                )
                changes[p] = message_content_and_truncation.replace_text(history[p], text)
                # four characters a token, as the estimator of this preset counts
                size = len(text) // 4
            total += size
        return history.shorten(changes, reason="outputs beyond the budget are cut")

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the first request behind what goes; else the last, or the end after a reply."""
        return find_split_point(history, 1 - self.preserve)


# Gemini CLI splits by characters, not by tokens. Prefix sums give the characters before each
# message; the first request or summary with at least `share` of all characters before it begins
# what is kept. Where no request lies that far back, a history that ends with a final reply is
# summarised whole, and any other is cut at its last request. Invariant: the result is a safe cut,
# which parts no call from its result. Cost: linear in the messages.
def find_split_point(history: History, share: float) -> int:
    """Return where Gemini CLI splits: the first request at or beyond a share of the characters.

    Args:
        history: the messages of the prompt.
        share: share of all characters, from 0 to 1.
    """
    chars = history.chars
    before = np.concatenate([[0], np.cumsum(chars)])
    starts = np.flatnonzero(history.role("user", "summary"))
    beyond = [int(p) for p in starts if before[p] >= share * before[-1]]
    if beyond:
        return history.safe_before(beyond[0])
    last = history[len(history) - 1] if len(history) else None
    if last is not None and last.role == "assistant" and not last.tool_calls:
        return len(history)
    return history.safe_before(int(starts[-1])) if len(starts) else 0


@dataclass(frozen=True, kw_only=True, repr=False)
class TruncateThenSnapshot(BaseCustomCutSummary):
    """Beyond the retained tokens cut long messages down; over the maximum put a snapshot in the
    place of the oldest.
    """

    max_tokens: int = 150_000
    """Tokens of the prompt above which the oldest are summarised."""
    node_tokens: int = 4000
    """Tokens that a message beyond the retained ones keeps."""

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history within its budgets."""
        old = self.find_cut(history, budget)
        mask = (np.arange(len(history)) < old) & (history.estimates > self.node_tokens)
        # characters of half a node: four a token, one half for the head and one for the tail
        half = 2 * self.node_tokens
        changes: dict[int, Message | str] = {}
        for p in np.flatnonzero(mask & history.role("tool", "assistant")).tolist():
            text = get_plain_text(history[p])
            if len(text) > 2 * half and not message_content_and_truncation.has_images(history[p]):
                short = message_content_and_truncation.truncate_middle(
                    text, half - len(TRUNCATED_MARK), half, TRUNCATED_MARK
                )
                changes[p] = message_content_and_truncation.replace_text(history[p], short)
        new = history.shorten(changes, reason="aged messages are cut")
        # a summary is made only where the shortened prompt is still too large
        return super().__call__(new, budget) if new.tokens > self.max_tokens else new


@make_checked_preset
def gemini(
    *,
    variant: Literal["classic", "pipeline"] = "classic",
    context_window: int | None = None,
    compression_threshold: float = 0.5,
    compression_preserve_threshold: float = 0.3,
    function_response_token_budget: int = 50_000,
    truncate_tool_output_threshold: int = 40_000,
    retained_tokens: int = 65_000,
    max_tokens: int = 150_000,
    coalescing_threshold_tokens: int = 5000,
    masking_threshold_tokens: int = 8000,
    max_tokens_per_node: int = 4000,
    max_state_tokens: int = 4000,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return Gemini CLI's rules: the compression of the released program, or the newer pipeline.

    Source: its docs/reference/configuration.md at 5ce6e01; `chatCompressionService.ts` at 02b2885
    (0.5, 0.3, 50,000, the split, a result that grew is refused); `context/config/profiles.ts` at
    039a3fd (the pipeline's numbers).

    Not confirmed: 40,000 characters as the limit to which the pipeline cuts an output.

    Args:
        variant: `classic` (one compression at a share of the window) or `pipeline` (budgets of
            tokens).
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        compression_threshold: share of the window at which a compression is due
            (`model.compressionThreshold`).
        compression_preserve_threshold: share of the characters, the newest, that is kept.
        function_response_token_budget: tokens of tool outputs, newest first, that a compression
            leaves whole.
        truncate_tool_output_threshold: characters that an output beyond it keeps.
        retained_tokens: pipeline: tokens that are kept as they are.
        max_tokens: pipeline: tokens of the prompt above which the oldest are summarised.
        coalescing_threshold_tokens: pipeline: tokens above those retained at which a step is due.
        masking_threshold_tokens: pipeline: tokens of one tool output above which the rest of it is
            masked at once.
        max_tokens_per_node: pipeline: tokens that a message beyond the retained ones keeps.
        max_state_tokens: pipeline: tokens of a snapshot.
        focus: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that put a snapshot in place of the older part at a share of the window or, where the
        pipeline is chosen, beyond its maximum of tokens.

    Raises:
        BadArguments: retained_tokens is not below max_tokens, or compression_preserve_threshold is
            not between 0 and 1.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.gemini(variant="pipeline")
        >>> rules.parameters["variant"]
        'pipeline'
    """
    common: dict[str, Any] = {
        "window": context_window,
        "estimator": "chars/4",
        "summariser": summariser,
        "config": ConfigWriter("gemini"),
    }
    instructions = add_focus(INSTRUCTIONS, focus)
    if variant == "classic":
        if not 0 < compression_preserve_threshold < 1:
            raise BadArguments("compression_preserve_threshold lies between 0 and 1.")
        policy: Summary = GeminiSummary(
            keep_messages=1,
            preserve=compression_preserve_threshold,
            result_tokens=function_response_token_budget,
            result_chars=truncate_tool_output_threshold,
            instructions=instructions,
        )
        return Rules(
            policy=policy,
            trigger=Share(compression_threshold, or_equal=True),
            **common,
        )
    if retained_tokens >= max_tokens:
        raise BadArguments(
            f"retained_tokens ({retained_tokens:,}) must lie below max_tokens ({max_tokens:,})."
        )
    policy = TruncateThenSnapshot(
        keep_tokens=retained_tokens,
        max_tokens=max_tokens,
        node_tokens=max_tokens_per_node,
        limit=max_state_tokens,
        estimated=True,
        instructions=instructions,
    )
    # the pruning counts characters: four a token
    masked = 4 * masking_threshold_tokens
    return Rules(
        policy=policy,
        trigger=Above(retained_tokens + coalescing_threshold_tokens),
        pruning=Chain.of(
            # -1 turns off what `ResultShortening` does to stale reads: only length counts
            ResultShortening(max_chars=masked, consumed_chars=-1, suffix=MASKED_SUFFIX),
            ReplyShortening(max_chars=masked, suffix=MASKED_SUFFIX),
        ),
        **common,
    )


CONTEXT_SECTION = "contextManagement"
DISTILLATION_SECTION, MASKING_SECTION = (
    f"{CONTEXT_SECTION}.tools.distillation",
    f"{CONTEXT_SECTION}.tools.outputMasking",
)
OLDER_THRESHOLD_PATHS = (
    "chatCompression.contextPercentageThreshold",
    "model.chatCompression.contextPercentageThreshold",
)
"""Where `model.compressionThreshold` stood in earlier versions; read, never written."""
THRESHOLD_KEY = ConfigKey("model.compressionThreshold", "compression_threshold", NUMBER)
CONFIG_TABLE = ConfigKeyTable(
    keys=(
        THRESHOLD_KEY,
        ConfigKey(f"{CONTEXT_SECTION}.historyWindow.maxTokens", "max_tokens", WHOLE),
        ConfigKey(f"{CONTEXT_SECTION}.historyWindow.retainedTokens", "retained_tokens", WHOLE),
        ConfigKey(f"{CONTEXT_SECTION}.messageLimits.normalMaxTokens", "normal_max_tokens", WHOLE),
        ConfigKey(
            f"{CONTEXT_SECTION}.messageLimits.retainedMaxTokens", "retained_max_tokens", WHOLE
        ),
        ConfigKey(
            f"{CONTEXT_SECTION}.messageLimits.normalizationHeadRatio",
            "normalization_head_ratio",
            NUMBER,
        ),
        ConfigKey(f"{DISTILLATION_SECTION}.maxOutputTokens", "max_output_tokens", WHOLE),
        ConfigKey(
            f"{DISTILLATION_SECTION}.summarizationThresholdTokens",
            "summarization_threshold_tokens",
            WHOLE,
        ),
        ConfigKey(
            f"{MASKING_SECTION}.protectionThresholdTokens", "protection_threshold_tokens", WHOLE
        ),
        ConfigKey(
            f"{MASKING_SECTION}.minPrunableThresholdTokens", "min_prunable_threshold_tokens", WHOLE
        ),
        ConfigKey(f"{MASKING_SECTION}.protectLatestTurn", "protect_latest_turn", FLAG),
        ConfigKey("tools.truncateToolOutputThreshold", "truncate_tool_output_threshold", WHOLE),
    ),
    unrepresented=frozenset({"model.summarizeToolOutput", "model.maxSessionTurns"}),
    ignored=frozenset({"experimental.contextManagement", *OLDER_THRESHOLD_PATHS}),
    open_sections=frozenset({"", "model", "tools", "experimental"}),
)
OTHER_SIGNS = parse_keys("general ui tools context security privacy experimental mcpServers ide")


def count_identifying_keys(config: Mapping[str, Any]) -> int:
    """Count the keys that identify Gemini CLI."""
    mine = (
        (get_section(config, "model.compressionThreshold") is not None)
        + (CONTEXT_SECTION in config)
        + ("chatCompression" in config)
    )
    schema = "gemini-cli" in str(config.get("$schema", ""))
    return (
        10 * schema
        + 4 * mine
        + ignore_single_matching_key(sum(isinstance(config.get(k), dict) for k in OTHER_SIGNS))
    )


def read_config(config: Mapping[str, Any], _agent: str | None) -> ParsedConfig:
    """Parse the settings of the file; `experimental.contextManagement` turns the newer pipeline on.

    That the pipeline takes its two budgets from `historyWindow`, and not from its profile alone, is
    not confirmed.
    """
    parsed = CONFIG_TABLE.parse(config)
    for path in OLDER_THRESHOLD_PATHS:
        if (value := get_section(config, path)) is not None:
            # the key of the current version wins over its older spellings
            parsed.settings.setdefault(THRESHOLD_KEY.parameter, THRESHOLD_KEY.read(value, path))
    if get_section(config, "experimental.contextManagement") is True:
        parsed.settings["variant"] = "pipeline"
    return parsed


def to_config_tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys."""
    tree = CONFIG_TABLE.to_config_tree(parameters)
    if parameters.get("variant") is not None:
        tree["experimental"] = {"contextManagement": parameters["variant"] == "pipeline"}
    return tree


KEY_PATHS = {**CONFIG_TABLE.paths, "variant": "experimental.contextManagement"}
CONFIG = SystemConfigFile(
    "gemini", "settings.json", count_identifying_keys, read_config, to_config_tree, KEY_PATHS
)
