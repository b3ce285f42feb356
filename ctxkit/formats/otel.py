"""Reader and writer of OpenTelemetry GenAI spans as OTLP JSON.

Names follow the semantic conventions for generative AI, including `gen_ai.conversation.compacted`
and parts of type `compaction` for summaries (pull request 162 of the conventions).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.chat_message_and_usage_parsers import encode_tool_schemas
from ctxkit.formats.conversion_losses import count_conversion_losses, select_sent_messages
from ctxkit.formats.sessions_from_trace_spans import build_sessions_from_spans
from ctxkit.formats.untrusted_record_parsing import as_dict, as_list
from ctxkit.session.messages import (
    Attachment,
    Edit,
    SizeOnly,
    Text,
    Thinking,
    ToolCall,
    get_plain_text,
)
from ctxkit.session.session import ListPrefix

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.messages import Message, Part, Usage
    from ctxkit.session.session import ModelCall, Session


NAME = "otel"
ALIASES = ("opentelemetry", "otlp", "openinference")
CAN = (
    "usage per call (cache reads if given), model, times, agents, tools; text and system prompt "
    "if the exporter may log them; compactions if it marks them (gen_ai.conversation.compacted, "
    "parts of type compaction)"
)
CANNOT = "text by default; failed tools; cost, unless an exporter adds it"
BLIND = ("tool errors",)
TRAITS = (
    (
        "all",
        (
            "without the exporter's marks, compactions are derived from messages missing in the "
            "next prompt"
        ),
    ),
)


# Reading: `build_sessions_from_spans` groups the spans into sessions. Writing: one span per
# agent and one below it per model call. The span of a call repeats its whole prompt, so that the
# file is quadratic in the length of the session; it is produced as a stream, and `_PromptEncoder`
# encodes each message once and shares full pieces of text between the prompts.
def sniff(source: Source) -> bool:
    """Return True for OTLP JSON or spans with attributes of a GenAI convention."""
    document = source.document
    if type(document) is dict and type(document.get("resourceSpans")) is list:
        return True
    records = document if type(document) is list else source.head
    return any("resourceSpans" in as_dict(r) or _is_genai(as_dict(r)) for r in records[:16])


def _is_genai(span: dict[str, Any]) -> bool:
    attributes = span.get("attributes")
    keys = (
        list(attributes)[:200]
        if type(attributes) is dict
        else [as_dict(a).get("key") for a in as_list(attributes)[:200]]
    )
    return any(
        type(key) is str and key.startswith(("gen_ai.", "llm.", "openinference.")) for key in keys
    )


def read(source: Source) -> list[Session]:
    """Read one session per conversation (or trace), with other agents' threads as children."""
    document = source.document
    records: list[Any] = document if type(document) is list else [r for _, r in source.records]
    spans = (
        (n, span) for n, record in enumerate(records, 1) for span in _iter_spans(as_dict(record))
    )
    return build_sessions_from_spans(
        spans, source.path.stem, NAME, [] if type(document) is list else source.faults
    )


