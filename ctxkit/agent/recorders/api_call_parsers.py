"""Parsers of providers' HTTP requests and responses, whole or streamed, for the readers."""

from __future__ import annotations

import json
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from ctxkit.agent.models.provider_streams_and_retries import assemble_tool_calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


JsonObject = dict[str, Any]
_THINKING_FIELD = "reasoning_content"


# Gemini and Ollama may leave out the ids of tool calls. A call is then named by a hash of its name
# and arguments and by how often those occurred before. Every later request repeats the conversation
# from its start, so a call gets the same id in the reply and in all later requests.


class _CallIds:
    """The tool calls of a conversation so far, and which of them have no result yet."""

    def __init__(self) -> None:
        self._repeats: dict[str, int] = {}
        self._unanswered: list[tuple[str, str]] = []

    def add_call(self, name: str, arguments: Any, provider_id: Any) -> JsonObject:
        """Add a tool call; return it in the form of Chat Completions."""
        arguments_text = json.dumps(arguments or {}, ensure_ascii=False)
        mark = sha256(f"{name}\0{json.dumps(arguments, sort_keys=True)}".encode()).hexdigest()[:8]
        n = self._repeats[mark] = self._repeats.get(mark, 0) + 1
        ident = str(provider_id or (f"call_{mark}" if n == 1 else f"call_{mark}_{n}"))
        self._unanswered.append((ident, name))
        return {
            "id": ident,
            "type": "function",
            "function": {"name": name, "arguments": arguments_text},
        }

    def find_answered(self, name: str, provider_id: Any) -> str:
        """Return the id of the call that a result answers: the first open one of that name."""
        if provider_id:
            return str(provider_id)
        call = next((c for c in self._unanswered if c[1] == name), None) or next(
            iter(self._unanswered), None
        )
        if call is None:
            return f"call_{name}"
        self._unanswered.remove(call)
        return call[0]


# -- Gemini: https://ai.google.dev/api/generate-content ------------------------------------------


def gemini_to_chat(body: JsonObject, events: Iterable[JsonObject]) -> tuple[JsonObject, JsonObject]:
    """Return a request and the events of its response in the form of Chat Completions.

    Args:
        body: body of the request, with the model's name as `model`.
        events: objects of the response, one or those of a stream.
    """
    calls, messages = _CallIds(), []
    if system := _gemini_parts(body.get("systemInstruction") or body.get("system_instruction")):
        messages.append({"role": "system", "content": _join_texts(system)})
    for content in _json_objects(body.get("contents")):
        messages += _gemini_messages(content, calls)
    pieces: list[JsonObject] = []
    stop, usage, model = None, None, body.get("model")
    for event in events:
        usage, model = event.get("usageMetadata") or usage, event.get("modelVersion") or model
        for candidate in _json_objects(event.get("candidates"))[:1]:
            pieces += _gemini_parts(candidate.get("content"))
            stop = candidate.get("finishReason") or stop
    message = _gemini_reply(pieces, calls)
    request = {"model": body.get("model"), "messages": messages, "tools": list(_gemini_tools(body))}
    finish_reason = {"STOP": "stop", "MAX_TOKENS": "length"}.get(
        str(stop), stop and str(stop).lower()
    )
    return request, _chat_response(message, finish_reason, _gemini_usage(usage), model)


def _gemini_messages(content: JsonObject, calls: _CallIds) -> Iterator[JsonObject]:
    parts = _gemini_parts(content)
    if content.get("role") == "model":
        yield _gemini_reply(parts, calls)
        return
    for part in parts:
        result = part.get("functionResponse")
        if isinstance(result, dict):
            ident = calls.find_answered(str(result.get("name")), result.get("id"))
            response = json.dumps(result.get("response"), ensure_ascii=False)
            yield {"role": "tool", "tool_call_id": ident, "content": response}
    user_parts = [p for p in parts if "functionResponse" not in p]
    if user_parts:
        yield {"role": "user", "content": _join_texts(user_parts)}


def _gemini_reply(parts: list[JsonObject], calls: _CallIds) -> JsonObject:
    text = "".join(_part_text(p) for p in parts if not p.get("thought"))
    thought = "".join(_part_text(p) for p in parts if p.get("thought"))
    tool_calls = [
        calls.add_call(str(c.get("name")), c.get("args"), c.get("id"))
        for p in parts if isinstance(c := p.get("functionCall"), dict)
    ]  # fmt: skip
    return _assistant_message(text, thought, tool_calls)


def _gemini_tools(body: JsonObject) -> Iterator[JsonObject]:
    for group in _json_objects(body.get("tools")):
        for tool in _json_objects(group.get("functionDeclarations")):
            schema = tool.get("parameters") or tool.get("parametersJsonSchema") or {}
            function = {"name": tool.get("name"), "description": tool.get("description") or ""}
            yield {"type": "function", "function": {**function, "parameters": schema}}


