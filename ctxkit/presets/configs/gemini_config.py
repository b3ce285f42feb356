"""Gemini CLI's `settings.json`: `model.compressionThreshold`, `contextManagement`.

Read in its docs/reference/configuration.md at 5ce6e01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.presets.configs.key_tables import (
    Config,
    FoundKeys,
    Key,
    KeyTable,
    listed,
    section,
    several,
    taken,
)
from ctxkit.presets.configs.values import FLAG, NUMBER, WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping

AT = "contextManagement"
DISTILLED, MASKED = f"{AT}.tools.distillation", f"{AT}.tools.outputMasking"
OLDER = (
    "chatCompression.contextPercentageThreshold",
    "model.chatCompression.contextPercentageThreshold",
)
"""Where `model.compressionThreshold` stood in earlier versions; read, never written."""
THRESHOLD = Key("model.compressionThreshold", "compression_threshold", NUMBER)
TABLE = KeyTable(
    keys=(
        THRESHOLD,
        Key(f"{AT}.historyWindow.maxTokens", "max_tokens", WHOLE),
        Key(f"{AT}.historyWindow.retainedTokens", "retained_tokens", WHOLE),
        Key(f"{AT}.messageLimits.normalMaxTokens", "normal_max_tokens", WHOLE),
        Key(f"{AT}.messageLimits.retainedMaxTokens", "retained_max_tokens", WHOLE),
        Key(f"{AT}.messageLimits.normalizationHeadRatio", "normalization_head_ratio", NUMBER),
        Key(f"{DISTILLED}.maxOutputTokens", "max_output_tokens", WHOLE),
        Key(f"{DISTILLED}.summarizationThresholdTokens", "summarization_threshold_tokens", WHOLE),
        Key(f"{MASKED}.protectionThresholdTokens", "protection_threshold_tokens", WHOLE),
        Key(f"{MASKED}.minPrunableThresholdTokens", "min_prunable_threshold_tokens", WHOLE),
        Key(f"{MASKED}.protectLatestTurn", "protect_latest_turn", FLAG),
        Key("tools.truncateToolOutputThreshold", "truncate_tool_output_threshold", WHOLE),
    ),
    elsewhere=frozenset({"model.summarizeToolOutput", "model.maxSessionTurns"}),
    silent=frozenset({"experimental.contextManagement", *OLDER}),
    open=frozenset({"", "model", "tools", "experimental"}),
)
OTHERS = listed("general ui tools context security privacy experimental mcpServers ide")


def weigh(config: Mapping[str, Any]) -> int:
    """Count the signs of Gemini CLI."""
    mine = (
        (section(config, "model.compressionThreshold") is not None)
        + (AT in config)
        + ("chatCompression" in config)
    )
    schema = "gemini-cli" in str(config.get("$schema", ""))
    return 10 * schema + 4 * mine + several(sum(isinstance(config.get(k), dict) for k in OTHERS))


def read(config: Mapping[str, Any], _agent: str | None) -> FoundKeys:
    """Gather what the file says; `experimental.contextManagement` turns the newer pipeline on.

    That the pipeline takes its two budgets from `historyWindow`, and not from its profile alone, is
    not confirmed.
    """
    found = TABLE.found(config)
    for path in OLDER:
        if (value := section(config, path)) is not None:
            found.settings.setdefault(THRESHOLD.parameter, taken(THRESHOLD, value, path))
    if section(config, "experimental.contextManagement") is True:
        found.settings["variant"] = "pipeline"
    return found


def tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys."""
    made = TABLE.tree(parameters)
    if parameters.get("variant") is not None:
        made["experimental"] = {"contextManagement": parameters["variant"] == "pipeline"}
    return made


PATHS = {**TABLE.paths, "variant": "experimental.contextManagement"}
CONFIG = Config("gemini", "settings.json", weigh, read, tree, PATHS)
