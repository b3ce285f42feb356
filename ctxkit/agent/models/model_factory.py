"""Models by name: scripted, local or a provider's, with options; windows of local servers."""

from __future__ import annotations

import ipaddress
import json
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ctxkit.agent.models.scripted_and_lookup_models import (
    SCRIPTS,
    PromptLookupModel,
    ScriptedModel,
    get_script,
    split_replies_by_turn,
)
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.models.model import Model
    from ctxkit.tokens.token_counters import TokenCounter


DEFAULT_MODEL = "scripted/tour"
LOOKUP_NAME = "ports"
"""Name of the lookup model, which answers from its prompt
(`agent.models.scripted_and_lookup_models`).
"""
SCRIPT_WINDOW = 16_000
"""Window of the shipped scripts in tokens; the long script is compacted several times in it."""


def make_model(
    name: str,
    *,
    counter: TokenCounter,
    clock: Callable[[], float],
    scripts: dict[str, Any] | None = None,
    **options: Any,
) -> Model:
    """Return a model by its name.

    Args:
        name: `scripted` or `scripted/NAME`; `local` or `local/PATH`; else LiteLLM's name of a
            provider's model, with options after a question mark:
            `ollama_chat/qwen3:4b?num_ctx=8192&temperature=0`.
        counter: counts tokens for a scripted model.
        clock: returns seconds since 1970.
        scripts: the user's sessions by name, whose replies `scripted/NAME` replays.
        options: options of the provider (`api_base`, `temperature`, `server_edits`,
            `context_window`, ...).

    Returns:
        The model: `await model(request, emit)` gives the reply with its usage. A provider's model
        opens no connection before its first call.

    Raises:
        BadArguments: the name is empty, has a key in it, or names no script.
        ModelError: there is no local model.

    Example:
        >>> from ctxkit.agent import make_model
        >>> from ctxkit.tokens import default_counter
        >>> make_model("scripted/tour", counter=default_counter(), clock=lambda: 0.0).name
        'scripted/tour'
    """
    kind, _, rest = name.strip().partition("/")
    if not kind:
        raise BadArguments(
            "Name a model, for instance scripted/tour or anthropic/claude-sonnet-4-5."
        )
    if kind == "scripted":
        return _make_scripted(rest or "tour", counter, clock, scripts or {})
    if kind == "local":
        from ctxkit.agent.models.gguf import LocalModel

        return LocalModel(rest or None, **options)
    name, _, query = name.strip().partition("?")
    return _make_provider(name, {**_parse_options(query), **options})


def _parse_options(query: str) -> dict[str, Any]:
    """Return the options after a model's name; JSON values are decoded."""
    out: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if "key" in key.lower() or key.lower() == "token":
            raise BadArguments(
                "A key does not belong in a model's name: set the provider's environment variable."
            )
        try:
            out[key] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            out[key] = value
    return out


def _make_scripted(
    name: str, counter: TokenCounter, clock: Callable[[], float], user_scripts: dict[str, Any]
) -> ScriptedModel:
    if name in user_scripts:
        turns, window = split_replies_by_turn(user_scripts[name].messages), None
    elif name in SCRIPTS:
        turns, window = get_script(name).turns, SCRIPT_WINDOW
    elif name == LOOKUP_NAME:
        return PromptLookupModel(
            name=name, counter=counter, context_window=SCRIPT_WINDOW, clock=clock
        )
    else:
        names = [*SCRIPTS, LOOKUP_NAME, *user_scripts]
        raise BadArguments(
            f"There is no script {name!r}; there are {', '.join(names)}.{did_you_mean(name, names)}"
        )
    return ScriptedModel(turns, name=name, counter=counter, clock=clock, context_window=window)


def _make_provider(name: str, options: dict[str, Any]) -> Model:
    from ctxkit.agent.models.litellm_provider import ProviderModel
    from ctxkit.tokens.prices import context_limit

    names = ("attempts", "cache_marks", "server_edits", "context_window", "silence", "pictures")
    provider_options = {k: options.pop(k) for k in names if k in options}
    if "context_window" not in provider_options:
        # What Ollama allocates is the limit, else what a local server reports, else the table.
        window, base = options.get("num_ctx"), options.get("api_base")
        if not window and base:
            window = fetch_context_window(str(base), name.partition("/")[2])
        provider_options["context_window"] = window or context_limit(name)
    return ProviderModel(name, options=options, **provider_options)


_WINDOW_FIELDS = (
    "max_model_len",
    "loaded_context_length",
    "context_length",
    "max_context_length",
    "n_ctx",
)
"""Fields of `/v1/models` with the window: vLLM and SGLang, LM Studio (two), routers, llama.cpp."""
_REQUEST_SECONDS = 2.0
_MAX_ANSWER_BYTES = 1_000_000
"""Bytes of an answer; a longer one is ignored."""
_MAX_WINDOW = 10_000_000


def fetch_context_window(api_base: str, model: str) -> int | None:
    """Return the window in tokens that a server reports for a model, or None.

    llama.cpp reports what it allocated at `/props`, others in the list at `/v1/models`. Only
    servers on this machine and on private networks are asked, without a key, for at most two
    seconds each.

    Args:
        api_base: the address as LiteLLM takes it (`http://127.0.0.1:8080/v1`).
        model: the model's name at the server.
    """
    if not _is_private(api_base):
        return None
    base = api_base.rstrip("/")
    props = _fetch_json(f"{base.removesuffix('/v1')}/props")
    inner = props.get("default_generation_settings")
    window = _as_window((inner if isinstance(inner, dict) else {}).get("n_ctx"))
    return window or _window_in_list(_fetch_json(f"{base}/models"), model)


def _window_in_list(answer: dict[str, Any], model: str) -> int | None:
    rows = [row for row in answer.get("data") or () if isinstance(row, dict)]
    candidates = [row for row in rows if row.get("id") == model] or (rows if len(rows) == 1 else [])
    for row in candidates:
        meta = row.get("meta")
        for place in (row, meta if isinstance(meta, dict) else {}):
            for field in _WINDOW_FIELDS:
                if window := _as_window(place.get(field)):
                    return window
    return None


def _fetch_json(url: str) -> dict[str, Any]:
    try:
        import httpx
    except ModuleNotFoundError:  # it comes with jupyter-ctxkit[live]
        return {}
    data, end = bytearray(), monotonic() + _REQUEST_SECONDS
    plain = {"Accept-Encoding": "identity"}  # a compressed answer could be a decompression bomb
    try:
        with (
            httpx.Client(
                follow_redirects=False, trust_env=False, timeout=_REQUEST_SECONDS
            ) as client,
            client.stream("GET", url, headers=plain) as answer,
        ):
            if answer.status_code != 200:
                return {}
            for piece in answer.iter_raw():
                data += piece
                if len(data) > _MAX_ANSWER_BYTES or monotonic() > end:
                    return {}
        value = json.loads(data)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _as_window(value: object) -> int | None:
    return value if type(value) is int and 256 <= value <= _MAX_WINDOW else None


def _is_private(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_private
    except ValueError:
        return False
