"""OpenClaw: Pi's compaction behind a safeguard of sections, identifiers and recent turns, and
pruning when cold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ctxkit._internal.setting_value_validation import FLAG, PROMPT, WHOLE, make_choice_kind
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.history.history import has_summarisable_messages
from ctxkit.policies.openclaw_safeguard import PiSummaryInStages
from ctxkit.policies.result_clearing_and_cache_ttl import CLEARED_PLACEHOLDER
from ctxkit.policies.summary_compaction import PiSummary
from ctxkit.policies.texts.message_content_and_truncation import format_one_line
from ctxkit.policies.texts.summary_prompts_and_audits import OPENCLAW_SECTIONS, PI_SECTIONS
from ctxkit.policies.triggers import Overflow, Share
from ctxkit.presets import openclaw_and_fased_settings
from ctxkit.presets.config_key_mapping import (
    ConfigKey,
    ConfigKeyTable,
    ConfigWriter,
    ParsedConfig,
    SystemConfigFile,
    parse_keys,
)
from ctxkit.presets.openclaw_and_fased_settings import RESERVE_FLOOR
from ctxkit.presets.registry_and_setting_checks import (
    DocumentationDifference,
    check_between,
    check_window,
    make_checked_preset,
)
from ctxkit.session.messages import get_plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.policies.history.history import History
    from ctxkit.policies.offline_summarisers import SummariserInput
    from ctxkit.session.messages import Message


RECENT_TURN_CHARS = 600

DIFFERENCES = (
    DocumentationDifference(
        "default mode",
        "safeguard",
        "default where the config has no `agents.defaults`",
        "safeguard",
    ),
    DocumentationDifference(
        "quality guard",
        "off unless turned on",
        "audits sections, identifiers and the last request, and asks again",
        "off; with it on, `quality_guard_max_retries` times",
    ),
    DocumentationDifference(
        "providers of cache-ttl",
        "Anthropic",
        "Anthropic, Moonshot, Z.ai and those models at OpenRouter",
        "every provider: whoever replays says so by `pruning`",
    ),
    DocumentationDifference(
        "live cap of one tool result",
        "not said",
        "30 % of the window, at most 16,000 characters, where it enters",
        "none: the log holds what entered",
    ),
    DocumentationDifference(
        "pruning persists",
        "in memory, for each call",
        "2026.9.6: a result that was trimmed or cleared stays so; 2026.3 sends it whole at the next"
        " warm call",
        "as the program of that version, until the next compaction",
    ),
    DocumentationDifference(
        "short results",
        "old results are cleared",
        "the placeholder takes the place of results that are shorter than it, too, and a trimmed"
        " one may have more tokens than it had",
        "these are left as they are: it would make the prompt larger",
    ),
    DocumentationDifference(
        "size of a message",
        "characters",
        "wide scripts count more, an image 8,000; several texts of a message are joined by a line"
        " break, images noted in 56; for pruning names of tools and the system prompt do not count",
        "for summaries of 2026.9.6 scripts and images as the program; for pruning, and in 2026.3,"
        " all that is sent, an image 4,800, each character one",
    ),
    DocumentationDifference(
        "images",
        "not said",
        "2026.9.6 puts a marker in their place; an older commit spares the last three",
        "as the program of that version",
    ),
    DocumentationDifference(
        "retired settings",
        "the reserve and the sizes of pruning could be set",
        "2026.9.6 deletes these keys: reserve, floor, history share, the ratios and sizes of"
        " pruning",
        "they can be set here; `to_config()` writes them only for 2026.3",
    ),
    DocumentationDifference(
        "cap of the reserve",
        "not said",
        "2026.9.6 holds at most a quarter of the window free",
        "as the program of that version",
    ),
    DocumentationDifference(
        "history share",
        "the older half is set apart where the history is over its share",
        "2026.9.6: only where all but the history is over the share times 1.2",
        "as the program of that version",
    ),
    DocumentationDifference(
        "recent turns",
        "are kept word for word",
        "2026.9.6 leaves them out of what is summarised",
        "as the program of that version, as long as anything is left to summarise",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class OpenClawSummary(PiSummaryInStages):
    """The safeguard's summary with the newest turns that it covers behind it, word for word."""

    recent_turns: int = 3
    """Turns of what is summarised that follow it word for word, 600 characters of each message."""
    once: bool = False
    """Leave these turns out of what is summarised, where anything is left."""

    def passages(self, history: History, first: int) -> list[SummariserInput]:
        """Return the old turns that do not follow word for word, and the head of a split one."""
        all_passages = super().passages(history, first)
        if not self.once or not self.recent_turns:
            return all_passages
        old = all_passages[0]
        # Requests of the old passage. The passage ends before the last `recent_turns` of them,
        # which follow the summary word for word, unless nothing would be left to summarise.
        users = [p for p in old.positions if history[p].role == "user"]
        start = users[-self.recent_turns :][0] if users else old.before
        if has_summarisable_messages(history, start) and start > old.start:
            all_passages[0] = replace(old, before=start)
        return all_passages

    def write_summary(self, history: History, first: int) -> Message | str | int:
        """Return the summary with the turns behind it."""
        summary = super().write_summary(history, first)
        if not isinstance(summary, str) or not self.recent_turns:
            return summary
        removed = [history[p] for p in range(first)]
        return summary + make_recent_turns_section(removed, self.recent_turns)


