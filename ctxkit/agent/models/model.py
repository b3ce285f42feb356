"""The model protocol: request, streamed deltas, reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from ctxkit.session.messages import Message, ToolSchema


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One model call: the messages and tools of its prompt.

    `turn` and `step` say where the session stands: the turn, and the call in it, both from 0.
    Providers ignore them; a scripted model uses them to find its reply, so that a compaction, which
    changes the number of messages, cannot shift its script.

    Example:
        >>> from ctxkit.agent import Request
        >>> from ctxkit.session import Message, Text
        >>> Request(messages=(Message(role="user", parts=(Text("Hello."),)),)).step
        0
    """

    messages: tuple[Message, ...]
    """The prompt, in order."""
    tools: tuple[ToolSchema, ...] = ()
    """Tools that the model may call."""
    turn: int = 0
    step: int = 0
    max_output_tokens: int | None = None
    """Limit of the reply in tokens; None: the provider's."""


class Delta(msgspec.Struct, frozen=True):
    """A piece of a stream: text, thinking, a tool's name or arguments, or why the call waits.

    Example:
        >>> from ctxkit.agent import Delta
        >>> Delta("text", "It is ").text
        'It is '
    """

    kind: Literal["text", "thinking", "tool_call", "arguments", "wait"]
    """`wait`: the call waits, for instance for a busy server."""
    text: str
    """The piece; of a wait, the reason."""


Emit = Callable[[Delta], None]


class Model(Protocol):
    """A model: `await model(request, emit)` returns the assistant message with its usage.

    Failures are raised as `ModelError`, with `overflow=True` if the prompt does not fit. A model is
    cancelled by cancelling the task that awaits it.
    """

    @property
    def name(self) -> str:
        """Name in frames, such as `anthropic/claude-sonnet-4-5` or `scripted/billing`."""

    @property
    def notice(self) -> str:
        """Notice that every output shows, such as that no LLM was called; else empty."""

    @property
    def context_window(self) -> int | None:
        """Tokens that a prompt may have; None if not known."""

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Answer a request."""


def ignore_delta(_: Delta) -> None:
    """Ignore a delta: the `emit` of a caller that reads whole replies only.

    Args:
        _: the delta, which is not looked at.

    Example:
        >>> import asyncio
        >>> from ctxkit.agent import Request, ScriptedModel, ignore_delta
        >>> from ctxkit.agent.models.scripted_and_lookup_models import make_reply
        >>> from ctxkit.tokens import default_counter
        >>> turns = [[make_reply("Done.")]]
        >>> model = ScriptedModel(turns, name="x", counter=default_counter(), clock=lambda: 0.0)
        >>> asyncio.run(model(Request(messages=()), ignore_delta)).text
        'Done.'
    """


def accepts_images(model: Model) -> bool | None:
    """Return whether a model takes images (its attribute `pictures`); None if not known.

    Args:
        model: any model; one of the user may lack the attribute.

    Returns:
        None is to be taken as True: the provider decides.
    """
    declared = getattr(model, "pictures", None)
    return declared if isinstance(declared, bool) else None


def images_unsupported_message(model: Model) -> str:
    """Return the error message for an image that a model does not take.

    Args:
        model: that takes no images.

    Returns:
        A sentence with the option that says that it does.
    """
    return (
        f"{model.name} takes no pictures: name another model, or leave them out; if it does take "
        f"them, say so: --model '{model.name}?pictures=true'."
    )
