"""Rules from the config files of other systems: `ck.load_rules("orchestration.yaml")`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments, UnknownPreset
from ctxkit.presets.configs import config_files, syntaxes
from ctxkit.presets.configs.config_texts import ConfigText, settings_of
from ctxkit.presets.preset_names import names, preset

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.policies.rules import Rules
    from ctxkit.presets.configs.key_tables import FoundKeys


def load_rules(
    path: str | Path | Mapping[str, str], *, system: str | None = None, agent: str | None = None
) -> Rules:
    """Return the rules that another system's config file sets; `rules.to_config()` writes them
    back.

    Known are fuseraft's orchestration file, `fased.json` and `openclaw.json`, the config.json of
    ai, the settings.json of Pi and of Gemini CLI, `opencode.json`, Codex's config.toml and
    pulse-coder's variables of the environment (`os.environ`, or a file `.env`): told apart by their
    keys. What a file leaves out is the preset's default. Keys that are unknown, or
    belong to parts that these rules do not have, are named in a UserWarning.

    Args:
        path: the file: JSON (comments and trailing commas allowed), YAML, TOML or NAME=VALUE, at
            most 1 MB; or variables by name.
        system: whose file it is, where its keys do not say.
        agent: whose settings are taken, where the file has several agents (fuseraft); None: those
            that all agents share, and the defaults for the rest.

    Raises:
        ReadError: the file cannot be read, or is broken.
        UnknownFormat: no key says whose config file it is.
        BadArguments: a value is of the wrong kind or cannot work, or there is no such agent or
            system.
    """
    if isinstance(path, Mapping):
        content, syntax, path = dict(path), "env", "the environment"
    else:
        content, syntax = syntaxes.load(path)
    config = config_files.named(system) if system else config_files.recognised(content, path)
    if agent is not None and config.one_agent:
        raise BadArguments(
            f"{path}: a config file of {config.system} has no agents to choose from: leave agent="
            " out."
        )
    try:
        found = config.read(content, agent)
        known = settings_of(config.system)
        rules = preset(config.system, **{k: v for k, v in found.settings.items() if k in known})
    except UnknownPreset:
        raise UnknownPreset(
            f"{path}: this is a config file of {config.system}, for which the kit has no preset; "
            f"there are {', '.join(names())}."
        ) from None
    except BadArguments as error:
        raise BadArguments(f"{path}: {_in_keys(str(error), config.keys)}") from None
    found.elsewhere += [config.keys[k] for k in found.settings if k not in known]
    _warn(path, found)
    text = ConfigText(config.system, found.subject, syntax)
    return rules.but(config=text, auto=rules.auto and "Compaction" not in found.absent)


def _in_keys(sentence: str, keys: Mapping[str, str]) -> str:
    """Return a preset's sentence with the file's keys in the place of its own names."""
    return re.sub(r"\w+_\w+", lambda m: keys.get(m[0], m[0]), sentence)


def _warn(path: str | Path, found: FoundKeys) -> None:
    parts = []
    if found.unknown:
        parts.append(f"Unknown keys: {', '.join(dict.fromkeys(found.unknown))}.")
    if found.elsewhere:
        parts.append(
            "Not in these rules, as they belong to parts that the kit does not have: "
            f"{', '.join(dict.fromkeys(found.elsewhere))}."
        )
    parts += found.notes
    if parts:
        warnings.warn(plain(f"{path}: {' '.join(parts)}", 2000), UserWarning, stacklevel=3)