def make_recent_turns_section(messages: list[Message], turns: int) -> str:
    """Return a section that quotes the last turns of some messages; empty without a request.

    Args:
        messages: messages in order.
        turns: number of turns.
    """
    spoken = [m for m in messages if m.role in ("user", "assistant") and get_plain_text(m).strip()]
    starts = [i for i, m in enumerate(spoken) if m.role == "user"]
    if not starts:
        return ""
    lines = [
        f"- {m.role}: {format_one_line(get_plain_text(m), RECENT_TURN_CHARS)}"
        for m in spoken[starts[-turns:][0] :]
    ]
    return "\n\n## Recent turns preserved verbatim\n" + "\n".join(lines)


@make_checked_preset
def openclaw(
    *,
    version: Literal["2026.9.6", "2026.3"] = "2026.9.6",
    pruning: Literal["cache-ttl"] | None = None,
    context_window: int | None = None,
    mode: Literal["default", "safeguard"] = "safeguard",
    reserve_tokens: int | None = None,
    keep_recent_tokens: int = 20_000,
    reserve_tokens_floor: int = RESERVE_FLOOR,
    max_history_share: float = 0.5,
    recent_turns_preserve: int = 3,
    quality_guard: bool = False,
    quality_guard_max_retries: int = 1,
    timeout_seconds: float = 300.0,
    identifier_policy: Literal["strict", "off", "custom"] = "strict",
    identifier_instructions: str = "",
    custom_instructions: str = "",
    ttl_seconds: float = 300.0,
    keep_last_assistants: int = 3,
    soft_trim_ratio: float = 0.3,
    hard_clear_ratio: float = 0.5,
    min_prunable_tool_chars: int = 50_000,
    soft_trim_max_chars: int = 4000,
    soft_trim_head_chars: int = 1500,
    soft_trim_tail_chars: int = 1500,
    hard_clear: bool = True,
    hard_clear_placeholder: str = CLEARED_PLACEHOLDER,
    tools_allow: tuple[str, ...] = ("*",),
    tools_deny: tuple[str, ...] = (),
    summariser: Any = None,
) -> Rules:
    """Return OpenClaw's rules: Pi's cut with a floored reserve, its guarded summary, and pruning in
    memory.

    Source: https://docs.openclaw.ai/gateway/configuration-reference, 2026;
    `compaction-safeguard.ts`, `compaction-planning.ts` (00818c4) and `context-pruning/` (0a1ebf1,
    1328b6c); for 2026.9.6 `dist/compaction-planning-*.mjs` (`buildHistoryPrunePlan`),
    `agent-compaction-constants-*.mjs` (a quarter) and `tool-result-truncation-*.mjs`
    (`pruneExpiredCacheTtlToolResults`) of the npm package.

    Not confirmed: the timeout (300 s here).

    Args:
        version: version of the program to reproduce, where versions differ.
        pruning: `cache-ttl` trims and clears tool results for one call, after a pause; None:
            nothing is pruned.
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        mode: `safeguard` summarises long histories in stages and lists failed tools; `default` is
            Pi's summary.
        reserve_tokens: reserved tokens; None: Pi's 16,384.
        keep_recent_tokens: tokens, by Pi's estimate, that are kept as they are.
        reserve_tokens_floor: minimum number of reserved tokens; 0: none.
        max_history_share: share of the window (0.1 to 0.9) that the history given to one summary
            may have.
        recent_turns_preserve: turns of what is summarised that follow the summary word for word (0
            to 12).
        quality_guard: ask again where a summary lost sections, identifiers or the last request.
        quality_guard_max_retries: how often (0 to 3).
        timeout_seconds: time limit of the summariser, in seconds.
        identifier_policy: `strict` tells the summariser to keep identifiers exactly; only with mode
            `safeguard`.
        identifier_instructions: its instructions with `custom`; blank: the strict text.
        custom_instructions: a topic that the summary should also cover.
        ttl_seconds: seconds after which the cache counts as cold.
        keep_last_assistants: replies at the end that pruning leaves alone, with what follows them.
        soft_trim_ratio: share of the window from which long results are trimmed.
        hard_clear_ratio: share of the window from which results are cleared, oldest first.
        min_prunable_tool_chars: characters of results below which nothing is cleared.
        soft_trim_max_chars: characters above which a result is trimmed.
        soft_trim_head_chars: characters kept of its head.
        soft_trim_tail_chars: characters kept of its tail.
        hard_clear: whether results are cleared at all.
        hard_clear_placeholder: text of a cleared result.
        tools_allow: names or globs of the tools whose results are pruned.
        tools_deny: names or globs of the tools whose results never are.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules with the safeguard's summary, due above the window less the reserve or after an
        overflow error, and with the pruning of old results where it is on.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.openclaw(recent_turns_preserve=2)
        >>> rules.parameters["recent_turns_preserve"]
        2
    """
    parameters = dict(locals())
    check_between(0.1, 0.9, max_history_share=max_history_share)
    check_between(0, 12, recent_turns_preserve=recent_turns_preserve)
    check_between(0, 3, quality_guard_max_retries=quality_guard_max_retries)
    newest = version == "2026.9.6"
    reserve = openclaw_and_fased_settings.get_effective_reserve(
        reserve_tokens, reserve_tokens_floor
    )
    # 2026.9 holds at most a quarter of the window; after the floor, so that it wins in a small one
    if newest:
        reserve = min(reserve, (context_window or 200_000) // 4)
    check_window(context_window, reserve, keep_recent_tokens)
    common = openclaw_and_fased_settings.make_summary_settings(
        parameters, reserve, focus=custom_instructions, seconds=timeout_seconds
    )
    policy: PiSummary = PiSummary(**common)
    if mode == "safeguard":
        policy = OpenClawSummary(
            **common,
            max_history_share=max_history_share,
            by_new=newest,
            once=newest,
            recent_turns=recent_turns_preserve,
            identifiers=identifier_policy,
            identifier_instructions=identifier_instructions,
            sections=OPENCLAW_SECTIONS if quality_guard else PI_SECTIONS,
            retries=quality_guard_max_retries if quality_guard else 0,
        )
    # how images are pruned, and whether a pruned result stays pruned, depends on the version
    images: dict[str, Any] = (
        {"cut_images": True, "persists": True} if newest else {"keep_images": 3}
    )
    return Rules(
        policy=policy,
        trigger=Share(1.0, of="budget") | Overflow(recorded=True),
        pruning=openclaw_and_fased_settings.make_cache_ttl_pruning(parameters, **images)
        if pruning == "cache-ttl"
        else None,
        window=context_window,
        reserve=reserve,
        estimator="openclaw" if newest else "pi",
        summariser=summariser,
        config=ConfigWriter("openclaw"),
    )


CONFIG_TABLE = ConfigKeyTable(
    keys=(
        *openclaw_and_fased_settings.COMPACTION_KEYS,
        ConfigKey(
            f"{openclaw_and_fased_settings.COMPACTION_SECTION}.recentTurnsPreserve",
            "recent_turns_preserve",
            WHOLE,
        ),
        ConfigKey(
            f"{openclaw_and_fased_settings.COMPACTION_SECTION}.customInstructions",
            "custom_instructions",
            PROMPT,
        ),
        ConfigKey(
            f"{openclaw_and_fased_settings.QUALITY_GUARD_SECTION}.enabled", "quality_guard", FLAG
        ),
        ConfigKey(
            f"{openclaw_and_fased_settings.QUALITY_GUARD_SECTION}.maxRetries",
            "quality_guard_max_retries",
            WHOLE,
        ),
        ConfigKey(
            f"{openclaw_and_fased_settings.PRUNING_SECTION}.mode",
            "pruning",
            make_choice_kind("off", "cache-ttl"),
        ),
        *openclaw_and_fased_settings.PRUNING_KEYS,
    ),
    unrepresented=parse_keys(
        "enabled softThresholdTokens", openclaw_and_fased_settings.MEMORY_FLUSH_SECTION
    )
    | openclaw_and_fased_settings.OTHER_KEYS,
    ignored=frozenset({"agents.list"}),
    open_sections=openclaw_and_fased_settings.OPEN_SECTIONS,
)


NEWEST_VERSION, OLDER_VERSION = "2026.9.6", "2026.3"
RETIRED_SETTINGS = (
    "reserve_tokens",
    "reserve_tokens_floor",
    "max_history_share",
    "keep_last_assistants",
    "soft_trim_ratio",
    "hard_clear_ratio",
    "min_prunable_tool_chars",
    "soft_trim_max_chars",
    "soft_trim_head_chars",
    "soft_trim_tail_chars",
)
"""Settings whose keys 2026.9.6 deletes from a file."""


def read_config(config: Mapping[str, Any], _agent: str | None) -> ParsedConfig:
    """Parse the settings of the file."""
    parsed = CONFIG_TABLE.parse(config)
    if parsed.settings.get("pruning") == "off":
        parsed.settings["pruning"] = None
    # a file with a retired key can only be meant for the older program
    old = [
        k.path
        for k in CONFIG_TABLE.keys
        if k.parameter in RETIRED_SETTINGS and k.parameter in parsed.settings
    ]
    if old:
        parsed.settings["version"] = OLDER_VERSION
        parsed.notes.append(
            f"OpenClaw {NEWEST_VERSION} deletes {', '.join(old)}: these are the rules of "
            f"{OLDER_VERSION}."
        )
    return parsed


def to_config_tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys."""
    retired = (
        RETIRED_SETTINGS if parameters.get("version", NEWEST_VERSION) == NEWEST_VERSION else ()
    )
    writable = {k: v for k, v in parameters.items() if k not in retired}
    return CONFIG_TABLE.to_config_tree({**writable, "pruning": parameters.get("pruning") or "off"})


COUNT_OPENCLAW_KEYS = partial(openclaw_and_fased_settings.count_identifying_keys, openclaw=True)
CONFIG = SystemConfigFile(
    "openclaw",
    "openclaw.json",
    COUNT_OPENCLAW_KEYS,
    read_config,
    to_config_tree,
    CONFIG_TABLE.paths,
)
