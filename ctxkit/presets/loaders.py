"""Rules from the config files that other systems keep: `ck.load_rules("settings.json")`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments, ReadError, UnknownFormat
from ctxkit.presets.catalogue import preset

if TYPE_CHECKING:
    from ctxkit.policies.rules import Rules

PI_KEYS = {"enabled": "enabled", "reserveTokens": "reserve_tokens", "keepRecentTokens": "keep_recent_tokens"}


def load_rules(path: str | Path) -> Rules:
    """Return the rules that a config file sets; Pi's `settings.json` with its `compaction` section.

    Raises:
        ReadError: the file cannot be read; UnknownFormat: it is no config that the kit knows.
        BadArguments: a value cannot work; the sentence names the file.
    """
    try:
        config = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReadError(f"Not readable as a config file: {error}.", path) from None
    section = config.get("compaction") if isinstance(config, dict) else None
    if not isinstance(section, dict):
        raise UnknownFormat("No known config: it has no section 'compaction'.", path)
    try:
        return preset("pi", **{PI_KEYS[key]: value for key, value in section.items() if key in PI_KEYS})
    except BadArguments as error:
        raise BadArguments(f"{path}: {error}") from None
