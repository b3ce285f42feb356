"""Fased's `fased.json` and OpenClaw's `openclaw.json` (JSON5): `agents.defaults.compaction` and `.contextPruning`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.presets.configs.tables import Config, Found, Key, Table, section, taken
from ctxkit.presets.configs.values import DURATION, FLAG, NAMES, NUMBER, POSITIVE, TEXT, WHOLE, choice

if TYPE_CHECKING:
    from collections.abc import Mapping

AT = "agents.defaults"
COMPACTION = f"{AT}.compaction"
PRUNING = f"{AT}.contextPruning"
GUARD = f"{COMPACTION}.qualityGuard"
TABLE = Table(
    keys=(
        Key(f"{AT}.contextTokens", "context_window", POSITIVE),
        Key(f"{COMPACTION}.mode", "mode", choice("default", "safeguard")),
        Key(f"{COMPACTION}.reserveTokens", "reserve_tokens", WHOLE),
        Key(f"{COMPACTION}.keepRecentTokens", "keep_recent_tokens", WHOLE),
        Key(f"{COMPACTION}.reserveTokensFloor", "reserve_tokens_floor", WHOLE),
        Key(f"{COMPACTION}.maxHistoryShare", "max_history_share", NUMBER),
        Key(f"{COMPACTION}.timeoutSeconds", "timeout_seconds", NUMBER),
        Key(f"{COMPACTION}.identifierPolicy", "identifier_policy", choice("strict", "off", "custom")),
        Key(f"{COMPACTION}.identifierInstructions", "identifier_instructions", TEXT),
        Key(f"{COMPACTION}.memoryFlush.enabled", "memory_flush", FLAG),
        Key(f"{COMPACTION}.memoryFlush.softThresholdTokens", "soft_threshold_tokens", WHOLE),
        Key(f"{PRUNING}.mode", "context_pruning", choice("off", "cache-ttl")),
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
    ),
    elsewhere=frozenset(
        {
            f"{COMPACTION}.{name}"
            for name in (
                "model",
                "provider",
                "customInstructions",
                "recentTurnsPreserve",
                "postCompactionSections",
                "postIndexSync",
                "midTurnPrecheck",
                "truncateAfterCompaction",
                "maxActiveTranscriptBytes",
                "notifyUser",
                "memoryFlush.prompt",
                "memoryFlush.systemPrompt",
                "memoryFlush.forceFlushTranscriptBytes",
                "memoryFlush.model",
            )
        }
    )
    | {f"{PRUNING}.maxToolResultChars"},
    silent=frozenset({"agents.list", f"{GUARD}.enabled", f"{GUARD}.maxRetries", "gateway", "channels", "session"}),
)
ENABLED = Key(f"{GUARD}.enabled", "", FLAG)
RETRIES = Key(f"{GUARD}.maxRetries", "quality_retries", WHOLE)
DEFAULT_RETRIES = 1


def weigh(config: Mapping[str, Any]) -> int:
    """Count the signs of Fased and OpenClaw."""
    agents = config.get("agents")
    mine = 0 if not isinstance(agents, dict) else 4 * ("defaults" in agents) + 2 * ("list" in agents)
    return mine + sum(k in config for k in ("gateway", "channels", "messages", "session", "meta", "wizard"))


def read(config: Mapping[str, Any], _agent: str | None) -> Found:
    """Gather what the file says; a file without `agents.defaults` runs the plain mode, as the program does."""
    found = Found()
    TABLE.read(config, found)
    defaults = section(config, AT)
    if isinstance(defaults, dict):
        found.unknown = [u for u in found.unknown if not _of_defaults(u)]
    else:
        found.settings["mode"] = "default"
        found.notes.append("Without agents.defaults Fased runs mode 'default', and so do these rules.")
    guard = section(config, GUARD)
    if isinstance(guard, dict) and guard.get("enabled") is not None and taken(ENABLED, guard["enabled"], ENABLED.path):
        retries = guard.get("maxRetries")
        found.settings["quality_retries"] = (
            DEFAULT_RETRIES if retries is None else taken(RETRIES, retries, RETRIES.path)
        )
    return found


def tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys."""
    made = TABLE.tree(parameters)
    retries = parameters.get("quality_retries") or 0
    guard = {"enabled": retries > 0, **({"maxRetries": retries} if retries else {})}
    made.setdefault("agents", {}).setdefault("defaults", {}).setdefault("compaction", {})["qualityGuard"] = guard
    return made


def _of_defaults(shown: str) -> bool:
    """Say whether an unknown key is one of the many beside `compaction`, such as `agents.defaults.workspace`."""
    return shown.split(" ")[0].count(".") == AT.count(".") + 1 or shown.split(" ")[0].count(".") == 1


CONFIG = Config(
    system="fased",
    file="fased.json",
    syntax="json5",
    weigh=weigh,
    read=read,
    tree=tree,
    keys={**{k.parameter: k.path for k in TABLE.keys}, "quality_retries": RETRIES.path},
)
