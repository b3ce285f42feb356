"""Fased's `fased.json` (JSON5; src/config/types.agent-defaults.ts)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ctxkit.presets.configs import claw_configs
from ctxkit.presets.configs.key_tables import (
    Config,
    FoundKeys,
    Key,
    KeyTable,
    listed,
    section,
    taken,
)
from ctxkit.presets.configs.values import FLAG, WHOLE, choice

if TYPE_CHECKING:
    from collections.abc import Mapping

ENABLED = Key(f"{claw_configs.GUARD}.enabled", "", FLAG)
RETRIES = Key(f"{claw_configs.GUARD}.maxRetries", "quality_retries", WHOLE)
DEFAULT_RETRIES = 1
TABLE = KeyTable(
    keys=(
        *claw_configs.COMPACTING,
        Key(f"{claw_configs.FLUSH}.enabled", "memory_flush", FLAG),
        Key(f"{claw_configs.FLUSH}.softThresholdTokens", "soft_threshold_tokens", WHOLE),
        Key(f"{claw_configs.PRUNING}.mode", "context_pruning", choice("off", "cache-ttl")),
        *claw_configs.CLEARING,
    ),
    elsewhere=listed("recentTurnsPreserve customInstructions", claw_configs.COMPACTION)
    | claw_configs.ELSEWHERE,
    silent=frozenset({"agents.list", ENABLED.path, RETRIES.path}),
    open=claw_configs.OPEN,
)


def read(config: Mapping[str, Any], _agent: str | None) -> FoundKeys:
    """Gather what the file says; a file without `agents.defaults` runs the plain mode, as the
    program does.
    """
    found = TABLE.found(config)
    if section(config, claw_configs.AT) is None:
        found.settings["mode"] = "default"
        found.notes.append(
            "Without agents.defaults Fased runs mode 'default', and so do these rules."
        )
    guard = section(config, claw_configs.GUARD)
    if (
        isinstance(guard, dict)
        and guard.get("enabled") is not None
        and taken(ENABLED, guard["enabled"], ENABLED.path)
    ):
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
    made.setdefault("agents", {}).setdefault("defaults", {}).setdefault("compaction", {})[
        "qualityGuard"
    ] = guard
    return made


WEIGH = partial(claw_configs.weigh, openclaw=False)
PATHS = {**TABLE.paths, "quality_retries": RETRIES.path}
CONFIG = Config("fased", "fased.json", WEIGH, read, tree, PATHS)
