"""A model that reads its replies from a session, offline, and says so. Tools really run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ctxkit.errors import ModelError
from ctxkit.messages import Message, Text, Thinking, ToolCall, Usage
from ctxkit.models.model import Delta, Emit, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.tokens import Counter

OVER = "The script is over: this scripted model has no further turn."
NOTICE = "scripted model: no LLM was called"

Turn = tuple[Message, ...]
"""The replies of one turn, in order."""


class Scripted:
    """Replays a script's replies, keyed to the turn and the step, not to the number of messages.

    Usage is counted, as a provider would bill it: the part of the prompt that begins like the
    prompt before is read from the cache while that is younger than `cache_life`, the rest is
    written to it. Past the last turn, and past the last reply of a turn, it answers that the script
    is over or that the turn is done.

    Args:
        turns: the replies of each turn.
        name: what stands in frames, after `scripted/`.
        counter: counts the prompt and the reply in tokens.
        context_window: above it a request fails as an overflow would; None: no limit.
        pause: seconds between two streamed words.
        clock: seconds; decides whether the cache is still warm.
        cache_life: seconds, Anthropic's and OpenAI's usual five minutes.
    """

    def __init__(
        self,
        turns: Sequence[Turn],
        *,
        name: str,
        counter: Counter,
        context_window: int | None = None,
        pause: float = 0.0,
        clock: Callable[[], float],
        cache_life: float = 300.0,
    ) -> None:
        self.turns = tuple(turns)
        self.name = f"scripted/{name}"
        self.notice = NOTICE
        self.context_window = context_window
        self._counter, self._pause, self._clock, self._life = counter, pause, clock, cache_life
        self._sent: tuple[Message, ...] = ()
        self._at = float("-inf")

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Stream the reply of this turn and step, and return it with a counted usage."""
        prompt = self._prompt_tokens(request)
        if self.context_window is not None and prompt > self.context_window:
            raise ModelError(
                f"prompt is too long: {prompt} tokens > {self.context_window} maximum",
                overflow=True,
            )
        reply = self.reply(request.turn, request.step)
        await self._stream(reply, emit)
        usage = self._bill(request, prompt, reply)
        self._sent, self._at = request.messages, self._clock()
        return msgspec.structs.replace(reply, usage=usage, model=self.name, time=self._at)

    def reply(self, turn: int, step: int) -> Message:
        """Return the scripted reply, or the one that says that nothing is left."""
        if turn >= len(self.turns):
            return Message(role="assistant", parts=(Text(OVER),), stop="stop")
        replies = self.turns[turn]
        if step >= len(replies):
            return Message(role="assistant", parts=(Text("Done."),), stop="stop")
        return replies[step]

    def _prompt_tokens(self, request: Request) -> int:
        schemas = sum((t.chars or 0) for t in request.tools) // 4
        return schemas + sum(map(self._counter.message, request.messages))

    def _bill(self, request: Request, prompt: int, reply: Message) -> Usage:
        shared = 0
        if self._clock() - self._at < self._life:
            for old, new in zip(self._sent, request.messages, strict=False):
                if old != new:
                    break
                shared += 1
        read = sum(map(self._counter.message, request.messages[:shared]))
        if shared:
            read += sum((t.chars or 0) for t in request.tools) // 4
        return Usage(
            input_tokens=0,
            cache_read_tokens=read,
            cache_write_tokens=prompt - read,
            output_tokens=self._counter.message(reply),
        )

    async def _stream(self, reply: Message, emit: Emit) -> None:
        for part in reply.parts:
            if isinstance(part, Thinking):
                emit(Delta("thinking", part.text))
            elif isinstance(part, ToolCall):
                emit(Delta("tool_call", part.name))
            elif isinstance(part, Text):
                for word in (
                    part.text.splitlines(keepends=True) if not self._pause else part.text.split(" ")
                ):
                    emit(Delta("text", word if not self._pause else word + " "))
                    await asyncio.sleep(self._pause)


def turns_of(messages: Sequence[Message]) -> tuple[Turn, ...]:
    """Return a talk's replies by turn: a turn begins at an input that follows a reply."""
    turns: list[list[Message]] = []
    for message in messages:
        if message.role == "user" and (not turns or turns[-1]):
            turns.append([])
        elif message.role == "assistant":
            if not turns:
                turns.append([])
            turns[-1].append(_clean(message))
    return tuple(tuple(t) for t in turns if t)


def _clean(reply: Message) -> Message:
    keep = tuple(p for p in reply.parts if isinstance(p, (Text, Thinking, ToolCall)))
    stop = "tool" if reply.tool_calls else "stop"
    return Message(role="assistant", parts=keep, stop=stop)
