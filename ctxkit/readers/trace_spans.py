"""What a span of a trace says of a model call: prompt, reply, usage, in the attributes of four
conventions.

OpenTelemetry GenAI (new: JSON in one attribute; old: events), OpenLLMetry (`gen_ai.prompt.N`),
OpenInference (`llm.input_messages.N.message`), and plain `input.value` / `output.value`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ctxkit.messages import Usage
from ctxkit.readers.fields import items, mapping, number, real, text, word
from ctxkit.readers.usages import whole_usage

_decode = msgspec.json.Decoder().decode
_MOST = 20_000
"""Attributes of one span that are looked at."""
_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


def parsed(value: Any) -> Any:
    """Return JSON out of a text (packed twice, as some exporters do); anything else as it is."""
    for _ in range(2):
        if type(value) is not str or value[:1] not in ("{", "[", '"'):
            break
        try:
            value = _decode(value)
        except (msgspec.DecodeError, ValueError, RecursionError):
            break
    return value


def raws(value: Any) -> list[Any]:
    """Return the messages of a trace's input or output: a list, an object around it, or one."""
    value = parsed(value)
    if type(value) is str:
        return [{"role": "user", "content": value}] if value else []
    if type(value) is list:
        value = [parsed(v) for v in value]
        if len(value) == 1 and type(value[0]) is list:  # LangChain: a batch of one
            value = value[0]
        found = [v for v in value if type(v) is dict]
        return [
            v["message"] if "role" not in v and type(v.get("message")) is dict else v for v in found
        ]
    fields = mapping(value)
    for key in ("messages", "contents", "choices", "generations", "output"):
        inner = parsed(fields.get(key))
        if type(inner) is list and inner and key != "choices":
            return raws(inner)
        if type(inner) is list:
            return [m for c in map(mapping, inner) if (m := mapping(c.get("message")))]
    if "role" in fields or "kwargs" in fields or type(fields.get("data")) is dict:
        return [fields]
    if type(fields.get("message")) is dict:
        return [fields["message"]]
    said = next(
        (fields[k] for k in ("text", "content", "input", "query") if type(fields.get(k)) is str),
        None,
    )
    return [] if said is None else [{"role": "user", "content": said}]


def content(attributes: dict[str, Any], events: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return raw messages of a span's prompt and reply, in whichever convention it has them."""
    prompt, reply = _instructions(attributes), list[Any]()
    prompt += raws(attributes.get("gen_ai.input.messages"))
    reply += raws(attributes.get("gen_ai.output.messages"))
    if not prompt and not reply:
        prompt, reply = (
            _numbered(attributes, "gen_ai.prompt."),
            _numbered(attributes, "gen_ai.completion."),
        )
    if not prompt and not reply:
        prompt = [_inference(m) for m in _numbered(attributes, "llm.input_messages.")]
        reply = [_inference(m) for m in _numbered(attributes, "llm.output_messages.")]
    if not prompt and not reply:
        prompt, reply = _told(events)
    if not prompt and not reply:
        prompt, reply = raws(attributes.get("input.value")), raws(attributes.get("output.value"))
    return prompt, [
        {**mapping(r), "role": "assistant"} if mapping(r).get("role") == "user" else r
        for r in reply
    ]


def _instructions(attributes: dict[str, Any]) -> list[Any]:
    said = parsed(attributes.get("gen_ai.system_instructions"))
    if type(said) is str and said:
        return [{"role": "system", "content": said}]
    return [{"role": "system", "parts": said}] if items(said) else []


def _numbered(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """Put `prefix.0.role`, `prefix.0.tool_calls.1.name` ... together again, by their numbers."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in list(attributes.items())[:_MOST]:
        if not key.startswith(prefix):
            continue
        first, _, rest = key[len(prefix) :].partition(".")
        if first.isascii() and first.isdigit() and len(first) < 7:
            _put(found.setdefault(int(first), {}), rest.split(".")[:8], value)
    return [_lists(found[n]) for n in sorted(found)]


def _put(into: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        inner = into.get(key)
        if type(inner) is not dict:
            inner = into[key] = {}
        into = inner
    into[keys[-1]] = value


def _lists(value: Any) -> Any:
    """Turn objects whose keys are all numbers into lists."""
    if type(value) is not dict:
        return value
    made = {k: _lists(v) for k, v in value.items()}
    if made and all(k.isascii() and k.isdigit() for k in made):
        return [made[k] for k in sorted(made, key=int)]
    return made


def _inference(raw: Any) -> dict[str, Any]:
    """OpenInference's message: fields lie in `message`, calls in `tool_call`, parts likewise."""
    message = dict(mapping(mapping(raw).get("message")))
    calls = [mapping(mapping(c).get("tool_call")) for c in items(message.get("tool_calls"))]
    if calls:
        message["tool_calls"] = calls
    parts = [mapping(mapping(p).get("message_content")) for p in items(message.get("contents"))]
    if parts and "content" not in message:
        message["content"] = parts
    return message


def _told(events: list[Any]) -> tuple[list[Any], list[Any]]:
    prompt, reply = list[Any](), list[Any]()
    for event in map(mapping, events):
        name = text(event.get("name"))
        told = mapping(event.get("attributes"))
        if name == "gen_ai.client.inference.operation.details":
            prompt += [*_instructions(told), *raws(told.get("gen_ai.input.messages"))]
            reply += raws(told.get("gen_ai.output.messages"))
        body = (
            mapping(parsed(told.get("gen_ai.event.content")))
            or mapping(parsed(event.get("body")))
            or told
        )
        if name in _EVENTS:
            prompt.append({"role": _EVENTS[name], **body})
        elif name == "gen_ai.choice":
            reply.append({"role": "assistant", **(mapping(parsed(body.get("message"))) or body)})
    return prompt, reply


def to_span_usage(attributes: dict[str, Any]) -> Usage | None:
    """Return the usage in attributes, whose input is the whole prompt, cached tokens included."""

    def first(*keys: str) -> int | None:
        return next((n for k in keys if (n := number(attributes.get(k))) is not None), None)

    u = "gen_ai.usage."
    whole = first(u + "input_tokens", u + "prompt_tokens", "llm.token_count.prompt")
    read = first(
        u + "cache_read.input_tokens",
        u + "cache_read_input_tokens",
        u + "input_tokens.cached",
        "llm.token_count.prompt_details.cache_read",
    )
    write = first(
        u + "cache_creation.input_tokens",
        u + "cache_write.input_tokens",
        u + "cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    )
    output = first(u + "output_tokens", u + "completion_tokens", "llm.token_count.completion")
    cost = next(
        (c for k in (u + "cost", "llm.cost.total") if (c := real(attributes.get(k))) is not None),
        None,
    )
    if whole is None and output is None:
        return None if cost is None else Usage(cost_usd=cost)
    thought = first(
        u + "reasoning.output_tokens",
        u + "reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    )
    return whole_usage(whole, read, write, output, reasoning_tokens=thought, cost_usd=cost)


def model_of(attributes: dict[str, Any]) -> str | None:
    """Return the model that answered, or else the one asked."""
    keys = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
    return next((w for k in keys if (w := word(attributes.get(k)))), None)
