"""Parse providers' HTTP requests and responses, whole or streamed, into reader input.

Both may leave out the ids of tool calls: a call is then named by what it asks and how often that
was asked before, so that it has one name in the reply and in every later request.
"""

from __future__ import annotations

import json
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from ctxkit.agent.models.streaming import assemble_tool_calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


JsonObject = dict[str, Any]
_THOUGHT = "reasoning_content"


class _CallIds:
    """The tool calls of a conversation so far, and which of them are unanswered."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._open: list[tuple[str, str]] = []

    def made(self, name: str, arguments: Any, given: Any) -> JsonObject:
        """Return a call as Chat Completions has it."""
        said = json.dumps(arguments or {}, ensure_ascii=False)
        mark = sha256(f"{name}\0{json.dumps(arguments, sort_keys=True)}".encode()).hexdigest()[:8]
        n = self._times[mark] = self._times.get(mark, 0) + 1
        ident = str(given or (f"call_{mark}" if n == 1 else f"call_{mark}_{n}"))
        self._open.append((ident, name))
        return {"id": ident, "type": "function", "function": {"name": name, "arguments": said}}

    def answered(self, name: str, given: Any) -> str:
        """Return the id of the call that a result answers: the first open one of that name."""
        if given:
            return str(given)
        found = next((c for c in self._open if c[1] == name), None) or next(iter(self._open), None)
        if found is None:
            return f"call_{name}"
        self._open.remove(found)
        return found[0]


# -- Gemini: https://ai.google.dev/api/generate-content ------------------------------------------


def gemini_to_chat(body: JsonObject, said: Iterable[JsonObject]) -> tuple[JsonObject, JsonObject]:
    """Return a request and the pieces of its answer as Chat Completions has them."""
    calls, messages = _CallIds(), []
    if system := _gemini_parts(body.get("systemInstruction") or body.get("system_instruction")):
        messages.append({"role": "system", "content": _join_texts(system)})
    for content in _json_objects(body.get("contents")):
        messages += _gemini_messages(content, calls)
    pieces: list[JsonObject] = []
    stop, told, model = None, None, body.get("model")
    for event in said:
        told, model = event.get("usageMetadata") or told, event.get("modelVersion") or model
        for candidate in _json_objects(event.get("candidates"))[:1]:
            pieces += _gemini_parts(candidate.get("content"))
            stop = candidate.get("finishReason") or stop
    message = _gemini_reply(pieces, calls)
    request = {"model": body.get("model"), "messages": messages, "tools": list(_gemini_tools(body))}
    ended = {"STOP": "stop", "MAX_TOKENS": "length"}.get(str(stop), stop and str(stop).lower())
    return request, _chat_response(message, ended, _gemini_usage(told), model)


def _gemini_messages(content: JsonObject, calls: _CallIds) -> Iterator[JsonObject]:
    parts = _gemini_parts(content)
    if content.get("role") == "model":
        yield _gemini_reply(parts, calls)
        return
    for part in parts:
        result = part.get("functionResponse")
        if isinstance(result, dict):
            ident = calls.answered(str(result.get("name")), result.get("id"))
            said = json.dumps(result.get("response"), ensure_ascii=False)
            yield {"role": "tool", "tool_call_id": ident, "content": said}
    asked = [p for p in parts if "functionResponse" not in p]
    if asked:
        yield {"role": "user", "content": _join_texts(asked)}


def _gemini_reply(parts: list[JsonObject], calls: _CallIds) -> JsonObject:
    text = "".join(_part_text(p) for p in parts if not p.get("thought"))
    thought = "".join(_part_text(p) for p in parts if p.get("thought"))
    made = [
        calls.made(str(c.get("name")), c.get("args"), c.get("id"))
        for p in parts if isinstance(c := p.get("functionCall"), dict)
    ]  # fmt: skip
    return _assistant_message(text, thought, made)


def _gemini_tools(body: JsonObject) -> Iterator[JsonObject]:
    for group in _json_objects(body.get("tools")):
        for tool in _json_objects(group.get("functionDeclarations")):
            schema = tool.get("parameters") or tool.get("parametersJsonSchema") or {}
            told = {"name": tool.get("name"), "description": tool.get("description") or ""}
            yield {"type": "function", "function": {**told, "parameters": schema}}


def _gemini_usage(told: Any) -> JsonObject | None:
    if not isinstance(told, dict) or told.get("promptTokenCount") is None:
        return None
    thoughts = told.get("thoughtsTokenCount")
    out = (told.get("candidatesTokenCount") or 0) + (thoughts or 0)
    prompt = told["promptTokenCount"] + (told.get("toolUsePromptTokenCount") or 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": out,
        "prompt_tokens_details": {"cached_tokens": told.get("cachedContentTokenCount")},
        "completion_tokens_details": {"reasoning_tokens": thoughts},
    }


def _gemini_parts(content: Any) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"text": content}]
    return _json_objects(content.get("parts")) if isinstance(content, dict) else []


def _join_texts(parts: list[JsonObject]) -> str:
    return "\n".join(map(_part_text, parts))


def _part_text(part: JsonObject) -> str:
    """Return the text of a part; what is none counts by its kind."""
    if isinstance(part.get("text"), str):
        return str(part["text"])
    held = part.get("inlineData") or part.get("fileData")
    return f"[{held.get('mimeType') or 'file'}]" if isinstance(held, dict) else ""


# -- Ollama: https://docs.ollama.com/api/chat ----------------------------------------------------


def ollama_to_chat(body: JsonObject, said: Iterable[JsonObject]) -> tuple[JsonObject, JsonObject]:
    """Return a request and the pieces of its answer as Chat Completions has them."""
    calls = _CallIds()
    messages = [_ollama_message(m, calls) for m in _json_objects(body.get("messages"))]
    whole: JsonObject = {"content": "", "thinking": "", "tool_calls": []}
    last: JsonObject = {}
    for event in said:
        last = event
        piece = event.get("message")
        piece = piece if isinstance(piece, dict) else {}
        whole["content"] += piece.get("content") or ""
        whole["thinking"] += piece.get("thinking") or ""
        whole["tool_calls"] += _json_objects(piece.get("tool_calls"))
    message = _ollama_message({"role": "assistant", **whole}, calls)
    request = {"model": body.get("model"), "messages": messages, "tools": body.get("tools") or []}
    counts = last.get("prompt_eval_count"), last.get("eval_count")
    usage = (
        None
        if None in counts
        else dict(zip(("prompt_tokens", "completion_tokens"), counts, strict=True))
    )
    return request, _chat_response(message, last.get("done_reason"), usage, last.get("model"))


def _ollama_message(message: JsonObject, calls: _CallIds) -> JsonObject:
    role, text = str(message.get("role")), str(message.get("content") or "")
    if role == "tool":
        name = str(message.get("tool_name") or message.get("name"))
        ident = calls.answered(name, message.get("tool_call_id"))
        return {"role": "tool", "tool_call_id": ident, "content": text}
    if role != "assistant":
        return {"role": role, "content": text}
    asked = [c["function"] | {"id": c.get("id")} for c in _json_objects(message.get("tool_calls"))
             if isinstance(c.get("function"), dict)]  # fmt: skip
    made = [calls.made(str(c.get("name")), c.get("arguments"), c["id"]) for c in asked]
    return _assistant_message(text, str(message.get("thinking") or ""), made)


# -- both ----------------------------------------------------------------------------------------


def _assistant_message(text: str, thought: str, calls: list[JsonObject]) -> JsonObject:
    out: JsonObject = {"role": "assistant", "content": text or None}
    out |= {_THOUGHT: thought} if thought else {}
    return out | ({"tool_calls": calls} if calls else {})


def _chat_response(
    message: JsonObject, stop: Any, usage: JsonObject | None, model: Any
) -> JsonObject:
    stop = "tool_calls" if message.get("tool_calls") and stop in (None, "stop") else stop
    return {
        "model": model,
        "usage": usage,
        "choices": [{"message": message, "finish_reason": stop}],
    }


def _json_objects(value: Any) -> list[JsonObject]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


ApiKind = Literal["openai", "anthropic", "openai-responses", "gemini", "ollama"]
"""An API: by the name of its reader, or one that is put into the words of Chat Completions."""
_CONVERTERS = {"gemini": gemini_to_chat, "ollama": ollama_to_chat}
_API_PATHS: dict[str, tuple[ApiKind, str]] = {
    "/chat/completions": ("openai", "messages"),
    "/messages": ("anthropic", "messages"),
    "/responses": ("openai-responses", "input"),
    ":generateContent": ("gemini", "contents"),
    ":streamGenerateContent": ("gemini", "contents"),
    "/api/chat": ("ollama", "messages"),
}
_DELTA_FIELDS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
_FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")


def detect_api(url: str, body: Any) -> ApiKind | None:
    """Return which API a request goes to; None where it is no conversation known here."""
    path = urlsplit(url).path.rstrip("/")
    for end, (kind, key) in _API_PATHS.items():
        said = body.get(key) if isinstance(body, dict) else None
        if path.endswith(end) and isinstance(said, (list, str)):
            return kind
    return None


def parse_call(
    kind: ApiKind,
    url: str,
    body: dict[str, Any],
    data: bytes,
    *,
    status: int = 200,
    error: str = "",
) -> tuple[ApiKind, dict[str, Any], dict[str, Any]]:
    """Return a call as a reader takes it: of which API, what was asked, and what came back.

    Args:
        kind: the API.
        url: Gemini has the model's name there.
        body: what was sent.
        data: what came back, as far as it was read.
        status: of HTTP.
        error: why nothing came back.
    """
    if kind not in _CONVERTERS:
        return (
            kind,
            body,
            failed_response(kind, error) if error else parse_response(kind, data, status),
        )
    name = urlsplit(url).path.rpartition("/")[2].partition(":")[0]
    said = [] if error or status >= 400 else _parse_objects(data)
    broken = next((_error_message(e) for e in said if e.get("error")), "")
    request, answer = _CONVERTERS[kind]({"model": name, **body}, said)
    if error or broken or status >= 400:
        why = (
            error
            or broken
            or _error_message(next(iter(_parse_objects(data)), None))
            or f"HTTP {status}"
        )
        answer = failed_response("openai", why)
    return "openai", request, answer


def _parse_objects(data: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects of an answer: one, a list of them, one a line, or events."""
    try:
        whole = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return list(_parse_events(data)) or list(_parse_events(data, ""))
    return _dict_items(whole if isinstance(whole, list) else [whole])


