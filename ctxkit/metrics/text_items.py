"""Which of a session's items a text holds that a compaction or a pruning put in."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.history.head_items import content_key
from ctxkit.messages import Text
from ctxkit.metrics.items import SEARCHED, SPEAKERS, items, names, of_line
from ctxkit.metrics.standing_texts import StandingTexts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from ctxkit.messages import Message
    from ctxkit.metrics.items import FoundItem
    from ctxkit.metrics.wordings import Wordings

    Ints = NDArray[np.int64]

_KEPT = 4096
"""Texts of which it is remembered what they hold."""
_LINES = 1 << 16
"""Lines of such texts of which it is remembered what they name."""


class LineItems(NamedTuple):
    """What a line of a text tells about the items of a session."""

    held: frozenset[int]
    """It names them, or they stand in it."""
    near: frozenset[int]
    """They may stand in the text, over this line's end or the one before."""
    rules: frozenset[int]
    """Rules that one of its sentences is near to."""


class TextItems:
    """The items of a session, to be found in texts that are no rows; a line is read once.

    Rules say most lines of their texts again and again, in one run and in all runs of a session.
    """

    def __init__(self, numbers: Mapping[FoundItem, int], wordings: Wordings) -> None:
        self._numbers, self._wordings = numbers, wordings
        self._texts: dict[Any, Ints] = {}
        self._lines: dict[tuple[str, str], LineItems] = {}

    @cached_property
    def _standing(self) -> StandingTexts:
        return StandingTexts({n: found.text for found, n in self._numbers.items()})

    def of(self, message: Message) -> Ints:
        """Return the items that a text names, that stand in it as they are, or in other words."""
        key = key_of(message)
        found = self._texts.get(key)
        if found is None:
            if len(self._texts) >= _KEPT:
                self._texts.clear()
            found = self._texts[key] = np.array(sorted(self._look(message)), np.int64)
        return found

    def _look(self, message: Message) -> set[int]:
        text = message.text
        if len(text) > SEARCHED:
            return self._look_once(message, text)
        if not text:
            return self._known(items(message))
        plain = all(type(p) is Text for p in message.parts)
        role = message.role if message.role in SPEAKERS and plain else ""
        lines = [self._line(role, line) for line in set(text.split("\n"))]
        held, near, rules = (set[int]().union(*of) for of in zip(*lines, strict=True))
        held |= self._standing.in_text(near, text) | self._wordings.given(rules, text)
        return held if plain else held | self._known(items(message))

    def _look_once(self, message: Message, text: str) -> set[int]:
        near = {at for line in set(text.split("\n")) for at in self._standing.near(line)}
        found = self._standing.in_text(near, text) | self._wordings.in_text(text[:SEARCHED])
        return found | self._known(items(message))

    def _line(self, role: str, line: str) -> LineItems:
        found = self._lines.get((role, line))
        if found is None:
            if len(self._lines) >= _LINES:
                self._lines.clear()
            found = self._lines[role, line] = self._read(role, line)
        return found

    def _read(self, role: str, line: str) -> LineItems:
        stand, near = self._standing.in_line(line)
        held = frozenset(stand | self._known(of_line(role, line)))
        return LineItems(held, frozenset(near), frozenset(self._wordings.near(line)))

    def _known(self, found: Iterable[FoundItem]) -> set[int]:
        return {at for f in found for at in self._named(f)}

    @cached_property
    def _named(self) -> Callable[[FoundItem], list[int]]:
        numbers = self._numbers
        return lru_cache(_LINES)(lambda f: [numbers[n] for n in names((f,)) if n in numbers])


def key_of(message: Message) -> str | int:
    """Return what is equal for messages that say the same."""
    return content_key(message) if message.tool_calls else message.text
