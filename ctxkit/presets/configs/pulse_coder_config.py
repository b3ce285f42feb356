"""pulse-coder's variables of the environment (`packages/engine/src/config/index.ts` at 527e790)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.presets.configs.key_tables import Config, FoundKeys, Key, KeyTable, several
from ctxkit.presets.configs.values import POSITIVE

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = KeyTable(
    keys=(
        Key("CONTEXT_WINDOW_TOKENS", "context_window_tokens", POSITIVE),
        Key("COMPACT_TRIGGER", "compact_trigger", POSITIVE),
        Key("COMPACT_TARGET", "compact_target", POSITIVE),
        Key("KEEP_LAST_TURNS", "keep_last_turns", POSITIVE),
        Key("COMPACT_SUMMARY_MAX_TOKENS", "compact_summary_max_tokens", POSITIVE),
        Key("MAX_COMPACTION_ATTEMPTS", "max_compaction_attempts", POSITIVE),
    ),
    elsewhere=frozenset({"MAX_TOOL_OUTPUT_LENGTH", "MAX_STEPS", "MAX_ERROR_COUNT"}),
    silent=frozenset({"COMPACT_SUMMARY_MODEL", "DEFAULT_MODEL"}),
)


def weigh(config: Mapping[str, Any]) -> int:
    """Count the signs of pulse-coder."""
    return several(sum(k.path in config for k in TABLE.keys)) * 3


def read(config: Mapping[str, Any], _agent: str | None) -> FoundKeys:
    """Gather what the variables say. An environment has many others, of which nothing is said.

    The program takes text that is no number for NaN, and then compacts before every call; here it
    is refused.
    """
    known = {k.path for k in TABLE.keys} | TABLE.elsewhere
    mine = {k: _number(v) for k, v in config.items() if k in known and v not in ("", None)}
    return TABLE.found(mine)


def _number(value: Any) -> Any:
    """Return a whole number out of a text, where it is one."""
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isdecimal() and len(text) < 16 else value


CONFIG = Config("pulse_coder", ".env", weigh, read, TABLE.tree, TABLE.paths)
