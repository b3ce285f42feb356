"""Tables of config keys: values checked when read, written back, and rules written as a config
file.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib import import_module
from inspect import signature
from reprlib import Repr
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_text
from ctxkit.errors import BadArguments, UnknownPreset, did_you_mean
from ctxkit.presets import config_syntax

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ctxkit.policies.rules import Rules


_BRIEF = Repr()
_BRIEF.maxlevel = 2  # YAML's aliases can make a small file endless to print
MAX_HINTS = 500
"""Keys of a section beyond which unknown keys get no suggestion."""


@dataclass(frozen=True)
class ConfigKey:
    """One key of a config file and the setting of the preset that it is."""

    path: str
    """The key with its sections in the system's own spelling: ``Compaction.TriggerTurnCount``."""
    parameter: str
    """The preset's name for it."""
    kind: ValueKind


@dataclass
class ParsedConfig:
    """Settings, unknown keys and notes of a config file, collected while it is read."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Parameters of the preset."""
    unknown: list[str] = field(default_factory=list)
    """Keys that the system does not document, each with the nearest documented one."""
    elsewhere: list[str] = field(default_factory=list)
    """Keys of the system that the rules do not represent."""
    notes: list[str] = field(default_factory=list)
    """Further sentences for the warning."""
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
class KeyTable:
    """The keys of one config file, or of one section of it."""

    keys: tuple[ConfigKey, ...]
    elsewhere: frozenset[str] = frozenset()
    """Known keys and sections that the rules do not represent."""
    silent: frozenset[str] = frozenset()
    """Known keys and sections that have nothing to do with context."""
    any_case: bool = False
    """Whether the system takes its keys in any case."""
    open: frozenset[str] = frozenset({""})
    """Sections with many other keys; an unknown key is reported only where it looks misspelt."""

    def found(self, config: Mapping[str, Any], _agent: str | None = None) -> ParsedConfig:
        """Parse a config file.

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
            parsed: collects settings and notes.
            prefix: text in front of the keys in messages.
            at: path of the section with a trailing dot; empty for the file.

        Raises:
            BadArguments: a value is of the wrong kind; the sentence names the key.
        """
        fold = str.casefold if self.any_case else str
        keys = {key.path: key for key in self.keys}
        # Names on the next level of the tables, for lookup (ignoring case) and for suggestions.
        below = [p for p in (*keys, *self.elsewhere, *self.silent) if p.startswith(at)]
        names = list(dict.fromkeys(p.removeprefix(at).partition(".")[0] for p in below))
        path_by_name = {fold(name): at + name for name in names}
        is_open = at.removesuffix(".") in self.open
        for name, value in section.items():
            path, display_path = (
                path_by_name.get(fold(str(name))),
                sanitize_text(f"{prefix}{at}{name}", 80),
            )
            if path is None:
                hints = names if len(section) <= MAX_HINTS else []
                parsed.unknown += _describe_unknown_key(
                    str(name), display_path, hints, is_open=is_open
                )
            elif path in self.elsewhere:
                parsed.elsewhere.append(display_path)
            elif value is None or path in self.silent:
                continue
            elif path in keys:
                parsed.settings[keys[path].parameter] = read_value(keys[path], value, display_path)
            elif isinstance(value, dict):
                self.read(value, parsed, prefix, f"{path}.")
            else:
                raise BadArguments(
                    f"{display_path} must be a section of keys and values, not "
                    f"{_shorten_value(value)}."
                )

    def tree(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters under the system's own keys; what is None is left out."""
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
class ConfigFormat:
    """The config file of one system."""

    system: str
    """The system, which is its preset's name too."""
    file: str
    """What the file is usually called."""
    weigh: Callable[[Mapping[str, Any]], int]
    """Counts the keys of a file that point to this system."""
    read: Callable[[Mapping[str, Any], str | None], ParsedConfig]
    """Parses a file, for one agent where the file has several."""
    tree: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Converts parameters to the file's keys and sections."""
    keys: Mapping[str, str]
    """The key of each parameter that the file can hold."""
    one_agent: bool = True
    """Whether the file has settings of one agent only."""

    @property
    def syntax(self) -> str:
        """The syntax in which it is written, where a file that was read does not say otherwise."""
        return self.file.rpartition(".")[2]


def read_value(key: ConfigKey, value: Any, display_path: str) -> Any:
    """Convert a value of the file to the preset's value.

    Raises:
        BadArguments: it is of another kind.
    """
    try:
        return key.kind.read(value)
    except ValueError:
        raise BadArguments(
            f"{display_path} must be {key.kind.words}, not {_shorten_value(value)}."
        ) from None


def keys_from_words(words: str, below: str = "") -> frozenset[str]:
    """Return the keys in a blank-separated list, each below a section if one is named."""
    return frozenset(f"{below}.{word}" if below else word for word in words.split())


def get_section(config: Mapping[str, Any], path: str | Iterable[str]) -> Any:
    """Return the value at a path, given as names or joined by dots; None where it is missing."""
    place: Any = config
    for name in path.split(".") if isinstance(path, str) else path:
        place = place.get(name) if isinstance(place, dict) else None
    return place


def _shorten_value(value: Any) -> str:
    return sanitize_text(_BRIEF.repr(value), 60)


def zero_if_single(signs: int) -> int:
    """Return the number of matching keys, 0 for a single one, which may be a coincidence."""
    return signs if signs > 1 else 0


def _describe_unknown_key(
    name: str, display_path: str, documented: Sequence[str], *, is_open: bool
) -> list[str]:
    """Return the note on an unknown key; in an open section only for a likely misspelling."""
    from difflib import get_close_matches

    folded = [n.casefold() for n in documented]
    if is_open and not get_close_matches(name.casefold(), folded, n=1, cutoff=0.85):
        return []
    hint = did_you_mean(name, documented)
    return [display_path + (f" ({hint.strip()[:-1]}?)" if hint else "")]


MAX_NUMBER = 10**12
"""Upper limit of settings; the comparison also rejects NaN and infinity."""
DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True)
class ValueKind:
    """Kind of value of a config key: how it is read, written and described."""

    words: str
    """What a value must be, as it ends the sentence "... must be"."""
    read: Callable[[Any], Any]
    """The file's value to the preset's; raises ValueError for one of another kind."""
    write: Callable[[Any], Any]
    """The preset's value to the file's; None: it is left out."""


