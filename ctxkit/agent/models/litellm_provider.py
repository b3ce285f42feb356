"""Models of providers through LiteLLM: keys, calls, server-side context edits, token counting."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import warnings
from contextlib import asynccontextmanager, contextmanager, suppress
from copy import deepcopy
from datetime import datetime
from importlib import util
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit._internal.redaction import redact
from ctxkit.agent.models.model import Delta, Emit, Request
from ctxkit.agent.models.provider_streams_and_retries import (
    CONTEXT_FULL_REASONS,
    RetryableFailureKind,
    RetryPolicy,
    StreamFinishAndUsageFlags,
    assemble_tool_calls,
    check_reply_complete,
    classify_retryable_failure,
    describe_failure,
    has_reported_usage,
    parse_retry_after,
    watch_stream,
)
from ctxkit.errors import ModelError
from ctxkit.formats.chat_completions_conversion import (
    add_cache_marks,
    from_chat_message,
    has_calls_without_signed_thinking,
    parse_chat_usage,
    to_chat_messages,
)
from ctxkit.formats.chat_message_and_usage_parsers import encode_tool_schemas
from ctxkit.session.messages import Message  # noqa: TC001  a value in a public signature
from ctxkit.session.overflow_errors import is_overflow, parse_window
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType


_THINKING_OPTIONS = ("thinking", "reasoning_effort")
"""Options that switch on thinking for models of Anthropic."""
_EFFORT_TOKENS = 4096
"""Tokens of thinking that LiteLLM requests for the highest named effort (`high`)."""
_DEFAULT_MAX_TOKENS = 32_000
"""Reply tokens of a model that is not in LiteLLM's table."""
_ROUTER_ERROR = "finish_reason: error"
"""LiteLLM's message if a router ends a stream with the finish reason `error`."""
_RESPONSES_PREFIX = "openai/responses/"
"""LiteLLM's prefix for OpenAI's Responses API."""


def load_litellm() -> ModuleType:
    """Import LiteLLM without a request for its price map and without its debug output.

    The import takes seconds the first time, so it is done where a provider is called.

    Returns:
        The module `litellm`.

    Raises:
        ModelError: LiteLLM is not installed.

    Example:
        >>> from ctxkit.agent import load_litellm
        >>> load_litellm().suppress_debug_info  # doctest: +SKIP
        True
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
    # A name with "llama-3" would wait for Hugging Face.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
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
    # LiteLLM's own models raise it at each reply.
    warnings.filterwarnings("ignore", "Pydantic serializer warnings", UserWarning)
    return litellm  # type: ignore[no-any-return]


def anthropic_clearing(
    *,
    trigger: int = 100_000,
    keep: int = 3,
    clear_at_least: int | None = None,
    exclude: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return Anthropic's server-side clearing of tool results, for `server_edits`.

    Args:
        trigger: input tokens from which results are cleared.
        keep: newest tool uses that keep their results.
        clear_at_least: tokens that a clearing must remove; None: any number.
        exclude: names of tools whose results stay.

    Returns:
        The value of Anthropic's request field `context_management`.

    Example:
        >>> from ctxkit.agent.models.litellm_provider import anthropic_clearing
        >>> anthropic_clearing(trigger=50_000)["edits"][0]["trigger"]
        {'type': 'input_tokens', 'value': 50000}
    """
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
    """Return OpenAI's server-side compaction, for `server_edits`.

    Args:
        threshold: tokens from which the server compacts.

    Returns:
        The value of the Responses API's request field `context_management`.

    Example:
        >>> from ctxkit.agent.models.litellm_provider import openai_compaction
        >>> openai_compaction(threshold=50_000)
        [{'type': 'compaction', 'compact_threshold': 50000}]
    """
    return [{"type": "compaction", "compact_threshold": threshold}]


# A provider call
#
# Attempts are repeated only while nothing was streamed: after the first piece a repeat would show
# the beginning twice, so the error is raised with `again=True`, and the live loop decides. A call
# without any piece for `silence` seconds fails; every piece restarts that timer. Chunks are
# collected and assembled at the end, in a thread, as ten thousand of them take a second. Errors
# become one sentence, redacted and bounded.


