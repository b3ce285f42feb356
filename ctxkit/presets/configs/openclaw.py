"""OpenClaw's `openclaw.json` (JSON5).

Read in its configuration reference (https://docs.openclaw.ai/gateway/configuration-reference),
2026.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ctxkit.presets.configs import claw_configs
from ctxkit.presets.configs.key_tables import Config, FoundKeys, Key, KeyTable, listed
from ctxkit.presets.configs.values import FLAG, PROMPT, WHOLE, choice

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = KeyTable(
    keys=(
        *claw_configs.COMPACTING,
        Key(f"{claw_configs.COMPACTION}.recentTurnsPreserve", "recent_turns_preserve", WHOLE),
        Key(f"{claw_configs.COMPACTION}.customInstructions", "custom_instructions", PROMPT),
        Key(f"{claw_configs.GUARD}.enabled", "quality_guard", FLAG),
        Key(f"{claw_configs.GUARD}.maxRetries", "quality_guard_max_retries", WHOLE),
        Key(f"{claw_configs.PRUNING}.mode", "pruning", choice("off", "cache-ttl")),
        *claw_configs.CLEARING,
    ),
    elsewhere=listed("enabled softThresholdTokens", claw_configs.FLUSH) | claw_configs.ELSEWHERE,
    silent=frozenset({"agents.list"}),
    open=claw_configs.OPEN,
)


NEWEST, OLDER = "2026.9.6", "2026.3"
RETIRED = (
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


def read(config: Mapping[str, Any], _agent: str | None) -> FoundKeys:
    """Gather what the file says."""
    found = TABLE.found(config)
    if found.settings.get("pruning") == "off":
        found.settings["pruning"] = None
    old = [k.path for k in TABLE.keys if k.parameter in RETIRED and k.parameter in found.settings]
    if old:
        found.settings["version"] = OLDER
        found.notes.append(
            f"OpenClaw {NEWEST} deletes {', '.join(old)}: these are the rules of {OLDER}."
        )
    return found


def tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys."""
    retired = RETIRED if parameters.get("version", NEWEST) == NEWEST else ()
    kept = {k: v for k, v in parameters.items() if k not in retired}
    return TABLE.tree({**kept, "pruning": parameters.get("pruning") or "off"})


WEIGH = partial(claw_configs.weigh, openclaw=True)
CONFIG = Config("openclaw", "openclaw.json", WEIGH, read, tree, TABLE.paths)
