"""What Fased's and OpenClaw's config files share: `compaction` and `contextPruning`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.presets.configs.key_tables import Key, listed, section, several
from ctxkit.presets.configs.values import (
    DURATION,
    FLAG,
    NAMES,
    NUMBER,
    POSITIVE,
    PROMPT,
    TEXT,
    WHOLE,
    choice,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

AT = "agents.defaults"
COMPACTION = f"{AT}.compaction"
PRUNING = f"{AT}.contextPruning"
GUARD = f"{COMPACTION}.qualityGuard"
FLUSH = f"{COMPACTION}.memoryFlush"
OPEN = frozenset({"", "agents", AT})
COMPACTING = (
    Key(f"{AT}.contextTokens", "context_window", POSITIVE),
    Key(f"{COMPACTION}.mode", "mode", choice("default", "safeguard")),
    Key(f"{COMPACTION}.reserveTokens", "reserve_tokens", WHOLE),
    Key(f"{COMPACTION}.keepRecentTokens", "keep_recent_tokens", WHOLE),
    Key(f"{COMPACTION}.reserveTokensFloor", "reserve_tokens_floor", WHOLE),
    Key(f"{COMPACTION}.maxHistoryShare", "max_history_share", NUMBER),
    Key(f"{COMPACTION}.timeoutSeconds", "timeout_seconds", NUMBER),
    Key(f"{COMPACTION}.identifierPolicy", "identifier_policy", choice("strict", "off", "custom")),
    Key(f"{COMPACTION}.identifierInstructions", "identifier_instructions", PROMPT),
)
CLEARING = (
    Key(f"{PRUNING}.ttl", "ttl_seconds", DURATION),
    Key(f"{PRUNING}.keepLastAssistants", "keep_last_assistants", WHOLE),
    Key(f"{PRUNING}.softTrimRatio", "soft_trim_ratio", NUMBER),
    Key(f"{PRUNING}.hardClearRatio", "hard_clear_ratio", NUMBER),
    Key(f"{PRUNING}.minPrunableToolChars", "min_prunable_tool_chars", WHOLE),
    Key(f"{PRUNING}.softTrim.maxChars", "soft_trim_max_chars", WHOLE),
    Key(f"{PRUNING}.softTrim.headChars", "soft_trim_head_chars", WHOLE),
    Key(f"{PRUNING}.softTrim.tailChars", "soft_trim_tail_chars", WHOLE),
    Key(f"{PRUNING}.hardClear.enabled", "hard_clear", FLAG),
    Key(f"{PRUNING}.hardClear.placeholder", "hard_clear_placeholder", TEXT),
    Key(f"{PRUNING}.tools.allow", "tools_allow", NAMES),
    Key(f"{PRUNING}.tools.deny", "tools_deny", NAMES),
)
UNUSED = (
    "model provider postCompactionSections postIndexSync notifyUser midTurnPrecheck"
    " truncateAfterCompaction maxActiveTranscriptBytes"
)
ELSEWHERE = (
    listed(UNUSED, COMPACTION)
    | listed("prompt systemPrompt forceFlushTranscriptBytes model", FLUSH)
    | {f"{PRUNING}.maxToolResultChars"}
)
OWN = listed(
    "recentTurnsPreserve customInstructions provider midTurnPrecheck postCompactionSections"
)
"""Keys of `compaction` that only OpenClaw documents."""
COMMON = listed("gateway channels messages session meta wizard")
"""Sections that both have besides."""


def weigh(config: Mapping[str, Any], *, openclaw: bool) -> int:
    """Count the signs of either; keys that only OpenClaw has speak for it, else Fased is ahead."""
    agents = config.get("agents")
    mine = several(sum(k in config for k in COMMON))
    if isinstance(agents, dict):
        mine += 4 * ("defaults" in agents) + 2 * ("list" in agents)
    compaction = section(config, COMPACTION)
    theirs = isinstance(compaction, dict) and any(k in compaction for k in OWN)
    return 2 * mine + (openclaw is theirs) if mine else 0
