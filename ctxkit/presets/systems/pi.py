"""Pi (0.58.3 to 1.6.0): one structured summary, about 20,000 tokens kept, turns may be split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ctxkit._internal.setting_value_validation import FLAG, WHOLE
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.summary_compaction import PI_INSTRUCTIONS, PiSummary
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import LastUsageOverBudget, Overflow, Share
from ctxkit.presets.config_key_mapping import (
    ConfigKey,
    ConfigKeyTable,
    ConfigWriter,
    SystemConfigFile,
    parse_keys,
)
from ctxkit.presets.registry_and_setting_checks import (
    DocumentationDifference,
    check_window,
    make_checked_preset,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


DIFFERENCES = (
    DocumentationDifference(
        "second compaction",
        "all messages before the cut are in the summary",
        "0.58.3: messages that the compaction before had kept are neither summarised nor kept;"
        " mended in 0.73.1",
        "they are summarised",
        "0.58.3: they are lost; the request that waited at the compaction before is not, as the"
        " program took it in only afterwards",
    ),
    DocumentationDifference(
        "when",
        "above the window less the reserve",
        "looked at after a run of the agent and before a prompt, not between the calls of a run",
        "before each call, and after an overflow",
        "before the first call of a turn, and after an overflow",
    ),
    DocumentationDifference(
        "size that triggers",
        "tokens of the context",
        "prompt and reply of the last call together, before the new request is taken in; before"
        " 1.5.2 a reply that was broken off counts as nothing",
        "the prompt of the coming call",
        "as the program",
    ),
    DocumentationDifference(
        "the pending request",
        "not said",
        "is not in the session yet while the cut is looked for: it does not count among the recent"
        " tokens",
        "as the program",
        "as the program",
    ),
    DocumentationDifference(
        "failed and aborted replies",
        "not said",
        "are never sent again, but count where the cut is looked for, with their calls; they may be"
        " kept first",
        "their estimate lies on the message behind them; a cut at one falls on that message, and"
        " right before a compaction it does not count yet",
    ),
    DocumentationDifference(
        "large last tool result",
        "the last 20,000 tokens are kept, the rest is summarised",
        "0.58.3 and 0.73.1: where no cut lies after the point reached, nothing is cut; mended in"
        " 1.5.2",
        "the cut is made before its call",
        "as the program of that version",
    ),
    DocumentationDifference(
        "nothing to summarise",
        "not said",
        "0.58.3 and 0.73.1 write a summary of nothing where the cut is at the first message; 1.5.2"
        " does not compact",
        "nothing is done",
    ),
    DocumentationDifference(
        "images of the user",
        "not said",
        "weigh nothing in 0.58.3 and 0.73.1, and 4,800 characters in 1.5.2",
        "as the program of that version",
        "as the program",
    ),
    DocumentationDifference(
        "commands of the user",
        "not said",
        "weigh what the command and its output do",
        "weigh some characters more: the words that the model is shown around them",
    ),
    DocumentationDifference(
        "tokens of a summary",
        "not said",
        "at most 0.8 of the reserve in 0.58.3 and 0.73.1; the model's own limit in 1.5.2",
        "as the program of that version",
        "as the program",
    ),
    DocumentationDifference(
        "a summary larger than what it replaces",
        "not said",
        "is taken",
        "is refused",
        "is taken",
    ),
    DocumentationDifference(
        "model or thinking changes before a user message",
        "a cut normally falls on the beginning of a turn",
        "the cut moves onto the change, and the whole turn counts as split",
        "such entries are not part of a session here, so the cut stays on the user message",
    ),
    DocumentationDifference(
        "summaries of branches",
        "not said",
        "weigh nothing while the cut is looked for; one right before it is kept",
        "are messages like others",
    ),
    DocumentationDifference(
        "chars/4",
        "called a conservative estimate",
        "was 30 % too low on a real session",
        "the cut is found by Pi's estimate, the trigger by the recorded size",
    ),
)


@make_checked_preset
def pi(
    *,
    version: Literal["1.5.2", "0.73.1", "0.58.3"] = "1.5.2",
    context_window: int | None = None,
    enabled: bool = True,
    reserve_tokens: int = 16_384,
    keep_recent_tokens: int = 20_000,
    custom_instructions: str = "",
    summariser: Any = None,
    quirks: bool = False,
) -> Rules:
    """Return Pi's rules: compact where the prompt is above the window less the reserve.

    Source: `dist/core/compaction/compaction.js` (`DEFAULT_COMPACTION_SETTINGS`: enabled, 16,384 and
    20,000; `prepareCompaction`, `estimateTokens`) and `dist/core/agent-session.js`
    (`_checkCompaction`) of the npm packages @mariozechner/pi-coding-agent 0.58.3 and 0.73.1 and
    @earendil-works/pi-coding-agent 1.5.2.

    Args:
        version: version of the program to reproduce, where versions differ; 1.6.0 compacts as
            1.5.2 does.
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        enabled: whether to compact automatically.
        reserve_tokens: tokens reserved for the reply and the summary; before 1.5.2 a summary has
            at most 0.8 of them.
        keep_recent_tokens: tokens, by Pi's estimate, that are kept as they are.
        custom_instructions: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.
        quirks: reproduce the program of that version where it loses messages, cuts nothing, or
            looks only before a turn.

    Returns:
        Rules with Pi's summary of all but the newest tokens, due above the window less the reserve
        or after an overflow error.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.pi(reserve_tokens=8_000)
        >>> rules.parameters["reserve_tokens"]
        8000
    """
    check_window(context_window, reserve_tokens, keep_recent_tokens)
    newest = version == "1.5.2"
    policy = PiSummary(
        keep_tokens=keep_recent_tokens,
        # before 1.5.2 the reserve bounds a summary: 0.8 of it, 0.5 for the head of a split turn
        limit=None if newest else max(int(0.8 * reserve_tokens), 1),
        split_limit=None if newest else max(int(0.5 * reserve_tokens), 1),
        instructions=add_focus(PI_INSTRUCTIONS, custom_instructions),
        must_shrink=not quirks,
        quirks=quirks and not newest,
        remembers=version != "0.58.3",
        # the pending request is not yet in Pi's session while the cut is looked for
        before_request=True,
    )
    # the program weighs the last call, prompt and reply; else the coming prompt is weighed
    full: Any = LastUsageOverBudget(waits=not newest) if quirks else Share(1.0, of="budget")
    return Rules(
        policy=policy,
        trigger=full | Overflow(recorded=True),
        window=context_window,
        reserve=reserve_tokens,
        estimator="pi/1" if newest else "pi",
        summariser=summariser,
        auto=enabled,
        config=ConfigWriter("pi"),
    )


CONFIG_TABLE = ConfigKeyTable(
    keys=(
        ConfigKey("compaction.enabled", "enabled", FLAG),
        ConfigKey("compaction.reserveTokens", "reserve_tokens", WHOLE),
        ConfigKey("compaction.keepRecentTokens", "keep_recent_tokens", WHOLE),
    ),
    unrepresented=frozenset({"branchSummary"}),
)
OTHER_SIGNS = parse_keys(
    "defaultProvider defaultModel defaultThinkingLevel hideThinkingBlock thinkingBudgets"
    " enabledModels quietStartup enableSkillCommands steeringMode followUpMode branchSummary"
    " lastChangelogVersion"
)


def count_identifying_keys(config: Mapping[str, Any]) -> int:
    """Count the keys that identify Pi."""
    compaction = config.get("compaction")
    keys = {"enabled", "reserveTokens", "keepRecentTokens"}
    mine = len(keys & compaction.keys()) if isinstance(compaction, dict) else 0
    return 3 * mine + sum(k in config for k in OTHER_SIGNS)


CONFIG = SystemConfigFile(
    "pi",
    "settings.json",
    count_identifying_keys,
    CONFIG_TABLE.parse,
    CONFIG_TABLE.to_config_tree,
    CONFIG_TABLE.paths,
)
