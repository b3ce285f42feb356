"""A table of keys: what a config file's keys mean for a preset, read and written by the
same lines.
"""

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

    def read(self, section: Mapping[str, Any], found: FoundKeys, prefix: str = "") -> None:
        """Gather what a section says.

        Raises:
            BadArguments: a value is of the wrong kind; the sentence names the key.
        """
        self._walk(section, "", found, prefix)

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

    def _walk(self, section: Mapping[Any, Any], at: str, found: FoundKeys, prefix: str) -> None:
        fold = str.casefold if self.any_case else str
        below = [p for p in self._paths() if (p.startswith(at + ".") if at else True)]
        known = {fold(p[len(at) + 1 if at else 0 :].split(".")[0]): p for p in below}
        depth = at.count(".") + 2 if at else 1
        for name, value in section.items():
            match = known.get(fold(str(name)))
            path = None if match is None else ".".join(match.split(".")[:depth])
            shown = plain(f"{prefix}{at + '.' if at else ''}{name}", 80)
            if path is None and len(section) <= MAX_HINTS:
                self._missed(str(name), shown, [p.split(".")[depth - 1] for p in below], found, at)
            elif path is None:
                found.unknown += [shown] if at not in self.open else []
            elif path in self._keys():
                if value is not None:
                    key = self._keys()[path]
                    found.settings[key.parameter] = taken(key, value, shown)
            elif path in self.elsewhere:
                found.elsewhere.append(shown)
            elif path not in self.silent and value is not None:
                if not isinstance(value, dict):
                    raise BadArguments(
                        f"{shown} must be a section of keys and values, not {_brief(value)}."
                    )
                self._walk(value, path, found, prefix)

    def _missed(
        self, name: str, shown: str, near: Sequence[str], found: FoundKeys, at: str
    ) -> None:
        hint = did_you_mean(name, near)
        if at not in self.open or _slip(name, near):
            found.unknown.append(shown + (f" ({hint.strip()[:-1]}?)" if hint else ""))

    def _keys(self) -> dict[str, Key]:
        return {k.path: k for k in self.keys}

    def _paths(self) -> list[str]:
        return [*(k.path for k in self.keys), *self.elsewhere, *self.silent]

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
    """Return how many signs there are, where they are more than one: one common word alone says
    nothing.
    """
    return signs if signs > 1 else 0


def _slip(name: str, near: Sequence[str]) -> bool:
    from difflib import get_close_matches

    return bool(get_close_matches(name.casefold(), [n.casefold() for n in near], n=1, cutoff=0.85))
