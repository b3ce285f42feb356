"""Any provider's model through LiteLLM: keys, calls, server-side context management, token
counting.

Anthropic, OpenAI, Gemini and their hosts have an endpoint that counts; LiteLLM knows each, and
tells where it had to count by itself, which is no count of the provider's.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import warnings
from copy import deepcopy
from datetime import datetime
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit._internal.redaction import redact
from ctxkit.agent.models.model import Delta, Emit, Request
from ctxkit.agent.models.retries import (
    FailureKind,
    RetryPolicy,
    classify_failure,
    parse_retry_after,
)
from ctxkit.agent.models.retries import describe_failure as told
from ctxkit.agent.models.streaming import (
    CONTEXT_FULL_REASONS,
    StreamNotes,
    assemble_tool_calls,
    check_complete,
    has_reported_usage,
    watch_stream,
)
from ctxkit.errors import ModelError
from ctxkit.formats.chat_completions import (
    from_chat_message,
    has_unsigned_thinking,
    parse_chat_usage,
    to_chat_messages,
    with_cache_marks,
)
from ctxkit.formats.chat_messages import encode_tool_schemas
from ctxkit.session.messages import Message  # noqa: TC001  a value in a public signature
from ctxkit.session.overflow_errors import is_overflow, parse_window
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
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
            "Models of providers are asked through LiteLLM: pip install 'jupyter-ctxkit[live]'."
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
        patience: RetryPolicy | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.context_window = context_window
        known = None if pictures is not None else price(name)
        self.pictures = known.pictures if known is not None else pictures
        self._patience = patience or RetryPolicy(attempts=attempts, pause=pause)
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
        check_api_key(self.name, self._options)
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
                failure, asked = classify_failure(e), parse_retry_after(e)
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
        check_api_key(self.name, self._options)
        litellm = load_litellm()
        self._check_key(litellm)
        return await count_provider_tokens(litellm, self.name, request, self._options)

    @property
    def _address(self) -> str | None:
        return self._options.get("api_base")

    def _failed(
        self, error: Exception, failure: FailureKind | None, asked: float | None, *, again: bool
    ) -> ModelError:
        """Return an error of LiteLLM's as one of ours, in a sentence."""
        text = redact(str(error).partition("\nTraceback")[0])[:1000]
        overflow = is_overflow(error)
        if _ERROR in text:
            return ModelError(
                f"{self.name} broke the reply off with an error of its own.", again=True
            )
        if failure is None:
            window = parse_window(str(error)) if overflow else None
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
            raise ModelError(missing_key_message(self.name, lacks))

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
        messages = to_chat_messages(
            request.messages, signed_by=name if claude else None, in_results=claude
        )
        if self._marks and claude:
            messages = with_cache_marks(messages)
        options = {
            **self._options,
            "stream": True,
            "stream_options": {"include_usage": True},
            "num_retries": 0,
        }
        if claude and has_unsigned_thinking(messages):
            options = {k: v for k, v in options.items() if k not in _THINKING}
        if request.tools:
            options |= {"tools": encode_tool_schemas(request.tools), "_skip_mcp_handler": True}
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
            raw = watch_stream(stream)
            async for chunk in stream:
                waiting.reschedule(loop.time() + self._silence)
                chunks.append(chunk)
                _emit_chunk(chunk, emit)
        ended = time.time()

        def built() -> Message:
            whole = litellm.stream_chunk_builder(chunks, messages=messages)
            return self._reply(whole, stream, chunks, raw)

        reply = await asyncio.to_thread(built)  # it takes a second for ten thousand chunks
        return replace(
            reply, time=ended, latency=max(ended - max(started, _request_time(stream)), 0.0)
        )

    def _reply(self, response: Any, stream: Any, chunks: list[Any], raw: StreamNotes) -> Message:
        if response is None or not response.choices:
            raise ModelError(f"{self.name} gave an empty reply.", again=True)
        data = response.model_dump(warnings=False)
        choice, calls = data["choices"][0], assemble_tool_calls(chunks)
        check_complete(self.name, stream, data, calls, finished=raw.finish, word=raw.word)
        known = has_reported_usage(stream, chunks) and raw.usage is not False
        usage = parse_chat_usage(data.get("usage")) if known else None
        if (
            usage is not None and self._claude
        ):  # Anthropic tells none: what stands there LiteLLM counted
            usage = replace(usage, reasoning_tokens=None)
        message = {**choice["message"], "tool_calls": calls}
        stop = "length" if raw.word in CONTEXT_FULL_REASONS else choice.get("finish_reason")
        return from_chat_message(message, stop=stop, usage=usage, model=self.name)


def _emit_chunk(chunk: Any, emit: Emit) -> None:
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


