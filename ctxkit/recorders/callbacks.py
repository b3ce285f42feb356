"""The door to a recording: a context manager for any agent, a callback for LiteLLM alone."""

from __future__ import annotations

import warnings
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ctxkit.models.provider import load_litellm
from ctxkit.recorders.arrivals import arriving
from ctxkit.recorders.recording import Recording
from ctxkit.recorders.taps import Exchange, Tap, tapped
from ctxkit.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING = (
    "Recording {name!r} saw no call. It sees LiteLLM, and SDKs that send through httpx to an API "
    "of OpenAI's, Anthropic's, Gemini's or Ollama's kind; not an engine of another kind (DSPy 3.4 "
    "has one), and not other processes."
)
_asking: ContextVar[str | None] = ContextVar("ctxkit_asking", default=None)
"""LiteLLM's id of the call that it is about to send."""


def recorder(name: str = "recorded") -> Any:
    """Return a callback for `litellm.callbacks` whose `recording` holds the session."""
    load_litellm()
    return _callback(Recording(name))


def _callback(recording: Recording) -> Any:
    from litellm.integrations.custom_logger import CustomLogger

    class Recorder(CustomLogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.recording = recording
            self._seen: set[str] = set()

        def log_pre_api_call(self, model: str, messages: Any, kwargs: dict[str, Any]) -> None:  # noqa: ARG002
            ident = str(kwargs.get("litellm_call_id"))
            _asking.set(ident)
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
            self._note(kwargs, response_obj, start_time, end_time, _error(kwargs))

        async def async_log_failure_event(
            self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
        ) -> None:
            self._note(kwargs, response_obj, start_time, end_time, _error(kwargs))

        def _note(
            self, kwargs: dict[str, Any], response: Any, start: Any, end: Any, error: str | None
        ) -> None:
            whole = kwargs.get("async_complete_streaming_response") or kwargs.get(
                "complete_streaming_response"
            )
            if kwargs.get("stream") and whole is None and error is None:
                return  # a piece of a stream; the whole comes at its end
            ident = str(kwargs.get("litellm_call_id"))
            if ident in self._seen:
                return  # LiteLLM tells an async call twice
            self._seen.add(ident)
            times = start.timestamp(), end.timestamp()
            self.recording.end(ident, kwargs, whole or response, times, error)

    return Recorder()


@contextmanager
def record(name: str = "recorded") -> Iterator[Recording]:
    """Record every call of a model made inside the `with` block, of whichever framework, streams
    and tools included.

    Seen are LiteLLM and what sends through `httpx` or `httpx2` to an API of the kind of OpenAI's,
    Anthropic's, Gemini's or Ollama's: their SDKs, pydantic-ai, langchain-openai, OpenAI Agents.
    LiteLLM is imported by whoever uses it, not here. A recording of nothing warns.

    Example:
        ``with ck.record("my-agent") as live: agent.run("...")``, then
        ``ck.plots.growth(live.session)``.
    """
    recording, undo = Recording(name), ExitStack()

    def hear_litellm(litellm: Any) -> None:
        callback = _callback(recording)
        litellm.callbacks.append(callback)
        recording.of_litellm = True
        undo.callback(_forget, litellm, callback)

    def over(heard: Exchange) -> None:
        recording.hear(heard, asked.pop(id(heard), None))

    asked: dict[int, str | None] = {}
    tap = Tap(
        lambda heard: asked.update({id(heard): _asking.get() if heard.litellm else None}), over
    )
    try:
        with tapped(tap), arriving("litellm", hear_litellm):
            try:
                yield recording
            finally:
                recording.settle(len(tap.open))
                tap.finish()
    finally:
        recording.close()
        undo.close()
    if recording.empty:
        warnings.warn(NOTHING.format(name=name), stacklevel=3)


def _forget(litellm: Any, callback: Any) -> None:
    """Take a callback out of LiteLLM: it copies its callbacks, and has no public way back."""
    lists = [litellm.callbacks, litellm.success_callback, litellm.failure_callback]
    lists += [litellm.input_callback, litellm._async_success_callback]  # noqa: SLF001
    for known in (*lists, litellm._async_failure_callback):  # noqa: SLF001
        while callback in known:
            known.remove(callback)


def _error(kwargs: dict[str, Any]) -> str:
    return redact(str(kwargs.get("exception")))[:1000]
