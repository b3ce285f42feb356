"""Rules from the config files of other systems: `ck.load_rules("orchestration.yaml")`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_text
from ctxkit.errors import BadArguments, UnknownFormat, UnknownPreset, did_you_mean
from ctxkit.presets import config_syntax
from ctxkit.presets.config_keys import ConfigWriter, preset_defaults
from ctxkit.presets.registry import names, preset
from ctxkit.presets.systems import (
    ai,
    codex,
    fased,
    fuseraft,
    gemini,
    openclaw,
    opencode,
    pi,
    pulse_coder,
)

if TYPE_CHECKING:
    from ctxkit.policies.rules import Rules
    from ctxkit.presets.config_keys import ConfigFormat, ParsedConfig


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
        content, syntax = config_syntax.load_config(path)
    config = config_format(system) if system else detect_config_format(content, path)
    if agent is not None and config.one_agent:
        raise BadArguments(
            f"{path}: a config file of {config.system} has no agents to choose from: leave agent="
            " out."
        )
    try:
        parsed = config.read(content, agent)
        defaults = preset_defaults(config.system)
        rules = preset(config.system, **{k: v for k, v in parsed.settings.items() if k in defaults})
    except UnknownPreset:
        raise UnknownPreset(
            f"{path}: this is a config file of {config.system}, for which the kit has no preset; "
            f"there are {', '.join(names())}."
        ) from None
    except BadArguments as error:
        raise BadArguments(f"{path}: {_with_file_keys(str(error), config.keys)}") from None
    parsed.elsewhere += [config.keys[k] for k in parsed.settings if k not in defaults]
    _warn_of_keys(path, parsed)
    text = ConfigWriter(config.system, parsed.subject, syntax)
    return rules.but(config=text, auto=rules.auto and "Compaction" not in parsed.absent)


def _with_file_keys(sentence: str, keys: Mapping[str, str]) -> str:
    """Return a preset's sentence with the file's keys in the place of its own names."""
    return re.sub(r"\w+_\w+", lambda m: keys.get(m[0], m[0]), sentence)


def _warn_of_keys(path: str | Path, parsed: ParsedConfig) -> None:
    parts = []
    if parsed.unknown:
        parts.append(f"Unknown keys: {', '.join(dict.fromkeys(parsed.unknown))}.")
    if parsed.elsewhere:
        parts.append(
            "Not in these rules, as they belong to parts that the kit does not have: "
            f"{', '.join(dict.fromkeys(parsed.elsewhere))}."
        )
    parts += parsed.notes
    if parts:
        warnings.warn(sanitize_text(f"{path}: {' '.join(parts)}", 2000), UserWarning, stacklevel=3)


_SYSTEMS = (
    fuseraft,
    fased,
    openclaw,
    ai,
    pi,
    gemini,
    opencode,
    codex,
    pulse_coder,
)
CONFIG_FORMATS: dict[str, ConfigFormat] = {m.CONFIG.system: m.CONFIG for m in _SYSTEMS}


def config_format(system: str) -> ConfigFormat:
    """Return the config of a system.

    Raises:
        BadArguments: the kit knows no config file of that system; the sentence names the nearest.
    """
    name = system.strip().lower()
    if name not in CONFIG_FORMATS:
        raise BadArguments(
            f"There is no config file of {system!r}; there are"
            f" {', '.join(CONFIG_FORMATS)}.{did_you_mean(system, CONFIG_FORMATS)}"
        )
    return CONFIG_FORMATS[name]


def detect_config_format(content: Mapping[str, Any], path: str | Path) -> ConfigFormat:
    """Return whose config file this is, by its keys: the system that most of them speak for.

    A file's name only decides where they speak for two alike, as for Fased and OpenClaw.

    Raises:
        UnknownFormat: they speak for none.
    """
    words = Path(path).name.lower().split(".")
    weights = {c.system: c.weigh(content) for c in CONFIG_FORMATS.values()}
    best_format = max(
        CONFIG_FORMATS.values(),
        key=lambda c: weights[c.system] and weights[c.system] + 2 * (c.system in words),
    )
    if not weights[best_format.system]:
        raise UnknownFormat(
            "No key in it says whose config file this is; the kit knows those of"
            f" {', '.join(CONFIG_FORMATS)}: name one with system=.",
            path,
        )
    return best_format
