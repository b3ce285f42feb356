"""Settings that OpenClaw and its fork Fased share: reserve, pruning and config keys."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ctxkit._internal.setting_value_validation import (
    DURATION,
    FLAG,
    NAMES,
    NUMBER,
    POSITIVE,
    PROMPT,
    TEXT,
    WHOLE,
    make_choice_kind,
)
from ctxkit.policies.result_clearing_and_cache_ttl import CacheTtl
from ctxkit.presets.config_key_mapping import (
    ConfigKey,
    get_section,
    ignore_single_matching_key,
    parse_keys,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


RESERVE_FLOOR = 20_000
"""Minimum number of reserved tokens."""


def get_effective_reserve(
    reserve_tokens: int | None = None, reserve_tokens_floor: int = RESERVE_FLOOR
) -> int:
    """Return the reserved tokens: as configured (default 16,384), at least the floor.

    Args:
        reserve_tokens: configured reserve in tokens; None: 16,384.
        reserve_tokens_floor: minimum reserve in tokens.
    """
    return max(16_384 if reserve_tokens is None else reserve_tokens, reserve_tokens_floor)


def make_summary_settings(
    parameters: Mapping[str, Any], reserve: int, *, focus: str, seconds: float
) -> dict[str, Any]:
    """Return the settings of a summary in either mode.

    Args:
        parameters: settings of the preset.
        reserve: reserve in tokens; a summary may take 0.8 of it, the one of a split turn 0.5.
        focus: what the summary should focus on; empty: nothing.
        seconds: time limit of the summariser.
    """
    return {
        "keep_tokens": parameters["keep_recent_tokens"],
        "limit": max(int(0.8 * reserve), 1),
        "split_limit": max(int(0.5 * reserve), 1),
        "focus": focus,
        "seconds": seconds,
    }


def make_cache_ttl_pruning(parameters: Mapping[str, Any], **extra: Any) -> CacheTtl:
    """Return the pruning of old results after a pause, from the preset's settings.

    Args:
        parameters: settings of the preset.
        extra: further settings of `CacheTtl`.
    """
    return CacheTtl(
        **{f.name: parameters[f.name] for f in fields(CacheTtl) if f.name in parameters},
        placeholder=parameters["hard_clear_placeholder"],
        allow=parameters["tools_allow"] or ("*",),
        deny=parameters["tools_deny"],
        **extra,
    )


DEFAULTS_SECTION = "agents.defaults"
COMPACTION_SECTION = f"{DEFAULTS_SECTION}.compaction"
PRUNING_SECTION = f"{DEFAULTS_SECTION}.contextPruning"
QUALITY_GUARD_SECTION = f"{COMPACTION_SECTION}.qualityGuard"
MEMORY_FLUSH_SECTION = f"{COMPACTION_SECTION}.memoryFlush"
OPEN_SECTIONS = frozenset({"", "agents", DEFAULTS_SECTION})
COMPACTION_KEYS = (
    ConfigKey(f"{DEFAULTS_SECTION}.contextTokens", "context_window", POSITIVE),
    ConfigKey(f"{COMPACTION_SECTION}.mode", "mode", make_choice_kind("default", "safeguard")),
    ConfigKey(f"{COMPACTION_SECTION}.reserveTokens", "reserve_tokens", WHOLE),
    ConfigKey(f"{COMPACTION_SECTION}.keepRecentTokens", "keep_recent_tokens", WHOLE),
    ConfigKey(f"{COMPACTION_SECTION}.reserveTokensFloor", "reserve_tokens_floor", WHOLE),
    ConfigKey(f"{COMPACTION_SECTION}.maxHistoryShare", "max_history_share", NUMBER),
    ConfigKey(f"{COMPACTION_SECTION}.timeoutSeconds", "timeout_seconds", NUMBER),
    ConfigKey(
        f"{COMPACTION_SECTION}.identifierPolicy",
        "identifier_policy",
        make_choice_kind("strict", "off", "custom"),
    ),
    ConfigKey(f"{COMPACTION_SECTION}.identifierInstructions", "identifier_instructions", PROMPT),
)
PRUNING_KEYS = (
    ConfigKey(f"{PRUNING_SECTION}.ttl", "ttl_seconds", DURATION),
    ConfigKey(f"{PRUNING_SECTION}.keepLastAssistants", "keep_last_assistants", WHOLE),
    ConfigKey(f"{PRUNING_SECTION}.softTrimRatio", "soft_trim_ratio", NUMBER),
    ConfigKey(f"{PRUNING_SECTION}.hardClearRatio", "hard_clear_ratio", NUMBER),
    ConfigKey(f"{PRUNING_SECTION}.minPrunableToolChars", "min_prunable_tool_chars", WHOLE),
    ConfigKey(f"{PRUNING_SECTION}.softTrim.maxChars", "soft_trim_max_chars", WHOLE),
    ConfigKey(f"{PRUNING_SECTION}.softTrim.headChars", "soft_trim_head_chars", WHOLE),
    ConfigKey(f"{PRUNING_SECTION}.softTrim.tailChars", "soft_trim_tail_chars", WHOLE),
    ConfigKey(f"{PRUNING_SECTION}.hardClear.enabled", "hard_clear", FLAG),
    ConfigKey(f"{PRUNING_SECTION}.hardClear.placeholder", "hard_clear_placeholder", TEXT),
    ConfigKey(f"{PRUNING_SECTION}.tools.allow", "tools_allow", NAMES),
    ConfigKey(f"{PRUNING_SECTION}.tools.deny", "tools_deny", NAMES),
)
UNUSED_KEYS = (
    "model provider postCompactionSections postIndexSync notifyUser midTurnPrecheck"
    " truncateAfterCompaction maxActiveTranscriptBytes"
)
OTHER_KEYS = (
    parse_keys(UNUSED_KEYS, COMPACTION_SECTION)
    | parse_keys("prompt systemPrompt forceFlushTranscriptBytes model", MEMORY_FLUSH_SECTION)
    | {f"{PRUNING_SECTION}.maxToolResultChars"}
)
OPENCLAW_ONLY_KEYS = parse_keys(
    "recentTurnsPreserve customInstructions provider midTurnPrecheck postCompactionSections"
)
"""Keys of `compaction` that only OpenClaw documents."""
SHARED_SECTIONS = parse_keys("gateway channels messages session meta wizard")
"""Further sections that both have."""


def count_identifying_keys(config: Mapping[str, Any], *, openclaw: bool) -> int:
    """Count the keys of a file that point to OpenClaw or to Fased.

    Both share their keys: a key that only OpenClaw documents decides for it, else Fased wins.

    Args:
        config: the parsed file.
        openclaw: count for OpenClaw; False: for Fased.
    """
    agents = config.get("agents")
    shared_signs = ignore_single_matching_key(sum(k in config for k in SHARED_SECTIONS))
    if isinstance(agents, dict):
        shared_signs += 4 * ("defaults" in agents) + 2 * ("list" in agents)
    compaction = get_section(config, COMPACTION_SECTION)
    is_openclaw = isinstance(compaction, dict) and any(k in compaction for k in OPENCLAW_ONLY_KEYS)
    # the signs that both share count double, so that the last point only breaks a tie
    return 2 * shared_signs + (openclaw is is_openclaw) if shared_signs else 0
