"""The steps of a local model as they stream: put together, and the words of an answer said."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SPOKEN = re.compile(
    r'\s*\{\s*"tool"\s*:\s*"answer"\s*,\s*"arguments"\s*:\s*\{\s*"text"\s*:\s*"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*+)'
)


class Heard:
    """Takes the pieces of one reply from the runtime, in its thread; returns True to end it.

    Args:
        say: is given the words of an answer.
        stopped: asked at each piece whether to end.
    """

    def __init__(self, say: Callable[[str], object], stopped: Callable[[], bool]) -> None:
        self._say, self._stopped = say, stopped
        self._text, self._spoken = "", 0
        self._stop: str | None = None
        self._usage: dict[str, Any] | None = None
        self._error: Any = None

    def __call__(self, piece: Any) -> bool:
        """Take a piece: a dictionary, several, or one as JSON."""
        for chunk in _chunks(piece):
            self._take(chunk)
        return self._stopped()

    def _take(self, chunk: dict[str, Any]) -> None:
        self._error = chunk.get("error") or self._error
        self._usage = chunk.get("usage") or self._usage
        for choice in (chunk.get("choices") or ())[:1]:
            self._text += (choice.get("delta") or {}).get("content") or ""
            self._stop = choice.get("finish_reason") or self._stop
        words = spoken(self._text)
        if len(words) > self._spoken:
            self._say(words[self._spoken :])
            self._spoken = len(words)

    def answer(self, whole: Any) -> dict[str, Any]:
        """Return the reply as a call without a stream gives it; `whole` came from the runtime."""
        if isinstance(whole, dict) and ("error" in whole or whole.get("choices")):
            return whole
        if self._error is not None:
            return {"error": self._error}
        message = {"role": "assistant", "content": self._text}
        return {
            "choices": [{"message": message, "finish_reason": self._stop}],
            "usage": self._usage,
        }


def spoken(text: str) -> str:
    """Return what the answer in an unfinished step says so far; nothing for a tool call."""
    found = _SPOKEN.match(text)
    if found is None:
        return ""
    said: str = json.loads(f'"{found[1]}"', strict=False)
    return said[:-1] if said and "\ud800" <= said[-1] <= "\udbff" else said  # half of a character


def _chunks(piece: Any) -> Iterator[dict[str, Any]]:
    if isinstance(piece, (str, bytes)):
        try:
            piece = msgspec.json.decode(piece)
        except msgspec.DecodeError:
            return
    for each in piece if isinstance(piece, (list, tuple)) else (piece,):
        if isinstance(each, dict):
            yield each