def _make_whole_reader(minimum: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if _read_number(value) != int(value) or value < minimum:
            raise ValueError(value)
        return int(value)

    return read


def _read_number(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value <= MAX_NUMBER
    ):
        raise ValueError(value)
    return value


def _read_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)  # noqa: TRY004  one error for all kinds
    return value


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)  # noqa: TRY004  one error for all kinds
    return value


def _read_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ValueError(value)
    return tuple(value)


def _read_counts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
        raise ValueError(value)
    return {k: _make_whole_reader(0)(v) for k, v in value.items()}


def _read_seconds(value: Any) -> float:
    """Return the seconds of a duration such as ``1h30m``; a bare number is minutes."""
    if not isinstance(value, str):
        return 60.0 * _read_number(value)
    text = value.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return 60.0 * float(text)
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h|d))+", text):
        raise ValueError(value)
    # a sequence of numbers with units, such as 1h30m
    return sum(
        float(n) * DURATION_UNITS[unit]
        for n, unit in re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    )


def _to_int_if_whole(value: float) -> float:
    return int(value) if value == int(value) else value


WHOLE = ValueKind("a whole number of 0 or more", _make_whole_reader(0), int)
POSITIVE = ValueKind("a whole number above 0", _make_whole_reader(1), int)
NUMBER = ValueKind("a number of 0 or more", _read_number, _to_int_if_whole)
FLAG = ValueKind("true or false", _read_flag, bool)
TEXT = ValueKind("a text", _read_text, str)
PROMPT = ValueKind("a text", _read_text, lambda s: s or None)
NAMES = ValueKind("a list of texts", _read_names, list)
COUNTS = ValueKind("a section of names and whole numbers", _read_counts, dict)
DURATION = ValueKind(
    "a duration such as '5m' or '1h'",
    _read_seconds,
    lambda s: f"{Decimal(repr(_to_int_if_whole(s))):f}s",
)


def choice(*words: str) -> ValueKind:
    """Return the kind of value that is one of these words, in any case."""

    def read(value: Any) -> str:
        low = _read_text(value).strip().lower()
        if low not in words:
            raise ValueError(value)
        return low

    return ValueKind("one of " + ", ".join(words), read, str)


@dataclass(frozen=True)
class ConfigWriter:
    """Writes a preset's rules as its system's config file; frozen, so that rules can be pickled."""

    system: str
    """Whose file: the preset's name."""
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
                parameters do not say them.
        """
        config: ConfigFormat = import_module(f"ctxkit.presets.systems.{self.system}").CONFIG
        parameters = dict(rules.parameters)
        self._check_unchanged(rules, parameters)
        self._warn_of_missing_keys(config, parameters)
        tree = config.tree({**parameters, "subject": self.subject})
        if config.system == "fuseraft" and not rules.auto:
            del tree["Orchestration"]["Compaction"]
        return config_syntax.dump_config(tree, self.syntax or config.syntax)

    def _check_unchanged(self, rules: Rules, parameters: dict[str, Any]) -> None:
        from ctxkit.presets.registry import preset

        expected = preset(self.system, **{**parameters, "summariser": rules.summariser})
        # Fields that may be set after the preset was made are taken over before the comparison.
        adjusted = replace(
            expected,
            name=rules.name,
            parameters=rules.parameters,
            counter=rules.counter,
            cache_life=rules.cache_life,
            on_compacted=rules.on_compacted,
            auto=rules.auto if self.system == "fuseraft" else expected.auto,
        )
        if adjusted != rules:
            raise BadArguments(
                f"These rules are no longer what presets.{self.system} makes of their parameters: "
                "make the change as a setting of the preset, then write them."
            )

    def _warn_of_missing_keys(self, config: ConfigFormat, parameters: dict[str, Any]) -> None:
        defaults = preset_defaults(self.system)
        writable = {*config.keys, "version"}
        missing = [
            k
            for k, v in parameters.items()
            if v != defaults.get(k) and (v is None) == (k in writable)  # no file can say None
        ]
        if missing:
            warnings.warn(
                f"{config.file} has no key for {', '.join(missing)}: not written.",
                UserWarning,
                stacklevel=4,
            )


def preset_defaults(system: str) -> dict[str, Any]:
    """Return the parameters of a preset with their defaults.

    Raises:
        UnknownPreset: the kit has no such preset.
    """
    from ctxkit import presets
    from ctxkit.presets.registry import names

    if system not in names():
        raise UnknownPreset(f"There is no preset {system!r}; there are {', '.join(names())}.")
    return {p.name: p.default for p in signature(getattr(presets, system)).parameters.values()}
