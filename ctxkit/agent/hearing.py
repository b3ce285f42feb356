"""A reply as it is heard: its pieces told on, its words kept should it never end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.models.model import Delta


class Hearing:
    """Hears the deltas of one reply and tells them on.

    Args:
        tell: is told `delta` and `model_wait` events; it redacts them (`LiveEvents.tell`).
    """

    def __init__(self, tell: Callable[[str, dict[str, Any]], None]) -> None:
        self._tell = tell
        self._words: list[str] = []

    @property
    def words(self) -> str:
        """The text of the reply so far, as the model said it."""
        return "".join(self._words)

    def __call__(self, delta: Delta) -> None:
        """Hear a delta."""
        if delta.kind == "wait":
            self._tell("model_wait", {"why": delta.text})
            return
        if delta.kind == "text":
            self._words.append(delta.text)
        self._tell("delta", {"kind": delta.kind, "text": delta.text})
