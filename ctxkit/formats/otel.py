"""OpenTelemetry GenAI spans as OTLP JSON, read and written.

Names are those of the semantic conventions for generative AI: `gen_ai.conversation.compacted` and
parts of type `compaction` (their pull request 162) tell what a compaction put in the place of older
messages.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.chat_messages import encode_tool_schemas
from ctxkit.formats.fields import as_dict, as_list
from ctxkit.formats.losses import count_losses, visible_messages
from ctxkit.formats.spans import sessions_from_spans
from ctxkit.session.messages import Edit, Image, SizeOnly, Text, Thinking, ToolCall, get_plain_text
from ctxkit.session.session import ListPrefix

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence

    from ctxkit.formats.source import Source
    from ctxkit.session.messages import Message, Part, Usage
    from ctxkit.session.session import ModelCall, Session


NAME = "otel"
ALIASES = ("opentelemetry", "otlp", "openinference")
CAN = (
    "usage per call (cache reads where given), model, times, agents, tools; text where the exporter"
    " may log it; compactions where it marks them (gen_ai.conversation.compacted, parts of type"
    " compaction)"
)
CANNOT = "text by default; failed tools; money, but where an exporter adds it"
BLIND = ("tool errors",)
TRAITS = (
    (
        "all",
        (
            "an exporter that marks no compaction leaves only what is gone from the next prompt:"
            " derived"
        ),
    ),
)


def sniff(source: Source) -> bool:
    """Say whether this is OTLP JSON or spans with attributes of a GenAI convention."""
    document = source.document
    if type(document) is dict and type(document.get("resourceSpans")) is list:
        return True
    found = document if type(document) is list else source.head
    return any("resourceSpans" in as_dict(r) or _is_genai(as_dict(r)) for r in found[:16])


def _is_genai(span: dict[str, Any]) -> bool:
    given = span.get("attributes")
    keys = (
        list(given)[:200]
        if type(given) is dict
        else [as_dict(a).get("key") for a in as_list(given)[:200]]
    )
    return any(type(k) is str and k.startswith(("gen_ai.", "llm.", "openinference.")) for k in keys)


def read(source: Source) -> list[Session]:
    """Return one session a conversation (else a trace), other agents' threads as its children."""
    found = source.document
    records: list[Any] = found if type(found) is list else [r for _, r in source.records]
    spans = (
        (n, span) for n, record in enumerate(records, 1) for span in _unwrapped(as_dict(record))
    )
    return sessions_from_spans(
        spans, source.path.stem, NAME, [] if type(found) is list else source.faults
    )


