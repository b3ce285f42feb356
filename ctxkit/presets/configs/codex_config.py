"""Codex's `config.toml`: its keys about the window.

The names are those of its configuration reference
(https://developers.openai.com/codex/config-reference), late 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.presets.configs.key_tables import Config, FoundKeys, Key, KeyTable, listed, section
from ctxkit.presets.configs.values import POSITIVE, PROMPT

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = KeyTable(
    keys=(
        Key("model_context_window", "context_window", POSITIVE),
        Key("model_auto_compact_token_limit", "model_auto_compact_token_limit", POSITIVE),
        Key("compact_prompt", "compact_prompt", PROMPT),
        Key("tool_output_token_limit", "tool_output_token_limit", POSITIVE),
    ),
    elsewhere=listed(
        "experimental_compact_prompt_file model_auto_compact_token_limit_scope"
        " model_max_output_tokens"
    ),
)
OTHERS = listed(
    "model_provider model_providers model_reasoning_effort model_reasoning_summary model_verbosity"
    " approval_policy sandbox_mode sandbox_workspace_write mcp_servers project_doc_max_bytes"
)


def weigh(config: Mapping[str, Any]) -> int:
    """Count the signs of Codex."""
    mine = sum(str(k) in config for k in (*(k.path for k in TABLE.keys), *TABLE.elsewhere))
    return 3 * mine + sum(k in config for k in OTHERS)


def read(config: Mapping[str, Any], _agent: str | None) -> FoundKeys:
    """Gather what the file says at its top, and over it what the profile says that it names."""
    found = TABLE.found(config)
    name = config.get("profile")
    profile = (
        section(config, f"profiles.{name}") if isinstance(name, str) and "." not in name else None
    )
    if isinstance(profile, dict):
        TABLE.read(profile, found, f"profiles.{name}.")
    return found


def tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys; none: a table that says whose file it is."""
    return TABLE.tree(parameters) or {"mcp_servers": {}}


CONFIG = Config("codex", "config.toml", weigh, read, tree, TABLE.paths)
