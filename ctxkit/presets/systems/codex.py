"""Codex CLI (openai/codex, Rust): keeps the user's messages, and replaces the rest by a summary
behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit._internal.setting_value_validation import POSITIVE, PROMPT
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.guards import keep_if_smaller
from ctxkit.policies.history.growing_columns_and_sums import SUMMARY
from ctxkit.policies.message_shortening import OutputShortening
from ctxkit.policies.offline_summarisers import SummariserInput
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Above, Overflow, Share
from ctxkit.presets.config_key_mapping import (
    ConfigKey,
    ConfigKeyTable,
    ConfigWriter,
    ParsedConfig,
    SystemConfigFile,
    get_section,
    parse_keys,
)
from ctxkit.presets.registry_and_setting_checks import (
    LARGER_SUMMARY_DIFFERENCE,
    LAST_CALL_DIFFERENCE,
    DocumentationDifference,
    make_checked_preset,
)
from ctxkit.presets.shared_summaries_and_clearing import (
    as_summary_message,
    find_end_of_removable,
    make_removable_mask,
)
from ctxkit.session.messages import get_plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural, Positive
    from ctxkit.session.messages import Message
    from ctxkit.tokens import ContextBudget


SUMMARY_PREFIX = "[Summary of the work so far, written by the model that did it]\n"
INSTRUCTIONS = (
    "Write a handoff for another model that goes on with this task: what was done and decided, what"
    " must be kept to, what is left, and the data needed for it."
)

DIFFERENCES = (
    DocumentationDifference(
        "remote compaction",
        "off unless the provider is OpenAI",
        "with OpenAI's models the server compacts: its item is encrypted",
        "the local way: `openai_server` shows the other one",
    ),
    LAST_CALL_DIFFERENCE,
    LARGER_SUMMARY_DIFFERENCE,
    DocumentationDifference(
        "the summariser's own overflow",
        "not said",
        "the oldest item is dropped and the model asked again",
        "a failure leaves the history as it was",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class CodexSummary(Summary):
    """Keep the newest user messages up to a budget, and append a summary of everything."""

    estimated: bool = True
    user_tokens: int = 20_000
    """Codex's tokens of the user messages that are kept; the oldest of them is cut to fit."""

    # Codex rebuilds the history instead of cutting it. First stand the messages that stay, in their
    # old order: protected ones, and the newest requests within a budget of tokens. A summary of
    # everything follows, then a last reply whose results are missing (the tail from `n` on). The
    # summary is made of all messages, also of the requests that are kept. Where nothing but
    # requests would go, nothing is done. A result that is not smaller is refused, unless
    # `must_shrink` is off.
    def __call__(self, history: History, _budget: ContextBudget) -> History:
        """Return the user's messages with a summary behind them."""
        start, n, at = self.front(history), find_end_of_removable(history), np.arange(len(history))
        requests = history.role("user") & ~history.stays & (at >= start)
        if not (make_removable_mask(history, start, n) & ~requests[start:n]).any():
            return history
        chosen, shortened = self.choose_requests(history, requests)
        passage = SummariserInput(history, n, start, self.limit, self.summary_instructions())
        summary = as_summary_message(self.summarise_passage(self.maker, passage), self.prefix)
        rest = history.keep(chosen | history.stays | (at < start) | (at >= n)).messages
        tail = len(history) - n
        visible_requests = [shortened.get(m.id, m) for m in rest[: len(rest) - tail]]
        new = history.become(
            [*visible_requests, summary, *rest[len(rest) - tail :]],
            "only the user's messages are kept",
            method="codex",
        )
        return keep_if_smaller(history, new) if self.must_shrink else new

    def front(self, history: History, first: int = 0) -> int:
        """Return the first position that may go: requests that were kept come before summaries."""
        first, items = super().front(history, first), history.head.items
        if self.summaries_stay:
            summaries = (
                p for p, i in enumerate(items) if i.row < 0 and i.role(history.log) == SUMMARY
            )
            # everything up to the last summary stays, also the requests kept before it
            first = max(first, 1 + max(summaries, default=-1))
        return first

    def choose_requests(
        self, history: History, requests: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Message]]:
        """Return which of the user messages are kept (a mask), and the one that is cut, if any, by
        its id.

        Args:
            history: the history that is compacted.
            requests: True for each user message that may go.
        """
        mask, tokens_left = np.zeros(len(history), bool), self.user_tokens
        shortened: dict[str, Message] = {}
        # newest first, until the budget is used; the last one that does not fit is shortened
        for p in np.flatnonzero(requests)[::-1].tolist():
            if tokens_left <= 0:
                break
            size, message = int(history.estimates[p]), history[p]
            mask[p] = True
            if size > tokens_left:
                shortened[message.id] = message_content_and_truncation.replace_text(
                    message, truncate_to_tokens(get_plain_text(message), tokens_left)
                )
            tokens_left -= size
        return mask, shortened


