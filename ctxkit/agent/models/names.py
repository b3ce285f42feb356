"""Make a model from its name and options, and ask local servers for its window."""

from __future__ import annotations

import ipaddress
import json
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ctxkit.agent.models.scripted import (
    SCRIPTS,
    LookupModel,
    ScriptedModel,
    get_script,
    split_replies,
)
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.models.model import Model
    from ctxkit.tokens import TokenCounter


DEFAULT_MODEL = "scripted/tour"
LOOKUP_NAME = "ports"
"""A scripted model without a script: it answers from what it is shown (`agent.models.scripted`)."""
SCRIPT_WINDOW = 16_000
"""Window of the shipped scripts, so small that the long one is compacted several times."""


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
        name: `scripted` or `scripted/NAME`; `local` or `local/PATH`; else LiteLLM's name for a
            provider's model, with options after a question mark where there are any:
            `ollama_chat/qwen3:4b?num_ctx=8192&temperature=0`.
        counter: counts for the scripted model.
        clock: seconds since 1970.
        scripts: sessions of the user's own by name, of which `scripted/NAME` replays the replies.
        options: passed to the provider (`api_base`, `temperature`, `server_edits`,
            `context_window`, ...).

    Raises:
        BadArguments: the name is empty, holds a key, or is of a script that does not exist.
        ModelError: there is no local model.
    """
    kind, _, rest = name.strip().partition("/")
    if not kind:
        raise BadArguments(
            "Name a model, for instance scripted/tour or anthropic/claude-sonnet-4-5."
        )
    if kind == "scripted":
        return _make_scripted(rest or "tour", counter, clock, scripts or {})
    if kind == "local":
        from ctxkit.agent.models.local import LocalModel

        return LocalModel(rest or None, **options)
    name, _, query = name.strip().partition("?")
    return _make_provider(name, {**_parse_options(query), **options})


def _parse_options(query: str) -> dict[str, Any]:
    """Return the options that stand after a model's name; numbers become numbers."""
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
    name: str, counter: TokenCounter, clock: Callable[[], float], own: dict[str, Any]
) -> ScriptedModel:
    if name in own:
        turns, window = split_replies(own[name].messages), None
    elif name in SCRIPTS:
        turns, window = get_script(name).turns, SCRIPT_WINDOW
    elif name == LOOKUP_NAME:
        return LookupModel(name=name, counter=counter, context_window=SCRIPT_WINDOW, clock=clock)
    else:
        known = [*SCRIPTS, LOOKUP_NAME, *own]
        raise BadArguments(
            f"There is no script {name!r}; there are {', '.join(known)}.{did_you_mean(name, known)}"
        )
    return ScriptedModel(turns, name=name, counter=counter, clock=clock, context_window=window)


def _server_window(name: str, options: dict[str, Any]) -> int | None:
    """Return the window that a server of the user's own tells, or None."""
    if not (base := options.get("api_base")):
        return None

    return fetch_window(str(base), name.partition("/")[2])


def _make_provider(name: str, options: dict[str, Any]) -> Model:
    from ctxkit.agent.models.provider import Provider
    from ctxkit.tokens.prices import context_limit

    names = ("attempts", "cache_marks", "server_edits", "context_window", "silence", "pictures")
    own = {k: options.pop(k) for k in names if k in options}
    if "context_window" not in own:  # what Ollama allocates is the limit
        own["context_window"] = (
            options.get("num_ctx") or _server_window(name, options) or context_limit(name)
        )
    return Provider(name, options=options, **own)


_FIELDS = (
    "max_model_len",
    "loaded_context_length",
    "context_length",
    "max_context_length",
    "n_ctx",
)
"""Where `/v1/models` says it: vLLM and SGLang, LM Studio (two), routers, llama.cpp."""
_SECONDS = 2.0
_BYTES = 1_000_000
"""Of an answer; a longer one is not read to its end."""
_MOST = 10_000_000


def fetch_window(api_base: str, model: str) -> int | None:
    """Return the window in tokens that a server tells for a model, or None.

    llama.cpp says what it allocated at `/props`; others say it in the list at `/v1/models`. Only
    servers of this machine and of private networks are asked, without a key, for at most two
    seconds each; one that does not answer says nothing.

    Args:
        api_base: the address, as LiteLLM takes it (`http://127.0.0.1:8080/v1`).
        model: the model's name at the server.
    """
    if not _is_private(api_base):
        return None
    base = api_base.rstrip("/")
    props = _fetch_json(f"{base.removesuffix('/v1')}/props")
    inner = props.get("default_generation_settings")
    found = _as_window((inner if isinstance(inner, dict) else {}).get("n_ctx"))
    return found or _window_in_list(_fetch_json(f"{base}/models"), model)


def _window_in_list(answer: dict[str, Any], model: str) -> int | None:
    rows = [row for row in answer.get("data") or () if isinstance(row, dict)]
    named = [row for row in rows if row.get("id") == model] or (rows if len(rows) == 1 else [])
    for row in named:
        meta = row.get("meta")
        for place in (row, meta if isinstance(meta, dict) else {}):
            for field in _FIELDS:
                if found := _as_window(place.get(field)):
                    return found
    return None


def _fetch_json(url: str) -> dict[str, Any]:
    try:
        import httpx
    except ModuleNotFoundError:  # it comes with jupyter-ctxkit[live]
        return {}
    data, end = bytearray(), monotonic() + _SECONDS
    plain = {"Accept-Encoding": "identity"}  # what is packed may be a bomb
    try:
        with (
            httpx.Client(follow_redirects=False, trust_env=False, timeout=_SECONDS) as client,
            client.stream("GET", url, headers=plain) as answer,
        ):
            if answer.status_code != 200:
                return {}
            for piece in answer.iter_raw():
                data += piece
                if len(data) > _BYTES or monotonic() > end:
                    return {}
        found = json.loads(data)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _as_window(value: object) -> int | None:
    return value if type(value) is int and 256 <= value <= _MOST else None


def _is_private(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_private
    except ValueError:
        return False
