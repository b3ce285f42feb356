"""Summaries by a model: the passage as text, the request, a time limit, and what the call cost."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ctxkit.display.markup import line
from ctxkit.errors import ModelError
from ctxkit.messages import Message, Text, ToolCall, ToolSchema, Usage
from ctxkit.models.model import Model, Request, silent
from ctxkit.prices import price
from ctxkit.redaction import redact
from ctxkit.texts import summary_passages

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from ctxkit.policies.summarisers import Passage

_CLASSES = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
)
_ROOM = 4096
"""Tokens held free for a summary of no stated length."""
ASK = (
    "You write the working notes by which another run of the same agent goes on. Do not answer the"
    " user and do not go on with the work. State the goal, what the user demands, what was decided,"
    " what was done, what is open, and every path, identifier, command and number that is still"
    " needed, exactly as written. Add nothing of your own."
)


GO_BY = (
    "Stop here: this is no part of the work. Call no tool. {ask}\n\nWrite them of everything above"
    "{upto}."
)
UPTO = ", up to and without the message that begins with {text!r}: from there on all stays as it is"


class Cached(NamedTuple):
    """The conversation as it would be sent next, its beginning in the provider's cache."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...]
    held: int
    """Tokens of it in the cache."""
    tokens: int
    window: int

    def is_cheaper(self, model: str, own: int, ask: int, limit: int | None) -> bool:
        """Say whether a question behind it costs less than an own prompt; not without prices."""
        known = price(model)
        if known is None or known.cache_read is None:
            return False
        at = known.at(self.tokens)
        fits = self.tokens + ask + (limit or _ROOM) <= self.window
        again = self.held * at.read + (self.tokens - self.held + ask) * at.write()
        return fits and again < own * at.write()


class ModelSummariser:
    """Asks a model for the summary of a passage. It is called off the event loop, and waits for it.

    Args:
        model: the model that writes.
        loop: the loop on which the model runs.
        seconds: how long it may take.
        allowed: says for a number of prompt tokens which limit the call would pass, or None.
        begun: called on the loop when the first call is made.
        held: gives the conversation where the model that writes holds its beginning in a cache.
    """

    name = "model"

    def __init__(
        self,
        model: Model,
        loop: asyncio.AbstractEventLoop,
        seconds: float = 120.0,
        *,
        allowed: Callable[[int], str | None] = lambda _: None,
        begun: Callable[[], None] | None = None,
        held: Callable[[], Cached | None] = lambda: None,
    ) -> None:
        self._held = held
        self.ways: list[str] = []
        """How each call was made: `prefix` (behind the cached conversation) or `text`."""
        self.asked = 0
        """Requests that were made, also those that failed."""
        self.model, self._loop, self._seconds = model, loop, seconds
        self._allowed, self._begun = allowed, begun
        self._waiting: Future[Message] | None = None
        self._stopped = False
        self.usages: list[Usage] = []
        """What each call cost, in order; taken by whoever keeps the edit."""

    def __call__(self, passage: Passage) -> str:
        """Return the summary's text.

        Raises:
            ModelError: the model failed, took too long, would pass a limit, or the turn was
                stopped.
        """
        if self._begun is not None:
            self._loop.call_soon_threadsafe(self._begun)
            self._begun = None
        told = "\n\n".join(t for t in (ASK, passage.instructions) if t)
        limit = f"\n\nWrite at most {passage.limit} tokens." if passage.limit else ""
        text = summary_passages.pi(passage.messages)
        own = (len(told) + len(text)) // 4
        held = self._held() if not passage.start else None
        name, most = self.model.name, passage.limit
        if held is not None and held.is_cheaper(name, own, len(told) // 4, most):
            ask = GO_BY.format(ask=told, upto=_upto(passage)) + limit
            sent = (*held.messages, Message(role="user", id="ask", parts=(Text(ask),)))
            request = Request(messages=sent, tools=held.tools, max_output_tokens=most)
            reply = self._replied(request, held.tokens, "prefix")
            if not reply.tool_calls and reply.text.strip():
                return redact(reply.text)
        said = Text(f"<conversation>\n{text}\n</conversation>")
        whole = Message(role="user", id="passage", parts=(said,))
        first = Message(role="system", id="ask", parts=(Text(told + limit),))
        request = Request(messages=(first, whole), max_output_tokens=most)
        return redact(self._replied(request, own, "text").text)

    def _replied(self, request: Request, tokens: int, way: str) -> Message:
        """Ask the model on its loop, and wait."""
        over = self._allowed(tokens)
        if over:
            raise ModelError(f"The summary was not asked for: it would pass {over}.")
        if self._stopped:
            raise ModelError("The turn was stopped before the summary was written.")
        self.asked += 1
        waiting = self._waiting = asyncio.run_coroutine_threadsafe(self._ask(request), self._loop)
        try:
            reply = waiting.result(self._seconds)
        except CancelledError:
            raise ModelError("The turn was stopped before the summary was written.") from None
        except TimeoutError:
            waiting.cancel()
            raise ModelError(f"The summary took longer than {self._seconds:g} s.") from None
        self.ways.append(way)
        if reply.usage is not None:
            self.usages.append(reply.usage)
        parts = tuple(p for p in reply.parts if isinstance(p, (Text, ToolCall)))
        return replace(reply, parts=parts)

    def stop(self) -> None:
        """Give up the call that is waited for, and ask for no other."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def _ask(self, request: Request) -> Message:
        try:
            return await self.model(request, silent)
        except ModelError as e:
            raise ModelError(redact(str(e)), overflow=e.overflow) from None
        except Exception as e:  # noqa: BLE001  a model of the user's may raise anything
            why = f"{type(e).__name__}: {redact(str(e))[:500]}"
            raise ModelError(f"{self.model.name}: {why}") from None

    def take(self) -> Usage | None:
        """Return what the calls since the last `take` cost together."""
        taken, self.usages = self.usages, []
        return total(taken) if taken else None


def _upto(passage: Passage) -> str:
    """Return where the passage ends, in words; empty where it takes all."""
    if passage.before >= len(passage.history):
        return ""
    kept = passage.history[passage.before]
    begins = next((p.text for p in kept.parts if isinstance(p, Text) and p.text), "")
    begins = begins or ", ".join(c.name for c in kept.tool_calls)
    return UPTO.format(text=line(begins, 160)) if begins else ""


def total(usages: list[Usage]) -> Usage:
    """Return usages added up by class; a class that none of them names stays missing."""

    def add(name: str) -> int | None:
        known = [getattr(u, name) for u in usages if getattr(u, name) is not None]
        return sum(known) if known else None

    costs = [u.cost_usd for u in usages]
    cost = None if None in costs else sum(c or 0.0 for c in costs)
    return Usage(**{name: add(name) for name in _CLASSES}, cost_usd=cost)
