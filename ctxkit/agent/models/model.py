"""The model protocol: request, streamed deltas, reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from ctxkit.session.messages import Message, ToolSchema


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call: what is shown to the model, and what it may use.

    `turn` and `step` say where the session stands (the zero-based turn, the zero-based call in it).
    A provider ignores them; the scripted model is keyed on them, so that a compaction cannot shift
    its script.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    turn: int = 0
    step: int = 0
    max_output_tokens: int | None = None


class Delta(msgspec.Struct, frozen=True):
    """A piece of a stream: text, thinking, a tool's name or arguments; or why one waits."""

    kind: Literal["text", "thinking", "tool_call", "arguments", "wait"]
    text: str


Emit = Callable[[Delta], None]


class Model(Protocol):
    """A model: `await model(request, emit)` gives the assistant message with its usage.

    Errors leave as `ModelError`, with `overflow=True` where the prompt does not fit. A model is
    cancelled by cancelling the task that waits for it, at any await.
    """

    @property
    def name(self) -> str:
        """Its name in frames, such as `anthropic/claude-sonnet-4-5` or `scripted/billing`."""

    @property
    def notice(self) -> str:
        """What every output must say of it, such as that no model was called; else empty."""

    @property
    def context_window(self) -> int | None:
        """The limit of a prompt in tokens, or None where it is not known."""

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Answer a request."""


def ignore_delta(_: Delta) -> None:
    """Take a delta and show nothing."""


def accepts_images(model: Model) -> bool | None:
    """Say whether a model takes pictures (its attribute `pictures`); None: nobody knows."""
    declared = getattr(model, "pictures", None)
    return declared if isinstance(declared, bool) else None


def images_unsupported_message(model: Model) -> str:
    """Return the sentence for a picture that a model does not take."""
    return (
        f"{model.name} takes no pictures: name another model, or leave them out; if it does take "
        f"them, say so: --model '{model.name}?pictures=true'."
    )