def _iter_spans(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "resourceSpans" not in record:
        yield record
        return
    for resource_spans in map(as_dict, as_list(record.get("resourceSpans"))):
        resource_attributes = as_list(as_dict(resource_spans.get("resource")).get("attributes"))
        for scope_spans in map(
            as_dict,
            as_list(
                resource_spans.get("scopeSpans")
                or resource_spans.get("instrumentationLibrarySpans")
            ),
        ):
            for span in as_list(scope_spans.get("spans")):
                if type(span) is dict:
                    yield {
                        **span,
                        "attributes": [*resource_attributes, *as_list(span.get("attributes"))],
                    }


_SUPPORTED = {
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
_STOP_REASONS_TO_OTEL = {"tool": "tool_call"}
_PROMPT_ATTRIBUTE = "gen_ai.input.messages"
_PROMPT_PLACEHOLDER = b"\0"
"""Placeholder of the prompt in an encoded span; JSON cannot contain this byte."""
_PIECE_BYTES = 1 << 16
"""Size of the pieces of an encoded prompt."""
_CONTENT_ATTRIBUTES = {
    "gen_ai.system_instructions",
    _PROMPT_ATTRIBUTE,
    "gen_ai.output.messages",
    "gen_ai.tool.definitions",
}
_encode = msgspec.json.Encoder().encode


def encode_session(session: Session) -> tuple[Iterator[bytes], Counter[str]]:
    """Return the file's content in pieces, and counts of what it cannot hold."""
    return _encode_document(session), _count_losses(session)


def _count_losses(session: Session) -> Counter[str]:
    """Count what the spans of a session and its descendants cannot hold."""
    losses = count_conversion_losses(session, _SUPPORTED)
    usages = [c.message.usage for c in session.calls if c.message.usage]
    losses["lives of cache writes"] += sum(1 for u in usages if u.cache_write_1h_tokens)
    last_position = session.calls[-1].position if session.calls else -1
    losses["messages after the last call"] += len(session.path) - last_position - 1
    compaction_indices = [i for i, e in enumerate(session.path) if _is_compaction(e)]
    reply_positions = [c.position for c in session.calls]
    next_calls = {bisect_left(reply_positions, i) for i in compaction_indices}
    losses["compactions that no call follows"] += len(compaction_indices) - len(
        next_calls - {len(session.calls)}
    )
    for child in session.children:
        losses.update(_count_losses(child))
    return losses


def _is_compaction(entry: Message | Edit) -> bool:
    return isinstance(entry, Edit) and entry.kind == "summarised"


def _encode_document(session: Session) -> Iterator[bytes]:
    header = {"resource": encode_resource(session), "scopeSpans": []}
    yield b'{"resourceSpans":[' + _encode(header)[:-2] + b'{"scope":{"name":"ctxkit"},"spans":[\n'
    for n, span in enumerate(_encode_spans(session)):
        yield from span if n == 0 else (b",\n", *span)
    yield b"\n]}]}]}\n"


def encode_resource(session: Session) -> dict[str, Any]:
    """Return the OTLP resource of a session: the program and its version."""
    attributes = {"service.name": session.product or "ctxkit", "service.version": session.version}
    return {"attributes": _to_key_values(attributes)}


def _encode_spans(session: Session, root: str = "", trace: str = "") -> Iterator[Sequence[bytes]]:
    """Yield the spans of a session and its subagents, each as pieces of JSON."""
    trace_id, prompt = trace or get_trace_id(session), _PromptEncoder()
    yield [_encode(encode_agent_span(session, trace_id, root))]
    for call, visible in session.views():
        prompt.update(visible)
        attributes = _make_call_attributes(session, call, prompt, msgspec.Raw(_PROMPT_PLACEHOLDER))
        head, tail = _encode(_make_call_span(session, call, attributes, trace_id)).split(
            _PROMPT_PLACEHOLDER
        )
        yield [head, *prompt.encoded_pieces, tail]
    for child in session.children:
        yield from _encode_spans(child, _make_span_id(trace_id, session.id, -1), trace_id)


def get_trace_id(session: Session) -> str:
    """Return the trace id of a session, a hash of the session's id."""
    return hashlib.sha256(session.id.encode()).hexdigest()[:32]


def encode_agent_span(session: Session, trace_id: str, parent_span_id: str = "") -> dict[str, Any]:
    """Return the span of an agent, from its first call to its last.

    Args:
        session: the agent's session.
        trace_id: the trace id.
        parent_span_id: id of the parent span.
    """
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": session.agent,
        "gen_ai.conversation.id": session.id,
    }
    times = [t for c in session.calls for t in _call_times(c.message)]
    started = session.started if session.started is not None else min(times, default=None)
    ids = (trace_id, _make_span_id(trace_id, session.id, -1), parent_span_id)
    return _make_span(
        ids, f"invoke_agent {session.agent}", (started, max(times, default=started)), attributes
    )


def encode_call_span(
    session: Session,
    call: ModelCall,
    visible: Sequence[Message],
    trace_id: str,
    *,
    has_text: bool = True,
) -> dict[str, Any]:
    """Return the span of a call.

    Args:
        session: the session of the call.
        call: the call.
        visible: its prompt.
        trace_id: the trace id.
        has_text: False leaves out all text.
    """
    prompt = _PromptEncoder()
    prompt.update(visible)
    attributes = _make_call_attributes(session, call, prompt, prompt.get_text)
    if not has_text:
        attributes = {k: v for k, v in attributes.items() if k not in _CONTENT_ATTRIBUTES}
    return _make_call_span(session, call, attributes, trace_id)


class _PromptEncoder:
    """Encoder of prompts as the text of an attribute, which reuses what successive ones share."""

    def __init__(self) -> None:
        self.has_summary = False
        self.instructions: list[dict[str, Any]] = []
        """Texts of the system prompt."""
        self._visible: Sequence[Message] = ()
        self._full_pieces: list[bytes] = []
        self._open_piece = bytearray()
        self._encoded_by_id: dict[int, bytes] = {}
        """Encoded messages of this prompt by `id`, escaped for a JSON string within JSON."""

    def update(self, visible: Sequence[Message]) -> None:
        """Update to the next prompt; if it only grew, just the new messages are encoded."""
        added = visible.added_since(self._visible) if isinstance(visible, ListPrefix) else None
        encoded = self._encoded_by_id
        if added is None:
            added, self.has_summary, self.instructions = visible, False, []
            self._full_pieces, self._open_piece, self._encoded_by_id = [], bytearray(), {}
        self._visible = visible
        for message in select_sent_messages(added):
            self.has_summary = self.has_summary or message.role == "summary"
            if message.role == "system":
                texts = (p.text for p in message.parts if isinstance(p, Text))
                self.instructions += [{"type": "text", "content": text} for text in texts]
            else:
                self._append_message(
                    message,
                    encoded.get(id(message)) or _encode(_to_json(_encode_message(message)))[1:-1],
                )

    def _append_message(self, message: Message, encoded: bytes) -> None:
        if self._encoded_by_id:
            self._open_piece += b","
        self._open_piece += encoded
        self._encoded_by_id[id(message)] = encoded
        if len(self._open_piece) > _PIECE_BYTES:
            self._full_pieces.append(bytes(self._open_piece))
            self._open_piece.clear()

    @property
    def encoded_pieces(self) -> list[bytes]:
        """The prompt as an encoded JSON string, in pieces."""
        return [b'"[', *self._full_pieces, bytes(self._open_piece), b']"']

    @property
    def get_text(self) -> str:
        """The prompt as text."""
        return str(msgspec.json.decode(b"".join(self.encoded_pieces)))


def _make_call_span(
    session: Session, call: ModelCall, attributes: dict[str, Any], trace: str
) -> dict[str, Any]:
    name = f"chat {call.message.model or ''}".strip()
    ids = (
        trace,
        _make_span_id(trace, session.id, call.index),
        _make_span_id(trace, session.id, -1),
    )
    span = _make_span(ids, name, _call_times(call.message) or (None, None), attributes)
    if call.message.is_error:
        span["status"] = {"code": 2, "message": call.message.error or ""}
    return span


def _make_call_attributes(
    session: Session, call: ModelCall, prompt: _PromptEncoder, messages: str | msgspec.Raw
) -> dict[str, Any]:
    """Return the attributes of a call's span; `messages` is the value of the prompt's attribute."""
    reply = call.message
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": str(reply.details.get("provider") or "unknown"),
        "gen_ai.conversation.id": session.id,
        "gen_ai.agent.name": call.agent,
        "gen_ai.request.model": reply.model or session.model,
        "gen_ai.response.model": reply.model,
        "gen_ai.response.finish_reasons": (
            [_STOP_REASONS_TO_OTEL.get(reply.stop, reply.stop)] if reply.stop else None
        ),
        "gen_ai.conversation.compacted": True if _is_compacted(session, call, prompt) else None,
        "gen_ai.system_instructions": _to_json(prompt.instructions)
        if prompt.instructions
        else None,
        _PROMPT_ATTRIBUTE: messages,
        "gen_ai.output.messages": _to_json([_encode_message(reply)]) if reply.parts else None,
        "gen_ai.tool.definitions": _encode_tools(session)
        if session.tools and not call.index
        else None,
        "error.type": (reply.error or "error")[:200] if reply.is_error else None,
    }
    return attributes | (_usage_attributes(reply.usage) if reply.usage else {})


