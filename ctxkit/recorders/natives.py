"""Calls of Gemini's and Ollama's own APIs, as their SDKs send them, in the words of Chat
Completions.

Both may leave out the ids of tool calls: a call is then named by what it asks and how often that
was asked before, so that it has one name in the reply and in every later request.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Dict = dict[str, Any]
_THOUGHT = "reasoning_content"


class _Calls:
    """The tool calls of a conversation so far, and which of them are unanswered."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._open: list[tuple[str, str]] = []

    def made(self, name: str, arguments: Any, given: Any) -> Dict:
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


def gemini(body: Dict, said: Iterable[Dict]) -> tuple[Dict, Dict]:
    """Return a request and the pieces of its answer as Chat Completions has them."""
    calls, messages = _Calls(), []
    if system := _parts(body.get("systemInstruction") or body.get("system_instruction")):
        messages.append({"role": "system", "content": _texts(system)})
    for content in _dicts(body.get("contents")):
        messages += _turn(content, calls)
    pieces: list[Dict] = []
    stop, told, model = None, None, body.get("model")
    for event in said:
        told, model = event.get("usageMetadata") or told, event.get("modelVersion") or model
        for candidate in _dicts(event.get("candidates"))[:1]:
            pieces += _parts(candidate.get("content"))
            stop = candidate.get("finishReason") or stop
    message = _reply(pieces, calls)
    request = {"model": body.get("model"), "messages": messages, "tools": list(_declared(body))}
    ended = {"STOP": "stop", "MAX_TOKENS": "length"}.get(str(stop), stop and str(stop).lower())
    return request, _response(message, ended, _gemini_usage(told), model)


def _turn(content: Dict, calls: _Calls) -> Iterator[Dict]:
    parts = _parts(content)
    if content.get("role") == "model":
        yield _reply(parts, calls)
        return
    for part in parts:
        result = part.get("functionResponse")
        if isinstance(result, dict):
            ident = calls.answered(str(result.get("name")), result.get("id"))
            said = json.dumps(result.get("response"), ensure_ascii=False)
            yield {"role": "tool", "tool_call_id": ident, "content": said}
    asked = [p for p in parts if "functionResponse" not in p]
    if asked:
        yield {"role": "user", "content": _texts(asked)}


def _reply(parts: list[Dict], calls: _Calls) -> Dict:
    text = "".join(_text(p) for p in parts if not p.get("thought"))
    thought = "".join(_text(p) for p in parts if p.get("thought"))
    made = [
        calls.made(str(c.get("name")), c.get("args"), c.get("id"))
        for p in parts if isinstance(c := p.get("functionCall"), dict)
    ]  # fmt: skip
    return _message(text, thought, made)


def _declared(body: Dict) -> Iterator[Dict]:
    for group in _dicts(body.get("tools")):
        for tool in _dicts(group.get("functionDeclarations")):
            schema = tool.get("parameters") or tool.get("parametersJsonSchema") or {}
            told = {"name": tool.get("name"), "description": tool.get("description") or ""}
            yield {"type": "function", "function": {**told, "parameters": schema}}


def _gemini_usage(told: Any) -> Dict | None:
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


def _parts(content: Any) -> list[Dict]:
    if isinstance(content, str):
        return [{"text": content}]
    return _dicts(content.get("parts")) if isinstance(content, dict) else []


def _texts(parts: list[Dict]) -> str:
    return "\n".join(map(_text, parts))


def _text(part: Dict) -> str:
    """Return the text of a part; what is none counts by its kind."""
    if isinstance(part.get("text"), str):
        return str(part["text"])
    held = part.get("inlineData") or part.get("fileData")
    return f"[{held.get('mimeType') or 'file'}]" if isinstance(held, dict) else ""


# -- Ollama: https://docs.ollama.com/api/chat ----------------------------------------------------


def ollama(body: Dict, said: Iterable[Dict]) -> tuple[Dict, Dict]:
    """Return a request and the pieces of its answer as Chat Completions has them."""
    calls = _Calls()
    messages = [_ollama(m, calls) for m in _dicts(body.get("messages"))]
    whole: Dict = {"content": "", "thinking": "", "tool_calls": []}
    last: Dict = {}
    for event in said:
        last = event
        piece = event.get("message")
        piece = piece if isinstance(piece, dict) else {}
        whole["content"] += piece.get("content") or ""
        whole["thinking"] += piece.get("thinking") or ""
        whole["tool_calls"] += _dicts(piece.get("tool_calls"))
    message = _ollama({"role": "assistant", **whole}, calls)
    request = {"model": body.get("model"), "messages": messages, "tools": body.get("tools") or []}
    counts = last.get("prompt_eval_count"), last.get("eval_count")
    usage = (
        None
        if None in counts
        else dict(zip(("prompt_tokens", "completion_tokens"), counts, strict=True))
    )
    return request, _response(message, last.get("done_reason"), usage, last.get("model"))


def _ollama(message: Dict, calls: _Calls) -> Dict:
    role, text = str(message.get("role")), str(message.get("content") or "")
    if role == "tool":
        name = str(message.get("tool_name") or message.get("name"))
        ident = calls.answered(name, message.get("tool_call_id"))
        return {"role": "tool", "tool_call_id": ident, "content": text}
    if role != "assistant":
        return {"role": role, "content": text}
    asked = [c["function"] | {"id": c.get("id")} for c in _dicts(message.get("tool_calls"))
             if isinstance(c.get("function"), dict)]  # fmt: skip
    made = [calls.made(str(c.get("name")), c.get("arguments"), c["id"]) for c in asked]
    return _message(text, str(message.get("thinking") or ""), made)


# -- both ----------------------------------------------------------------------------------------


def _message(text: str, thought: str, calls: list[Dict]) -> Dict:
    out: Dict = {"role": "assistant", "content": text or None}
    out |= {_THOUGHT: thought} if thought else {}
    return out | ({"tool_calls": calls} if calls else {})


def _response(message: Dict, stop: Any, usage: Dict | None, model: Any) -> Dict:
    stop = "tool_calls" if message.get("tool_calls") and stop in (None, "stop") else stop
    return {
        "model": model,
        "usage": usage,
        "choices": [{"message": message, "finish_reason": stop}],
    }


def _dicts(value: Any) -> list[Dict]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
