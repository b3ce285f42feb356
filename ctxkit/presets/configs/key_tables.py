"""What a config file's keys mean for a preset: one table by which they are read and written."""

from __future__ import annotations

from dataclasses import dataclass, field
from reprlib import Repr
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ctxkit.presets.configs.values import ValueKind

_BRIEF = Repr()
_BRIEF.maxlevel = 2  # YAML's aliases can make a small file endless to print
MAX_HINTS = 500
"""Keys of a section beyond which slips are no longer looked for."""


@dataclass(frozen=True)
class Key:
    """One key of a config file and the setting of the preset that it is."""

    path: str
    """The key with its sections in the system's own spelling: ``Compaction.TriggerTurnCount``."""
    parameter: str
    """The preset's name for it."""
    kind: ValueKind


@dataclass
class FoundKeys:
    """What a config file says, gathered while it is read."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Parameters of the preset."""
    unknown: list[str] = field(default_factory=list)
    """Keys that the system does not document, each with the nearest known one."""
    elsewhere: list[str] = field(default_factory=list)
    """Keys that the system has and these rules have not."""
    notes: list[str] = field(default_factory=list)
    """Sentences that the reader should see besides."""
    absent: tuple[str, ...] = ()
    """Sections that the file leaves out with an effect of its own."""
    subject: str = ""
    """The agent or the model whose settings they are, where the file has several."""


@dataclass(frozen=True)
class KeyTable:
    """The keys of one config file, or of one section of it."""

    keys: tuple[Key, ...]
    elsewhere: frozenset[str] = frozenset()
    """Known keys and sections that are no part of the rules."""
    silent: frozenset[str] = frozenset()
    """Known keys and sections that have nothing to do with context."""
    any_case: bool = False
    """Whether the system takes its keys in any case."""
    open: frozenset[str] = frozenset({""})
    """Sections with many other keys: an unknown one is named only where it looks like a slip."""

    def found(self, config: Mapping[str, Any], _agent: str | None = None) -> FoundKeys:
        """Return what a file says.

        Raises:
            BadArguments: as `read`.
        """
        out = FoundKeys()
        self.read(config, out)
        return out

    @property
    def paths(self) -> dict[str, str]:
        """The key of each parameter."""
        return {key.parameter: key.path for key in self.keys}

    def read(
        self, section: Mapping[Any, Any], found: FoundKeys, prefix: str = "", at: str = ""
    ) -> None:
        """Gather what a section says.

        Args:
            section: the file, or a section of it.
            found: where it is gathered.
            prefix: what stands before its keys where a sentence names them.
            at: the section's path, with a dot behind it; empty: the file.

        Raises:
            BadArguments: a value is of the wrong kind; the sentence names the key.
        """
        fold = str.casefold if self.any_case else str
        keys = {key.path: key for key in self.keys}
        below = [p for p in (*keys, *self.elsewhere, *self.silent) if p.startswith(at)]
        near = list(dict.fromkeys(p.removeprefix(at).partition(".")[0] for p in below))
        known = {fold(name): at + name for name in near}
        is_open = at.removesuffix(".") in self.open
        for name, value in section.items():
            path, shown = known.get(fold(str(name))), plain(f"{prefix}{at}{name}", 80)
            if path is None:
                hints = near if len(section) <= MAX_HINTS else []
                found.unknown += _missed(str(name), shown, hints, is_open=is_open)
            elif path in self.elsewhere:
                found.elsewhere.append(shown)
            elif value is None or path in self.silent:
                continue
            elif path in keys:
                found.settings[keys[path].parameter] = taken(keys[path], value, shown)
            elif isinstance(value, dict):
                self.read(value, found, prefix, f"{path}.")
            else:
                raise BadArguments(
                    f"{shown} must be a section of keys and values, not {_brief(value)}."
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
class Config:
    """The config file of one system."""

    system: str
    """The system, which is its preset's name too."""
    file: str
    """What the file is usually called."""
    weigh: Callable[[Mapping[str, Any]], int]
    """How many signs of this system a file shows."""
    read: Callable[[Mapping[str, Any], str | None], FoundKeys]
    """The file, and the agent asked for, to what it says."""
    tree: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Parameters to the file's own keys."""
    keys: Mapping[str, str]
    """The key of each parameter that the file can hold."""
    one_agent: bool = True
    """Whether the file has settings of one agent only."""

    @property
    def syntax(self) -> str:
        """The syntax in which it is written, where a file that was read does not say otherwise."""
        return self.file.rpartition(".")[2]


def taken(key: Key, value: Any, shown: str) -> Any:
    """Return a value as the preset takes it.

    Raises:
        BadArguments: it is of another kind.
    """
    try:
        return key.kind.read(value)
    except ValueError:
        raise BadArguments(f"{shown} must be {key.kind.words}, not {_brief(value)}.") from None


def listed(words: str, below: str = "") -> frozenset[str]:
    """Return the keys that a text lists, a blank between two; all of them below a section."""
    return frozenset(f"{below}.{word}" if below else word for word in words.split())


def section(config: Mapping[str, Any], path: str | Iterable[str]) -> Any:
    """Return what stands at a path, or None; the names on it, or these joined by dots."""
    place: Any = config
    for name in path.split(".") if isinstance(path, str) else path:
        place = place.get(name) if isinstance(place, dict) else None
    return place


def _brief(value: Any) -> str:
    return plain(_BRIEF.repr(value), 60)


def several(signs: int) -> int:
    """Return the number of signs, 0 for a single one: one common word alone says nothing."""
    return signs if signs > 1 else 0


def _missed(name: str, shown: str, near: Sequence[str], *, is_open: bool) -> list[str]:
    """Return what is said of a key that nobody knows; in an open section only of a slip."""
    from difflib import get_close_matches

    folded = [n.casefold() for n in near]
    if is_open and not get_close_matches(name.casefold(), folded, n=1, cutoff=0.85):
        return []
    hint = did_you_mean(name, near)
    return [shown + (f" ({hint.strip()[:-1]}?)" if hint else "")]
