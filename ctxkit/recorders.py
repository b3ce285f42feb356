"""Any agent in this kernel that calls LiteLLM, recorded into a session as it runs: a context manager and a callback."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.models.provider import load_litellm
from ctxkit.readers import openai
from ctxkit.readers.source import Source
from ctxkit.redaction import redact, redacted
from ctxkit.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

_WAIT, _QUIET = 5.0, 0.4
"""Seconds to wait at the end for calls that are reported late: LiteLLM does so from another thread, and for some
providers says nothing when a call begins. At most `_WAIT`, at least until nothing was heard for `_QUIET`."""
_SETTINGS = ("model", "messages", "tools")


class Recording:
    """The calls seen so far. Conversations are told apart by their opening; the longest is the main session.

    Args:
        name: id of the main session.
    """

    def __init__(self, name: str) -> None:
        if not name.strip():
            raise BadArguments("Give the recording a name.")
        self.name = name
        self.since = time.time()
        self._calls: list[dict[str, Any]] = []
        self._begun = self._ended = 0
        self._lock = threading.Lock()

    @property
    def session(self) -> Session:
        """The session so far; conversations beside the longest are its children, as a subagent's are."""
        found = sorted(self.sessions, key=lambda s: -len(s.calls))
        if not found:
            return Session(id=self.name, format="live", product="litellm")
        main, *rest = found
        return msgspec.structs.replace(main, id=self.name, children=tuple(rest))

    @property
    def sessions(self) -> list[Session]:
        """Every conversation by itself, in the order in which they began."""
        with self._lock:
            calls = sorted(self._calls, key=lambda c: c["startTime"])  # LiteLLM's threads tell them in any order
        threads: dict[bytes, list[dict[str, Any]]] = {}
        for call in calls:
            threads.setdefault(_opening(call), []).append(call)
        out = []
        for i, thread in enumerate(threads.values()):
            data = b"".join(msgspec.json.encode(c, enc_hook=str) + b"\n" for c in thread)
            (session,) = openai.read(Source(f"{self.name}-{i}", data))
            out.append(msgspec.structs.replace(session, format="live", product="litellm", path_=None))
        return out

    def settle(self) -> None:
        """Wait until every call has been reported, at most five seconds."""
        until, heard, since = time.monotonic() + _WAIT, self._ended, time.monotonic()
        while time.monotonic() < until:
            if self._ended != heard:
                heard, since = self._ended, time.monotonic()
            if self._ended >= self._begun and time.monotonic() - since >= _QUIET:
                return
            time.sleep(0.02)

    # -- told by the callback --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Note that a call was sent."""
        with self._lock:
            self._begun += 1

    def end(self, asked: dict[str, Any], response: Any, began: datetime, ended: datetime, error: str | None) -> None:
        """Note what was asked and what came back, unless it was asked before this recording: reports come late."""
        if began.timestamp() < self.since:
            return
        optional = asked.get("optional_params") or {}
        request = {k: asked.get(k) or optional.get(k) for k in _SETTINGS}
        call: dict[str, Any] = {
            "request": {**request, "messages": [_plain(m) for m in request["messages"] or ()]},
            "response": _answer(response, error),
            "startTime": began.timestamp(),
            "endTime": ended.timestamp(),
        }
        call["request"]["messages"] = redacted(call["request"]["messages"])
        call["response"] = redacted(call["response"])
        cost = asked.get("response_cost")
        if isinstance(cost, (int, float)) and cost:
            call["response_cost"] = cost
        with self._lock:
            self._calls.append(call)
            self._ended += 1


def recorder(name: str = "recorded") -> Any:
    """Return a LiteLLM callback that records, for `litellm.callbacks`; its `recording` holds the session."""
    load_litellm()
    from litellm.integrations.custom_logger import CustomLogger

    class Recorder(CustomLogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.recording = Recording(name)
            self._seen: set[str] = set()

        def log_pre_api_call(self, model: str, messages: Any, kwargs: dict[str, Any]) -> None:  # noqa: ARG002
            self.recording.begin()

        def log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
            self._note(kwargs, response_obj, start_time, end_time, None)

        async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            self._note(kwargs, response_obj, start_time, end_time, None)

        def log_failure_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
            self._note(kwargs, response_obj, start_time, end_time, redact(str(kwargs.get("exception")))[:1000])

        async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            self._note(kwargs, response_obj, start_time, end_time, redact(str(kwargs.get("exception")))[:1000])

        def _note(self, kwargs: dict[str, Any], response: Any, start: Any, end: Any, error: str | None) -> None:
            whole = kwargs.get("async_complete_streaming_response") or kwargs.get("complete_streaming_response")
            if kwargs.get("stream") and whole is None and error is None:
                return  # a piece of a stream; the whole comes at its end
            ident = str(kwargs.get("litellm_call_id"))
            if ident in self._seen:
                return  # LiteLLM tells an async call twice
            self._seen.add(ident)
            self.recording.end(kwargs, whole or response, start, end, error)

    return Recorder()


@contextmanager
def record(name: str = "recorded") -> Iterator[Recording]:
    """Record every LiteLLM call made inside the `with` block, of whichever framework, streams and tools included.

    Example:
        ``with ck.record("my-agent") as live: agent.run("...")``, then ``ck.plots.growth(live.session)``.
    """
    litellm = load_litellm()
    callback = recorder(name)
    litellm.callbacks.append(callback)
    try:
        yield callback.recording
    finally:
        callback.recording.settle()
        for known in (litellm.callbacks, litellm.success_callback, litellm.failure_callback, litellm.input_callback,
                      litellm._async_success_callback, litellm._async_failure_callback):  # noqa: SLF001  it copies its callbacks there, and has no public way back  # fmt: skip
            while callback in known:
                known.remove(callback)


def _opening(call: dict[str, Any]) -> bytes:
    """Return what tells a conversation from another: its first messages that no model wrote."""
    said = [m for m in call["request"]["messages"][:3] if m.get("role") != "assistant"][:2]
    return msgspec.json.encode(said, enc_hook=str)


def _plain(message: Any) -> dict[str, Any]:
    dump = getattr(message, "model_dump", None)
    return dump(exclude_none=True) if dump else dict(message)


def _answer(response: Any, error: str | None) -> dict[str, Any]:
    if error is not None:
        return {
            "choices": [{"message": {"role": "assistant", "content": None, "refusal": error}, "finish_reason": "error"}]
        }
    dump = getattr(response, "model_dump", None)
    return dump(exclude_none=True) if dump else dict(response or {})
