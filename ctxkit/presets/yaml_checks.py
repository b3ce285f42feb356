"""Safety checks of a YAML file, in one pass over its parser events before it is loaded.

Loading recurses in C without a limit, expands aliases, and parses numbers of any length, so a small
file could exhaust stack, memory or time. The event stream is flat: a stack of open sections gives
the depth, and each section sums the sizes of its values. An alias adds the size of its anchor, so
the size with all aliases expanded is known without expanding them. Cost: linear in the events.
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
    """A list or mapping whose events are being read, or a value with an anchor."""

    def __init__(self, *, is_mapping: bool = False, is_open: bool = False) -> None:
        self.is_mapping, self.is_open = is_mapping, is_open
        self.size = 1
        """Values in it so far, itself included, aliases unfolded."""
        self.at_key = is_mapping
        self.keys: set[str] = set()


def check_events(events: Iterable[Any]) -> None:
    """Check parser events for depth, expanded size, self-reference, long numbers, duplicate keys.

    Args:
        events: as `yaml.parse` yields them.

    Raises:
        RecursionError: the file is nested more than `MAX_DEPTH` deep.
        ValueError: another check fails; the sentence names the line.
        BadArguments: a mapping has a duplicate key, of which only the last value would count.
    """
    import yaml

    named: dict[str, _Section] = {}
    above = [_Section(is_open=True)]
    for event in events:
        # a closed section counts as one value of its parent, with everything in it
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
            size = _count_values(event, named)
        else:
            continue
        # `size` is the number of values of the scalar, alias or section that just ended
        above[-1].size += size
        if above[-1].size > MAX_VALUES:
            raise ValueError("its aliases unfold to too many values")


def _count_values(event: Any, named: dict[str, _Section]) -> int:
    """Return the number of values of a scalar (1) or of the target of an alias."""
    line, value = event.start_mark.line + 1, getattr(event, "value", None)
    if value is None:
        node = named.get(event.anchor)
        if node is not None and node.is_open:
            name = sanitize_text(event.anchor, 60)
            raise ValueError(f"line {line}: {name} contains itself: write out what it holds")
        return 1 if node is None else node.size
    if len(value) > MAX_DIGITS and _resolve_tag(event) in _NUMBERS:
        raise ValueError(f"line {line} {LONG_NUMBER}")
    if event.anchor:
        named[event.anchor] = _Section()
    return 1


def _resolve_tag(scalar: Any) -> str:
    """Return the tag of a scalar: its own, or what a plain one looks like."""
    import yaml

    if not scalar.implicit[0]:
        return str(scalar.tag)
    resolver: Any = yaml.SafeLoader("")
    return str(resolver.resolve(yaml.ScalarNode, scalar.value, (True, False)))


def _take_key(section: _Section, event: Any) -> None:
    """Record a key of a mapping; keys and values alternate in its events."""
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
