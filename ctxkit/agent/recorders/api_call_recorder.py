"""Recording of the model calls of LiteLLM and HTTP clients as sessions."""

# LiteLLM reports its calls to a callback. Calls that SDKs send through httpx are observed by taps
# on its clients, streams included.

from __future__ import annotations

import threading
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from traceback import walk_stack
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.redaction import redact, redact_json
from ctxkit.agent.models.litellm_provider import load_litellm, on_import
from ctxkit.agent.recorders.api_call_parsers import (
    ApiKind,
    detect_api,
    make_failed_response,
    parse_call,
)
from ctxkit.errors import BadArguments, ReadError
from ctxkit.formats import anthropic, openai, openai_responses
from ctxkit.formats.log_file_content import Source
from ctxkit.formats.untrusted_record_parsing import DAMAGE_ERRORS
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping


NOTHING_RECORDED = (
    "Recording {name!r} saw no call. It sees LiteLLM, and SDKs that send through httpx to an API "
    "of OpenAI's, Anthropic's, Gemini's or Ollama's kind; not an engine of another kind (DSPy 3.4 "
    "has one), and not other processes."
)
_current_call: ContextVar[str | None] = ContextVar("ctxkit_asking", default=None)
"""LiteLLM's id of the call that it is about to send in this context."""


def recorder(name: str = "recorded") -> Any:
    """Return a callback for `litellm.callbacks` whose `recording` has the session.

    Args:
        name: id of the session.

    Returns:
        An instance of LiteLLM's `CustomLogger`.

    Raises:
        ModelError: LiteLLM is not installed.

    Example:
        >>> from ctxkit.agent.recorders import recorder
        >>> callback = recorder("my-agent")  # doctest: +SKIP
        >>> litellm.callbacks.append(callback)  # doctest: +SKIP
    """
    load_litellm()
    return _make_callback(Recording(name))


