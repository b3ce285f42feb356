"""Mapping of the keys of agents' config files to settings of presets: values checked when read, and
rules written back as a config file.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit._internal.setting_value_validation import (
    FLAG,
    LABEL,
    ONE_OR_MORE_NAMES,
    PROPORTION,
    SECTION,
    SECTIONS,
    WHOLE,
)
from ctxkit.errors import BadArguments, UnknownName, did_you_mean
from ctxkit.presets import config_text_reading_and_writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ctxkit._internal.setting_value_validation import ValueKind
    from ctxkit.policies.compaction_and_pruning_rules import Rules


MAX_HINTS = 500
"""Keys of a section beyond which unknown keys get no suggestion."""


@dataclass(frozen=True)
class ConfigKey:
    """One key of a config file and the preset's setting for it."""

    path: str
    """The key with its sections in the system's own spelling: ``Compaction.TriggerTurnCount``."""
    parameter: str
    """The preset's name for it."""
    kind: ValueKind

    def read(self, value: Any, place: str = "") -> Any:
        """Convert a value of the file to the preset's type.

        Args:
            value: the value to read.
            place: the key as a sentence names it; empty: its path.

        Raises:
            BadArguments: the value is of another kind; the sentence names the key.
        """
        return self.kind.check(value, f"{place or self.path} must be {{words}}")


@dataclass
class ParsedConfig:
    """Settings, unknown keys and notes of a config file, collected while it is read."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Parameters of the preset."""
    unknown: list[str] = field(default_factory=list)
    """Keys that the system does not document, each with the nearest documented one."""
    unrepresented: list[str] = field(default_factory=list)
    """Keys of the system that the rules do not represent."""
    team_keys: list[str] = field(default_factory=list)
    """Keys that `ck.team` obeys, and the rules of one agent do not represent."""
    notes: list[str] = field(default_factory=list)
    """Further sentences for the warning."""
    choices: list[str] = field(default_factory=list)
    """Sentences on what a reader has to choose; the file itself is in order."""
    absent: tuple[str, ...] = ()
    """Missing sections whose absence changes the rules."""
    subject: str = ""
    """The agent or the model whose settings they are, where the file has several."""


