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

ENABLED = Key(f"{claw_configs.GUARD}.enabled", "guarded", FLAG)
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
    """Gather what the file says; without `agents.defaults` the program runs the plain mode."""
    found = TABLE.found(config)
    if section(config, claw_configs.AT) is None:
        found.settings["mode"] = "default"
        found.notes.append(
            "Without agents.defaults Fased runs mode 'default', and so do these rules."
        )
    guarded, retries = section(config, ENABLED.path), section(config, RETRIES.path)
    if guarded is not None and taken(ENABLED, guarded, ENABLED.path):
        retries = DEFAULT_RETRIES if retries is None else retries
        found.settings[RETRIES.parameter] = taken(RETRIES, retries, RETRIES.path)
    return found


def tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys."""
    retries = parameters.get(RETRIES.parameter) or 0
    guard = {ENABLED.parameter: retries > 0, RETRIES.parameter: retries or None}
    return KeyTable((*TABLE.keys, ENABLED, RETRIES)).tree({**parameters, **guard})


WEIGH = partial(claw_configs.weigh, openclaw=False)
PATHS = {**TABLE.paths, "quality_retries": RETRIES.path}
CONFIG = Config("fased", "fased.json", WEIGH, read, tree, PATHS)
