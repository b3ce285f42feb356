"""What the documentation says a provider refuses, for the requests of the five wire formats."""

from __future__ import annotations

import hashlib
import json


def bare(value):
    """A value without cache marks, and without the thinking that is being checked."""
    if isinstance(value, dict):
        return {k: bare(v) for k, v in value.items() if k != "cache_control"}
    return [bare(v) for v in value] if isinstance(value, list) else value


def bind(body, n=None):
    """The signature of thinking that is made behind the first n messages of a request."""
    behind = [body.get("system"), body.get("tools"), body["messages"][:n]]
    return hashlib.sha256(json.dumps(bare(behind), sort_keys=True).encode()).hexdigest()


def find_fault(kind, body):
    """Why the request is refused; None: it is taken."""
    checks = {"anthropic": _anthropic, "gemini": _gemini, "responses": _responses, "chat": _chat,
              "ollama": _ollama}  # fmt: skip
    return checks[kind](body)


def _blocks(message):
    content = message.get("content")
    return content if isinstance(content, list) else []


def _anthropic(body):
    messages = body["messages"]
    if messages[0]["role"] != "user":
        return "messages: first message must use the user role"
    if json.dumps(body).count('"cache_control"') > 4:
        return "A maximum of 4 blocks with cache_control may be provided."
    for i, message in enumerate(messages):
        after = messages[i + 1] if i + 1 < len(messages) else {}
        asked = {b["id"] for b in _blocks(message) if b["type"] == "tool_use"}
        answered = {b["tool_use_id"] for b in _blocks(after) if b["type"] == "tool_result"}
        if asked - answered:
            return f"messages.{i}: `tool_use` ids were found without `tool_result` blocks"
        if answered - asked:
            return f"messages.{i + 1}: unexpected `tool_use_id` found in `tool_result` blocks"
        for block in _blocks(message):
            if block["type"] == "thinking" and block["signature"] != bind(body, i):
                return f"messages.{i}.content.0: Invalid `signature` in `thinking` block."
    return None


def _chat(body):
    waiting = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return "messages with role 'tool' must be a response to a preceding message"
            waiting.discard(message.get("tool_call_id"))
            continue
        if waiting:
            return "An assistant message with 'tool_calls' must be followed by tool messages"
        waiting = {c["id"] for c in message.get("tool_calls") or ()}
    return None


def _responses(body):
    items = body["input"] if isinstance(body["input"], list) else []
    asked = {i["call_id"] for i in items if i.get("type") == "function_call"}
    answered = {i["call_id"] for i in items if i.get("type") == "function_call_output"}
    if answered - asked:
        return "No tool call found for function call output"
    return "No tool output found for function call" if asked - answered else None


def _gemini(body):
    contents = body["contents"]
    if contents[0].get("role") != "user":
        return "Please ensure that the first content is the user's."
    for i, content in enumerate(contents):
        calls = sum("functionCall" in p or "function_call" in p for p in content["parts"])
        after = contents[i + 1]["parts"] if i + 1 < len(contents) else []
        results = sum("functionResponse" in p or "function_response" in p for p in after)
        if calls != results:
            return "Please ensure that the number of function response parts is equal to the calls"
    return None


# Ollama documents no order of roles and no pairs of calls and results, which have no ids there, but
# the types of a message (`docs/openapi.yaml` of ollama/ollama): any other is a 400 of invalid JSON.
OLLAMA_ROLES = frozenset({"system", "user", "assistant", "tool"})


def _ollama(body):
    if not body.get("model") or not isinstance(body.get("messages"), list):
        return "model and messages are required"
    for i, message in enumerate(body["messages"]):
        if message.get("role") not in OLLAMA_ROLES:
            return f"messages.{i}: invalid role"
        if not isinstance(message.get("content"), str):
            return f"json: cannot unmarshal messages.{i}.content into type string"
        if not all(isinstance(image, str) for image in message.get("images") or ()):
            return f"json: cannot unmarshal messages.{i}.images into type string"
        for call in message.get("tool_calls") or ():
            if not call["function"].get("name"):
                return f"messages.{i}: a call without a name"
            if not isinstance(call["function"].get("arguments", {}), dict):
                return f"json: cannot unmarshal messages.{i}.tool_calls arguments into an object"
    return None