# A table maps dotted paths of a config file to settings of a preset. Reading is a recursive
# descent: each key of a section is a setting (its value is checked and converted), a known key
# without meaning here (reported or ignored), a section (descended into), or unknown (reported with
# the nearest known name). Writing is the inverse for all settings; None is left out. Both
# directions use the same `ValueKind`, so that what is written is read back equal.
@dataclass(frozen=True)
class ConfigKeyTable:
    """The keys of one config file, or of one section of it."""

    keys: tuple[ConfigKey, ...]
    unrepresented: frozenset[str] = frozenset()
    """Known keys and sections that the rules do not represent."""
    ignored: frozenset[str] = frozenset()
    """Known keys and sections that have nothing to do with context."""
    any_case: bool = False
    """Whether the system takes its keys in any case."""
    open_sections: frozenset[str] = frozenset({""})
    """Sections with many other keys; an unknown key is reported only where it looks misspelt."""

    def parse(self, config: Mapping[str, Any], _agent: str | None = None) -> ParsedConfig:
        """Parse a config file.

        Args:
            config: the content of the file.
            _agent: name of an agent of the file; these files have none.

        Raises:
            BadArguments: a value is of the wrong kind (see `read`).
        """
        parsed = ParsedConfig()
        self.read(config, parsed)
        return parsed

    @property
    def paths(self) -> dict[str, str]:
        """The key of each parameter."""
        return {key.parameter: key.path for key in self.keys}

    def read(
        self, section: Mapping[Any, Any], parsed: ParsedConfig, prefix: str = "", at: str = ""
    ) -> None:
        """Read a section into `parsed`, with its subsections.

        Args:
            section: the file, or a section of it.
            parsed: the result, changed in place.
            prefix: prefix of its keys where a sentence names them.
            at: the section's path, with a dot behind it; empty: the file.

        Raises:
            BadArguments: a value is of the wrong kind; the sentence names the key.
        """
        fold = str.casefold if self.any_case else str
        keys = {key.path: key for key in self.keys}
        # Names on the next level of the tables, for lookup (ignoring case) and for suggestions.
        below = [p for p in (*keys, *self.unrepresented, *self.ignored) if p.startswith(at)]
        known_names = list(dict.fromkeys(p.removeprefix(at).partition(".")[0] for p in below))
        path_by_name = {fold(name): at + name for name in known_names}
        is_open = at.removesuffix(".") in self.open_sections
        for name, value in section.items():
            path, shown_key = (
                path_by_name.get(fold(str(name))),
                sanitize_text(f"{prefix}{at}{name}", 80),
            )
            if path is None:
                hints = known_names if len(section) <= MAX_HINTS else []
                parsed.unknown += _unknown_key_note(str(name), shown_key, hints, is_open=is_open)
            elif path in self.unrepresented:
                parsed.unrepresented.append(shown_key)
            elif value is None or path in self.ignored:
                continue
            elif path in keys:
                parsed.settings[keys[path].parameter] = keys[path].read(value, shown_key)
            else:
                subsection = SECTION.check(value, f"{shown_key} must be {{words}}")
                self.read(subsection, parsed, prefix, f"{path}.")

    def to_config_tree(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters under the system's own keys, without those that are None."""
        tree: dict[str, Any] = {}
        for key in self.keys:
            value = parameters.get(key.parameter)
            written = None if value is None else key.kind.write(value)
            if written is not None:
                *sections, last = key.path.split(".")
                place = tree
                for section in sections:
                    place = place.setdefault(section, {})
                place[last] = written
        return tree


@dataclass(frozen=True)
class SystemConfigFile:
    """The config file of one system."""

    system: str
    """The system, which is also the name of its preset."""
    file_name: str
    """What the file is usually called."""
    count_identifying_keys: Callable[[Mapping[str, Any]], int]
    """Counts the keys of a file that point to this system."""
    read: Callable[[Mapping[str, Any], str | None], ParsedConfig]
    """Parses a file, for one agent where the file has several."""
    to_config_tree: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Converts parameters to the file's keys and sections."""
    keys: Mapping[str, str]
    """The key of each parameter that the file can hold."""
    has_one_agent: bool = True
    """Whether the file has settings of one agent only."""

    @property
    def syntax(self) -> str:
        """The syntax in which it is written, where a file that was read does not say otherwise."""
        return self.file_name.rpartition(".")[2]


def parse_keys(keys: str, section: str = "") -> frozenset[str]:
    """Return the keys in a blank-separated list, each below a section if one is named.

    Args:
        keys: names of keys, separated by blanks.
        section: dotted path of the section that holds them; empty: the top of the file.
    """
    return frozenset(f"{section}.{word}" if section else word for word in keys.split())


def get_section(
    config: Any, path: str | Iterable[str], *, any_case: bool = False, default: Any = None
) -> Any:
    """Return the value at a path.

    Args:
        config: a section.
        path: the names on it, or these joined by dots.
        any_case: names are found in upper and lower case alike, the first of several.
        default: the value where nothing is there.
    """
    place = config
    for name in path.split(".") if isinstance(path, str) else path:
        if not isinstance(place, dict):
            return default
        if any_case and name not in place:
            name = next((k for k in place if str(k).casefold() == name.casefold()), name)  # noqa: PLW2901
        place = place.get(name)
    return default if place is None else place


class ConfigSection:
    """A section of a config file whose keys are taken in any case, with typed access.

    A value of another kind than is read raises `BadArguments`; the sentence names the key.

    Args:
        values: the keys and values of the section.

    Raises:
        BadArguments: it names one key twice, in other letters.
    """

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self.values = {str(k): v for k, v in values.items()}
        self._fold = {k.casefold(): v for k, v in self.values.items()}
        if len(self._fold) < len(self.values):
            counts = Counter(map(str.casefold, self.values))
            names = [k for k in self.values if counts[k.casefold()] > 1]
            alike = [k for k in names if k.casefold() == names[0].casefold()]
            raise BadArguments(
                f"The config names {join_names(alike)} beside each other: keep one of them."
            )

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def get(self, name: str) -> Any:
        """Return a value as it stands, or None."""
        return self._fold.get(name.casefold())

    def read(self, name: str, kind: ValueKind, default: Any = None) -> Any:
        """Return a value of a kind, or the default where the section says nothing.

        Args:
            name: key in the section.
            kind: kind of value.
            default: the value where the key is missing or null.

        Raises:
            BadArguments: the value is of another kind.
        """
        value = self.get(name)
        return default if value is None else kind.check(value, f"{name} must be {{words}}")

    def text(self, name: str) -> str:
        """Return a text; empty where there is none."""
        return str(self.read(name, LABEL, ""))

    def flag(self, name: str) -> bool:
        """Return true or false; false where it says nothing."""
        return bool(self.read(name, FLAG))

    def number(self, name: str, default: int = 0) -> int:
        """Return a whole number of 0 or more.

        Args:
            name: name of the key in the section.
            default: the number where the key is missing.
        """
        return int(self.read(name, WHOLE, default))

    def share(self, name: str) -> float:
        """Return a number from 0 to 1; 0 where it says nothing."""
        return float(self.read(name, PROPORTION, 0))

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; one text is a list of one."""
        return list(self.read(name, ONE_OR_MORE_NAMES, ()))

    def section(self, name: str) -> ConfigSection:
        """Return a section; an empty one where there is none."""
        return ConfigSection(self.read(name, SECTION, {}))

    def rows(self, name: str) -> list[ConfigSection]:
        """Return a list of sections."""
        return [ConfigSection(row) for row in self.read(name, SECTIONS, ())]


def join_names(names: Iterable[str]) -> str:
    """Return names for a sentence, at most twelve of them."""
    clean = [sanitize_text(n, 60) for n in names]
    more = f" and {len(clean) - 12} more" if len(clean) > 12 else ""
    return ", ".join(clean[:12]) + more or "none"


def ignore_single_matching_key(matching_keys_n: int) -> int:
    """Return the number of matching keys, 0 for a single one, which may be a coincidence."""
    return matching_keys_n if matching_keys_n > 1 else 0


def _unknown_key_note(
    name: str, display_key: str, valid_names: Sequence[str], *, is_open: bool
) -> list[str]:
    """Return the note on an unknown key; in an open section only on a likely typo."""
    from difflib import get_close_matches

    folded = [n.casefold() for n in valid_names]
    # open sections have many unknown keys: only a near miss is taken for a typo
    if is_open and not get_close_matches(name.casefold(), folded, n=1, cutoff=0.85):
        return []
    hint = did_you_mean(name, valid_names)
    return [display_key + (f" ({hint.strip()[:-1]}?)" if hint else "")]


@dataclass(frozen=True)
class ConfigWriter:
    """Writes a preset's rules as its system's config file; frozen, so that rules can be pickled."""

    system: str
    """The system of the file: the preset's name."""
    subject: str = ""
    """The agent or the model whose settings they are, where the file has several."""
    syntax: str = ""
    """The syntax of the file that the rules were read from; empty: the system's usual one."""

    def __call__(self, rules: Rules) -> str:
        """Return the text, in the system's own syntax and spelling.

        Warns:
            UserWarning: settings that the file has no key for, and that are not at their defaults.

        Raises:
            BadArguments: the rules were changed since the preset made them, so that their
                parameters do not describe them.
        """
        config: SystemConfigFile = import_module(f"ctxkit.presets.systems.{self.system}").CONFIG
        parameters = dict(rules.parameters)
        self._check_unchanged(rules, parameters)
        self._warn_of_missing_keys(config, parameters)
        tree = config.to_config_tree({**parameters, "subject": self.subject})
        if config.system == "fuseraft" and not rules.auto:
            del tree["Orchestration"]["Compaction"]
        return config_text_reading_and_writing.dump_config(tree, self.syntax or config.syntax)

    def _check_unchanged(self, rules: Rules, parameters: dict[str, Any]) -> None:
        from ctxkit.presets.registry_and_setting_checks import preset

        # The rules are rebuilt from their parameters. What still differs was changed by hand and
        # has no key in the file; what no file can say (a summariser, a counter, ...) is taken over
        # first.
        preset_rules = preset(self.system, **{**parameters, "summariser": rules.summariser})
        comparable = replace(
            preset_rules,
            name=rules.name,
            parameters=rules.parameters,
            counter=rules.counter,
            cache_life=rules.cache_life,
            on_compacted=rules.on_compacted,
            auto=rules.auto if self.system == "fuseraft" else preset_rules.auto,
        )
        if comparable != rules:
            raise BadArguments(
                f"These rules are no longer what presets.{self.system} makes of their parameters: "
                "make the change as a setting of the preset, then write them."
            )

    def _warn_of_missing_keys(self, config: SystemConfigFile, parameters: dict[str, Any]) -> None:
        defaults = get_preset_defaults(self.system)
        written_names = {*config.keys, "version"}
        unwritten = [
            k
            for k, v in parameters.items()
            if v != defaults.get(k) and (v is None) == (k in written_names)  # no file can say None
        ]
        if unwritten:
            warnings.warn(
                f"{config.file_name} has no key for {', '.join(unwritten)}: not written.",
                UserWarning,
                stacklevel=4,
            )


def get_preset_defaults(system: str) -> dict[str, Any]:
    """Return the parameters of a preset with their defaults.

    Args:
        system: name of a preset.

    Returns:
        The defaults in the order of the signature.

    Raises:
        UnknownName: the kit has no such preset.
    """
    from ctxkit import presets
    from ctxkit.presets.registry_and_setting_checks import names

    if system not in names():
        raise UnknownName(f"There is no preset {system!r}; there are {', '.join(names())}.")
    return {p.name: p.default for p in signature(getattr(presets, system)).parameters.values()}
