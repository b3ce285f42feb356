"""OpenCode's `opencode.json` (JSON with comments): `compaction` and a model's `limit`.

The keys of `compaction` are those of its first schema (https://opencode.ai/config.json); version 2
has `keep` and `buffer`, which are only named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.presets.configs.key_tables import Config, FoundKeys, Key, KeyTable, section, several
from ctxkit.presets.configs.values import FLAG, POSITIVE, WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = KeyTable(
    keys=(
        Key("compaction.auto", "auto", FLAG),
        Key("compaction.prune", "prune", FLAG),
        Key("compaction.reserved", "reserved", WHOLE),
        Key("compaction.tail_turns", "tail_turns", WHOLE),
        Key("compaction.preserve_recent_tokens", "preserve_recent_tokens", WHOLE),
        Key("tool_output.max_lines", "max_lines", WHOLE),
        Key("tool_output.max_bytes", "max_bytes", WHOLE),
    ),
    elsewhere=frozenset({"compaction.keep", "compaction.buffer"}),
)
LIMIT = KeyTable(
    keys=(
        Key("context", "context_window", POSITIVE),
        Key("input", "limit_input", POSITIVE),
        Key("output", "limit_output", POSITIVE),
    ),
)
MODEL = "ctxkit/model"
"""The model whose limits are written where the rules come from no file."""


def weigh(config: Mapping[str, Any]) -> int:
    """Count the signs of OpenCode."""
    compaction = config.get("compaction")
    keys = {"auto", "prune", "reserved", "tail_turns", "preserve_recent_tokens", "keep", "buffer"}
    mine = len(keys & compaction.keys()) if isinstance(compaction, dict) else 0
    schema = "opencode.ai" in str(config.get("$schema", ""))
    common = sum(k in config for k in ("provider", "small_model", "autoupdate", "share"))
    return 10 * schema + 3 * mine + several(common + ("/" in str(config.get("model", ""))))


def read(config: Mapping[str, Any], _agent: str | None) -> FoundKeys:
    """Gather what the file says; limits are those of its `model`, where `provider` lists it."""
    found = TABLE.found(config)
    model = config.get("model")
    provider, _, name = model.partition("/") if isinstance(model, str) else ("", "", "")
    limit = section(config, ("provider", provider, "models", name, "limit"))
    if isinstance(limit, dict):
        LIMIT.read(limit, found, f"provider.{provider}.models.{name}.limit.")
        found.subject = str(model)
    return found


def tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys."""
    made = {"$schema": "https://opencode.ai/config.json", **TABLE.tree(parameters)}
    if any(parameters.get(k.parameter) is not None for k in LIMIT.keys):
        model = parameters.get("subject") or MODEL
        provider, _, name = model.partition("/")
        made |= {
            "model": model,
            "provider": {provider: {"models": {name: {"limit": LIMIT.tree(parameters)}}}},
        }
    return made


PATHS = {**TABLE.paths, **{k.parameter: f"limit.{k.path}" for k in LIMIT.keys}}
CONFIG = Config("opencode", "opencode.json", weigh, read, tree, PATHS)
