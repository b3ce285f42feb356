"""Recording of the model calls of LiteLLM and HTTP clients as sessions."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.redaction import redact, redact_json
from ctxkit.agent.models.provider import load_litellm
from ctxkit.agent.recorders.api_responses import ApiKind, failed_response, parse_call
from ctxkit.agent.recorders.http_taps import HttpExchange, HttpExchangeCallbacks, install_tap
from ctxkit.errors import BadArguments, ReadError
from ctxkit.formats import anthropic, openai, openai_responses
from ctxkit.formats.log_source import Source
from ctxkit.formats.untrusted_fields import DAMAGE_ERRORS
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType


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

    It sees LiteLLM, and what goes through `httpx` or `httpx2` to an API of the kind of OpenAI's,
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
            session = openai.read_conversation(map(msgspec.json.decode, lines), name)
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
        """Note a call that LiteLLM reports; late reports of an earlier recording are ignored."""
        if times[0] < self.since:
            return
        answer = _as_object(response) if error is None else failed_response("openai", error)
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
        redacted_request = {k: redact_json(v) if k != "tools" else v for k, v in request.items()}
        call = {
            "kind": kind,
            "via": via,
            "request": redacted_request,
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
    return msgspec.json.encode([kind, _without_cache_marks(opening)], enc_hook=str)


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


class _ImportHook(MetaPathFinder):
    """An import finder that calls back when one module has been imported."""

    def __init__(self, name: str, on_import: Callable[[ModuleType], None]) -> None:
        self._name, self._on_import, self._is_searching = name, on_import, False

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """Return the spec of the module, with a loader that calls back; None for any other."""
        if name != self._name or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = find_spec(name)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self._on_import(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # this one's alone
        return spec


@contextmanager
def on_import(name: str, callback: Callable[[ModuleType], None]) -> Iterator[None]:
    """Call `callback` with a module: now if it is imported, else once it is, inside the block."""
    imported = sys.modules.get(name)
    if imported is not None:
        callback(imported)
    finder = _ImportHook(name, callback)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