def parse_response(kind: ApiKind, data: bytes, status: int = 200) -> dict[str, Any]:
    """Return the response that bytes hold, as far as it goes where it is cut off."""
    try:
        whole = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = None
    if status >= 400:
        return failed_response(kind, _error_message(whole) or f"HTTP {status}")
    if isinstance(whole, dict):
        return whole
    found = list(_parse_events(data))
    broken = next((e for e in found if e.get("error") or e.get("type") == "error"), None)
    if broken is not None and kind != "openai-responses":
        return failed_response(kind, _error_message(broken) or "the stream broke off")
    return {
        "openai": _join_chat_chunks,
        "anthropic": _join_anthropic_events,
        "openai-responses": _join_responses_events,
    }[kind](found)


def failed_response(kind: ApiKind, why: str) -> dict[str, Any]:
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


def _error_message(body: Any) -> str:
    """Return the words of an error's body."""
    found = body.get("error", body) if isinstance(body, dict) else None
    said = found.get("message") if isinstance(found, dict) else found
    return str(said)[:1000] if said else ""


def _parse_events(data: bytes, mark: str = "data:") -> Iterable[dict[str, Any]]:
    """Yield the JSON objects of server-sent events; a line that is cut, or none, is passed over."""
    for line in data.decode("utf-8", "replace").splitlines():
        if line.startswith(mark):
            try:
                event = json.loads(line[len(mark) :])
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