def _gemini_usage(usage: Any) -> JsonObject | None:
    if not isinstance(usage, dict) or usage.get("promptTokenCount") is None:
        return None
    thoughts = usage.get("thoughtsTokenCount")
    out = (usage.get("candidatesTokenCount") or 0) + (thoughts or 0)
    prompt = usage["promptTokenCount"] + (usage.get("toolUsePromptTokenCount") or 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": out,
        "prompt_tokens_details": {"cached_tokens": usage.get("cachedContentTokenCount")},
        "completion_tokens_details": {"reasoning_tokens": thoughts},
    }


def _gemini_parts(content: Any) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"text": content}]
    return _json_objects(content.get("parts")) if isinstance(content, dict) else []


def _join_texts(parts: list[JsonObject]) -> str:
    return "\n".join(map(_part_text, parts))


def _part_text(part: JsonObject) -> str:
    """Return the text of a part; for a file its type in brackets."""
    if isinstance(part.get("text"), str):
        return str(part["text"])
    file = part.get("inlineData") or part.get("fileData")
    return f"[{file.get('mimeType') or 'file'}]" if isinstance(file, dict) else ""


# -- Ollama: https://docs.ollama.com/api/chat ----------------------------------------------------


def ollama_to_chat(body: JsonObject, events: Iterable[JsonObject]) -> tuple[JsonObject, JsonObject]:
    """Return a request and the events of its response in the form of Chat Completions.

    Args:
        body: body of the request.
        events: objects of the response, one or those of a stream.
    """
    calls = _CallIds()
    messages = [_ollama_message(m, calls) for m in _json_objects(body.get("messages"))]
    joined: JsonObject = {"content": "", "thinking": "", "tool_calls": []}
    last: JsonObject = {}
    for event in events:
        last = event
        piece = event.get("message")
        piece = piece if isinstance(piece, dict) else {}
        joined["content"] += piece.get("content") or ""
        joined["thinking"] += piece.get("thinking") or ""
        joined["tool_calls"] += _json_objects(piece.get("tool_calls"))
    message = _ollama_message({"role": "assistant", **joined}, calls)
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
        ident = calls.find_answered(name, message.get("tool_call_id"))
        return {"role": "tool", "tool_call_id": ident, "content": text}
    if role != "assistant":
        return {"role": role, "content": text}
    functions = [
        c["function"] | {"id": c.get("id")}
        for c in _json_objects(message.get("tool_calls"))
        if isinstance(c.get("function"), dict)
    ]
    tool_calls = [
        calls.add_call(str(c.get("name")), c.get("arguments"), c["id"]) for c in functions
    ]
    return _assistant_message(text, str(message.get("thinking") or ""), tool_calls)


# -- both ----------------------------------------------------------------------------------------


def _assistant_message(text: str, thought: str, calls: list[JsonObject]) -> JsonObject:
    out: JsonObject = {"role": "assistant", "content": text or None}
    out |= {_THINKING_FIELD: thought} if thought else {}
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
"""An API: the name of its reader, or one that is converted to Chat Completions."""
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
    """Return the API that a request goes to; None if it is no known conversation.

    Args:
        url: address of the request.
        body: its JSON; only one with a conversation counts.

    Returns:
        The kind by the end of the path, whatever the host is.

    Example:
        >>> from ctxkit.agent.recorders.api_call_parsers import detect_api
        >>> detect_api("http://localhost:8000/v1/chat/completions", {"messages": []})
        'openai'
    """
    path = urlsplit(url).path.rstrip("/")
    for end, (kind, key) in _API_PATHS.items():
        conversation = body.get(key) if isinstance(body, dict) else None
        if path.endswith(end) and isinstance(conversation, (list, str)):
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
    """Return a call as a reader takes it: the API, the request and the response.

    Args:
        kind: the API of the request.
        url: the address, which has the model's name for Gemini.
        body: the request.
        data: the response, as far as it was read.
        status: HTTP status.
        error: reason why there is no response; empty if there is one.

    Returns:
        The API (`gemini` and `ollama` become `openai`), the request and the whole response, also
        of a stream that was cut off.
    """
    if kind not in _CONVERTERS:
        return (
            kind,
            body,
            make_failed_response(kind, error) if error else parse_response(kind, data, status),
        )
    name = urlsplit(url).path.rpartition("/")[2].partition(":")[0]
    events = [] if error or status >= 400 else _parse_objects(data)
    stream_error = next((_error_message(e) for e in events if e.get("error")), "")
    request, answer = _CONVERTERS[kind]({"model": name, **body}, events)
    if error or stream_error or status >= 400:
        why = (
            error
            or stream_error
            or _error_message(next(iter(_parse_objects(data)), None))
            or f"HTTP {status}"
        )
        answer = make_failed_response("openai", why)
    return "openai", request, answer


