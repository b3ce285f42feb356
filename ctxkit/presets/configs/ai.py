"""The Go agent ai's `config.json` (docs/config-example.md at 467ceac); keys in any case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.presets.configs.key_tables import Config, Key, KeyTable
from ctxkit.presets.configs.values import FLAG, WHOLE, choice

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = KeyTable(
    keys=(
        Key("compactor.maxMessages", "max_messages", WHOLE),
        Key("compactor.maxTokens", "max_tokens", WHOLE),
        Key("compactor.keepRecent", "keep_recent", WHOLE),
        Key("compactor.keepRecentTokens", "keep_recent_tokens", WHOLE),
        Key("compactor.reserveTokens", "reserve_tokens", WHOLE),
        Key("compactor.toolCallCutoff", "tool_call_cutoff", WHOLE),
        Key(
            "compactor.toolSummaryStrategy",
            "tool_summary_strategy",
            choice("llm", "heuristic", "off"),
        ),
        Key("compactor.autoCompact", "auto_compact", FLAG),
        Key("toolOutput.maxLines", "max_lines", WHOLE),
        Key("toolOutput.maxBytes", "max_bytes", WHOLE),
        Key("toolOutput.maxChars", "max_chars", WHOLE),
        Key("toolOutput.largeOutputThreshold", "large_output_threshold", WHOLE),
        Key("toolOutput.truncateMode", "truncate_mode", choice("head", "head_tail", "middle")),
    ),
    elsewhere=frozenset({"compactor.toolSummaryAutomation"}),
    silent=frozenset({"model", "concurrency", "log"}),
    any_case=True,
)


def weigh(config: Mapping[str, Any]) -> int:
    """Count the signs of ai."""
    names = {str(k).casefold() for k in config}
    return 4 * ("compactor" in names) + 2 * ("tooloutput" in names)


CONFIG = Config("ai", "config.json", weigh, TABLE.found, TABLE.tree, TABLE.paths)
