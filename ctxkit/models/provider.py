"""Any provider through LiteLLM: imported at the first call, kept from network and noise."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import warnings
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ModelError
from ctxkit.messages import Message  # noqa: TC001  a value in a public signature
from ctxkit.models import keys
from ctxkit.models.chat import (
    from_chat,
    thinks_unsigned,
    to_chat,
    to_tools,
    usage_of,
    with_cache_marks,
)
from ctxkit.models.gather import FULL, calls_of, ended, told_usage
from ctxkit.models.model import Delta, Emit, Request
from ctxkit.models.overflow import is_overflow, window_in
from ctxkit.models.provider_counts import provider_count
from ctxkit.models.raw import Raw, listen
from ctxkit.models.retries import Failure, Patience, asked_wait, failure_of
from ctxkit.models.retries import said as told
from ctxkit.prices import price
from ctxkit.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

_THINKING = ("thinking", "reasoning_effort")
"""Options that let a model of Anthropic's think."""
_EFFORT = 4096
"""Tokens of thinking that LiteLLM asks for at most where an effort is named (its `high`)."""
_MOST = 32_000
"""Tokens of a reply of a model that the table does not know."""
_ERROR = "finish_reason: error"
"""What LiteLLM says where a router ends a stream with the finish reason `error`."""
_RESPONSES = "openai/responses/"
"""LiteLLM's prefix for OpenAI's Responses API."""


def load_litellm() -> ModuleType:
    """Import LiteLLM without a request for its price map, without its debug lines."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a name with "llama-3" would wait for a hub
    tiktoken_folder = os.environ.get("TIKTOKEN_CACHE_DIR")
    try:
        import litellm
    except ModuleNotFoundError as e:
        if e.name != "litellm":
            raise
        raise ModelError(
            "Models of providers are asked through LiteLLM: pip install 'ctxkit[live]'."
        ) from None

    if tiktoken_folder is not None:
        os.environ["TIKTOKEN_CACHE_DIR"] = tiktoken_folder
    litellm.suppress_debug_info = True
    warnings.filterwarnings(
        "ignore", "Pydantic serializer warnings", UserWarning
    )  # of its own usage, at each reply
    return litellm  # type: ignore[no-any-return]


def anthropic_clearing(
    *,
    trigger: int = 100_000,
    keep: int = 3,
    clear_at_least: int | None = None,
    exclude: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return Anthropic's own clearing of tool results for `server_edits`, with its defaults."""
    edit: dict[str, Any] = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": trigger},
        "keep": {"type": "tool_uses", "value": keep},
    }
    if clear_at_least is not None:
        edit["clear_at_least"] = {"type": "input_tokens", "value": clear_at_least}
    if exclude:
        edit["exclude_tools"] = list(exclude)
    return {"edits": [edit]}


def openai_compaction(*, threshold: int) -> list[dict[str, Any]]:
    """Return OpenAI's server-side compaction at a number of tokens, for `server_edits`."""
    return [{"type": "compaction", "compact_threshold": threshold}]


