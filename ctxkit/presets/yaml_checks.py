"""What a YAML file may not hold, found in one pass over its events before it is loaded.

Events are flat. Loading recurses in C without a guard, and builds numbers of any length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_text
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEPTH = 100
MAX_VALUES = 1_000_000
"""Values of a YAML file with its aliases unfolded; a file without aliases holds fewer."""
MAX_DIGITS = 1000
"""Characters of a number."""
LONG_NUMBER = f"has a number of more than {MAX_DIGITS:,} characters: write a shorter one"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _Section:
    """A list or section while its events go by, or a value that has an anchor."""

    def __init__(self, *, is_mapping: bool = False, is_open: bool = False) -> None:
        self.is_mapping, self.is_open = is_mapping, is_open
        self.size = 1
        """Values in it so far, itself included, aliases unfolded."""
        self.at_key = is_mapping
        self.keys: set[str] = set()


def check_events(events: Iterable[Any]) -> None:
    """Refuse what is too deep, unfolds to more values than anybody wrote, contains itself, has a
    number that is too long, or names a key twice.

    Args:
        events: as `yaml.parse` yields them.

    Raises:
        RecursionError: it is nested too deeply.
        ValueError: it is one of the others; the sentence names the line.
        BadArguments: a section names a key twice, of which the last alone would count.
    """
    import yaml

    named: dict[str, _Section] = {}
    above = [_Section(is_open=True)]
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            node = above.pop()
            node.is_open, size = False, node.size
        elif isinstance(event, yaml.NodeEvent):
            _take_key(above[-1], event)
            if isinstance(event, yaml.CollectionStartEvent):
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                above.append(_Section(is_mapping=is_mapping, is_open=True))
                if event.anchor:
                    named[event.anchor] = above[-1]
                if len(above) > MAX_DEPTH + 1:
                    raise RecursionError
                continue
            size = _size(event, named)
        else:
            continue
        above[-1].size += size
        if above[-1].size > MAX_VALUES:
            raise ValueError("its aliases unfold to too many values")


def _size(event: Any, named: dict[str, _Section]) -> int:
    """Return how many values a scalar or an alias stands for."""
    line, value = event.start_mark.line + 1, getattr(event, "value", None)
    if value is None:
        node = named.get(event.anchor)
        if node is not None and node.is_open:
            name = sanitize_text(event.anchor, 60)
            raise ValueError(f"line {line}: {name} contains itself: write out what it holds")
        return 1 if node is None else node.size
    if len(value) > MAX_DIGITS and _tag(event) in _NUMBERS:
        raise ValueError(f"line {line} {LONG_NUMBER}")
    if event.anchor:
        named[event.anchor] = _Section()
    return 1


def _tag(scalar: Any) -> str:
    """Return the tag of a scalar: its own, or what a plain one looks like."""
    import yaml

    if not scalar.implicit[0]:
        return str(scalar.tag)
    resolver: Any = yaml.SafeLoader("")
    return str(resolver.resolve(yaml.ScalarNode, scalar.value, (True, False)))


def _take_key(section: _Section, event: Any) -> None:
    """Note a key; between two keys stands a value."""
    if not section.is_mapping:
        return
    is_key, section.at_key = section.at_key, not section.at_key
    key = getattr(event, "value", None)
    if not is_key or key is None or key == "<<":
        return
    if key in section.keys:
        raise BadArguments(
            f"Line {event.start_mark.line + 1} names {sanitize_text(key, 60)!r} a second time "
            "in one"
            " section: give each a name of its own."
        )
    section.keys.add(key)
