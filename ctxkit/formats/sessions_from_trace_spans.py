"""Sessions from trace spans of model calls, in the conventions of four instrumentations.

OpenTelemetry GenAI (JSON in one attribute, or events), OpenLLMetry (`gen_ai.prompt.N`),
OpenInference (`llm.input_messages.N.message`), and plain `input.value` and `output.value`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import (
    count_skipped,
    fill_tool_names,
    make_usage_from_total,
    parse_chat_message,
    parse_stop_reason,
    parse_tool_schemas,
)
from ctxkit.formats.conversations_from_requests import (
    KeyedMessage,
    PromptThreads,
    build_session_from_threads,
    make_keyed_message,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    DAMAGE_ERRORS,
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    describe_damage,
    float_or_none,
    parse_embedded_json,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import Edit, Fault, Message, ToolSchema, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.session.session import Session


# Spans become sessions in four steps:
#   1. spans are sorted by start; one without a time stays after the span written before it
#   2. they are grouped by the conversation that they or an ancestor name, else by trace
#   3. of each call span, prompt and reply are extracted in the first convention that has them
#   4. `PromptThreads` assigns the calls to threads and derives edits from messages that disappear
# A span with `gen_ai.conversation.compacted`, or a prompt with a part of type `compaction`, turns
# the derived edit into a recorded compaction.
def build_sessions_from_spans(
    numbered_spans: Iterable[tuple[int, dict[str, Any]]],
    default_session_id: str,
    format_name: str,
    faults: Iterable[Fault] = (),
) -> list[Session]:
    """Build one session per conversation (or trace), with other agents' threads as children.

    Args:
        numbered_spans: spans in any of the conventions, each with its line.
        default_session_id: the id of a session that names none.
        format_name: the name of the format.
        faults: faults of the file so far.
    """
    faults, skipped = list(faults), dict[str, int]()
    spans = _sort_spans(_parse_spans(numbered_spans, faults, skipped))
    span_by_id = {s.id: s for s in spans}
    groups: dict[str, list[_TraceSpan]] = {}
    for s in spans:
        groups.setdefault(s.get_conversation(span_by_id), []).append(s)
    for conversation in [n for n, group in groups.items() if not any(s.is_call for s in group)]:
        if len(groups) > 1:  # spans without calls, of a trace whose calls name a conversation
            for s in groups.pop(conversation):
                count_skipped(skipped, "span: " + (s.kind or "of another kind"))
    sessions = [
        replace(
            _build_session(conversation, group, span_by_id, default_session_id), format=format_name
        )
        for conversation, group in groups.items()
    ]
    if sessions:
        sessions[0] = replace(
            sessions[0],
            faults=(*faults, *sessions[0].faults),
            skipped=_add_counts(skipped, sessions[0].skipped),
        )
    return sessions


def _parse_spans(
    numbered_spans: Iterable[tuple[int, dict[str, Any]]],
    faults: list[Fault],
    skipped: dict[str, int],
) -> Iterator[_TraceSpan]:
    for line, raw_span in numbered_spans:
        try:
            yield _TraceSpan(raw_span)
        except DAMAGE_ERRORS as e:
            faults.append(Fault(line, describe_damage(e)))
            count_skipped(skipped, "span: damaged")


def _sort_spans(spans: Iterable[_TraceSpan]) -> list[_TraceSpan]:
    """Sort spans by start; one without a time stays after the one written before it."""
    start, keyed = 0.0, list[tuple[float, _TraceSpan]]()
    for span in spans:
        start = start if span.started_at is None else span.started_at
        keyed.append((start, span))
    return [span for _, span in sorted(keyed, key=lambda pair: pair[0])]


def _add_counts(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {k: a.get(k, 0) + b.get(k, 0) for k in {**a, **b}}


def _build_session(
    name: str, spans: list[_TraceSpan], span_by_id: dict[str, _TraceSpan], stem: str
) -> Session:
    threads, skipped, faults = PromptThreads(), dict[str, int](), list[Fault]()
    tool_by_call, tools = dict[str, str](), tuple[ToolSchema, ...]()
    for span in spans:
        if not span.is_call:
            count_skipped(skipped, "span: " + (span.kind or "of another kind"))
            continue
        with catch_damage(faults, 0, f"span {span.id[:40]}: "):
            prompt, reply = extract_prompt_and_reply(span.attributes, span.events)
            keyed = [
                make_keyed_message(m)
                for raw in prompt
                for m in _mark_summaries(
                    raw,
                    fill_tool_names(
                        parse_chat_message(raw, SessionBuilder(), skipped), tool_by_call
                    ),
                )
            ]
            _add_call(
                threads,
                keyed,
                _make_reply(span, reply, skipped, tool_by_call),
                span,
                span.get_agent(span_by_id),
            )
            tools = tools or parse_tool_schemas(
                parse_embedded_json(span.attributes.get("gen_ai.tool.definitions"))
            )
    product = next(
        (w for span in spans if (w := str_or_none(span.attributes.get("service.name")))), None
    )
    fields = {"product": product, "started": spans[0].started_at} if threads.all else {}
    session = build_session_from_threads(threads.all, name or stem, tools, format="", **fields)
    return replace(session, skipped=skipped, faults=tuple(faults))


def _mark_summaries(raw: Any, messages: list[Message]) -> list[Message]:
    """Give messages the role `summary` if the raw message has a part of type `compaction`."""
    is_summary = any(
        as_dict(p).get("type") == "compaction" for p in as_list(as_dict(raw).get("parts"))
    )
    return [replace(m, role="summary") if is_summary and m.role != "tool" else m for m in messages]


def _add_call(
    threads: PromptThreads,
    prompt: list[KeyedMessage],
    reply: Message,
    span: _TraceSpan,
    agent: str | None,
) -> None:
    """Add one call; a mark of a compaction turns its derived edit into a recorded one."""
    is_marked = span.attributes.get("gen_ai.conversation.compacted") is True
    has_summary = any(m.role == "summary" for _, m in prompt)
    if not (is_marked or has_summary):
        threads.add_call(prompt, reply, agent).is_compacted = False
        return
    latest = threads.latest(agent)
    if is_marked and not prompt and latest is not None and not latest.is_compacted:
        # The trace has no content, so that the mark is all that is known.
        edit_id = latest.log.new_id()
        latest.log.add(
            Edit(
                kind="summarised",
                id=edit_id,
                method="compacted",
                reason="what it took is not in the trace",
            )
        )
    is_marked_edit = is_marked and not (latest is not None and latest.is_compacted and has_summary)
    thread = threads.add_call(prompt, reply, agent, compacted=True)
    thread.is_compacted = is_marked
    builder = thread.log
    for i in range(thread.first_new_index, len(builder.entries)):
        entry = builder.entries[i]
        if isinstance(entry, Message) and entry.role == "summary":  # of messages never seen
            entry = Edit(kind="summarised", id=builder.new_id(), inserted=(entry,))
        if isinstance(entry, Edit) and (
            is_marked_edit or any(m.role == "summary" for m in entry.inserted)
        ):
            recorded: dict[str, Any] = {"source": "recorded", "method": "compacted", "reason": ""}
            builder.entries[i] = replace(entry, kind="summarised", time=span.started_at, **recorded)


def _make_reply(
    span: _TraceSpan, reply: list[Any], skipped: dict[str, int], tool_by_call: dict[str, str]
) -> Message:
    messages = [
        m
        for raw in reply
        for m in fill_tool_names(parse_chat_message(raw, SessionBuilder(), skipped), tool_by_call)
    ]
    finish_reasons = parse_embedded_json(span.attributes.get("gen_ai.response.finish_reasons"))
    stop = next(iter(as_list(finish_reasons)), None) or next(
        (as_dict(raw).get("finish_reason") for raw in reply), None
    )
    return Message(
        role="assistant",
        id=span.id,
        parts=tuple(p for m in messages if m.role == "assistant" for p in m.parts),
        time=span.ended_at or span.started_at,
        usage=_parse_span_usage(span.attributes),
        model=_get_span_model(span.attributes),
        latency=span.ended_at - span.started_at
        if span.started_at and span.ended_at and span.ended_at >= span.started_at
        else None,
        stop="error" if span.is_error else parse_stop_reason(stop),
        is_error=span.is_error,
        error=str_or_none(span.attributes.get("error.type")) or span.error_message,
    )


_CALL_OPERATIONS = {"chat", "text_completion", "generate_content", "LLM"}


class _TraceSpan:
    """One span of any exporter, with flat attributes and times in Unix seconds."""

    def __init__(self, raw: dict[str, Any]) -> None:
        attributes = raw.get("attributes")
        self.attributes = (
            _flatten_attributes(attributes)
            if type(attributes) is dict
            else _attributes_from_pairs(attributes)
        )
        context = as_dict(raw.get("context")) or as_dict(raw.get("spanContext"))
        self.id = (
            as_str(raw.get("spanId"))
            or as_str(raw.get("span_id"))
            or as_str(context.get("span_id"))
        )
        self.parent = as_str(raw.get("parentSpanId")) or as_str(raw.get("parent_id"))
        self.trace = (
            as_str(raw.get("traceId"))
            or as_str(raw.get("trace_id"))
            or as_str(context.get("trace_id"))
        )
        self.started_at = _parse_span_time(raw, "startTimeUnixNano", "start_time")
        self.ended_at = _parse_span_time(raw, "endTimeUnixNano", "end_time")
        self.is_error = as_dict(raw.get("status")).get("code") in (2, "STATUS_CODE_ERROR") or (
            as_dict(raw.get("status")).get("status_code") == "ERROR"
        )
        status = as_dict(raw.get("status"))
        self.error_message = (
            (str_or_none(status.get("message")) or str_or_none(status.get("description")))
            if self.is_error
            else None
        )
        self.events = [
            {
                **as_dict(e),
                "attributes": (
                    _flatten_attributes(a)
                    if type(a := as_dict(e).get("attributes")) is dict
                    else _attributes_from_pairs(a)
                ),
            }
            for e in as_list(raw.get("events"))
        ]

    @property
    def kind(self) -> str:
        """The operation or span kind, or an empty string."""
        attributes = self.attributes
        return as_str(attributes.get("gen_ai.operation.name")) or as_str(
            attributes.get("openinference.span.kind")
        )

    @property
    def is_call(self) -> bool:
        """True for a model call."""
        attributes = self.attributes
        has_model = "gen_ai.request.model" in attributes or "llm.model_name" in attributes
        return self.kind in _CALL_OPERATIONS or (
            not self.kind and has_model and _parse_span_usage(attributes) is not None
        )

    def get_conversation(self, spans: dict[str, _TraceSpan]) -> str:
        """Return the conversation id of the span or its nearest ancestor, else the trace id."""
        for span in self.iter_ancestors(spans):
            conversation_id = str_or_none(
                span.attributes.get("gen_ai.conversation.id")
            ) or str_or_none(span.attributes.get("session.id"))
            if conversation_id:
                return conversation_id
        return self.trace

    def get_agent(self, spans: dict[str, _TraceSpan]) -> str | None:
        """Return the agent's name from the span or its nearest ancestor, or None."""
        names = (
            str_or_none(s.attributes.get("gen_ai.agent.name")) for s in self.iter_ancestors(spans)
        )
        return next((n for n in names if n), None)

    def iter_ancestors(self, spans: dict[str, _TraceSpan]) -> Iterator[_TraceSpan]:
        """Yield the span and its ancestors, at most 64."""
        span: _TraceSpan | None = self
        for _ in range(64):
            if span is None:
                return
            yield span
            span = spans.get(span.parent) if span.parent else None