class ProviderModel:
    """A provider's model, by LiteLLM's name for it.

    Names are such as `anthropic/claude-sonnet-4-5`, `ollama_chat/qwen3:4b`, `openai/gpt-5`.

    Args:
        name: LiteLLM's model string.
        attempts: calls in total if the server is busy or fails; an overflow is never retried.
        pause: seconds before the first retry; see `RetryPolicy`.
        cache_marks: send prompt-cache marks to providers that need them (Anthropic and its hosts).
        server_edits: the provider's own context management, from `anthropic_clearing` or
            `openai_compaction`.
        context_window: tokens that a prompt may have; None: not known.
        silence: seconds without any piece after which the call fails.
        pictures: whether the model takes images; None: from the table of prices.
        patience: retry policy, instead of `attempts` and `pause`.
        options: passed to LiteLLM unchanged (`api_base`, `temperature`, `num_ctx`, ...).

    Example:
        >>> from ctxkit.agent.models.litellm_provider import ProviderModel
        >>> ProviderModel("openai/gpt-5", context_window=400_000)
        ProviderModel('openai/gpt-5')
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
        listed = None if pictures is not None else price(name)
        self.pictures = listed.pictures if listed is not None else pictures
        self._retry_policy = patience or RetryPolicy(attempts=attempts, pause=pause)
        self._cache_marks = cache_marks
        self._server_edits = server_edits
        self._options = dict(options or {})
        self._silence = silence

    def __repr__(self) -> str:
        return f"ProviderModel({self.name!r})"

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Stream a reply.

        Raises:
            ModelError: there is no key, the prompt does not fit (`overflow=True`), or the provider
                refused; the message has no key in it.
        """
        check_api_key(self.name, self._options)
        if "litellm" not in sys.modules:
            emit(Delta("wait", "LiteLLM is being imported, once a kernel: this takes some seconds"))
        # In a thread, so that a time limit can fire.
        litellm = await asyncio.to_thread(load_litellm)
        self._check_key(litellm)
        has_output: list[bool] = []

        def emit_and_note(delta: Delta) -> None:
            has_output.append(True)
            emit(delta)

        for attempt in range(self._retry_policy.attempts):
            try:
                message = await self._stream_reply(litellm, request, emit_and_note)
            except (asyncio.CancelledError, ModelError):
                raise
            except TimeoutError:
                raise ModelError(
                    f"{self.name} said nothing for {self._silence:g} s; it was given up."
                ) from None
            except Exception as e:  # noqa: BLE001  LiteLLM raises many kinds; all become `ModelError`
                failure, retry_after = classify_retryable_failure(e), parse_retry_after(e)
                seconds = failure and self._retry_policy.wait(failure, attempt, retry_after)
                if failure is None or seconds is None or has_output:
                    raise self._to_model_error(
                        e, failure, retry_after, again=bool(has_output)
                    ) from None
                why = describe_failure(self.name, failure, self._address)
                emit(Delta("wait", f"{why}; it is asked again in {seconds:.3g} s"))
                await self._retry_policy.sleep(seconds)
                continue
            return message
        raise ModelError(f"{self.name}: no attempt was allowed; set attempts to 1 or more.")

    async def count(self, request: Request) -> int | None:
        """Return the tokens of a prompt as the provider counts them, or None if it does not.

        Raises:
            ModelError: there is no key.
        """
        check_api_key(self.name, self._options)
        litellm = load_litellm()
        self._check_key(litellm)
        return await count_provider_tokens(litellm, self.name, request, self._options)

    @property
    def _address(self) -> str | None:
        return self._options.get("api_base")

    def _to_model_error(
        self,
        error: Exception,
        failure: RetryableFailureKind | None,
        retry_after: float | None,
        *,
        again: bool,
    ) -> ModelError:
        """Return an error of LiteLLM's as a `ModelError` with one sentence."""
        text = redact(str(error).partition("\nTraceback")[0])[:1000]
        overflow = is_overflow(error)
        if _ROUTER_ERROR in text:
            return ModelError(
                f"{self.name} broke the reply off with an error of its own.", again=True
            )
        if failure is None:
            window = parse_window(str(error)) if overflow else None
            return ModelError(f"{self.name}: {text}", overflow=overflow, window=window)
        why = describe_failure(self.name, failure, self._address)
        when = "later" if retry_after is None else f"in {retry_after:,.0f} s"
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
    def _is_claude(self) -> bool:
        return "claude" in self.name or "anthropic" in self.name

    def _max_tokens_with_thinking(self, litellm: ModuleType, options: Mapping[str, Any]) -> int:
        """Return `max_tokens` such that it leaves room for the answer beside the thinking.

        Thinking counts towards it. Without an option it is the model's own limit: LiteLLM would
        leave 4,096 tokens for the answer, and cut a longer tool call in the middle.
        """
        thinking = options.get("thinking")
        budget = thinking.get("budget_tokens", 0) if isinstance(thinking, dict) else _EFFORT_TOKENS
        if options.get("max_tokens"):
            return max(int(options["max_tokens"]), budget + 1024)
        try:
            model_limit = litellm.get_model_info(self.name).get("max_output_tokens")
        except Exception:  # noqa: BLE001  it raises plain exceptions for names it does not know
            model_limit = None
        return max(int(model_limit or _DEFAULT_MAX_TOKENS), budget + 1024)

    async def _stream_reply(self, litellm: ModuleType, request: Request, emit: Emit) -> Message:
        name, is_claude = self.name, self._is_claude
        messages = to_chat_messages(
            request.messages, signed_by=name if is_claude else None, in_results=is_claude
        )
        if self._cache_marks and is_claude:
            messages = add_cache_marks(messages)
        options = {
            **self._options,
            "stream": True,
            "stream_options": {"include_usage": True},
            "num_retries": 0,
        }
        if is_claude and has_calls_without_signed_thinking(messages):
            options = {k: v for k, v in options.items() if k not in _THINKING_OPTIONS}
        if request.tools:
            options |= {"tools": encode_tool_schemas(request.tools), "_skip_mcp_handler": True}
        if request.max_output_tokens:
            options["max_tokens"] = request.max_output_tokens
        if is_claude and any(k in options for k in _THINKING_OPTIONS):
            options["max_tokens"] = self._max_tokens_with_thinking(litellm, options)
        if (
            self.name.startswith("openai/")
            and "api_base" in options
            and not os.environ.get("OPENAI_API_KEY")
        ):
            # The client insists on a key, also for a local server that needs none.
            options.setdefault("api_key", "none")
        if self._server_edits is not None:
            options |= {
                "context_management": self._server_edits,
                "allowed_openai_params": ["context_management"],
            }
            if name.startswith("openai/") and not name.startswith(_RESPONSES_PREFIX):
                # OpenAI's Chat Completions API has no context management.
                name = _RESPONSES_PREFIX + name.removeprefix("openai/")
        chunks, loop, started = [], asyncio.get_running_loop(), time.time()
        async with asyncio.timeout(self._silence) as silence_timer:
            stream = await litellm.acompletion(model=name, messages=messages, **options)
            notes = watch_stream(stream)
            async for chunk in stream:
                silence_timer.reschedule(loop.time() + self._silence)
                chunks.append(chunk)
                _emit_chunk(chunk, emit)
        ended = time.time()

        def build_reply() -> Message:
            whole = litellm.stream_chunk_builder(chunks, messages=messages)
            return self._parse_reply(whole, stream, chunks, notes)

        reply = await asyncio.to_thread(build_reply)  # it takes a second for ten thousand chunks
        return replace(
            reply, time=ended, latency=max(ended - max(started, _request_time(stream)), 0.0)
        )

    def _parse_reply(
        self, response: Any, stream: Any, chunks: list[Any], notes: StreamFinishAndUsageFlags
    ) -> Message:
        if response is None or not response.choices:
            raise ModelError(f"{self.name} gave an empty reply.", again=True)
        data = response.model_dump(warnings=False)
        choice, calls = data["choices"][0], assemble_tool_calls(chunks)
        check_reply_complete(
            self.name, stream, data, calls, finished=notes.finish, finish_word=notes.word
        )
        has_usage = has_reported_usage(stream, chunks) and notes.usage is not False
        usage = parse_chat_usage(data.get("usage")) if has_usage else None
        # Anthropic does not report reasoning tokens: LiteLLM counted them itself.
        if usage is not None and self._is_claude:
            usage = replace(usage, reasoning_tokens=None)
        message = {**choice["message"], "tool_calls": calls}
        stop = "length" if notes.word in CONTEXT_FULL_REASONS else choice.get("finish_reason")
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
    """Return when LiteLLM sent the request, in seconds since 1970; 0 if it does not say.

    The time before that is not the model's: LiteLLM's first call imports for a second or more.
    """
    details = getattr(getattr(stream, "logging_obj", None), "model_call_details", None)
    began = details.get("api_call_start_time") if isinstance(details, dict) else None
    return began.timestamp() if isinstance(began, datetime) else 0.0