def _request_time(stream: Any) -> float:
    """Return when LiteLLM sent a call, in seconds since 1970; 0 where it does not say.

    What it did before is not the model's: its first call of a kernel imports for a second or more.
    """
    details = getattr(getattr(stream, "logging_obj", None), "model_call_details", None)
    began = details.get("api_call_start_time") if isinstance(details, dict) else None
    return began.timestamp() if isinstance(began, datetime) else 0.0


COUNT_SECONDS = 20.0
_LOCAL = "local_tokenizer"


async def count_provider_tokens(
    litellm: ModuleType, name: str, request: Request, options: dict[str, Any]
) -> int | None:
    """Return the tokens of a prompt as its provider counts them; None where it does not.

    Args:
        litellm: the module.
        name: LiteLLM's name of the model.
        request: what would be sent.
        options: of which `api_base` and `api_key` are used.
    """
    chat = to_chat_messages(request.messages)
    asked: dict[str, Any] = {"messages": chat, "tools": encode_tool_schemas(request.tools) or None}
    if "claude" in name or name.startswith("anthropic/"):
        asked = _anthropic(chat, request, name)
    clients = getattr(litellm, "in_memory_llm_clients_cache", None)
    if clients is not None:
        clients.flush_cache()  # one of a loop that has ended may be found by the loop's address
    places = {k: options[k] for k in ("api_base", "api_key") if options.get(k)}
    try:
        async with asyncio.timeout(COUNT_SECONDS):
            told = await litellm.acount_tokens(model=name, **asked, **places)
    except Exception:  # noqa: BLE001  LiteLLM raises many kinds; without its count there is ours
        return None
    counted = told.tokenizer_type != _LOCAL and not told.error
    return int(told.total_tokens) if counted and told.total_tokens > 0 else None


def _anthropic(chat: list[dict[str, Any]], request: Request, name: str) -> dict[str, Any]:
    """Return a prompt in Anthropic's own shape: LiteLLM's counting takes no other one there."""
    from litellm.litellm_core_utils.prompt_templates.factory import anthropic_messages_pt

    system = "\n\n".join(m["content"] for m in chat if m["role"] == "system")
    said = [m for m in chat if m["role"] != "system"]
    tools = [
        {"name": t.name, "description": t.description, "input_schema": deepcopy(t.parameters)}
        for t in request.tools
    ]
    messages = anthropic_messages_pt(said, model=name, llm_provider="anthropic")
    return {"messages": messages, "system": system or None, "tools": tools or None}


_KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "cerebras": ("CEREBRAS_API_KEY",),
    "cohere": ("COHERE_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks_ai": ("FIREWORKS_AI_API_KEY",),
    "gemini": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "perplexity": ("PERPLEXITYAI_API_KEY",),
    "together_ai": ("TOGETHERAI_API_KEY",),
    "xai": ("XAI_API_KEY",),
}
"""Variables of which a provider needs one, as `litellm.validate_environment` has them."""
_OTHERS = {
    "anthropic": ("ANTHROPIC_AUTH_TOKEN",),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
}
"""Variables that do as well, and are not what a newcomer sets."""


def list_key_variables() -> list[str]:
    """Return the variables of known providers that are set; what they hold is not looked at."""
    every = [key for table in (_KEYS, _OTHERS) for keys in table.values() for key in keys]
    return sorted(key for key in every if os.environ.get(key))


def check_api_key(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a model whose provider has no key, as far as that can be said without LiteLLM.

    Nothing is said of providers that are not in the table, of an address or a key given by hand,
    where LiteLLM is imported already (it may have been told a key), and where a `.env` file lies
    that it would read.

    Args:
        name: LiteLLM's model string.
        options: what it is called with.

    Raises:
        ModelError: no key; the sentence names the variable to set.
    """
    if options.get("api_key") or options.get("api_base") or "litellm" in sys.modules:
        return
    provider = _provider(name)
    keys = _KEYS.get(provider, ())
    if any(k in os.environ for k in (*keys, *_OTHERS.get(provider, ()))):
        return
    if keys and not _has_env_file():
        raise ModelError(missing_key_message(name, keys))


def missing_key_message(name: str, keys: Iterable[str]) -> str:
    """Return the sentence that asks for a key."""
    return f"{name} needs a key: set the environment variable {' or '.join(keys)}."


def _provider(name: str) -> str:
    head, slash, _ = name.partition("/")
    if slash:
        return head
    from ctxkit.tokens.prices import price

    known = price(name)
    return (known.provider if known else None) or ""


def _has_env_file() -> bool:
    """Say whether LiteLLM would find a `.env` to read keys from.

    It looks above the working folder, or above itself.
    """
    spec = util.find_spec("litellm")
    starts = [Path.cwd(), *([Path(spec.origin).parent] if spec and spec.origin else [])]
    return any((folder / ".env").exists() for s in starts for folder in (s, *s.parents))
