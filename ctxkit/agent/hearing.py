"""A reply as it is heard: its pieces told without keys, its words kept should it never end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ModelError
from ctxkit.messages import Message, ToolCall
from ctxkit.redaction import MARK, redact, secrets
from ctxkit.redaction.redacted_streams import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.models.model import Delta


MOST_CHARS = 1_000_000
"""Characters of one reply, its calls included; a longer one is broken off."""
TOO_LONG = f"The reply has more than {MOST_CHARS:,} characters; it was broken off."


class Hearing:
    """Hears the deltas of one reply and tells them on, redacted across pieces.

    Args:
        tell: is told `delta` and `model_wait` events.
        hold: raises where the turn's time is over; asked at every delta.
    """

    def __init__(
        self, tell: Callable[[str, dict[str, Any]], None], hold: Callable[[], None]
    ) -> None:
        self._tell, self._hold, self._known = tell, hold, secrets()
        self._kind, self._stream = "", Stream(self._known)
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
            self._tell("model_wait", {"why": redact(delta.text)})
            return
        if delta.kind != self._kind:
            self.end()
            self._kind, self._stream = delta.kind, Stream(self._known)
        if delta.kind == "text":
            self._words.append(delta.text)
        self._say(self._stream.feed(delta.text))
        if delta.kind == "tool_call":  # a name is whole
            self.end()

    def end(self) -> None:
        """Tell what was held back: the reply is over, or goes on with something else."""
        self._say(self._stream.flush())

    def _say(self, text: str) -> None:
        if text:
            self._tell("delta", {"kind": self._kind, "text": text})


def named_soundly(reply: Message) -> Message:
    """Return a reply whose model, tool names and call ids hold no key."""
    parts = tuple(
        replace(p, id=_name(p.id), name=_name(p.name)) if isinstance(p, ToolCall) else p
        for p in reply.parts
    )
    return replace(reply, parts=parts, model=reply.model and redact(reply.model))


def _name(name: str) -> str:
    """Return a name without keys, in the letters that providers take in names and ids."""
    clean = redact(name)
    return name if clean == name else clean.replace(MARK, "redacted")