def _parse_objects(data: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects of a response: one, a list, one a line, or server-sent events."""
    try:
        whole = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return list(_parse_events(data)) or list(_parse_events(data, ""))
    return _dict_items(whole if isinstance(whole, list) else [whole])


def parse_response(kind: ApiKind, data: bytes, status: int = 200) -> dict[str, Any]:
    """Parse the bytes of a response; of a truncated stream, the part that arrived.

    Args:
        kind: the API; the form of an error depends on it.
        data: the response, a JSON object or server-sent events.
        status: HTTP status; from 400 on the result is a failed response.
    """
    try:
        whole = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = None
    if status >= 400:
        return make_failed_response(kind, _error_message(whole) or f"HTTP {status}")
    if isinstance(whole, dict):
        return whole
    events = list(_parse_events(data))
    error_event = next((e for e in events if e.get("error") or e.get("type") == "error"), None)
    if error_event is not None and kind != "openai-responses":
        return make_failed_response(kind, _error_message(error_event) or "the stream broke off")
    return {
        "openai": _join_chat_chunks,
        "anthropic": _join_anthropic_events,
        "openai-responses": _join_responses_events,
    }[kind](events)


def make_failed_response(kind: ApiKind, why: str) -> dict[str, Any]:
    """Return a failed call as a response of its API.

    Args:
        kind: the API.
        why: reason, which becomes the text of the reply.

    Returns:
        A response body whose stop reason says that it failed.
    """
    if kind == "openai":
        message = {"role": "assistant", "content": None, "refusal": why}
        return {"choices": [{"message": message, "finish_reason": "error"}]}
    if kind == "anthropic":
        blocks = [{"type": "text", "text": why}]
        return {"type": "message", "role": "assistant", "content": blocks, "stop_reason": "error"}
    content = [{"type": "output_text", "text": why}]
    return {
        "status": "failed",
        "output": [{"type": "message", "role": "assistant", "content": content}],
    }


def _error_message(body: Any) -> str:
    """Return the message in the body of an error; empty if there is none."""
    error = body.get("error", body) if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)[:1000] if message else ""


def _parse_events(data: bytes, mark: str = "data:") -> Iterable[dict[str, Any]]:
    """Yield the JSON objects of server-sent events; incomplete lines are skipped."""
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
    texts: dict[str, list[str]] = {"content": [], "reasoning_content": [], "refusal": []}
    stop = None
    for event in events:
        out |= {k: event[k] for k in ("id", "model", "created", "usage") if event.get(k)}
        for choice in _get_first_choice(event):
            stop = choice.get("finish_reason") or stop
            delta = choice.get("delta") or {}
            for key, pieces in texts.items():
                if isinstance(delta.get(key), str):
                    pieces.append(delta[key])
    message: dict[str, Any] = {"role": "assistant", "content": None}
    message |= {key: "".join(pieces) for key, pieces in texts.items() if pieces}
    calls = assemble_tool_calls(_as_attributes(events))
    if calls:
        message["tool_calls"] = calls
    return {**out, "choices": [{"message": message, "finish_reason": stop}]}


def _get_first_choice(event: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an event adds to the first of the replies that a request with `n` gets."""
    return [c for c in _dict_items(event.get("choices")) if not c.get("index")]


def _as_attributes(events: list[dict[str, Any]]) -> list[Any]:
    """Return the pieces of a stream as objects with attributes, like LiteLLM's."""
    pieces = [{"choices": [c for c in _get_first_choice(e) if c.get("delta")]} for e in events]
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
    """Return a content block with its input parsed; a truncated input becomes empty."""
    text = block.pop("partial_json", None)
    if text is not None:
        try:
            block["input"] = json.loads(text)
        except ValueError:
            block["input"] = {}
    return block


def _join_responses_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    latest: dict[str, Any] = {}
    items: list[Any] = []
    text: list[str] = []
    for event in events:
        kind, response = event.get("type"), event.get("response")
        if isinstance(response, dict):
            latest = response
            if kind in _FINAL_EVENTS:
                return response if response.get("output") else {**response, "output": items}
        if kind == "response.output_item.done":
            items.append(event.get("item"))
            text = []
        elif kind == "response.output_text.delta":
            text.append(str(event.get("delta")))
        elif kind == "error":
            return make_failed_response(
                "openai-responses", _error_message(event) or "the stream broke off"
            )
    if text:
        content = [{"type": "output_text", "text": "".join(text)}]
        items.append({"type": "message", "role": "assistant", "content": content})
    return {**latest, "status": "incomplete", "output": items}


def _dict_items(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
