"""The config files that the kit knows, and which of them a file is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments, UnknownFormat, did_you_mean
from ctxkit.presets.configs import (
    ai,
    codex_config,
    fased,
    fuseraft,
    gemini_config,
    openclaw,
    opencode_config,
    pi_config,
    pulse_coder_config,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.presets.configs.key_tables import Config

_MEMBERS = (
    fuseraft,
    fased,
    openclaw,
    ai,
    pi_config,
    gemini_config,
    opencode_config,
    codex_config,
    pulse_coder_config,
)
CONFIGS: dict[str, Config] = {m.CONFIG.system: m.CONFIG for m in _MEMBERS}


def named(system: str) -> Config:
    """Return the config of a system.

    Raises:
        BadArguments: the kit knows no config file of that system; the sentence names the nearest.
    """
    name = system.strip().lower()
    if name not in CONFIGS:
        raise BadArguments(
            f"There is no config file of {system!r}; there are"
            f" {', '.join(CONFIGS)}.{did_you_mean(system, CONFIGS)}"
        )
    return CONFIGS[name]


def recognised(content: Mapping[str, Any], path: str | Path) -> Config:
    """Return whose config file this is, by its keys: the system that most of them speak for.

    A file's name only decides where they speak for two alike, as for Fased and OpenClaw.

    Raises:
        UnknownFormat: they speak for none.
    """
    words = Path(path).name.lower().split(".")
    weights = {c.system: c.weigh(content) for c in CONFIGS.values()}
    best = max(
        CONFIGS.values(),
        key=lambda c: weights[c.system] and weights[c.system] + 2 * (c.system in words),
    )
    if not weights[best.system]:
        raise UnknownFormat(
            "No key in it says whose config file this is; the kit knows those of"
            f" {', '.join(CONFIGS)}: name one with system=.",
            path,
        )
    return best
