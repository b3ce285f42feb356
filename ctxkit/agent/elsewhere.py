"""What stands here for an agent of another program: its model, what a person's word means to it,
and what its words mean here.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import line
from ctxkit.errors import ModelError
from ctxkit.messages import Edit, Image

if TYPE_CHECKING:
    from typing import NoReturn

    from ctxkit.agent.turn import Turn
    from ctxkit.messages import Usage
    from ctxkit.models.model import Emit, Request
    from ctxkit.outside.acp_agents import AcpAgent

_KINDS = {
    "allow": ("allow_once",),
    "always": ("allow_once", "allow_always"),
    "deny": ("reject_once", "reject_always"),
}
"""Which kinds of options a person's word means, the first that is there; "always" is remembered
here, in this session, rather than in the agent's own settings.
"""
_GRACE = 5.0
_STOPS = {
    "max_tokens": "the reply was cut by its limit of length",
    "max_turn_requests": "the agent stopped at its own limit of calls",
    "refusal": "the agent refused",
    "cancelled": "the agent's turn was cancelled",
}


class Elsewhere:
    """The model of an agent that is led elsewhere: a name, which nobody here can call."""

    notice = ""
    context_window: int | None = None

    def __init__(self, agent: AcpAgent) -> None:
        self._agent = agent

    @property
    def name(self) -> str:
        """`acp/` and what the agent calls itself, once it has said that."""
        return f"acp/{self._agent.name}"

    @property
    def pictures(self) -> bool | None:
        """Whether the agent takes pictures; None: it was not asked yet."""
        return self._agent.pictures if self._agent.told else None

    def close(self) -> None:
        """End the agent."""
        self._agent.close()

    async def __call__(self, request: Request, emit: Emit) -> NoReturn:  # noqa: ARG002  a model's shape
        """Refuse: only the agent itself asks its model."""
        raise ModelError(f"{self.name} leads itself: its model cannot be asked from here.")


def choice(options: Any, word: str) -> str | None:
    """Return the option that a word means; for "always" one that allows once, where there is no
    other.
    """
    offered = [o for o in options if isinstance(o, dict)] if isinstance(options, list) else []
    for kind in _KINDS.get(word, ()):
        for option in offered:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return str(option["optionId"])
    return None


def ending(stop: Any, *, answered: bool) -> str:
    """Return what must be said of how an agent ended its turn; nothing where it answered."""
    if stop == "end_turn":
        return "" if answered else "the agent gave no answer"
    return _STOPS.get(str(stop)) or f"the agent ended with {line(str(stop), 40)}"


def fall(ident: str, before: int, used: int) -> Edit:
    """Return the mark of a compaction that shows in nothing but an agent's gauge."""
    return Edit(
        kind="dropped",
        id=ident,
        trigger="auto",
        method="agent",
        reason="the agent's own gauge fell",
        source="derived",
        tokens_before=before,
        tokens_after=used,
    )


async def stop(agent: AcpAgent, queue: asyncio.Queue[Any]) -> None:
    """Have an agent end its turn; what it still says is left, and its questions are answered so.

    One that does not end is ended.
    """
    with suppress(ModelError, TimeoutError):
        async with asyncio.timeout(_GRACE):
            await agent.cancel()
            while (message := await queue.get()) is not None and "method" in message:
                if message["method"] == "session/request_permission":
                    await agent.answer(message.get("id"), {"outcome": {"outcome": "cancelled"}})
            return
    agent.close()


def bill(turn: Turn, usage: Usage) -> None:
    """Count what an agent told of its usage."""
    turn.spent.fresh += (usage.prompt_tokens or 0) - (usage.cache_read_tokens or 0)
    turn.spent.cached += usage.cache_read_tokens or 0
    turn.spent.output += usage.output_tokens or 0


def prompt_part(part: Any) -> dict[str, Any]:
    """Return a part of a prompt as the protocol has it."""
    if isinstance(part, Image):
        return {"type": "image", "data": part.data, "mimeType": part.media_type}
    return {"type": "text", "text": part.text}
