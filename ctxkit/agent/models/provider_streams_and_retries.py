"""Streamed replies of providers, assembled and checked; retries of calls that failed."""

# The assembly replaces LiteLLM's own builder, which loses calls without an id, joins calls of one
# index, ends a stream that broke off with `stop`, and counts tokens itself if the server reported
# none.

from __future__ import annotations

import asyncio
import email.utils
import random
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ctxkit.errors import ModelError
from ctxkit.session.overflow_errors import is_overflow, is_rate_limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence


_REFUSALS = ("content_filter", "refusal", "safety")
_UNPARSED_CALLS = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")
"""Gemini's finish reasons for tool calls that it could not parse itself."""
CONTEXT_FULL_REASONS = ("model_context_window_exceeded", "max_output_tokens")
"""Finish reasons of a reply that was cut because the window was full."""


@dataclass(slots=True)
class _PartialCall:
    name: str = ""
    id: str | None = None
    arguments: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """True if the arguments are a whole JSON object."""
        try:
            return isinstance(msgspec.json.decode("".join(self.arguments)), dict)
        except msgspec.DecodeError:
            return False


# Tool calls in a stream come in pieces with an index, and servers use the index in different ways:
# some repeat the id in every piece, some send none, some give every call index 0. A piece begins
# another call if it has another id, or, without ids, a name after the current arguments are a whole
# JSON object, or another name. A call without an id gets one by its position.


