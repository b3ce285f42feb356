"""OpenClaw's `openclaw.json` (JSON5).

Read in its configuration reference (https://docs.openclaw.ai/gateway/configuration-reference), 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.presets.configs import claws
from ctxkit.presets.configs.tables import Config, Found, Key, Table
from ctxkit.presets.configs.values import FLAG, PROMPT, WHOLE, choice

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = Table(
    keys=(
        *claws.COMPACTING,
        Key(f"{claws.COMPACTION}.recentTurnsPreserve", "recent_turns_preserve", WHOLE),
        Key(f"{claws.COMPACTION}.customInstructions", "custom_instructions", PROMPT),
        Key(f"{claws.GUARD}.enabled", "quality_guard", FLAG),
        Key(f"{claws.GUARD}.maxRetries", "quality_guard_max_retries", WHOLE),
        Key(f"{claws.PRUNING}.mode", "pruning", choice("off", "cache-ttl")),
        *claws.CLEARING,
    ),
    elsewhere=claws.ELSEWHERE | {f"{claws.FLUSH}.enabled", f"{claws.FLUSH}.softThresholdTokens"},
    silent=frozenset({"agents.list"}),
    open=claws.OPEN,
)


def read(config: Mapping[str, Any], _agent: str | None) -> Found:
    """Gather what the file says."""
    found = Found()
    TABLE.read(config, found)
    if found.settings.get("pruning") == "off":
        found.settings["pruning"] = None
    return found


def tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys."""
    return TABLE.tree({**parameters, "pruning": parameters.get("pruning") or "off"})


CONFIG = Config(
    system="openclaw",
    file="openclaw.json",
    syntax="json",
    weigh=lambda config: claws.weigh(config, openclaw=True),
    read=read,
    tree=tree,
    keys={k.parameter: k.path for k in TABLE.keys},
)