COUNT_SECONDS = 20.0
_LOCAL_TOKENIZER = "local_tokenizer"


# Anthropic, OpenAI, Gemini and their hosts have an endpoint that counts tokens. LiteLLM calls it,
# and says if it had to count by itself; such a count is not used.
async def count_provider_tokens(
    litellm: ModuleType, name: str, request: Request, options: dict[str, Any]
) -> int | None:
    """Return the tokens of a prompt as its provider counts them, or None if it does not.

    Args:
        litellm: the module.
        name: LiteLLM's name of the model.
        request: the prompt.
        options: options of the model, of which `api_base` and `api_key` are used.
    """
    chat = to_chat_messages(request.messages)
    prompt: dict[str, Any] = {"messages": chat, "tools": encode_tool_schemas(request.tools) or None}
    if "claude" in name or name.startswith("anthropic/"):
        prompt = _to_anthropic(chat, request, name)
    connection = {k: options[k] for k in ("api_base", "api_key") if options.get(k)}
    # LiteLLM logs a server without this endpoint as an error.
    log = logging.getLogger("LiteLLM")
    was_disabled, log.disabled = log.disabled, True
    try:
        async with asyncio.timeout(COUNT_SECONDS), _separate_clients(litellm):
            result = await litellm.acount_tokens(model=name, **prompt, **connection)
    except Exception:  # noqa: BLE001  LiteLLM raises many kinds; without its count there is ours
        return None
    finally:
        log.disabled = was_disabled
    counted = result.tokenizer_type != _LOCAL_TOKENIZER and not result.error
    return int(result.total_tokens) if counted and result.total_tokens > 0 else None