def _attributes_from_pairs(raw: Any) -> dict[str, Any]:
    """Return OTLP's list of keys and typed values as a dict."""
    return {
        as_str(as_dict(a).get("key")): _parse_otlp_value(as_dict(a).get("value"))
        for a in as_list(raw)
    }


def _parse_otlp_value(raw: Any) -> Any:
    """Parse a typed value; its depth is bounded by that of the JSON text."""
    for kind, value in as_dict(raw).items():
        if (
            kind == "intValue"
            and type(value) is str
            and value.lstrip("-").isdigit()
            and len(value) < 20
        ):
            return int(value)
        if kind == "arrayValue":
            return [_parse_otlp_value(v) for v in as_list(as_dict(value).get("values"))]
        if kind == "kvlistValue":
            pairs = map(as_dict, as_list(as_dict(value).get("values")))
            return {as_str(p.get("key")): _parse_otlp_value(p.get("value")) for p in pairs}
        return value
    return None


def _flatten_attributes(raw: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested attributes, as Phoenix writes them (`llm`, `token_count`, `prompt`)."""
    flat: dict[str, Any] = {}
    pending = [("", raw, 0)]
    while pending:
        prefix, value, depth = pending.pop()
        for name, inner in value.items():
            key = f"{prefix}{name}"
            if (
                type(inner) is list
                and inner
                and type(inner[0]) is dict
                and depth < 8
                and "messages" in key
                and "gen_ai" not in key
            ):
                pending += [(f"{key}.{i}.", as_dict(e), depth + 1) for i, e in enumerate(inner)]
            elif type(inner) is dict and depth < 8:
                pending.append((f"{key}.", inner, depth + 1))
            else:
                flat[key] = inner
    return flat


def _parse_span_time(raw: dict[str, Any], nano: str, plain: str) -> float | None:
    value = raw.get(nano)
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 21:
        value = int(value)
    if type(value) is int:
        return value / 1e9 if 0 < value < 1 << 63 else None
    return parse_timestamp(raw.get(plain))


_MAX_ATTRIBUTES = 20_000
"""Largest number of attributes read from one span."""
_ROLE_BY_EVENT = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


def extract_raw_messages(value: Any) -> list[Any]:
    """Return the raw messages of an input or output: a list, an object around one, or one."""
    value = parse_embedded_json(value)
    if type(value) is str:
        return [{"role": "user", "content": value}] if value else []
    if type(value) is list:
        value = [parse_embedded_json(v) for v in value]
        if len(value) == 1 and type(value[0]) is list:  # LangChain: a batch of one
            value = value[0]
        messages = [v for v in value if type(v) is dict]
        return [
            v["message"] if "role" not in v and type(v.get("message")) is dict else v
            for v in messages
        ]
    fields = as_dict(value)
    for key in ("messages", "contents", "choices", "generations", "output"):
        inner = parse_embedded_json(fields.get(key))
        if type(inner) is list and inner and key != "choices":
            return extract_raw_messages(inner)
        if type(inner) is list:
            return [m for c in map(as_dict, inner) if (m := as_dict(c.get("message")))]
    if "role" in fields or "kwargs" in fields or type(fields.get("data")) is dict:
        return [fields]
    if type(fields.get("message")) is dict:
        return [fields["message"]]
    text = next(
        (fields[k] for k in ("text", "content", "input", "query") if type(fields.get(k)) is str),
        None,
    )
    return [] if text is None else [{"role": "user", "content": text}]


def extract_prompt_and_reply(
    attributes: dict[str, Any], events: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Extract the messages of a model call from its span, by the first convention that it follows.

    Args:
        attributes: attributes of the span.
        events: events of the span.

    Returns:
        The raw messages of the prompt, and those of the reply.
    """
    prompt, reply = _system_messages(attributes), list[Any]()
    prompt += extract_raw_messages(attributes.get("gen_ai.input.messages"))
    reply += extract_raw_messages(attributes.get("gen_ai.output.messages"))
    if not prompt and not reply:
        prompt, reply = (
            _collect_numbered(attributes, "gen_ai.prompt."),
            _collect_numbered(attributes, "gen_ai.completion."),
        )
    if not prompt and not reply:
        prompt = [
            _parse_openinference(m) for m in _collect_numbered(attributes, "llm.input_messages.")
        ]
        reply = [
            _parse_openinference(m) for m in _collect_numbered(attributes, "llm.output_messages.")
        ]
    if not prompt and not reply:
        prompt, reply = _messages_from_events(events)
    if not prompt and not reply:
        prompt, reply = (
            extract_raw_messages(attributes.get("input.value")),
            extract_raw_messages(attributes.get("output.value")),
        )
    return prompt, [
        {**as_dict(r), "role": "assistant"} if as_dict(r).get("role") == "user" else r
        for r in reply
    ]


def _system_messages(attributes: dict[str, Any]) -> list[Any]:
    instructions = parse_embedded_json(attributes.get("gen_ai.system_instructions"))
    if type(instructions) is str and instructions:
        return [{"role": "system", "content": instructions}]
    return [{"role": "system", "parts": instructions}] if as_list(instructions) else []


def _collect_numbered(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """Rebuild objects from numbered keys (`prefix.0.role`, `prefix.0.tool_calls.1.name`)."""
    objects: dict[int, dict[str, Any]] = {}
    for key, value in list(attributes.items())[:_MAX_ATTRIBUTES]:
        if not key.startswith(prefix):
            continue
        number, _, path = key[len(prefix) :].partition(".")
        if number.isascii() and number.isdigit() and len(number) < 7:
            _set_nested(objects.setdefault(int(number), {}), path.split(".")[:8], value)
    return [_numbered_to_lists(objects[n]) for n in sorted(objects)]


def _set_nested(target: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        child = target.get(key)
        if type(child) is not dict:
            child = target[key] = {}
        target = child
    target[keys[-1]] = value


def _numbered_to_lists(value: Any) -> Any:
    """Convert dicts whose keys are all numbers to lists, recursively."""
    if type(value) is not dict:
        return value
    converted = {k: _numbered_to_lists(v) for k, v in value.items()}
    if converted and all(k.isascii() and k.isdigit() for k in converted):
        return [converted[k] for k in sorted(converted, key=int)]
    return converted


def _parse_openinference(raw: Any) -> dict[str, Any]:
    """Unwrap an OpenInference message, its `tool_call`s and its `message_content`s."""
    message = dict(as_dict(as_dict(raw).get("message")))
    calls = [as_dict(as_dict(c).get("tool_call")) for c in as_list(message.get("tool_calls"))]
    if calls:
        message["tool_calls"] = calls
    parts = [as_dict(as_dict(p).get("message_content")) for p in as_list(message.get("contents"))]
    if parts and "content" not in message:
        message["content"] = parts
    return message


def _messages_from_events(events: list[Any]) -> tuple[list[Any], list[Any]]:
    prompt, reply = list[Any](), list[Any]()
    for event in map(as_dict, events):
        name = as_str(event.get("name"))
        attributes = as_dict(event.get("attributes"))
        if name == "gen_ai.client.inference.operation.details":
            prompt += [
                *_system_messages(attributes),
                *extract_raw_messages(attributes.get("gen_ai.input.messages")),
            ]
            reply += extract_raw_messages(attributes.get("gen_ai.output.messages"))
        body = (
            as_dict(parse_embedded_json(attributes.get("gen_ai.event.content")))
            or as_dict(parse_embedded_json(event.get("body")))
            or attributes
        )
        if name in _ROLE_BY_EVENT:
            prompt.append({"role": _ROLE_BY_EVENT[name], **body})
        elif name == "gen_ai.choice":
            reply.append(
                {"role": "assistant", **(as_dict(parse_embedded_json(body.get("message"))) or body)}
            )
    return prompt, reply


def _parse_span_usage(attributes: dict[str, Any]) -> Usage | None:
    """Return the usage in a span's attributes, whose input includes cached tokens."""

    def first_count(*keys: str) -> int | None:
        return next((n for k in keys if (n := count_or_none(attributes.get(k))) is not None), None)

    prefix = "gen_ai.usage."
    input_tokens = first_count(
        prefix + "input_tokens", prefix + "prompt_tokens", "llm.token_count.prompt"
    )
    cache_read = first_count(
        prefix + "cache_read.input_tokens",
        prefix + "cache_read_input_tokens",
        prefix + "input_tokens.cached",
        "llm.token_count.prompt_details.cache_read",
    )
    cache_write = first_count(
        prefix + "cache_creation.input_tokens",
        prefix + "cache_write.input_tokens",
        prefix + "cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    )
    output_tokens = first_count(
        prefix + "output_tokens", prefix + "completion_tokens", "llm.token_count.completion"
    )
    cost = next(
        (
            c
            for k in (prefix + "cost", "llm.cost.total")
            if (c := float_or_none(attributes.get(k))) is not None
        ),
        None,
    )
    if input_tokens is None and output_tokens is None:
        return None if cost is None else Usage(cost_usd=cost)
    reasoning = first_count(
        prefix + "reasoning.output_tokens",
        prefix + "reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    )
    return make_usage_from_total(
        input_tokens,
        cache_read,
        cache_write,
        output_tokens,
        reasoning_tokens=reasoning,
        cost_usd=cost,
    )


def _get_span_model(attributes: dict[str, Any]) -> str | None:
    """Return the model that replied, or else the one requested."""
    keys = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
    return next((w for k in keys if (w := str_or_none(attributes.get(k)))), None)
