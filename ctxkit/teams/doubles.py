"""Keys that a config file has twice: a reader keeps the last of them without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from pathlib import Path

_MOST, _DEEP = 1_000_000, 200


def check_doubles(path: str | Path) -> None:
    """Refuse a YAML or JSON file in which a section has a key twice; what is wrong otherwise is
    said elsewhere.

    Raises:
        BadArguments: a key, a state's name for instance, stands twice in one section.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    places: list[dict[str, Any]] = []
    try:
        with open(path, "rb") as file:  # noqa: PTH123  a path or its text
            text = file.read(_MOST)
        events = yaml.parse(text, Loader=loader)
        for event in events:
            if len(places) > _DEEP:  # the reader refuses it, and to go on takes minutes
                return
            _follow(event, places, yaml)
    except (OSError, yaml.YAMLError):
        return


def _follow(event: Any, places: list[dict[str, Any]], yaml: Any) -> None:
    """Take one event; the stack holds each open section's kind, its keys, and what is next."""
    if isinstance(event, yaml.CollectionEndEvent):
        places.pop()
        return
    node = isinstance(event, (yaml.ScalarEvent, yaml.AliasEvent, yaml.CollectionStartEvent))
    if node and places and places[-1]["mapping"]:
        here = places[-1]
        if here["key"] and isinstance(event, yaml.ScalarEvent) and event.value != "<<":
            if event.value.casefold() in here["seen"]:
                raise BadArguments(
                    f"Line {event.start_mark.line + 1} names {plain(event.value, 60)!r} a second"
                    " time in one section: give each a name of its own."
                )
            here["seen"].add(event.value.casefold())
        here["key"] = not here["key"]
    if isinstance(event, yaml.CollectionStartEvent):
        places.append(
            {"mapping": isinstance(event, yaml.MappingStartEvent), "seen": set(), "key": True}
        )
