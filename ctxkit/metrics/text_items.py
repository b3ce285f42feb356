"""Which of a session's items a text holds that a compaction or a pruning put in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.history.head_items import content_key
from ctxkit.metrics.items import CUT_AT, SEARCHED, texts
from ctxkit.metrics.standing_texts import StandingTexts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from ctxkit.messages import Message
    from ctxkit.metrics.items import FoundItem
    from ctxkit.metrics.wordings import Wordings

    Ints = NDArray[np.int64]

KEPT = 4096
"""Texts of which it is remembered what they hold."""
_UNIT = re.compile(r"(?<=\d)(?=[^\d.,])")
"""Between a number and its unit, where a text may have a space."""


class TextItems:
    """The items of a session, to be found in texts that are no rows.

    An item stands in a text word for word, white space aside; an id in whatever case, a number with
    or without a space before its unit; and a user's rule in whatever words.
    """

    def __init__(self, numbers: Mapping[FoundItem, int], wordings: Wordings) -> None:
        self._wordings = wordings
        self._texts: dict[Any, Ints] = {}
        self._as_said = StandingTexts(
            ((form, n) for found, n in numbers.items() for form in _forms(found)), CUT_AT
        )
        ids = ((found.text, n) for found, n in numbers.items() if found.family == "id")
        self._ids = StandingTexts(ids, CUT_AT)

    def of(self, message: Message) -> Ints:
        """Return the items that stand in a text."""
        key = key_of(message)
        found = self._texts.get(key)
        if found is None:
            if len(self._texts) >= KEPT:
                self._texts.clear()
            found = self._texts[key] = np.array(sorted(self._look(message)), np.int64)
        return found

    def _look(self, message: Message) -> set[int]:
        text = " ".join(" ".join(texts(message)).split())
        held = self._as_said.in_text(text) | self._ids.in_text(text.casefold())
        return held | self._wordings.in_text(message.text[:SEARCHED])


def _forms(found: FoundItem) -> Iterator[str]:
    """Yield how an item is written in a text."""
    yield found.text
    if found.family == "number":
        yield _UNIT.sub(" ", found.text, count=1)


def key_of(message: Message) -> str | int:
    """Return what is equal for messages that say the same."""
    return content_key(message) if message.tool_calls else message.text