def _unwrapped(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "resourceSpans" not in record:
        yield record
        return
    for resource in map(as_dict, as_list(record.get("resourceSpans"))):
        about = as_list(as_dict(resource.get("resource")).get("attributes"))
        for scope in map(
            as_dict,
            as_list(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")),
        ):
            for span in as_list(scope.get("spans")):
                if type(span) is dict:
                    yield {**span, "attributes": [*about, *as_list(span.get("attributes"))]}


_OTEL_HOLDS = {
    "usages",
    "times",
    "models of calls",
    "stop reasons",
    "error texts",
    "latencies",
    "compactions",
    "summary marks",
    "system prompts",
    "tool schemas",
    "thoughts",
    "images",
    "documents and audio",
    "agent names",
    "edits (dropped)",
    "subagent sessions",
    "tool arguments that are no JSON object",
}
_STOPS_TO_OTEL = {"tool": "tool_call"}
_PROMPT = "gen_ai.input.messages"
_GAP = b"\0"
"""Where the prompt stands in a span that is written in pieces; JSON holds no such byte."""
_FULL = 1 << 16
"""Bytes of a piece of a prompt."""
_CONTENT_ATTRIBUTES = {
    "gen_ai.system_instructions",
    _PROMPT,
    "gen_ai.output.messages",
    "gen_ai.tool.definitions",
}
_encode = msgspec.json.Encoder().encode


def encode_session(session: Session) -> tuple[Iterator[bytes], Counter[str]]:
    """Return the file in pieces (each span repeats its call's prompt), and what it cannot hold."""
    return _document(session), _lost(session)


def _lost(session: Session) -> Counter[str]:
    """Count what the spans of a session and of all below it do not say."""
    lost = count_losses(session, _OTEL_HOLDS)
    hours = [c.message.usage for c in session.calls if c.message.usage]
    lost["lives of cache writes"] += sum(1 for u in hours if u.cache_write_1h_tokens)
    last = session.calls[-1].position if session.calls else -1
    lost["messages after the last call"] += len(session.path) - last - 1
    cuts = [i for i, e in enumerate(session.path) if _is_cut(e)]
    replies = [c.position for c in session.calls]
    seen = {bisect_left(replies, i) for i in cuts}
    lost["compactions that no call follows"] += len(cuts) - len(seen - {len(session.calls)})
    for child in session.children:
        lost.update(_lost(child))
    return lost


def _is_cut(entry: Message | Edit) -> bool:
    return isinstance(entry, Edit) and entry.kind == "summarised"


def _document(session: Session) -> Iterator[bytes]:
    head = {"resource": encode_resource(session), "scopeSpans": []}
    yield b'{"resourceSpans":[' + _encode(head)[:-2] + b'{"scope":{"name":"ctxkit"},"spans":[\n'
    for n, span in enumerate(_spans(session)):
        yield from span if n == 0 else (b",\n", *span)
    yield b"\n]}]}]}\n"


def encode_resource(session: Session) -> dict[str, Any]:
    """Return what spans of a session say of the program that made it."""
    about = {"service.name": session.product or "ctxkit", "service.version": session.version}
    return {"attributes": _to_key_values(about)}


def _spans(session: Session, root: str = "", trace: str = "") -> Iterator[Sequence[bytes]]:
    """Yield the spans of a session and its subagents, each as pieces of JSON: each agent's own,
    then those of its calls.
    """
    own, prompt = trace or get_trace_id(session), _Prompt()
    yield [_encode(encode_agent_span(session, own, root))]
    for call, shown in session.views():
        prompt.follow(shown)
        told = _attributes(session, call, prompt, msgspec.Raw(_GAP))
        head, tail = _encode(_chat_span(session, call, told, own)).split(_GAP)
        yield [head, *prompt.pieces, tail]
    for child in session.children:
        yield from _spans(child, _id(own, session.id, -1), own)


def get_trace_id(session: Session) -> str:
    """Return the id of a session's trace, which follows from the session's own."""
    return hashlib.sha256(session.id.encode()).hexdigest()[:32]


def encode_agent_span(session: Session, trace: str, root: str = "") -> dict[str, Any]:
    """Return the span of an agent, from its first call to its last; `root` is the one above it."""
    about = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": session.agent,
        "gen_ai.conversation.id": session.id,
    }
    times = [t for c in session.calls for t in _times(c.message)]
    begun = session.started if session.started is not None else min(times, default=None)
    ids = (trace, _id(trace, session.id, -1), root)
    return _span(ids, f"invoke_agent {session.agent}", (begun, max(times, default=begun)), about)


def encode_call_span(
    session: Session, call: ModelCall, shown: Sequence[Message], trace: str, *, content: bool = True
) -> dict[str, Any]:
    """Return the span of a call as plain values; without `content` nothing of what was said."""
    prompt = _Prompt()
    prompt.follow(shown)
    told = _attributes(session, call, prompt, prompt.text)
    if not content:
        told = {k: v for k, v in told.items() if k not in _CONTENT_ATTRIBUTES}
    return _chat_span(session, call, told, trace)


class _Prompt:
    """The messages of a prompt as the text of an attribute.

    Most prompts go on the one before: each message is encoded once, and pieces that are full are
    shared by all later prompts.
    """

    def __init__(self) -> None:
        self.has_summary = False
        self.instructions: list[dict[str, Any]] = []
        """Texts of the system prompt."""
        self._shown: Sequence[Message] = ()
        self._full: list[bytes] = []
        self._last = bytearray()
        self._encoded: dict[int, bytes] = {}
        """Messages of this prompt by identity, as they stand in a JSON text within a JSON text."""

    def follow(self, shown: Sequence[Message]) -> None:
        """Go over to the next prompt."""
        new = shown.added_since(self._shown) if isinstance(shown, ListPrefix) else None
        known = self._encoded
        if new is None:
            new, self.has_summary, self.instructions = shown, False, []
            self._full, self._last, self._encoded = [], bytearray(), {}
        self._shown = shown
        for m in visible_messages(new):
            self.has_summary = self.has_summary or m.role == "summary"
            if m.role == "system":
                texts = (p.text for p in m.parts if isinstance(p, Text))
                self.instructions += [{"type": "text", "content": text} for text in texts]
            else:
                self._add(m, known.get(id(m)) or _encode(_json(_message(m)))[1:-1])

    def _add(self, m: Message, encoded: bytes) -> None:
        if self._encoded:
            self._last += b","
        self._last += encoded
        self._encoded[id(m)] = encoded
        if len(self._last) > _FULL:
            self._full.append(bytes(self._last))
            self._last.clear()

    @property
    def pieces(self) -> list[bytes]:
        """The text of all messages in JSON, in pieces."""
        return [b'"[', *self._full, bytes(self._last), b']"']

    @property
    def text(self) -> str:
        """The text of all messages."""
        return str(msgspec.json.decode(b"".join(self.pieces)))


def _chat_span(
    session: Session, call: ModelCall, told: dict[str, Any], trace: str
) -> dict[str, Any]:
    name = f"chat {call.message.model or ''}".strip()
    ids = (trace, _id(trace, session.id, call.index), _id(trace, session.id, -1))
    span = _span(ids, name, _times(call.message) or (None, None), told)
    if call.message.is_error:
        span["status"] = {"code": 2, "message": call.message.error or ""}
    return span


def _attributes(
    session: Session, call: ModelCall, prompt: _Prompt, messages: str | msgspec.Raw
) -> dict[str, Any]:
    """Return what a span says of a call: what was sent and what came, what it was billed.

    `messages` stands for those of the prompt.
    """
    reply = call.message
    told: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": str(reply.details.get("provider") or "unknown"),
        "gen_ai.conversation.id": session.id,
        "gen_ai.agent.name": call.agent,
        "gen_ai.request.model": reply.model or session.model,
        "gen_ai.response.model": reply.model,
        "gen_ai.response.finish_reasons": (
            [_STOPS_TO_OTEL.get(reply.stop, reply.stop)] if reply.stop else None
        ),
        "gen_ai.conversation.compacted": True if _is_compacted(session, call, prompt) else None,
        "gen_ai.system_instructions": _json(prompt.instructions) if prompt.instructions else None,
        _PROMPT: messages,
        "gen_ai.output.messages": _json([_message(reply)]) if reply.parts else None,
        "gen_ai.tool.definitions": _tools(session) if session.tools and not call.index else None,
        "error.type": (reply.error or "error")[:200] if reply.is_error else None,
    }
    return told | (_usage(reply.usage) if reply.usage else {})