def _join_chat_chunks(events: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    said: dict[str, list[str]] = {"content": [], "reasoning_content": [], "refusal": []}
    stop = None
    for event in events:
        out |= {k: event[k] for k in ("id", "model", "created", "usage") if event.get(k)}
        for choice in _dict_items(event.get("choices"))[:1]:
            stop = choice.get("finish_reason") or stop
            delta = choice.get("delta") or {}
            for key, pieces in said.items():
                if isinstance(delta.get(key), str):
                    pieces.append(delta[key])
    message: dict[str, Any] = {"role": "assistant", "content": None}
    message |= {key: "".join(pieces) for key, pieces in said.items() if pieces}
    calls = assemble_tool_calls(_as_attributes(events))
    if calls:
        message["tool_calls"] = calls
    return {**out, "choices": [{"message": message, "finish_reason": stop}]}


def _as_attributes(events: list[dict[str, Any]]) -> list[Any]:
    """Return the pieces of a stream as LiteLLM has them: objects with attributes."""
    pieces = [
        {"choices": [c for c in _dict_items(e.get("choices")) if c.get("delta")]} for e in events
    ]
    hook = lambda d: SimpleNamespace(**d)  # noqa: E731
    return [json.loads(json.dumps(p), object_hook=hook) for p in pieces]


def _join_anthropic_events(events: list[dict[str, Any]]) -> dict[str, Any]:
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
            _add_delta(blocks.setdefault(event.get("index"), {}), event.get("delta") or {})
        elif event.get("type") == "message_delta":
            out |= event.get("delta") or {}
            usage |= {k: v for k, v in (event.get("usage") or {}).items() if v is not None}
    return {**out, "usage": usage or None, "content": [_finish_block(b) for b in blocks.values()]}


def _add_delta(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    key = _DELTA_FIELDS.get(str(delta.get("type")))
    if key is not None and isinstance(delta.get(key), str):
        block[key] = (block.get(key) or "") + delta[key]


def _finish_block(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block whose input came in pieces with its input; one that was cut has none."""
    text = block.pop("partial_json", None)
    if text is not None:
        try:
            block["input"] = json.loads(text)
        except ValueError:
            block["input"] = {}
    return block


def _join_responses_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    begun: dict[str, Any] = {}
    done: list[Any] = []
    text: list[str] = []
    for event in events:
        kind, response = event.get("type"), event.get("response")
        if isinstance(response, dict):
            begun = response
            if kind in _FINAL_EVENTS:
                return response if response.get("output") else {**response, "output": done}
        if kind == "response.output_item.done":
            done.append(event.get("item"))
            text = []
        elif kind == "response.output_text.delta":
            text.append(str(event.get("delta")))
        elif kind == "error":
            return failed_response(
                "openai-responses", _error_message(event) or "the stream broke off"
            )
    if text:
        content = [{"type": "output_text", "text": "".join(text)}]
        done.append({"type": "message", "role": "assistant", "content": content})
    return {**begun, "status": "incomplete", "output": done}


def _dict_items(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