def _make_callback(recording: Recording) -> Any:
    from litellm.integrations.custom_logger import CustomLogger

    class Recorder(CustomLogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.recording = recording
            self._seen: set[str] = set()

        def log_pre_api_call(self, model: str, messages: Any, kwargs: dict[str, Any]) -> None:  # noqa: ARG002
            ident = str(kwargs.get("litellm_call_id"))
            _current_call.set(ident)
            self.recording.begin(ident)

        def log_success_event(
            self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
        ) -> None:
            self._note(kwargs, response_obj, start_time, end_time, None)

        async def async_log_success_event(
            self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
        ) -> None:
            self._note(kwargs, response_obj, start_time, end_time, None)

        def log_failure_event(
            self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
        ) -> None:
            self._note(kwargs, response_obj, start_time, end_time, _error_text(kwargs))

        async def async_log_failure_event(
            self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
        ) -> None:
            self._note(kwargs, response_obj, start_time, end_time, _error_text(kwargs))

        def _note(
            self, kwargs: dict[str, Any], response: Any, start: Any, end: Any, error: str | None
        ) -> None:
            whole = kwargs.get("async_complete_streaming_response") or kwargs.get(
                "complete_streaming_response"
            )
            if kwargs.get("stream") and whole is None and error is None:
                return  # a piece of a stream; the complete response comes at its end
            ident = str(kwargs.get("litellm_call_id"))
            if ident in self._seen:
                return  # LiteLLM reports an async call twice
            self._seen.add(ident)
            times = start.timestamp(), end.timestamp()
            self.recording.end(ident, kwargs, whole or response, times, error)

    return Recorder()


@contextmanager
def record(name: str = "recorded") -> Iterator[Recording]:
    """Record every model call inside the `with` block, of any framework, with streams and tools.

    It records calls of LiteLLM, and calls through `httpx` or `httpx2` to an API like OpenAI's,
    Anthropic's, Gemini's or Ollama's: their SDKs, pydantic-ai, langchain-openai, OpenAI Agents. It
    does not import LiteLLM itself. A recording without a call warns.

    Args:
        name: id of the session.

    Returns:
        A context manager whose value is a `Recording`; `session` is the session so far.

    Raises:
        BadArguments: the name is empty.

    Example:
        >>> import warnings
        >>> import ctxkit as ck
        >>> with warnings.catch_warnings(action="ignore"), ck.record("my-agent") as recording:
        ...     pass  # run the agent here
        >>> recording.session.id
        'my-agent'
    """
    recording, undo = Recording(name), ExitStack()

    def add_callback(litellm: Any) -> None:
        callback = _make_callback(recording)
        litellm.callbacks.append(callback)
        recording.expects_litellm = True
        undo.callback(_remove_callback, litellm, callback)

    def add_exchange(exchange: HttpExchange) -> None:
        recording.add_exchange(exchange, call_ids.pop(id(exchange), None))

    call_ids: dict[int, str | None] = {}
    tap = HttpExchangeCallbacks(
        lambda exchange: call_ids.update(
            {id(exchange): _current_call.get() if exchange.litellm else None}
        ),
        add_exchange,
    )
    try:
        with install_tap(tap), on_import("litellm", add_callback):
            try:
                yield recording
            finally:
                recording.settle(len(tap.open))
                tap.finish()
    finally:
        recording.close()
        undo.close()
    if recording.empty:
        warnings.warn(NOTHING_RECORDED.format(name=name), stacklevel=3)


def _remove_callback(litellm: Any, callback: Any) -> None:
    """Remove a callback from LiteLLM, which copies callbacks and has no public way to do so."""
    lists = [litellm.callbacks, litellm.success_callback, litellm.failure_callback]
    lists += [litellm.input_callback, litellm._async_success_callback]  # noqa: SLF001
    for callbacks in (*lists, litellm._async_failure_callback):  # noqa: SLF001
        while callback in callbacks:
            callbacks.remove(callback)


def _error_text(kwargs: dict[str, Any]) -> str:
    return redact(str(kwargs.get("exception")))[:1000]


_MAX_WAIT_SECONDS, _QUIET_SECONDS = 5.0, 0.4
"""Seconds to wait at the end for late reports: the longest wait, and the silence that ends it.

LiteLLM reports from another thread, and for some providers does not say that a call began. If it
was imported and has reported nothing at all, only the longest wait ends: its first report imports
modules, which takes time."""
_REQUEST_FIELDS = (
    "model",
    "messages",
    "tools",
    "system",
    "input",
    "instructions",
    "previous_response_id",
)
_READERS = {"anthropic": anthropic.read, "openai-responses": openai_responses.read}


# From calls to conversations
#
# Calls arrive from many threads and in any order; they are sorted by their start. A call belongs to
# the conversation whose response it names (`previous_response_id`), else to the one with the same
# API, instructions and first message (`_conversation_key`). Cache marks are left out of the key, as
# they move from call to call.
#
# A call of LiteLLM is seen twice: by its callback, which reports late and from another thread, and
# by its HTTP client. The callback wins where it has a chat completion; for other APIs the HTTP
# exchange has more. Streams that were abandoned are reported by the HTTP client alone.


class Recording:
    """The calls recorded so far, grouped into conversations; the longest is the main session.

    Args:
        name: id of the main session.

    Example:
        >>> from ctxkit.agent import Recording
        >>> Recording("my-agent").session.id
        'my-agent'
    """

    def __init__(self, name: str) -> None:
        if not name.strip():
            raise BadArguments("Give the recording a name.")
        self.name = name
        self.since = time.time()
        self._calls: list[dict[str, Any]] = []
        self._started_call_ids: set[str] = set()
        self._ended_ids: set[str] = set()
        self._unreported: dict[str, HttpExchange] = {}
        """Calls of LiteLLM as its HTTP client saw them, in case LiteLLM never reports them."""
        self.expects_litellm = False
        """True if LiteLLM was imported and may report calls."""
        self._last_report = time.monotonic()
        self._lock = threading.Lock()

    @property
    def session(self) -> Session:
        """The session so far; the other conversations are its children."""
        sessions = sorted(self.sessions, key=lambda s: -len(s.calls))
        if not sessions:
            return Session(id=self.name, format="live", product="litellm")
        main, *rest = sessions
        return msgspec.structs.replace(main, id=self.name, children=tuple(rest))

    @property
    def sessions(self) -> list[Session]:
        """Every conversation as a session, in the order of their first calls.

        Conversations without a valid call, of another service under a similar path, are left out.
        """
        with self._lock:
            # Threads report them in any order.
            calls = sorted(self._calls, key=lambda c: c["startTime"])
        threads: dict[bytes, list[dict[str, Any]]] = {}
        keys_by_response: dict[str, bytes] = {}
        """Conversation of each response that a later request can name."""
        for call in calls:
            continued = keys_by_response.get(str(call["request"].get("previous_response_id")))
            key = (
                continued
                if continued is not None
                else _conversation_key(call["kind"], call["request"])
            )
            threads.setdefault(key, []).append(call)
            if ident := call["response"].get("id"):
                keys_by_response[str(ident)] = key
        found_sessions = []
        for i, thread in enumerate(threads.values()):
            with suppress(ReadError):
                found_sessions.append(self._make_session(i, thread))
        return found_sessions

    def _make_session(self, i: int, calls: list[dict[str, Any]]) -> Session:
        name, kind = f"{self.name}-{i}", calls[0]["kind"]
        lines = [msgspec.json.encode(c, enc_hook=str) for c in calls]
        if kind == "openai":
            session = openai.read_requests_as_one_conversation(
                map(msgspec.json.decode, lines), name
            )
        else:
            (session,) = _READERS[kind](Source(name, b"".join(line + b"\n" for line in lines)))
        return msgspec.structs.replace(session, format="live", product=calls[0]["via"], path_=None)

    def settle(self, unfinished: int = 0) -> None:
        """Wait until every call was reported, at most `_MAX_WAIT_SECONDS`.

        Args:
            unfinished: calls whose response was abandoned, which may never be reported.
        """
        until = time.monotonic() + _MAX_WAIT_SECONDS
        while time.monotonic() < until:
            missing = (
                len(self._started_call_ids - self._ended_ids - set(self._unreported)) - unfinished
            )
            silent = self.empty and not (unfinished or self._started_call_ids or self._unreported)
            quiet = _MAX_WAIT_SECONDS if self.expects_litellm and silent else _QUIET_SECONDS
            if missing <= 0 and time.monotonic() - self._last_report >= quiet:
                return
            time.sleep(0.02)

    def close(self) -> None:
        """Add the calls of LiteLLM that only the HTTP client saw: streams that were abandoned."""
        with self._lock:
            unreported, self._unreported = self._unreported, {}
            self._ended_ids |= set(unreported)
        for exchange in unreported.values():
            self._add_http_call(exchange, "litellm")

    # -- reports -----------------------------------------------------------------------------------

    def begin(self, ident: str) -> None:
        """Note that LiteLLM sent a call."""
        with self._lock:
            self._started_call_ids.add(ident)
            self._last_report = time.monotonic()

    def end(
        self,
        ident: str,
        parameters: Mapping[str, Any],
        response: Any,
        times: tuple[float, float],
        error: str | None,
    ) -> None:
        """Note a call that LiteLLM reports; late reports of an earlier recording are ignored.

        Args:
            ident: LiteLLM's id of the call.
            parameters: arguments of the call.
            response: LiteLLM's response; it is not read where the call failed.
            times: beginning and end of the call, in seconds since 1970.
            error: why the call failed; None: it did not.
        """
        if times[0] < self.since:
            return
        answer = _as_object(response) if error is None else make_failed_response("openai", error)
        with self._lock:
            if ident in self._ended_ids:
                return
            self._ended_ids.add(ident)
            self._last_report = time.monotonic()
            if "choices" not in answer and ident in self._unreported:
                return  # not a chat completion: the HTTP exchange has more
            self._unreported.pop(ident, None)
        optional = parameters.get("optional_params") or {}
        request = {k: parameters.get(k) or optional.get(k) for k in _REQUEST_FIELDS[:3]}
        request["messages"] = [_as_object(m) for m in request["messages"] or ()]
        cost = parameters.get("response_cost")
        more = {"response_cost": cost} if isinstance(cost, (int, float)) and cost else {}
        self._append_call("openai", "litellm", request, answer, times, **more)

    def add_exchange(self, exchange: HttpExchange, ident: str | None) -> None:
        """Note a call of an HTTP client.

        Args:
            exchange: the request and its response.
            ident: id of LiteLLM's call, which LiteLLM usually reports itself; None: not LiteLLM's.
        """
        with self._lock:
            self._last_report = time.monotonic()
            if ident is not None:
                if ident not in self._ended_ids:
                    self._unreported[ident] = exchange
                return
        self._add_http_call(exchange, "http")

    def _add_http_call(self, exchange: HttpExchange, via: str) -> None:
        request_parts = (exchange.kind, exchange.url, exchange.body)
        try:
            parsed = parse_call(
                *request_parts, exchange.bytes, status=exchange.status, error=exchange.error
            )
        except DAMAGE_ERRORS:  # another service under a similar path must not fail the program
            parsed = parse_call(*request_parts, b"", error="the answer is not of this API's kind")
        kind, body, answer = parsed
        request = {k: body[k] for k in _REQUEST_FIELDS if k in body}
        self._append_call(kind, via, request, answer, (exchange.began, exchange.ended))

    def _append_call(
        self,
        kind: ApiKind,
        via: str,
        request: dict[str, Any],
        response: dict[str, Any],
        times: tuple[float, float],
        **more: Any,
    ) -> None:
        call = {
            "kind": kind,
            "via": via,
            "request": redact_json(request),
            "response": redact_json(response),
            **more,
        }
        with self._lock:
            self._calls.append({**call, "startTime": times[0], "endTime": times[1]})

    @property
    def empty(self) -> bool:
        """True where no call was seen."""
        return not self._calls


def _conversation_key(kind: ApiKind, request: Mapping[str, Any]) -> bytes:
    """Return a key of a conversation: its instructions and the first message not by a model."""
    messages = request.get("messages") or request.get("input") or ()
    if isinstance(messages, str):
        messages = [messages]
    system = [
        m for m in messages if isinstance(m, dict) and m.get("role") in ("system", "developer")
    ]
    first = next((m for m in messages if m not in system and _message_role(m) != "assistant"), None)
    opening = [request.get("system"), request.get("instructions"), system, first]
    parts = [kind, _without_cache_marks(opening)]
    return msgspec.json.encode(parts, enc_hook=str, order="deterministic")


def _message_role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _without_cache_marks(value: Any) -> Any:
    """Return a JSON value without prompt-cache marks, which move from call to call."""
    if isinstance(value, dict):
        return {k: _without_cache_marks(v) for k, v in value.items() if k != "cache_control"}
    return [_without_cache_marks(v) for v in value] if isinstance(value, list) else value


def _as_object(value: Any) -> dict[str, Any]:
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if dump else dict(value or {})


_LIBRARIES = ("httpx", "httpx2")
"""openai 3 and anthropic 2 use the second; LiteLLM and older SDKs use the first."""
_taps_lock = threading.Lock()
_taps: list[HttpExchangeCallbacks] = []
_undo_patches: list[Callable[[], None]] = []


@dataclass
class HttpExchange:
    """One request and its response."""

    kind: ApiKind
    url: str
    body: dict[str, Any]
    began: float
    litellm: bool
    """True if LiteLLM sent it."""
    data: list[bytes] = field(default_factory=list)
    status: int = 0
    encoding: str = ""
    error: str = ""
    ended: float = 0.0

    @property
    def bytes(self) -> bytes:
        """The response so far, decompressed."""
        raw = b"".join(self.data)
        if not self.encoding:
            return raw
        with suppress(Exception):  # a truncated body cannot always be decompressed
            import httpx

            return httpx.Response(
                200, headers={"content-encoding": self.encoding}, content=raw
            ).content
        return b""


class HttpExchangeCallbacks:
    """An observer of HTTP exchanges.

    Args:
        on_begin: called when a request is sent.
        on_end: called once, when its response was read, abandoned, or did not come.
    """

    def __init__(
        self, on_begin: Callable[[HttpExchange], None], on_end: Callable[[HttpExchange], None]
    ) -> None:
        self._on_begin, self._on_end = on_begin, on_end
        self.open: dict[int, HttpExchange] = {}

    def begin(self, exchange: HttpExchange) -> None:
        """Note a request that is sent."""
        self.open[id(exchange)] = exchange
        self._on_begin(exchange)

    def end(self, exchange: HttpExchange) -> None:
        """Note the end of an exchange, once."""
        if self.open.pop(id(exchange), None) is not None:
            exchange.ended = exchange.ended or time.time()
            self._on_end(exchange)

    def finish(self) -> None:
        """End the streams that were abandoned without being closed."""
        for exchange in list(self.open.values()):
            if exchange.status:  # without a status there is no response yet
                self.end(exchange)


# `send` of the sync and async clients is patched once for all taps, and restored with the last one.
# A response that is streamed gets a tee: its bytes are kept as the program reads them, so neither
# the order nor the time of reading changes. A stream that the program abandons is never closed; its
# exchange ends with the block (`HttpExchangeCallbacks.finish`).


@contextmanager
def install_tap(tap: HttpExchangeCallbacks) -> Iterator[HttpExchangeCallbacks]:
    """Let a tap observe every call of this process inside the block.

    Args:
        tap: told when a request begins, and when its response ended or failed.

    Yields:
        The tap; clients are patched while at least one tap is installed.
    """
    with _taps_lock:
        if not _taps:
            _undo_patches.extend(
                _patch_clients(import_module(n)) for n in _LIBRARIES if find_spec(n)
            )
        _taps.append(tap)
    try:
        yield tap
    finally:
        with _taps_lock:
            _taps.remove(tap)
            if not _taps:
                while _undo_patches:
                    _undo_patches.pop()()


def _patch_clients(library: Any) -> Callable[[], None]:
    """Patch the clients of a library; return a function that undoes it."""
    sync_send, async_send, tee = (
        library.Client.send,
        library.AsyncClient.send,
        _make_tee_stream(library),
    )

    def send(self: Any, request: Any, *, stream: bool = False, **more: Any) -> Any:
        exchange = _begin_exchange(request)
        with _note_failure(exchange):
            return _note_answer(
                exchange, sync_send(self, request, stream=stream, **more), tee if stream else None
            )

    async def asend(self: Any, request: Any, *, stream: bool = False, **more: Any) -> Any:
        exchange = _begin_exchange(request)
        with _note_failure(exchange):
            response = await async_send(self, request, stream=stream, **more)
            return _note_answer(exchange, response, tee if stream else None)

    def undo() -> None:
        library.Client.send, library.AsyncClient.send = sync_send, async_send

    library.Client.send, library.AsyncClient.send = send, asend
    return undo


def _make_tee_stream(library: Any) -> Any:
    """Return a stream class of a library that keeps what is read of it."""

    class Tee(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, inner: Any, exchange: HttpExchange) -> None:
            self.inner, self.exchange = inner, exchange

        def __iter__(self) -> Iterator[bytes]:
            for piece in self.inner:
                self.exchange.data.append(piece)
                yield piece

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self.inner:
                self.exchange.data.append(piece)
                yield piece

        def close(self) -> None:
            self.inner.close()
            _end_exchange(self.exchange)

        async def aclose(self) -> None:
            await self.inner.aclose()
            _end_exchange(self.exchange)

    return Tee


def _note_answer(exchange: HttpExchange | None, response: Any, tee: Any) -> Any:
    """Note a response, or wrap its stream so that it is kept; return the program's response."""
    if exchange is None:
        return response
    exchange.status = response.status_code
    if tee is None:
        exchange.data.append(response.content)
        _end_exchange(exchange)
    else:
        exchange.encoding = response.headers.get("content-encoding", "")
        response.stream = tee(response.stream, exchange)
    return response


@contextmanager
def _note_failure(exchange: HttpExchange | None) -> Iterator[None]:
    """Note a request that got no response."""
    try:
        yield
    except BaseException as e:
        if exchange is not None:
            exchange.error = redact(f"{type(e).__name__}: {e}")[:1000]
            _end_exchange(exchange)
        raise


def _begin_exchange(request: Any) -> HttpExchange | None:
    """Note a request to a model API; return None for any other request."""
    try:
        body = msgspec.json.decode(request.content)
    except Exception:  # noqa: BLE001  a body that streams, or no JSON: no call
        return None
    url = str(request.url)
    kind = detect_api(url, body)
    if kind is None:
        return None
    exchange = HttpExchange(kind, url, body, time.time(), _is_called_from("litellm"))
    for tap in tuple(_taps):
        tap.begin(exchange)
    return exchange


def _end_exchange(exchange: HttpExchange) -> None:
    for tap in tuple(_taps):
        tap.end(exchange)


def _is_called_from(package: str) -> bool:
    """Return True if a package is among the callers."""
    names = (f.f_globals.get("__name__") for f, _ in walk_stack(None))
    return any(str(name).partition(".")[0] == package for name in names)
