"""The items of messages, each message read once; replays share the parts of their record, and so
its index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.messages import Sized
from ctxkit.metrics.items import names, spoken, thought

if TYPE_CHECKING:
    from ctxkit.messages import Message
    from ctxkit.metrics.items import FoundItem
    from ctxkit.sizes import Sizes


class Index:
    """What each message holds, says and uses, and how large it is.

    Args:
        anchored: the sizes of a recorded session; None: all are estimated.
    """

    def __init__(self, anchored: Sizes | None = None) -> None:
        self._held: dict[int, tuple[Any, frozenset[FoundItem], frozenset[FoundItem]]] = {}
        self._used: dict[int, frozenset[FoundItem]] = {}
        self._size: dict[int, int] = {}
        if anchored is not None:
            messages = anchored.session.messages
            self._size = {
                id(m.parts): n for m, n in zip(messages, anchored.tokens, strict=True) if m.parts
            }

    def items(self, message: Message) -> frozenset[FoundItem]:
        """Return the items of a message."""
        return self._of(message)[1]

    def names(self, message: Message) -> frozenset[FoundItem]:
        """Return its items and the endings of its paths."""
        return self._of(message)[2]

    def used(self, message: Message) -> frozenset[FoundItem]:
        """Return what a reply names in text and arguments."""
        self._of(message)  # keeps the parts alive, so that their identity is theirs
        return self._used[id(message.parts)]

    def size(self, message: Message) -> int:
        """Return the tokens of a message: anchored where it is of the record, else a quarter of its
        characters.
        """
        known = self._size.get(id(message.parts))
        if known is not None:
            return known
        sized = sum(p.tokens or 0 for p in message.parts if isinstance(p, Sized))
        return sized or len(message.text) // 4

    def _of(self, message: Message) -> tuple[Any, frozenset[FoundItem], frozenset[FoundItem]]:
        key = id(message.parts)
        found = self._held.get(key)
        if found is None:
            said, unsaid = spoken(message), thought(message)
            held = said | unsaid if unsaid else said
            of = names(held)
            self._used[key] = names(said) if unsaid else of
            found = self._held[key] = (message.parts, held, of)
        return found