def truncate_to_tokens(text: str, tokens: int) -> str:
    """Return a text without its middle, in about a given number of tokens of four characters."""
    max_chars = max(tokens * 4, 0)
    if len(text) <= max_chars:
        return text
    head, tail = max_chars - max_chars // 2, max_chars // 2
    return (
        f"{text[:head]}…{(len(text) - max_chars) // 4} tokens truncated…{text[len(text) - tail :]}"
    )


@make_checked_preset
def codex(
    *,
    context_window: int | None = None,
    model_auto_compact_token_limit: Positive | None = None,
    compact_user_message_max_tokens: Natural = 20_000,
    tool_output_token_limit: int | None = None,
    compact_prompt: str = "",
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return Codex's rules: at 0.9 of the window, or earlier, all but the user's own words becomes
    a summary.

    Source: https://developers.openai.com/codex/config-reference, late 2026 (names of settings);
    `codex-rs/core/src/compact.rs` at 0100b10 (budget of user messages, order, failures);
    `codex-rs/protocol/src/openai_models.rs` as its readers quote it (0.9 of the window).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        model_auto_compact_token_limit: tokens at which a compaction is due; never more than 0.9 of
            the window.
        compact_user_message_max_tokens: tokens of the user's messages that are kept (fixed in the
            program).
        tool_output_token_limit: tokens of one tool output that enter the history; None: as the log
            has it.
        compact_prompt: instructions for the summariser, instead of the default ones.
        focus: a topic that the summary should also cover (not in Codex).
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that put one summary after what the user said, due at a share of the window or after
        an overflow error.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.codex(context_window=272_000)
        >>> rules.parameters["context_window"]
        272000
    """
    trigger: Any = Share(0.9, or_equal=True)
    # either trigger suffices, so that the limit can only lower the nine tenths
    if model_auto_compact_token_limit is not None:
        trigger = trigger | Above(model_auto_compact_token_limit, or_equal=True)
    outputs = None
    if tool_output_token_limit is not None:
        # the limit is in tokens, the cut in bytes: four a token
        outputs = OutputShortening(
            max_lines=0, max_chars=0, max_bytes=max(4 * tool_output_token_limit, 1), mode="middle"
        )
    return Rules(
        policy=CodexSummary(
            user_tokens=compact_user_message_max_tokens,
            keep_messages=1,
            prefix=SUMMARY_PREFIX,
            instructions=add_focus(compact_prompt or INSTRUCTIONS, focus),
        ),
        trigger=trigger | Overflow(recorded=True),
        pruning=outputs,
        window=context_window,
        estimator="bytes/4",
        summariser=summariser,
        config=ConfigWriter("codex"),
    )


CONFIG_TABLE = ConfigKeyTable(
    keys=(
        ConfigKey("model_context_window", "context_window", POSITIVE),
        ConfigKey("model_auto_compact_token_limit", "model_auto_compact_token_limit", POSITIVE),
        ConfigKey("compact_prompt", "compact_prompt", PROMPT),
        ConfigKey("tool_output_token_limit", "tool_output_token_limit", POSITIVE),
    ),
    unrepresented=parse_keys(
        "experimental_compact_prompt_file model_auto_compact_token_limit_scope"
        " model_max_output_tokens"
    ),
)
OTHER_SIGNS = parse_keys(
    "model_provider model_providers model_reasoning_effort model_reasoning_summary model_verbosity"
    " approval_policy sandbox_mode sandbox_workspace_write mcp_servers project_doc_max_bytes"
)


def count_identifying_keys(config: Mapping[str, Any]) -> int:
    """Count the keys that identify Codex."""
    mine = sum(
        str(k) in config
        for k in (*(k.path for k in CONFIG_TABLE.keys), *CONFIG_TABLE.unrepresented)
    )
    return 3 * mine + sum(k in config for k in OTHER_SIGNS)


def read_config(config: Mapping[str, Any], _agent: str | None) -> ParsedConfig:
    """Parse the settings at the top of the file; those of its named profile override them."""
    parsed = CONFIG_TABLE.parse(config)
    name = config.get("profile")
    # a profile whose name has a dot cannot be looked up by a path
    profile = (
        get_section(config, f"profiles.{name}")
        if isinstance(name, str) and "." not in name
        else None
    )
    if isinstance(profile, dict):
        CONFIG_TABLE.read(profile, parsed, f"profiles.{name}.")
    return parsed


def to_config_tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys; without any, a table naming the system."""
    return CONFIG_TABLE.to_config_tree(parameters) or {"mcp_servers": {}}


CONFIG = SystemConfigFile(
    "codex", "config.toml", count_identifying_keys, read_config, to_config_tree, CONFIG_TABLE.paths
)
