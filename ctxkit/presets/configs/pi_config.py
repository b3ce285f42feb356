"""Pi's `settings.json`: the section `compaction` (packages/coding-agent/docs/settings.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.presets.configs.key_tables import Config, Key, KeyTable, listed
from ctxkit.presets.configs.values import FLAG, WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = KeyTable(
    keys=(
        Key("compaction.enabled", "enabled", FLAG),
        Key("compaction.reserveTokens", "reserve_tokens", WHOLE),
        Key("compaction.keepRecentTokens", "keep_recent_tokens", WHOLE),
    ),
    elsewhere=frozenset({"branchSummary"}),
)
OTHERS = listed(
    "defaultProvider defaultModel defaultThinkingLevel hideThinkingBlock thinkingBudgets"
    " enabledModels quietStartup enableSkillCommands steeringMode followUpMode branchSummary"
    " lastChangelogVersion"
)


def weigh(config: Mapping[str, Any]) -> int:
    """Count the signs of Pi."""
    compaction = config.get("compaction")
    keys = {"enabled", "reserveTokens", "keepRecentTokens"}
    mine = len(keys & compaction.keys()) if isinstance(compaction, dict) else 0
    return 3 * mine + sum(k in config for k in OTHERS)


CONFIG = Config("pi", "settings.json", weigh, TABLE.found, TABLE.tree, TABLE.paths)