def _is_compacted(session: Session, call: ModelCall, prompt: _PromptEncoder) -> bool:
    """Return True if the prompt has a summary, or a compaction is right before the call."""
    if prompt.has_summary:
        return True
    previous = session.calls[call.index - 1].position if call.index else 0
    return any(map(_is_compaction, session.path[previous : call.position]))


def _usage_attributes(usage: Usage) -> dict[str, Any]:
    cache_writes = [
        n for n in (usage.cache_write_tokens, usage.cache_write_1h_tokens) if n is not None
    ]
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": sum(cache_writes) if cache_writes else None,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "gen_ai.usage.cost": usage.cost_usd,
    }


def _encode_message(message: Message) -> dict[str, Any]:
    role = message.sent_as
    if message.role == "summary":
        parts: list[dict[str, Any]] = [{"type": "compaction", "content": message.text}]
        parts += [_encode_part(p) for p in message.parts if isinstance(p, Attachment)]
    elif message.role == "tool":
        text = get_plain_text(message)
        parts = [{"type": "tool_call_response", "id": message.call_id or "", "response": text}]
        parts += [_encode_part(p) for p in message.parts if isinstance(p, Attachment)]
    else:
        parts = [_encode_part(p) for p in message.parts]
    encoded: dict[str, Any] = {"role": role, "parts": parts}
    if message.role == "assistant":
        encoded["finish_reason"] = _STOP_REASONS_TO_OTEL.get(
            message.stop or "", message.stop or "stop"
        )
    return encoded


