"""What a server really sent, noted before LiteLLM fills in what was missing, and event by event.

LiteLLM gives every piece of Gemini's the finish reason `stop`, and counts tokens itself where a
Responses stream tells no usage. Both are read from the events here, as they come to its parser.
Where a release of LiteLLM has no such parser, nothing is noted, and what LiteLLM says holds.

Events that have arrived already come without any wait, those that LiteLLM passes over even within
one of its own steps. So the event loop gets its turn before each: a limit of time, and an
interrupt, hold however fast a server sends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(slots=True)
class Raw:
    """Notes on one stream: None where nothing is known."""

    finish: bool | None = None
    """True where a finish reason came."""
    word: str | None = None
    """The finish reason in the server's own words (Gemini, Anthropic, Responses)."""
    usage: bool | None = None
    """True where tokens came."""

    def note(self, event: Any) -> None:
        """Note an event of Gemini's, Anthropic's or of the Responses API."""
        if not isinstance(event, dict):
            return
        if "candidates" in event or "usageMetadata" in event:
            ends = [r for c in event.get("candidates") or () if (r := c.get("finishReason"))]
            self.finish = bool(self.finish) or bool(ends)
            self.word = str(ends[-1]) if ends else self.word
            counts = event.get("usageMetadata") or {}
            self.usage = bool(self.usage) or bool(counts.get("promptTokenCount"))
        elif event.get("type") == "message_delta":
            self.word = (event.get("delta") or {}).get("stop_reason") or self.word
        elif str(event.get("type", "")).startswith("response."):
            why = (event.get("response") or {}).get("incomplete_details") or {}
            self.word = why.get("reason") or self.word
            counts = (event.get("response") or {}).get("usage") or {}
            self.usage = bool(self.usage) or bool(counts.get("input_tokens"))


def listen(stream: Any) -> Raw:
    """Return the notes that fill as a stream of LiteLLM's is read."""
    raw = Raw()
    if getattr(stream, "completion_stream", None) is not None:
        stream.completion_stream = _hooked(stream.completion_stream, raw)
    make = getattr(stream, "make_call", None)
    if make is not None:

        async def made(*args: Any, **more: Any) -> Any:
            return _hooked(await make(*args, **more), raw)

        stream.make_call = made
    return raw


class PacedStream:
    """A stream that lets the event loop run before each of its events.

    Args:
        inner: the stream; whatever else is asked of it goes there.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._events: AsyncIterator[Any] | None = None

    def __aiter__(self) -> PacedStream:
        return self

    async def __anext__(self) -> Any:
        self._events = self._events or aiter(self._inner)
        await asyncio.sleep(0)
        return await anext(self._events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _hooked(inner: Any, raw: Raw) -> Any:
    """Return a stream that notes what it sends, and lets the loop run."""
    for owner, name in ((inner, "chunk_parser"), (_within(inner), "_process_chunk")):
        parse = getattr(owner, name, None)
        if parse is not None:
            setattr(owner, name, _noting(parse, raw))
    return PacedStream(inner) if hasattr(inner, "__aiter__") else inner


def _within(inner: Any) -> Any:
    """Return the reader of a Responses stream within LiteLLM's translation of it."""
    return getattr(inner, "streaming_response", None)


def _noting(parse: Any, raw: Raw) -> Any:
    def noted(chunk: Any, *args: Any, **more: Any) -> Any:
        raw.note(_event(chunk))
        return parse(chunk, *args, **more)

    return noted


def _event(chunk: Any) -> Any:
    """Return an event; a stream's lines are not decoded but for the last, with the usage."""
    if not isinstance(chunk, str):
        told = isinstance(chunk, dict) and chunk.get("type") in (None, "message_delta")
        return chunk if told else None
    if not any(f"response.{end}" in chunk for end in ("completed", "incomplete", "failed")):
        return None
    try:
        return msgspec.json.decode(chunk[chunk.find("{") :])
    except msgspec.DecodeError:
        return None
