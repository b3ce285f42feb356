"""What a provider's HTTP answer says, whole or as events: the reply as its API has it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from ctxkit.models.gather import calls_of
from ctxkit.recorders import natives

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kind = Literal["openai", "anthropic", "openai-responses", "gemini", "ollama"]
"""An API: by the name of its reader, or one that is put into the words of Chat Completions."""
_NATIVES = {"gemini": natives.gemini, "ollama": natives.ollama}
_ENDS: dict[str, tuple[Kind, str]] = {
    "/chat/completions": ("openai", "messages"),
    "/messages": ("anthropic", "messages"),
    "/responses": ("openai-responses", "input"),
    ":generateContent": ("gemini", "contents"),
    ":streamGenerateContent": ("gemini", "contents"),
    "/api/chat": ("ollama", "messages"),
}
_PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
_OVER = ("response.completed", "response.incomplete", "response.failed")


def kind_of(url: str, body: Any) -> Kind | None:
    """Return which API a request goes to; None where it is no conversation known here."""
    path = urlsplit(url).path.rstrip("/")
    for end, (kind, key) in _ENDS.items():
        said = body.get(key) if isinstance(body, dict) else None
        if path.endswith(end) and isinstance(said, (list, str)):
            return kind
    return None


def call_of(
    kind: Kind, url: str, body: dict[str, Any], data: bytes, *, status: int = 200, error: str = ""
) -> tuple[Kind, dict[str, Any], dict[str, Any]]:
    """Return a call as a reader takes it: of which API, what was asked, and what came back.

    Args:
        kind: the API.
        url: Gemini has the model's name there.
        body: what was sent.
        data: what came back, as far as it was read.
        status: of HTTP.
        error: why nothing came back.
    """
    if kind not in _NATIVES:
        return kind, body, failure(kind, error) if error else reply_of(kind, data, status)
    name = urlsplit(url).path.rpartition("/")[2].partition(":")[0]
    said = [] if error or status >= 400 else _objects(data)
    broken = next((_error(e) for e in said if e.get("error")), "")
    request, answer = _NATIVES[kind]({"model": name, **body}, said)
    if error or broken or status >= 400:
        why = error or broken or _error(next(iter(_objects(data)), None)) or f"HTTP {status}"
        answer = failure("openai", why)
    return "openai", request, answer


def _objects(data: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects of an answer: one, a list of them, one a line, or events."""
    try:
        whole = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return list(_events(data)) or list(_events(data, ""))
    return _dicts(whole if isinstance(whole, list) else [whole])


def reply_of(kind: Kind, data: bytes, status: int = 200) -> dict[str, Any]:
    """Return the response that bytes hold, as far as it goes where it is cut off."""
    try:
        whole = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = None
    if status >= 400:
        return failure(kind, _error(whole) or f"HTTP {status}")
    if isinstance(whole, dict):
        return whole
    found = list(_events(data))
    broken = next((e for e in found if e.get("error") or e.get("type") == "error"), None)
    if broken is not None and kind != "openai-responses":
        return failure(kind, _error(broken) or "the stream broke off")
    return {"openai": _chat, "anthropic": _blocks, "openai-responses": _response}[kind](found)


def failure(kind: Kind, why: str) -> dict[str, Any]:
    """Return a call that failed as a response of its API."""
    if kind == "openai":
        message = {"role": "assistant", "content": None, "refusal": why}
        return {"choices": [{"message": message, "finish_reason": "error"}]}
    if kind == "anthropic":
        said = [{"type": "text", "text": why}]
        return {"type": "message", "role": "assistant", "content": said, "stop_reason": "error"}
    content = [{"type": "output_text", "text": why}]
    return {
        "status": "failed",
        "output": [{"type": "message", "role": "assistant", "content": content}],
    }


def _error(body: Any) -> str:
    """Return the words of an error's body."""
    found = body.get("error", body) if isinstance(body, dict) else None
    said = found.get("message") if isinstance(found, dict) else found
    return str(said)[:1000] if said else ""


def _events(data: bytes, mark: str = "data:") -> Iterable[dict[str, Any]]:
    """Yield the JSON objects of server-sent events; a line that is cut, or none, is passed over."""
    for line in data.decode("utf-8", "replace").splitlines():
        if line.startswith(mark):
            try:
                event = json.loads(line[len(mark) :])
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


def _chat(events: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    said: dict[str, list[str]] = {"content": [], "reasoning_content": [], "refusal": []}
    stop = None
    for event in events:
        out |= {k: event[k] for k in ("id", "model", "created", "usage") if event.get(k)}
        for choice in _dicts(event.get("choices"))[:1]:
            stop = choice.get("finish_reason") or stop
            delta = choice.get("delta") or {}
            for key, pieces in said.items():
                if isinstance(delta.get(key), str):
                    pieces.append(delta[key])
    message: dict[str, Any] = {"role": "assistant", "content": None}
    message |= {key: "".join(pieces) for key, pieces in said.items() if pieces}
    calls = calls_of(_attributed(events))
    if calls:
        message["tool_calls"] = calls
    return {**out, "choices": [{"message": message, "finish_reason": stop}]}


def _attributed(events: list[dict[str, Any]]) -> list[Any]:
    """Return the pieces of a stream as LiteLLM has them: objects with attributes."""
    pieces = [{"choices": [c for c in _dicts(e.get("choices")) if c.get("delta")]} for e in events]
    hook = lambda d: SimpleNamespace(**d)  # noqa: E731
    return [json.loads(json.dumps(p), object_hook=hook) for p in pieces]


def _blocks(events: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "message", "role": "assistant", "stop_reason": None}
    usage: dict[str, Any] = {}
    blocks: dict[Any, dict[str, Any]] = {}
    for event in events:
        if event.get("type") == "message_start":
            out |= event.get("message") or {}
            usage |= out.get("usage") or {}
        elif event.get("type") == "content_block_start":
            blocks[event.get("index")] = dict(event.get("content_block") or {})
        elif event.get("type") == "content_block_delta":
            _piece(blocks.setdefault(event.get("index"), {}), event.get("delta") or {})
        elif event.get("type") == "message_delta":
            out |= event.get("delta") or {}
            usage |= {k: v for k, v in (event.get("usage") or {}).items() if v is not None}
    return {**out, "usage": usage or None, "content": [_whole(b) for b in blocks.values()]}


def _piece(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    key = _PIECES.get(str(delta.get("type")))
    if key is not None and isinstance(delta.get(key), str):
        block[key] = (block.get(key) or "") + delta[key]


def _whole(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block whose input came in pieces with its input; one that was cut has none."""
    text = block.pop("partial_json", None)
    if text is not None:
        try:
            block["input"] = json.loads(text)
        except ValueError:
            block["input"] = {}
    return block


def _response(events: list[dict[str, Any]]) -> dict[str, Any]:
    begun: dict[str, Any] = {}
    done: list[Any] = []
    text: list[str] = []
    for event in events:
        kind, response = event.get("type"), event.get("response")
        if isinstance(response, dict):
            begun = response
            if kind in _OVER:
                return response if response.get("output") else {**response, "output": done}
        if kind == "response.output_item.done":
            done.append(event.get("item"))
            text = []
        elif kind == "response.output_text.delta":
            text.append(str(event.get("delta")))
        elif kind == "error":
            return failure("openai-responses", _error(event) or "the stream broke off")
    if text:
        content = [{"type": "output_text", "text": "".join(text)}]
        done.append({"type": "message", "role": "assistant", "content": content})
    return {**begun, "status": "incomplete", "output": done}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