def _is_compacted(session: Session, call: ModelCall, prompt: _Prompt) -> bool:
    """Say whether a call saw less than was said: a summary is shown, or a cut lies right before."""
    if prompt.has_summary:
        return True
    before = session.calls[call.index - 1].position if call.index else 0
    return any(map(_is_cut, session.path[before : call.position]))


def _usage(u: Usage) -> dict[str, Any]:
    writes = [n for n in (u.cache_write_tokens, u.cache_write_1h_tokens) if n is not None]
    return {
        "gen_ai.usage.input_tokens": u.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": u.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": sum(writes) if writes else None,
        "gen_ai.usage.output_tokens": u.output_tokens,
        "gen_ai.usage.reasoning.output_tokens": u.reasoning_tokens,
        "gen_ai.usage.cost": u.cost_usd,
    }


def _message(m: Message) -> dict[str, Any]:
    role = m.sent_as
    if m.role == "summary":
        parts: list[dict[str, Any]] = [{"type": "compaction", "content": m.text}]
        parts += [_part(p) for p in m.parts if isinstance(p, Image)]
    elif m.role == "tool":
        said = get_plain_text(m)
        parts = [{"type": "tool_call_response", "id": m.call_id or "", "response": said}]
        parts += [_part(p) for p in m.parts if isinstance(p, Image)]
    else:
        parts = [_part(p) for p in m.parts]
    out: dict[str, Any] = {"role": role, "parts": parts}
    if m.role == "assistant":
        out["finish_reason"] = _STOPS_TO_OTEL.get(m.stop or "", m.stop or "stop")
    return out


def _part(p: Part) -> dict[str, Any]:
    if isinstance(p, Text):
        return {"type": "text", "content": p.text}
    if isinstance(p, Thinking):
        return {"type": "reasoning", "content": p.text}
    if isinstance(p, ToolCall):
        given = p.arguments if p.raw is None else p.raw
        return {"type": "tool_call", "id": p.id, "name": p.name, "arguments": given}
    if isinstance(p, SizeOnly):
        return {"type": "text", "content": ""}
    modality = p.kind if p.kind != "document" else "file"
    if p.url:
        return {"type": "uri", "modality": modality, "mime_type": p.media_type, "uri": p.url}
    return {"type": "blob", "modality": modality, "mime_type": p.media_type, "content": p.data}


def _tools(session: Session) -> str:
    return _json(
        [{"type": "function", **tool["function"]} for tool in encode_tool_schemas(session.tools)]
    )


# -- OTLP
# --------------------------------------------------------------------------------------------------


def _times(m: Message) -> tuple[float, float] | tuple[()]:
    if m.time is None:
        return ()
    return (m.time - (m.latency or 0.0), m.time)


def _id(trace: str, session: str, n: int) -> str:
    return hashlib.sha256(f"{trace} {session} {n}".encode()).hexdigest()[:16]


def _span(
    ids: tuple[str, str, str],
    name: str,
    times: tuple[float | None, float | None],
    attributes: dict[str, Any],
) -> dict[str, Any]:
    trace, own, parent = ids
    span: dict[str, Any] = {"traceId": trace, "spanId": own, "name": name, "kind": 3}
    if parent:
        span["parentSpanId"] = parent
    for key, when in zip(("startTimeUnixNano", "endTimeUnixNano"), times, strict=True):
        if when is not None:
            span[key] = str(round(when * 1e6) * 1000)
    return {**span, "attributes": _to_key_values(attributes), "status": {}}


def _to_key_values(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": k, "value": _to_otlp_value(v)} for k, v in attributes.items() if v is not None]


def _to_otlp_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_to_otlp_value(v) for v in value]}}
    if isinstance(value, msgspec.Raw):  # a text that is encoded
        return {"stringValue": value}
    return {"stringValue": str(value)}


def _json(value: Any) -> str:
    return _encode(value).decode()