@asynccontextmanager
async def _separate_clients(litellm: ModuleType) -> AsyncIterator[None]:
    """Set this loop's HTTP clients aside, and close those that are made meanwhile.

    LiteLLM caches them by the address of the loop, which may be that of an earlier loop, and leaves
    them open. Clients of other loops may be at work in the background: they stay.
    """
    cached = getattr(getattr(litellm, "in_memory_llm_clients_cache", None), "cache_dict", {})
    suffix = f"-{id(asyncio.get_running_loop())}"

    def take() -> dict[str, Any]:
        return {key: cached.pop(key) for key in list(cached) if str(key).endswith(suffix)}

    earlier = take()
    try:
        yield
    finally:
        new_clients = take()
        cached.update(earlier)
        for client in new_clients.values():
            with suppress(Exception):
                await client.close()


def _to_anthropic(chat: list[dict[str, Any]], request: Request, name: str) -> dict[str, Any]:
    """Return a prompt in Anthropic's format, the only one that LiteLLM counts for it."""
    from litellm.litellm_core_utils.prompt_templates.factory import anthropic_messages_pt

    system = "\n\n".join(m["content"] for m in chat if m["role"] == "system")
    spoken_messages = [m for m in chat if m["role"] != "system"]
    tools = [
        {"name": t.name, "description": t.description, "input_schema": deepcopy(t.parameters)}
        for t in request.tools
    ]
    messages = anthropic_messages_pt(spoken_messages, model=name, llm_provider="anthropic")
    return {"messages": messages, "system": system or None, "tools": tools or None}


_KEY_VARIABLES = {
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
"""Variables of which a provider needs one, as in `litellm.validate_environment`."""
_OTHER_KEY_VARIABLES = {
    "anthropic": ("ANTHROPIC_AUTH_TOKEN",),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
}
"""Other variables that providers accept; error messages do not name them."""


def list_set_key_variables() -> list[str]:
    """Return the key variables of known providers that are set; values are not read."""
    every = [
        key
        for table in (_KEY_VARIABLES, _OTHER_KEY_VARIABLES)
        for keys in table.values()
        for key in keys
    ]
    return sorted(key for key in every if os.environ.get(key))


def check_api_key(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a model whose provider has no key, as far as that is known without importing LiteLLM.

    It lets pass: providers that are not in the table, a given address or key, an imported LiteLLM
    (it may have been given a key), and a `.env` file that LiteLLM would read.

    Args:
        name: LiteLLM's model string.
        options: options of the call.

    Raises:
        ModelError: there is no key; the sentence names the variable to set.
    """
    if options.get("api_key") or options.get("api_base") or "litellm" in sys.modules:
        return
    provider = _provider_name(name)
    keys = _KEY_VARIABLES.get(provider, ())
    if any(k in os.environ for k in (*keys, *_OTHER_KEY_VARIABLES.get(provider, ()))):
        return
    if keys and not _has_env_file():
        raise ModelError(missing_key_message(name, keys))


def missing_key_message(name: str, keys: Iterable[str]) -> str:
    """Return the error message for a missing key.

    Args:
        name: name of the model.
        keys: environment variables of which one is enough.
    """
    return f"{name} needs a key: set the environment variable {' or '.join(keys)}."


def _provider_name(name: str) -> str:
    head, slash, _ = name.partition("/")
    if slash:
        return head
    from ctxkit.tokens.prices import price

    listed = price(name)
    return (listed.provider if listed else None) or ""


def _has_env_file() -> bool:
    """Return whether LiteLLM would find a `.env` file to read keys from.

    It looks above the working folder, and above its own.
    """
    spec = util.find_spec("litellm")
    starts = [Path.cwd(), *([Path(spec.origin).parent] if spec and spec.origin else [])]
    return any((folder / ".env").exists() for s in starts for folder in (s, *s.parents))


# Importing LiteLLM takes seconds, so it is imported where it is called, or hooked into once the
# program imports it.
@contextmanager
def on_import(name: str, callback: Callable[[ModuleType], None]) -> Iterator[None]:
    """Call a function with a module: now if it is imported, else once it is, inside the block.

    Args:
        name: full name of the module.
        callback: called once with the module.
    """
    imported = sys.modules.get(name)
    if imported is not None:
        callback(imported)
    finder = _ImportHook(name, callback)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


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
