"""Summaries by a model: the passage as text, the request, a time limit, and what the call cost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ctxkit.errors import ModelError
from ctxkit.messages import Message, Text, Usage
from ctxkit.models.model import Model, Request, silent
from ctxkit.policies import prompts

if TYPE_CHECKING:
    from ctxkit.policies.summarisers import Passage

ASK = (
    "You write the working notes by which another run of the same agent goes on. Do not answer the user and do not go "
    "on with the work. State the goal, what the user demands, what was decided, what was done, what is open, and "
    "every path, identifier, command and number that is still needed, exactly as written. Add nothing of your own."
)


class ModelSummariser:
    """Asks a model for the summary of a passage. It is called off the event loop, and waits for it.

    Args:
        model: the model that writes.
        loop: the loop on which the model runs.
        seconds: how long it may take.
    """

    name = "model"

    def __init__(self, model: Model, loop: asyncio.AbstractEventLoop, seconds: float = 120.0) -> None:
        self.model, self._loop, self._seconds = model, loop, seconds
        self.usages: list[Usage] = []
        """What each call cost, in order; taken by whoever keeps the edit."""

    def __call__(self, passage: Passage) -> str:
        """Return the summary's text.

        Raises:
            ModelError: the model failed, answered nothing, or took too long.
        """
        told = "\n\n".join(t for t in (ASK, passage.instructions) if t)
        limit = f"\n\nWrite at most {passage.limit} tokens." if passage.limit else ""
        text = prompts.pi(passage.messages)
        request = Request(
            messages=(
                Message(role="system", id="ask", parts=(Text(told + limit),)),
                Message(role="user", id="passage", parts=(Text(f"<conversation>\n{text}\n</conversation>"),)),
            ),
            max_output_tokens=passage.limit,
        )
        waiting = asyncio.run_coroutine_threadsafe(self._ask(request), self._loop)
        try:
            reply = waiting.result(self._seconds)
        except TimeoutError:
            waiting.cancel()
            raise ModelError(
                f"The summary took longer than {self._seconds:g} s; the history is kept as it was."
            ) from None
        if reply.usage is not None:
            self.usages.append(reply.usage)
        return "\n".join(p.text for p in reply.parts if isinstance(p, Text))

    async def _ask(self, request: Request) -> Message:
        return await self.model(request, silent)

    def take(self) -> Usage | None:
        """Return what the calls since the last `take` cost together."""
        taken, self.usages = self.usages, []
        return total(taken) if taken else None


def total(usages: list[Usage]) -> Usage:
    """Return usages added up by class; a class that none of them names stays missing."""

    def add(name: str) -> int | None:
        known = [getattr(u, name) for u in usages if getattr(u, name) is not None]
        return sum(known) if known else None

    costs = [u.cost_usd for u in usages]
    return Usage(
        input_tokens=add("input_tokens"),
        cache_read_tokens=add("cache_read_tokens"),
        cache_write_tokens=add("cache_write_tokens"),
        cache_write_1h_tokens=add("cache_write_1h_tokens"),
        output_tokens=add("output_tokens"),
        reasoning_tokens=add("reasoning_tokens"),
        cost_usd=None if None in costs else sum(c or 0.0 for c in costs),
    )
