"""One span of a trace, whichever exporter wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.readers.fields import items, mapping, text, time, word
from ctxkit.readers.trace_spans import to_span_usage

if TYPE_CHECKING:
    from collections.abc import Iterator

_CALLS = {"chat", "text_completion", "generate_content", "LLM"}


class ExportedSpan:
    """One span, whichever exporter wrote it: attributes as a flat object, times in seconds."""

    def __init__(self, raw: dict[str, Any]) -> None:
        given = raw.get("attributes")
        self.attributes = _flat(given) if type(given) is dict else _pairs(given)
        context = mapping(raw.get("context")) or mapping(raw.get("spanContext"))
        self.id = (
            text(raw.get("spanId")) or text(raw.get("span_id")) or text(context.get("span_id"))
        )
        self.parent = text(raw.get("parentSpanId")) or text(raw.get("parent_id"))
        self.trace = (
            text(raw.get("traceId")) or text(raw.get("trace_id")) or text(context.get("trace_id"))
        )
        self.begun = _time(raw, "startTimeUnixNano", "start_time")
        self.ended = _time(raw, "endTimeUnixNano", "end_time")
        self.failed = mapping(raw.get("status")).get("code") in (2, "STATUS_CODE_ERROR") or (
            mapping(raw.get("status")).get("status_code") == "ERROR"
        )
        status = mapping(raw.get("status"))
        self.why = (
            (word(status.get("message")) or word(status.get("description")))
            if self.failed
            else None
        )
        self.events = [
            {
                **mapping(e),
                "attributes": (
                    _flat(a) if type(a := mapping(e).get("attributes")) is dict else _pairs(a)
                ),
            }
            for e in items(raw.get("events"))
        ]

    @property
    def kind(self) -> str:
        """What the span says that it is."""
        a = self.attributes
        return text(a.get("gen_ai.operation.name")) or text(a.get("openinference.span.kind"))

    @property
    def is_call(self) -> bool:
        """True for a call of a model."""
        a = self.attributes
        asked = "gen_ai.request.model" in a or "llm.model_name" in a
        return self.kind in _CALLS or (not self.kind and asked and to_span_usage(a) is not None)

    def conversation(self, spans: dict[str, ExportedSpan]) -> str:
        """Return the conversation that it, or one above it, names; else its trace."""
        for s in self.line(spans):
            named_ = word(s.attributes.get("gen_ai.conversation.id")) or word(
                s.attributes.get("session.id")
            )
            if named_:
                return named_
        return self.trace

    def agent(self, spans: dict[str, ExportedSpan]) -> str | None:
        """Return the agent that it, or one above it, names."""
        names = (word(s.attributes.get("gen_ai.agent.name")) for s in self.line(spans))
        return next((n for n in names if n), None)

    def line(self, spans: dict[str, ExportedSpan]) -> Iterator[ExportedSpan]:
        """Yield the span and those above it."""
        at: ExportedSpan | None = self
        for _ in range(64):
            if at is None:
                return
            yield at
            at = spans.get(at.parent) if at.parent else None


def _pairs(raw: Any) -> dict[str, Any]:
    """OTLP's list of key and typed value as an object."""
    return {text(mapping(a).get("key")): _value(mapping(a).get("value"), 0) for a in items(raw)}


def _value(raw: Any, depth: int) -> Any:
    for kind, value in mapping(raw).items():
        if (
            kind == "intValue"
            and type(value) is str
            and value.lstrip("-").isdigit()
            and len(value) < 20
        ):
            return int(value)
        if depth < 16 and kind == "arrayValue":
            return [_value(v, depth + 1) for v in items(mapping(value).get("values"))]
        if depth < 16 and kind == "kvlistValue":
            pairs = map(mapping, items(mapping(value).get("values")))
            return {text(p.get("key")): _value(p.get("value"), depth + 1) for p in pairs}
        return value
    return None


def _flat(raw: dict[str, Any]) -> dict[str, Any]:
    """Return attributes flat: Phoenix nests them (`llm` holds `token_count` holds `prompt`)."""
    out: dict[str, Any] = {}
    waiting = [("", raw, 0)]
    while waiting:
        prefix, value, depth = waiting.pop()
        for k, v in value.items():
            key = f"{prefix}{k}"
            if (
                type(v) is list
                and v
                and type(v[0]) is dict
                and depth < 8
                and "messages" in key
                and "gen_ai" not in key
            ):
                waiting += [(f"{key}.{i}.", mapping(e), depth + 1) for i, e in enumerate(v)]
            elif type(v) is dict and depth < 8:
                waiting.append((f"{key}.", v, depth + 1))
            else:
                out[key] = v
    return out


def _time(raw: dict[str, Any], nano: str, plain: str) -> float | None:
    value = raw.get(nano)
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 21:
        value = int(value)
    if type(value) is int:
        return value / 1e9 if 0 < value < 1 << 63 else None
    return time(raw.get(plain))