class Provider:
    """A model behind LiteLLM's name for it (`anthropic/claude-sonnet-4-5`, `ollama_chat/qwen3:4b`,
    `openai/gpt-5`).

    Args:
        name: LiteLLM's model string.
        attempts: how often it is asked where it is full or fails; an overflow is never retried.
        pause: seconds before the first retry; see `Patience`.
        cache_marks: send prompt-cache marks where the provider wants them (Anthropic and its
            hosts).
        server_edits: the provider's own context management, from `anthropic_clearing` or
            `openai_compaction`.
        context_window: the limit; None: from the table of prices.
        silence: seconds without a word after which the provider is given up.
        patience: how long it is waited for, in place of `attempts` and `pause`.
        options: passed to LiteLLM as they are (`api_base`, `temperature`, `num_ctx`, ...).
    """

    notice = ""

    def __init__(
        self,
        name: str,
        *,
        attempts: int = 7,
        pause: float = 1.0,
        cache_marks: bool = True,
        server_edits: Any = None,
        context_window: int | None = None,
        silence: float = 300.0,
        pictures: bool | None = None,
        patience: Patience | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.context_window = context_window
        known = None if pictures is not None else price(name)
        self.pictures = known.pictures if known is not None else pictures
        self._patience = patience or Patience(attempts=attempts, pause=pause)
        self._marks = cache_marks
        self._server_edits, self._options, self._silence = (
            server_edits,
            dict(options or {}),
            silence,
        )

    def __repr__(self) -> str:
        return f"Provider({self.name!r})"

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Stream a reply.

        Raises:
            ModelError: no key, an overflow (`overflow=True`), or the provider's refusal, without
                any key in it.
        """
        keys.check(self.name, self._options)
        if "litellm" not in sys.modules:
            emit(Delta("wait", "LiteLLM is being imported, once a kernel: this takes some seconds"))
        litellm = await asyncio.to_thread(load_litellm)  # a limit of time holds meanwhile
        self._check_key(litellm)
        said: list[bool] = []

        def hear(delta: Delta) -> None:
            said.append(True)
            emit(delta)

        for attempt in range(self._patience.attempts):
            try:
                message = await self._ask(litellm, request, hear)
            except (asyncio.CancelledError, ModelError):
                raise
            except TimeoutError:
                raise ModelError(
                    f"{self.name} said nothing for {self._silence:g} s; it was given up."
                ) from None
            except Exception as e:  # noqa: BLE001  LiteLLM raises many kinds; all leave as one of ours
                failure, asked = failure_of(e), asked_wait(e)
                seconds = failure and self._patience.wait(failure, attempt, asked)
                if failure is None or seconds is None or said:
                    raise self._failed(e, failure, asked, again=bool(said)) from None
                why = told(self.name, failure, self._address)
                emit(Delta("wait", f"{why}; it is asked again in {seconds:.3g} s"))
                await self._patience.sleep(seconds)
                continue
            return message
        raise ModelError(f"{self.name}: no attempt was allowed; set attempts to 1 or more.")

    async def count(self, request: Request) -> int | None:
        """Return the tokens of a prompt as the provider counts them; None where it does not.

        Raises:
            ModelError: no key.
        """
        keys.check(self.name, self._options)
        litellm = load_litellm()
        self._check_key(litellm)
        return await provider_count(litellm, self.name, request, self._options)

    @property
    def _address(self) -> str | None:
        return self._options.get("api_base")

    def _failed(
        self, error: Exception, failure: Failure | None, asked: float | None, *, again: bool
    ) -> ModelError:
        """Return an error of LiteLLM's as one of ours, in a sentence."""
        text = redact(str(error).partition("\nTraceback")[0])[:1000]
        overflow = is_overflow(error)
        if _ERROR in text:
            return ModelError(
                f"{self.name} broke the reply off with an error of its own.", again=True
            )
        if failure is None:
            window = window_in(str(error)) if overflow else None
            return ModelError(f"{self.name}: {text}", overflow=overflow, window=window)
        why = told(self.name, failure, self._address)
        when = "later" if asked is None else f"in {asked:,.0f} s"
        return ModelError(f"{why}; ask again {when}. It said: {text}", again=again)

    def _check_key(self, litellm: ModuleType) -> None:
        if self._options.get("api_key") or self._options.get("api_base"):
            return
        if self.name.split("/")[0] in {p["provider"] for p in litellm.custom_provider_map or ()}:
            return
        missing = litellm.validate_environment(self.name).get("missing_keys") or []
        lacks = [
            name for name in missing if name.endswith("_API_KEY")
        ]  # addresses have defaults, clouds other ways
        if lacks:
            raise ModelError(keys.needed(self.name, lacks))

    @property
    def _claude(self) -> bool:
        return "claude" in self.name or "anthropic" in self.name

    def _room_to_think(self, litellm: ModuleType, options: Mapping[str, Any]) -> int:
        """Return `max_tokens` with thinking, which is part of it: the model's own limit where none
        was asked for.

        LiteLLM would leave 4,096 tokens for the answer, and cut a longer tool call in the middle.
        """
        thinking = options.get("thinking")
        budget = thinking.get("budget_tokens", 0) if isinstance(thinking, dict) else _EFFORT
        if options.get("max_tokens"):
            return max(int(options["max_tokens"]), budget + 1024)
        try:
            most = litellm.get_model_info(self.name).get("max_output_tokens")
        except Exception:  # noqa: BLE001  it raises plain exceptions for names it does not know
            most = None
        return max(int(most or _MOST), budget + 1024)

    async def _ask(self, litellm: ModuleType, request: Request, emit: Emit) -> Message:
        name, claude = self.name, self._claude
        messages = to_chat(request.messages, signed_by=name if claude else None, in_results=claude)
        if self._marks and claude:
            messages = with_cache_marks(messages)
        options = {
            **self._options,
            "stream": True,
            "stream_options": {"include_usage": True},
            "num_retries": 0,
        }
        if claude and thinks_unsigned(messages):
            options = {k: v for k, v in options.items() if k not in _THINKING}
        if request.tools:
            options |= {"tools": to_tools(request.tools), "_skip_mcp_handler": True}
        if request.max_output_tokens:
            options["max_tokens"] = request.max_output_tokens
        if claude and any(k in options for k in _THINKING):
            options["max_tokens"] = self._room_to_think(litellm, options)
        if (
            self.name.startswith("openai/")
            and "api_base" in options
            and not os.environ.get("OPENAI_API_KEY")
        ):
            options.setdefault(
                "api_key", "none"
            )  # a server of one's own asks for none, its client insists on one
        if self._server_edits is not None:
            options |= {
                "context_management": self._server_edits,
                "allowed_openai_params": ["context_management"],
            }
            if name.startswith("openai/") and not name.startswith(_RESPONSES):
                name = _RESPONSES + name.removeprefix(
                    "openai/"
                )  # its Chat Completions know no such thing
        chunks, loop, started = [], asyncio.get_running_loop(), time.time()
        async with asyncio.timeout(self._silence) as waiting:
            stream = await litellm.acompletion(model=name, messages=messages, **options)
            raw = listen(stream)
            async for chunk in stream:
                waiting.reschedule(loop.time() + self._silence)
                chunks.append(chunk)
                _say(chunk, emit)
        ended = time.time()

        def built() -> Message:
            whole = litellm.stream_chunk_builder(chunks, messages=messages)
            return self._reply(whole, stream, chunks, raw)

        reply = await asyncio.to_thread(built)  # it takes a second for ten thousand chunks
        return replace(reply, time=ended, latency=max(ended - max(started, _sent(stream)), 0.0))

    def _reply(self, response: Any, stream: Any, chunks: list[Any], raw: Raw) -> Message:
        if response is None or not response.choices:
            raise ModelError(f"{self.name} gave an empty reply.", again=True)
        data = response.model_dump(warnings=False)
        choice, calls = data["choices"][0], calls_of(chunks)
        ended(self.name, stream, data, calls, finished=raw.finish, word=raw.word)
        known = told_usage(stream, chunks) and raw.usage is not False
        usage = usage_of(data.get("usage")) if known else None
        if (
            usage is not None and self._claude
        ):  # Anthropic tells none: what stands there LiteLLM counted
            usage = replace(usage, reasoning_tokens=None)
        message = {**choice["message"], "tool_calls": calls}
        stop = "length" if raw.word in FULL else choice.get("finish_reason")
        return from_chat(message, stop=stop, usage=usage, model=self.name)


def _say(chunk: Any, emit: Emit) -> None:
    if not chunk.choices:
        return
    delta = chunk.choices[0].delta
    if thought := getattr(delta, "reasoning_content", None):
        emit(Delta("thinking", thought))
    if delta.content:
        emit(Delta("text", delta.content))
    for call in delta.tool_calls or ():
        if call.function and call.function.name:
            emit(Delta("tool_call", call.function.name))
        if call.function and isinstance(call.function.arguments, str) and call.function.arguments:
            emit(Delta("arguments", call.function.arguments))


def _sent(stream: Any) -> float:
    """Return when LiteLLM sent a call, in seconds since 1970; 0 where it does not say.

    What it did before is not the model's: its first call of a kernel imports for a second or more.
    """
    details = getattr(getattr(stream, "logging_obj", None), "model_call_details", None)
    began = details.get("api_call_start_time") if isinstance(details, dict) else None
    return began.timestamp() if isinstance(began, datetime) else 0.0
