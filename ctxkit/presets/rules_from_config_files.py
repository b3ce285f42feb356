"""Rules loaded from the config files of other agents: `ck.load_rules("orchestration.yaml")`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit.errors import BadArguments, UnknownFormat, UnknownName, did_you_mean
from ctxkit.presets import config_text_reading_and_writing
from ctxkit.presets.config_key_mapping import ConfigWriter, get_preset_defaults
from ctxkit.presets.registry_and_setting_checks import names, preset
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
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.presets.config_key_mapping import ParsedConfig, SystemConfigFile


def load_rules(
    path: str | Path | Mapping[str, str], *, system: str | None = None, agent: str | None = None
) -> Rules:
    """Load the rules that another system's config file sets.

    Supported are fuseraft's orchestration file, `fased.json`, `openclaw.json`, the `config.json` of
    ai, the `settings.json` of Pi and of Gemini CLI, `opencode.json`, Codex's `config.toml` and
    pulse-coder's environment variables (`os.environ`, or a file `.env`). Missing keys take the
    preset's defaults. ``rules.to_config()`` writes the rules back.

    Args:
        path: the file: JSON (comments and trailing commas allowed), YAML, TOML or NAME=VALUE, at
            most 1 MB; or variables by name.
        system: name of the system that the file belongs to; None: detected by its keys.
        agent: name of the agent whose settings are taken, where the file has several (fuseraft);
            None: settings that all agents share, and defaults for the rest.

    Returns:
        The rules of the system's preset with the settings of the file.

    Warns:
        UserWarning: the file has unknown keys, or keys that the rules do not represent.

    Raises:
        ReadError: the file cannot be read, or is broken.
        UnknownFormat: the keys match no known system.
        BadArguments: a value is of the wrong kind or invalid, or there is no such agent or system.

    Example:
        >>> import ctxkit as ck
        >>> rules = ck.load_rules({"KEEP_LAST_TURNS": "4"}, system="pulse_coder")
        >>> rules.parameters["keep_last_turns"]
        4
    """
    rules, parsed, place = parse_rules(path, system, agent)
    sentences = describe_unrepresented_keys(parsed)
    if sentences:
        text = sanitize_text(f"{place}: {' '.join(sentences)}", 2000)
        warnings.warn(text, UserWarning, stacklevel=2)
    return rules


def parse_rules(
    path: str | Path | Mapping[str, str], system: str | None, agent: str | None = None
) -> tuple[Rules, ParsedConfig, str]:
    """Return the rules of a config file, the parsed settings, and its path as text.

    Args and errors are those of `load_rules`; nothing is warned of.

    Args:
        path: as for `load_rules`.
        system: name of the system; None: detected.
        agent: name of the agent whose settings count; None: those on which all agree.

    Returns:
        (rules, settings and unknown keys, path).

    Raises:
        BadArguments: as for `load_rules`.
    """
    if isinstance(path, Mapping):
        content, syntax, path = dict(path), "env", "the environment"
    else:
        content, syntax = config_text_reading_and_writing.load_config(path)
    config = get_system_config_file(system) if system else detect_system_config_file(content, path)
    if agent is not None and config.has_one_agent:
        raise BadArguments(
            f"{path}: a config file of {config.system} has no agents to choose from: leave agent="
            " out."
        )
    try:
        parsed = config.read(content, agent)
        defaults = get_preset_defaults(config.system)
        # a setting that the preset does not have is named in the warning instead
        rules = preset(config.system, **{k: v for k, v in parsed.settings.items() if k in defaults})
    except UnknownName:
        raise UnknownName(
            f"{path}: this is a config file of {config.system}, for which the kit has no preset; "
            f"there are {', '.join(names())}."
        ) from None
    except BadArguments as error:
        raise BadArguments(f"{path}: {_with_file_keys(str(error), config.keys)}") from None
    parsed.unrepresented += [config.keys[k] for k in parsed.settings if k not in defaults]
    text = ConfigWriter(config.system, parsed.subject, syntax)
    rules = rules.but(config=text, auto=rules.auto and "Compaction" not in parsed.absent)
    return rules, parsed, str(path)


def _with_file_keys(sentence: str, keys: Mapping[str, str]) -> str:
    """Return an error sentence with the names of settings replaced by the file's keys."""
    return re.sub(r"\w+_\w+", lambda m: keys.get(m[0], m[0]), sentence)


def describe_unrepresented_keys(parsed: ParsedConfig, *, faults_only: bool = False) -> list[str]:
    """Return sentences on the keys of a file that the rules do not represent.

    Args:
        parsed: the file.
        faults_only: leave out valid keys that only rules of one agent cannot represent.
    """
    parts = []
    if parsed.unknown:
        parts.append(f"Unknown keys: {', '.join(dict.fromkeys(parsed.unknown))}.")
    if parsed.unrepresented:
        parts.append(f"Not in these rules: {', '.join(dict.fromkeys(parsed.unrepresented))}.")
    if parsed.team_keys and not faults_only:
        parts.append(
            "Rules of one agent do not hold, and ck.team obeys: "
            f"{', '.join(dict.fromkeys(parsed.team_keys))}."
        )
    return [*parts, *parsed.notes, *([] if faults_only else parsed.choices)]


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
SYSTEM_CONFIG_FILES: dict[str, SystemConfigFile] = {m.CONFIG.system: m.CONFIG for m in _SYSTEMS}


def get_system_config_file(system: str) -> SystemConfigFile:
    """Return the description of a system's config file.

    Raises:
        BadArguments: the system has no known config file; the sentence names the nearest.
    """
    name = system.strip().lower()
    if name not in SYSTEM_CONFIG_FILES:
        raise BadArguments(
            f"There is no config file of {system!r}; there are"
            f" {', '.join(SYSTEM_CONFIG_FILES)}.{did_you_mean(system, SYSTEM_CONFIG_FILES)}"
        )
    return SYSTEM_CONFIG_FILES[name]


# Classification by evidence: each format counts the keys that it recognises (`weigh`; telling keys
# count more), and the largest count wins; ties go to the format registered first.
def detect_system_config_file(content: Mapping[str, Any], path: str | Path) -> SystemConfigFile:
    """Detect the system of a config file by its keys; the most matching keys win.

    The file name adds two points, which decides between similar formats (Fased and OpenClaw).

    Args:
        content: keys and values of the file.
        path: its path, whose name counts, too.

    Returns:
        The description with most points.

    Raises:
        UnknownFormat: no key matches any system.
    """
    words = Path(path).name.lower().split(".")
    weights = {c.system: c.count_identifying_keys(content) for c in SYSTEM_CONFIG_FILES.values()}
    best_format = max(
        SYSTEM_CONFIG_FILES.values(),
        # the file name only adds to keys that match: alone it decides nothing
        key=lambda c: weights[c.system] and weights[c.system] + 2 * (c.system in words),
    )
    if not weights[best_format.system]:
        raise UnknownFormat(
            "No key in it says whose config file this is; the kit knows those of"
            f" {', '.join(SYSTEM_CONFIG_FILES)}: name one with system=.",
            path,
        )
    return best_format