def assemble_tool_calls(chunks: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the tool calls of a stream in the form of Chat Completions, each with an id.

    Args:
        chunks: the stream as LiteLLM gives it; servers may repeat an index, or leave ids out.

    Returns:
        A dictionary for each call: `id`, `type`, and `function` with `name` and `arguments` (JSON
        text, which may be cut off).
    """
    calls: list[_PartialCall] = []
    open_calls: dict[int, _PartialCall] = {}
    for delta in _iter_call_deltas(chunks):
        function, index = getattr(delta, "function", None), getattr(delta, "index", None) or 0
        name, arguments = (
            getattr(function, "name", None) or "",
            getattr(function, "arguments", None),
        )
        call = open_calls.get(index)
        if call is None or _begins_call(call, name, getattr(delta, "id", None)):
            call = open_calls[index] = _PartialCall()
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


def _iter_call_deltas(chunks: Iterable[Any]) -> Iterable[Any]:
    for chunk in chunks:
        for choice in chunk.choices[:1] if getattr(chunk, "choices", None) else ():
            yield from getattr(choice.delta, "tool_calls", None) or ()


def _begins_call(call: _PartialCall, name: str, ident: str | None) -> bool:
    """Return True if a piece at a used index begins another call."""
    if ident and call.id:
        return ident != call.id
    if not name:
        return False
    return call.whole or bool(call.name and name != call.name)


def has_reported_usage(stream: Any, chunks: Iterable[Any]) -> bool:
    """Return True if the server sent a usage that is not all zeros.

    LiteLLM keeps the received pieces as `chunks` of the stream; the pieces that it yields end with
    a usage in any case, if need be one that it counted itself.

    Args:
        stream: stream of LiteLLM, read to its end.
        chunks: the pieces that it yielded, for a stream without `chunks`.

    Returns:
        False where the usage would be LiteLLM's own count.
    """
    for chunk in getattr(stream, "chunks", chunks):
        usage = getattr(chunk, "usage", None)
        counts = [getattr(usage, n, None) for n in ("prompt_tokens", "completion_tokens")]
        if usage is not None and any(counts):
            return bool(counts[0])
    return False


def check_reply_complete(
    name: str,
    stream: Any,
    data: Mapping[str, Any],
    calls: Sequence[Any],
    *,
    finished: bool | None = None,
    finish_word: str | None = None,
) -> None:
    """Raise if a reply is not a complete answer of the model.

    Args:
        name: name of the model, for messages.
        stream: LiteLLM's stream.
        data: the assembled response.
        calls: the assembled tool calls.
        finished: whether the server itself sent a finish reason; None: unknown
            (`StreamFinishAndUsageFlags`).
        finish_word: the finish reason in the server's own words, if known.

    Raises:
        ModelError: a web page came, the stream broke off, or announced calls are missing (with
            `again=True`: nothing was run, so the call can be repeated); or the model refused.
    """
    choice = data["choices"][0]
    message = choice["message"]
    empty = not calls and not (message.get("content") or message.get("reasoning_content"))
    stop = None if finished is False else _finish_reason(stream, choice.get("finish_reason"))
    if empty and _is_html(stream):
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
    if finish_word in _UNPARSED_CALLS and not calls:
        raise ModelError(
            f"{name} wrote a tool call that it could not send ({finish_word}).", again=True
        )
    if (
        str(stop).lower() in _REFUSALS
        or str(finish_word).lower() in _REFUSALS
        or choice.get("finish_reason") in _REFUSALS
    ):
        log_hint = "; what it had said is in the log" if not empty else ""
        raise ModelError(
            f"{name} refused to answer (its finish reason is {_safe_word(finish_word or stop)})"
            f"{log_hint}."
        )


def _finish_reason(stream: Any, reported: Any) -> Any:
    """Return the finish reason that the server sent; LiteLLM ends any stream with `stop`."""
    if not hasattr(stream, "received_finish_reason"):
        return reported
    return stream.received_finish_reason or getattr(stream, "intermittent_finish_reason", None)


def _is_html(stream: Any) -> bool:
    headers = getattr(stream, "_response_headers", None) or {}
    return "text/html" in str(
        {str(k).lower(): v for k, v in dict(headers).items()}.get("content-type", "")
    )


def _safe_word(stop: object) -> str:
    return re.sub(r"[^\w-]", "", str(stop))[:40]


@dataclass(slots=True)
class StreamFinishAndUsageFlags:
    """Facts about one stream as the server sent it; None where not known."""

    finish: bool | None = None
    """True if a finish reason came."""
    word: str | None = None
    """The finish reason in the server's own words (Gemini, Anthropic, Responses)."""
    usage: bool | None = None
    """True if the usage has prompt tokens."""

    def note(self, event: Any) -> None:
        """Note an event of Gemini, Anthropic or the Responses API."""
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


# LiteLLM gives every piece of Gemini's the finish reason `stop`, and counts tokens itself if a
# Responses stream has no usage. So the raw events are observed on their way into its parsers
# (`chunk_parser`, `_process_chunk`). In a release of LiteLLM without such a parser nothing is
# noted, and LiteLLM's own values are used.
#
# Events that have arrived already come without any wait, also those that LiteLLM skips inside one
# of its own steps. `LoopYieldingStream` lets the event loop run before each, so that a time limit
# and an interrupt take effect however fast a server sends.


def watch_stream(stream: Any) -> StreamFinishAndUsageFlags:
    """Hook into a stream of LiteLLM's; return notes that fill as it is read.

    Args:
        stream: stream of LiteLLM, not yet read.

    Returns:
        Finish reason and usage as the server sent them, complete once the stream was read.
    """
    notes = StreamFinishAndUsageFlags()
    if getattr(stream, "completion_stream", None) is not None:
        stream.completion_stream = _hook_stream(stream.completion_stream, notes)
    make = getattr(stream, "make_call", None)
    if make is not None:

        async def make_hooked(*args: Any, **more: Any) -> Any:
            return _hook_stream(await make(*args, **more), notes)

        stream.make_call = make_hooked
    return notes


class LoopYieldingStream:
    """A stream that yields to the event loop before each of its events.

    Args:
        inner: the stream; other attributes are looked up on it.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._events: AsyncIterator[Any] | None = None

    def __aiter__(self) -> LoopYieldingStream:
        return self

    async def __anext__(self) -> Any:
        self._events = self._events or aiter(self._inner)
        await asyncio.sleep(0)
        return await anext(self._events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _hook_stream(inner: Any, notes: StreamFinishAndUsageFlags) -> Any:
    """Return a stream that notes its events and yields to the event loop."""
    for owner, name in ((inner, "chunk_parser"), (_responses_reader(inner), "_process_chunk")):
        parse = getattr(owner, name, None)
        if parse is not None:
            setattr(owner, name, _wrap_parser(parse, notes))
    return LoopYieldingStream(inner) if hasattr(inner, "__aiter__") else inner


def _responses_reader(inner: Any) -> Any:
    """Return the reader of a Responses stream inside LiteLLM's translation of it, or None."""
    return getattr(inner, "streaming_response", None)


def _wrap_parser(parse: Any, notes: StreamFinishAndUsageFlags) -> Any:
    def parse_and_note(chunk: Any, *args: Any, **more: Any) -> Any:
        notes.note(_decode_event(chunk))
        return parse(chunk, *args, **more)

    return parse_and_note


def _decode_event(chunk: Any) -> Any:
    """Return the event of a chunk; of text lines only the last, with the usage, is decoded."""
    if not isinstance(chunk, str):
        is_noted = isinstance(chunk, dict) and chunk.get("type") in (None, "message_delta")
        return chunk if is_noted else None
    if not any(f"response.{end}" in chunk for end in ("completed", "incomplete", "failed")):
        return None
    try:
        return msgspec.json.decode(chunk[chunk.find("{") :])
    except msgspec.DecodeError:
        return None


RetryableFailureKind = Literal[
    "rate limit", "overload", "unreachable", "broken off", "server error"
]
"""Failures that pass: the first two when the server has capacity, the others within seconds."""

_UNITS = "ms|milliseconds?|h|hours?|m|min|minutes?|s|sec|seconds?"
_DURATION = re.compile(rf"(?i)(\d+(?:\.\d+)?) ?({_UNITS})(?![a-z])")
_RETRY_WORDS = re.compile(
    r"(?i)(?:retry|try again) (?:after|in)"
    rf" ((?:\d+(?:\.\d+)? ?(?:{_UNITS})(?![a-z]) ?){{1,3}})"
)
_QUOTA = re.compile(r"(?i)insufficient_quota|exceeded your current quota|billing|credit balance")
_OVERLOAD = re.compile(
    r"(?i)overloaded|\b529\b|service unavailable|\b503\b|no capacity|model is loading"
)
_UNREACHABLE = re.compile(
    r"(?i)connection error|connect call failed|cannot connect|connection refused"
    r"|all connection attempts"
    r"|name or service not known|temporary failure in name resolution|nodename nor servname"
)
_CONNECTION_LOST = re.compile(
    r"(?i)connection reset|reset by peer|server disconnected|incomplete chunked read|payload is not"
    r"|peer closed|clientpayloaderror|readerror|remoteprotocolerror|broken pipe"
    r"|before any terminal event|connection (?:was )?closed"
)
_TEMPORARY_STATUSES = (408, 409, 425)
"""Client errors that SDKs retry: a timeout, a conflict, too early."""
_OLLAMA_RUNNER = re.compile(r"unexpected response from Ollama: \{'error'")
"""LiteLLM's message for an error in the middle of Ollama's stream, such as a dead runner."""
_FAILURE_TEXTS: dict[RetryableFailureKind, str] = {
    "rate limit": "is over its rate limit",
    "overload": "is overloaded",
    "unreachable": "cannot be reached",
    "broken off": "broke the connection off",
    "server error": "had an error",
}


# A failure has a class, which says whether and when the call is repeated.
@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when a provider is called again.

    Without a delay from the server, pauses grow exponentially with up to 25 % jitter, so that many
    clients do not return at the same time. A delay that the server asks for (`retry-after`) is
    waited in full; a limit of the turn may end it sooner.

    Example:
        >>> from ctxkit.agent.models.provider_streams_and_retries import RetryPolicy
        >>> policy = RetryPolicy(chance=lambda: 0.0)
        >>> [policy.wait("overload", attempt, None) for attempt in range(4)]
        [1.0, 2.0, 4.0, 8.0]
    """

    attempts: int = 7
    """Calls in total for a busy server; for one that fails at most 4."""
    pause: float = 1.0
    """Seconds before the second call."""
    cap: float = 60.0
    """Longest pause in seconds, if the server asked for none."""
    longest: float = 3600.0
    """Seconds that a server may ask for; with more the call fails at once."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits a number of seconds; tests hand in a clock of their own."""
    chance: Callable[[], float] = random.random
    """Returns a random number from 0 to 1, for the jitter."""

    def wait(
        self, failure: RetryableFailureKind, attempt: int, retry_after: float | None
    ) -> float | None:
        """Return the seconds to wait after a failed attempt; None: give up.

        Args:
            failure: class of the failure.
            attempt: number of the attempt, from 0.
            retry_after: seconds that the server asked for; None: it did not.
        """
        is_busy = failure in ("rate limit", "overload")
        if attempt + 1 >= (self.attempts if is_busy else min(self.attempts, 4)):
            return None
        if retry_after is not None:
            return retry_after if retry_after <= self.longest else None
        return min(self.pause * 2.0**attempt, self.cap) * (1 + self.chance() / 4)


# The order of the tests matters: an overflow or an exhausted quota may come with the status of a
# rate limit, and LiteLLM raises `APIConnectionError` for any error on this side of the connection,
# bugs included, so that name alone is no reason to retry. Texts go before the status.


def classify_retryable_failure(error: BaseException) -> RetryableFailureKind | None:
    """Return the class of a failure that another attempt may cure, or None.

    Args:
        error: an error that LiteLLM raised, of any class.

    Returns:
        None for an overflow, a spent quota, a wrong key and any error that would come again.

    Example:
        >>> from ctxkit.agent.models.provider_streams_and_retries import classify_retryable_failure
        >>> classify_retryable_failure(RuntimeError("server overloaded"))
        'overload'
    """
    text, status = f"{type(error).__name__}: {error}"[:20_000], getattr(error, "status_code", None)
    if is_overflow(error) or _QUOTA.search(text):
        return None
    if _OVERLOAD.search(text) or status in (503, 529):
        return "overload"
    if status == 429 or is_rate_limit(error):
        return "rate limit"
    if _UNREACHABLE.search(text):
        return "unreachable"
    if _CONNECTION_LOST.search(text):
        return "broken off"
    # LiteLLM's name for any other error on this side of the connection.
    if "APIConnectionError" in text[:200]:
        return None
    if _OLLAMA_RUNNER.search(text):
        return "server error"
    is_temporary = isinstance(status, int) and (status >= 500 or status in _TEMPORARY_STATUSES)
    return "server error" if is_temporary else None


def parse_retry_after(error: BaseException, now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that a server asked to wait (`retry-after`, RFC 9110), or None.

    Args:
        error: raised by LiteLLM; the headers of its response are read first, then its text.
        now: returns seconds since 1970, for a header that is a date.

    Returns:
        Seconds.

    Example:
        >>> from ctxkit.agent.models.provider_streams_and_retries import parse_retry_after
        >>> parse_retry_after(RuntimeError("Rate limited, try again in 20 s"))
        20.0
    """
    for headers in _list_headers(error):
        values = {str(k).lower(): str(v) for k, v in dict(headers).items()}
        for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
            seconds = _parse_delay(values.get(name, ""), unit, now)
            if seconds is not None:
                return seconds
    match = _RETRY_WORDS.search(str(error))
    if match is not None:
        return sum(float(n) * _get_unit_seconds(unit) for n, unit in _DURATION.findall(match[1]))
    match = re.search(r'"retryDelay": ?"(\d+(?:\.\d+)?)s', str(error))  # Gemini's
    return None if match is None else float(match[1])


def _get_unit_seconds(unit: str) -> float:
    """Return the seconds of a unit of time, by its letters: `ms`, `milliseconds`, `h`, `min`."""
    letters = unit.lower()
    if letters.startswith(("ms", "mil")):
        return 0.001
    return {"h": 3600.0, "m": 60.0, "s": 1.0}[letters[0]]


def _list_headers(error: BaseException) -> list[Any]:
    errors = [error, getattr(error, "original_exception", None), error.__cause__, error.__context__]
    headers = [getattr(e, "litellm_response_headers", None) for e in errors]
    headers += [getattr(getattr(e, "response", None), "headers", None) for e in errors]
    headers += [getattr(e, "headers", None) for e in errors]
    return [h for h in headers if h]


def _parse_delay(value: str, unit: float, now: Callable[[], float]) -> float | None:
    """Return a number of seconds or an HTTP date as seconds from now; None if it is neither."""
    try:
        seconds = float(value) / unit
    except ValueError:
        try:
            return max(email.utils.parsedate_to_datetime(value).timestamp() - now(), 0.0)
        except (ValueError, TypeError, OverflowError):
            return None
    return seconds if seconds >= 0 else None  # a NaN is not


def describe_failure(name: str, failure: RetryableFailureKind, address: str | None = None) -> str:
    """Return a clause on a failure: the model, and what happened.

    Args:
        name: name of the model.
        failure: its class.
        address: address of the server, named if it cannot be reached.

    Returns:
        The beginning of an error's sentence.
    """
    where = f" at {address}" if address and failure == "unreachable" else ""
    return f"{name} {_FAILURE_TEXTS[failure]}{where}"
