"""A reply as it is heard: its pieces told on, its words kept should it never end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.models.model import Delta


MOST_CHARS = 1_000_000
"""Characters of one reply, its calls included; a longer one is broken off."""
TOO_LONG = f"The reply has more than {MOST_CHARS:,} characters; it was broken off."


class Hearing:
    """Hears the deltas of one reply and tells them on.

    Args:
        tell: is told `delta` and `model_wait` events; it redacts them (`LiveEvents.tell`).
        hold: raises where the turn's time is over; asked at every delta.
    """

    def __init__(
        self, tell: Callable[[str, dict[str, Any]], None], hold: Callable[[], None]
    ) -> None:
        self._tell, self._hold = tell, hold
        self._words: list[str] = []
        self._room = MOST_CHARS

    @property
    def words(self) -> str:
        """The text of the reply so far, as the model said it."""
        return "".join(self._words)

    def __call__(self, delta: Delta) -> None:
        """Hear a delta.

        Raises:
            OutOfTime: the turn's time is over.
            ModelError: the reply is too long.
        """
        self._hold()
        self._room -= len(delta.text)
        if self._room < 0:
            raise ModelError(TOO_LONG)
        if delta.kind == "wait":
            self._tell("model_wait", {"why": delta.text})
            return
        if delta.kind == "text":
            self._words.append(delta.text)
        self._tell("delta", {"kind": delta.kind, "text": delta.text})