def _encode_part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "content": part.text}
    if isinstance(part, Thinking):
        return {"type": "reasoning", "content": part.text}
    if isinstance(part, ToolCall):
        arguments = part.arguments if part.raw is None else part.raw
        return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": arguments}
    if isinstance(part, SizeOnly):
        return {"type": "text", "content": ""}
    modality = part.kind if part.kind != "document" else "file"
    if part.url:
        return {"type": "uri", "modality": modality, "mime_type": part.media_type, "uri": part.url}
    return {
        "type": "blob",
        "modality": modality,
        "mime_type": part.media_type,
        "content": part.data,
    }


def _encode_tools(session: Session) -> str:
    return _to_json(
        [{"type": "function", **tool["function"]} for tool in encode_tool_schemas(session.tools)]
    )


# -- OTLP encoding --------------------------------------------------------------------------------


def _call_times(message: Message) -> tuple[float, float] | tuple[()]:
    if message.time is None:
        return ()
    return (message.time - (message.latency or 0.0), message.time)


def _make_span_id(trace: str, session: str, number: int) -> str:
    return hashlib.sha256(f"{trace} {session} {number}".encode()).hexdigest()[:16]


def _make_span(
    ids: tuple[str, str, str],
    name: str,
    times: tuple[float | None, float | None],
    attributes: dict[str, Any],
) -> dict[str, Any]:
    trace, span_id, parent = ids
    span: dict[str, Any] = {"traceId": trace, "spanId": span_id, "name": name, "kind": 3}
    if parent:
        span["parentSpanId"] = parent
    for key, time in zip(("startTimeUnixNano", "endTimeUnixNano"), times, strict=True):
        if time is not None:
            span[key] = str(round(time * 1e6) * 1000)
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
    if isinstance(value, msgspec.Raw):  # an encoded string
        return {"stringValue": value}
    return {"stringValue": str(value)}


def _to_json(value: Any) -> str:
    return _encode(value).decode()
