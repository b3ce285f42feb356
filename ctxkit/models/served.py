"""The window that a server of one's own gives a model: asked for where no table can know it."""

from __future__ import annotations

import ipaddress
import json
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

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


def served_window(api_base: str, model: str) -> int | None:
    """Return the window in tokens that a server tells for a model, or None.

    llama.cpp says what it allocated at `/props`; others say it in the list at `/v1/models`. Only
    servers of this machine and of private networks are asked, without a key, for at most two
    seconds each; one that does not answer says nothing.

    Args:
        api_base: the address, as LiteLLM takes it (`http://127.0.0.1:8080/v1`).
        model: the model's name at the server.
    """
    if not _private(api_base):
        return None
    base = api_base.rstrip("/")
    props = _json(f"{base.removesuffix('/v1')}/props")
    inner = props.get("default_generation_settings")
    found = _number((inner if isinstance(inner, dict) else {}).get("n_ctx"))
    return found or _listed(_json(f"{base}/models"), model)


def _listed(answer: dict[str, Any], model: str) -> int | None:
    rows = [row for row in answer.get("data") or () if isinstance(row, dict)]
    named = [row for row in rows if row.get("id") == model] or (rows if len(rows) == 1 else [])
    for row in named:
        meta = row.get("meta")
        for place in (row, meta if isinstance(meta, dict) else {}):
            for field in _FIELDS:
                if found := _number(place.get(field)):
                    return found
    return None


def _json(url: str) -> dict[str, Any]:
    try:
        import httpx
    except ModuleNotFoundError:  # it comes with ctxkit[live]
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


def _number(value: object) -> int | None:
    return value if type(value) is int and 256 <= value <= _MOST else None


def _private(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_private
    except ValueError:
        return False
