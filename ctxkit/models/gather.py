"""A streamed reply put together and judged: its calls taken apart, its end and its usage.

LiteLLM's own builder loses calls without an id, runs calls of one index together, ends a stream
that broke off with `stop`, and counts tokens itself where the server told none; here each is what
it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_REFUSALS = ("content_filter", "refusal", "safety")
_UNREAD = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")
"""Gemini's words for calls that it could not read itself."""
FULL = ("model_context_window_exceeded", "max_output_tokens")
"""Words for a reply that was cut because there was no more room."""


@dataclass(slots=True)
class _Call:
    name: str = ""
    id: str | None = None
    arguments: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """True where the arguments are a whole JSON object."""
        try:
            return isinstance(msgspec.json.decode("".join(self.arguments)), dict)
        except msgspec.DecodeError:
            return False


def calls_of(chunks: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the tool calls of a stream, each with an id, as Chat Completions has them."""
    calls: list[_Call] = []
    at: dict[int, _Call] = {}
    for delta in _deltas(chunks):
        function, index = getattr(delta, "function", None), getattr(delta, "index", None) or 0
        name, arguments = (
            getattr(function, "name", None) or "",
            getattr(function, "arguments", None),
        )
        call = at.get(index)
        if call is None or _another(call, name, getattr(delta, "id", None)):
            call = at[index] = _Call()
            calls.append(call)
        call.name = call.name or name
        call.id = call.id or getattr(delta, "id", None)
        if arguments:
            text = (
                arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            )
            call.arguments.append(text)
    return [
        {
            "id": c.id or f"call_{i}",
            "type": "function",
            "function": {"name": c.name, "arguments": "".join(c.arguments) or "{}"},
        }
        for i, c in enumerate(calls)
    ]


def _deltas(chunks: Iterable[Any]) -> Iterable[Any]:
    for chunk in chunks:
        for choice in chunk.choices[:1] if getattr(chunk, "choices", None) else ():
            yield from getattr(choice.delta, "tool_calls", None) or ()


def _another(call: _Call, name: str, ident: str | None) -> bool:
    """Return True where a piece at a used index begins another call."""
    if ident and call.id:
        return ident != call.id
    if not name:
        return False
    return call.whole or bool(call.name and name != call.name)


def told_usage(stream: Any, chunks: Iterable[Any]) -> bool:
    """Return True where the server sent a usage, and not only zeros.

    LiteLLM keeps what came as `chunks` of the stream; what it gives out ends with a usage in any
    case, if need be with a count of its own.
    """
    for chunk in getattr(stream, "chunks", chunks):
        usage = getattr(chunk, "usage", None)
        counts = [getattr(usage, n, None) for n in ("prompt_tokens", "completion_tokens")]
        if usage is not None and any(counts):
            return bool(counts[0])
    return False


def ended(
    name: str,
    stream: Any,
    data: Mapping[str, Any],
    calls: Sequence[Any],
    *,
    finished: bool | None = None,
    word: str | None = None,
) -> None:
    """Raise where a reply is none, or not the whole of it.

    `finished` and `word` are what the server itself said of its end, where that is known (`Raw`).

    Raises:
        ModelError: a web page came, the stream broke off, calls were promised and not sent
        (`again=True`: nothing was run, so it can be asked again); or the model refused.
    """
    choice = data["choices"][0]
    message = choice["message"]
    empty = not calls and not (message.get("content") or message.get("reasoning_content"))
    stop = None if finished is False else _finish(stream, choice.get("finish_reason"))
    if empty and _page(stream):
        raise ModelError(
            f"{name} was answered by a web page and not by the model: check the address, and "
            "whether a login page or a proxy stands between.",
            again=True,
        )
    if stop is None:
        if empty:
            raise ModelError(f"{name} sent an empty stream: no word of a reply came.", again=True)
        raise ModelError(
            f"{name} broke the reply off in the middle; it was not kept as one.", again=True
        )
    if stop in ("tool_calls", "function_call") and not calls:
        raise ModelError(f"{name} said that it calls a tool, and sent no call.", again=True)
    if word in _UNREAD and not calls:
        raise ModelError(f"{name} wrote a tool call that it could not send ({word}).", again=True)
    if (
        str(stop).lower() in _REFUSALS
        or str(word).lower() in _REFUSALS
        or choice.get("finish_reason") in _REFUSALS
    ):
        more = "; what it had said is in the log" if not empty else ""
        raise ModelError(
            f"{name} refused to answer (its finish reason is {_word(word or stop)}){more}."
        )


def _finish(stream: Any, said: Any) -> Any:
    """Return the finish reason that the server sent; LiteLLM ends any stream with `stop`."""
    if not hasattr(stream, "received_finish_reason"):
        return said
    return stream.received_finish_reason or getattr(stream, "intermittent_finish_reason", None)


def _page(stream: Any) -> bool:
    headers = getattr(stream, "_response_headers", None) or {}
    return "text/html" in str(
        {str(k).lower(): v for k, v in dict(headers).items()}.get("content-type", "")
    )


def _word(stop: object) -> str:
    return re.sub(r"[^\w-]", "", str(stop))[:40]
