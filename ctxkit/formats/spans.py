"""Trace spans of model calls (OTel, OpenInference, OpenLLMetry) as sessions.

OpenTelemetry GenAI (new: JSON in one attribute; old: events), OpenLLMetry (`gen_ai.prompt.N`),
OpenInference (`llm.input_messages.N.message`), and plain `input.value` / `output.value`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_messages import (
    count_skipped,
    fill_tool_names,
    parse_chat_message,
    parse_stop_reason,
    parse_tool_schemas,
    usage_from_total,
)
from ctxkit.formats.fields import (
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
from ctxkit.formats.prompt_threads import (
    KeyedMessage,
    PromptThreads,
    key_message,
    threads_to_session,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Edit, Fault, Message, ToolSchema, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.session.session import Session


def sessions_from_spans(
    raw: Iterable[tuple[int, dict[str, Any]]], stem: str, name: str, faults: Iterable[Fault] = ()
) -> list[Session]:
    """Return one session a conversation (or trace, where none is named), threads of other agents as
    its children.

    Args:
        raw: spans in the words of OpenTelemetry's or OpenInference's conventions, each with the
            line it stands in.
        stem: what a session without a name is called.
        name: the format.
        faults: what could not be read before.
    """
    faults, skipped = list(faults), dict[str, int]()
    spans = _sort_spans(_parse_spans(raw, faults, skipped))
    agents = {s.id: s for s in spans}
    groups: dict[str, list[TraceSpan]] = {}
    for s in spans:
        groups.setdefault(s.conversation(agents), []).append(s)
    for talk in [n for n, some in groups.items() if not any(s.is_call for s in some)]:
        if len(groups) > 1:  # tools and the like of a trace whose calls name their conversation
            for s in groups.pop(talk):
                count_skipped(skipped, "span: " + (s.kind or "of another kind"))
    out = [
        replace(_build_session(talk, some, agents, stem), format=name)
        for talk, some in groups.items()
    ]
    if out:
        out[0] = replace(
            out[0], faults=(*faults, *out[0].faults), skipped=_add_counts(skipped, out[0].skipped)
        )
    return out


def _parse_spans(
    raw: Iterable[tuple[int, dict[str, Any]]], faults: list[Fault], skipped: dict[str, int]
) -> Iterator[TraceSpan]:
    for line, one in raw:
        try:
            yield TraceSpan(one)
        except DAMAGE_ERRORS as e:
            faults.append(Fault(line, describe_damage(e)))
            count_skipped(skipped, "span: damaged")


def _sort_spans(spans: Iterable[TraceSpan]) -> list[TraceSpan]:
    """Return spans by their begin; one without a time stays behind the one written before it."""
    begun, placed = 0.0, list[tuple[float, TraceSpan]]()
    for s in spans:
        begun = begun if s.begun is None else s.begun
        placed.append((begun, s))
    return [s for _, s in sorted(placed, key=lambda pair: pair[0])]


def _add_counts(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {k: a.get(k, 0) + b.get(k, 0) for k in {**a, **b}}


def _build_session(
    name: str, spans: list[TraceSpan], all_: dict[str, TraceSpan], stem: str
) -> Session:
    threads, skipped, faults = PromptThreads(), dict[str, int](), list[Fault]()
    asked, tools = dict[str, str](), tuple[ToolSchema, ...]()
    for s in spans:
        if not s.is_call:
            count_skipped(skipped, "span: " + (s.kind or "of another kind"))
            continue
        with catch_damage(faults, 0, f"span {s.id[:40]}: "):
            prompt, reply = extract_prompt_and_reply(s.attributes, s.events)
            heard = [
                key_message(m)
                for r in prompt
                for m in _mark_summaries(
                    r, fill_tool_names(parse_chat_message(r, SessionBuilder(), skipped), asked)
                )
            ]
            _add_call(threads, heard, _make_reply(s, reply, skipped, asked), s, s.agent(all_))
            tools = tools or parse_tool_schemas(
                parse_embedded_json(s.attributes.get("gen_ai.tool.definitions"))
            )
    product = next((w for s in spans if (w := str_or_none(s.attributes.get("service.name")))), None)
    about = {"product": product, "started": spans[0].begun} if threads.all else {}
    made = threads_to_session(threads.all, name or stem, tools, format="", **about)
    return replace(made, skipped=skipped, faults=tuple(faults))


def _mark_summaries(raw: Any, made: list[Message]) -> list[Message]:
    """A message with a part of type `compaction` stands for what was compacted."""
    marked = any(as_dict(p).get("type") == "compaction" for p in as_list(as_dict(raw).get("parts")))
    return [replace(m, role="summary") if marked and m.role != "tool" else m for m in made]


def _add_call(
    threads: PromptThreads,
    heard: list[KeyedMessage],
    reply: Message,
    s: TraceSpan,
    agent: str | None,
) -> None:
    """Write one call; what its span marks as compacted makes the edit a recorded one."""
    flagged = s.attributes.get("gen_ai.conversation.compacted") is True
    summed = any(m.role == "summary" for _, m in heard)
    if not (flagged or summed):
        threads.call(heard, reply, agent).compacted = False
        return
    latest = threads.latest(agent)
    if flagged and not heard and latest is not None and not latest.compacted:
        # no content: the mark is all there is
        own = latest.log.new_id()
        latest.log.add(
            Edit(
                kind="summarised",
                id=own,
                method="compacted",
                reason="what it took is not in the trace",
            )
        )
    alone = flagged and not (latest is not None and latest.compacted and summed)
    thread = threads.call(heard, reply, agent, compacted=True)
    thread.compacted = flagged
    log = thread.log
    for i in range(thread.since, len(log.entries)):
        entry = log.entries[i]
        if isinstance(entry, Message) and entry.role == "summary":  # of what no prompt had
            entry = Edit(kind="summarised", id=log.new_id(), inserted=(entry,))
        if isinstance(entry, Edit) and (alone or any(m.role == "summary" for m in entry.inserted)):
            told: dict[str, Any] = {"source": "recorded", "method": "compacted", "reason": ""}
            log.entries[i] = replace(entry, kind="summarised", time=s.begun, **told)


def _make_reply(
    s: TraceSpan, reply: list[Any], skipped: dict[str, int], asked: dict[str, str]
) -> Message:
    heard = [
        m
        for r in reply
        for m in fill_tool_names(parse_chat_message(r, SessionBuilder(), skipped), asked)
    ]
    why_ = parse_embedded_json(s.attributes.get("gen_ai.response.finish_reasons"))
    stop = next(iter(as_list(why_)), None) or next(
        (as_dict(r).get("finish_reason") for r in reply), None
    )
    return Message(
        role="assistant",
        id=s.id,
        parts=tuple(p for m in heard if m.role == "assistant" for p in m.parts),
        time=s.ended or s.begun,
        usage=parse_span_usage(s.attributes),
        model=get_span_model(s.attributes),
        latency=s.ended - s.begun if s.begun and s.ended and s.ended >= s.begun else None,
        stop="error" if s.failed else parse_stop_reason(stop),
        is_error=s.failed,
        error=str_or_none(s.attributes.get("error.type")) or s.why,
    )


_CALL_KINDS = {"chat", "text_completion", "generate_content", "LLM"}


class TraceSpan:
    """One span, whichever exporter wrote it: attributes as a flat object, times in seconds."""

    def __init__(self, raw: dict[str, Any]) -> None:
        given = raw.get("attributes")
        self.attributes = _flatten(given) if type(given) is dict else _attributes_from_pairs(given)
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
        self.begun = _parse_span_time(raw, "startTimeUnixNano", "start_time")
        self.ended = _parse_span_time(raw, "endTimeUnixNano", "end_time")
        self.failed = as_dict(raw.get("status")).get("code") in (2, "STATUS_CODE_ERROR") or (
            as_dict(raw.get("status")).get("status_code") == "ERROR"
        )
        status = as_dict(raw.get("status"))
        self.why = (
            (str_or_none(status.get("message")) or str_or_none(status.get("description")))
            if self.failed
            else None
        )
        self.events = [
            {
                **as_dict(e),
                "attributes": (
                    _flatten(a)
                    if type(a := as_dict(e).get("attributes")) is dict
                    else _attributes_from_pairs(a)
                ),
            }
            for e in as_list(raw.get("events"))
        ]

    @property
    def kind(self) -> str:
        """What the span says that it is."""
        a = self.attributes
        return as_str(a.get("gen_ai.operation.name")) or as_str(a.get("openinference.span.kind"))

    @property
    def is_call(self) -> bool:
        """True for a call of a model."""
        a = self.attributes
        asked = "gen_ai.request.model" in a or "llm.model_name" in a
        return self.kind in _CALL_KINDS or (
            not self.kind and asked and parse_span_usage(a) is not None
        )

    def conversation(self, spans: dict[str, TraceSpan]) -> str:
        """Return the conversation that it, or one above it, names; else its trace."""
        for s in self.line(spans):
            named_ = str_or_none(s.attributes.get("gen_ai.conversation.id")) or str_or_none(
                s.attributes.get("session.id")
            )
            if named_:
                return named_
        return self.trace

    def agent(self, spans: dict[str, TraceSpan]) -> str | None:
        """Return the agent that it, or one above it, names."""
        names = (str_or_none(s.attributes.get("gen_ai.agent.name")) for s in self.line(spans))
        return next((n for n in names if n), None)

    def line(self, spans: dict[str, TraceSpan]) -> Iterator[TraceSpan]:
        """Yield the span and those above it."""
        at: TraceSpan | None = self
        for _ in range(64):
            if at is None:
                return
            yield at
            at = spans.get(at.parent) if at.parent else None


def _attributes_from_pairs(raw: Any) -> dict[str, Any]:
    """OTLP's list of key and typed value as an object."""
    return {
        as_str(as_dict(a).get("key")): _parse_otlp_value(as_dict(a).get("value"), 0)
        for a in as_list(raw)
    }


def _parse_otlp_value(raw: Any, depth: int) -> Any:
    for kind, value in as_dict(raw).items():
        if (
            kind == "intValue"
            and type(value) is str
            and value.lstrip("-").isdigit()
            and len(value) < 20
        ):
            return int(value)
        if depth < 16 and kind == "arrayValue":
            return [_parse_otlp_value(v, depth + 1) for v in as_list(as_dict(value).get("values"))]
        if depth < 16 and kind == "kvlistValue":
            pairs = map(as_dict, as_list(as_dict(value).get("values")))
            return {
                as_str(p.get("key")): _parse_otlp_value(p.get("value"), depth + 1) for p in pairs
            }
        return value
    return None


def _flatten(raw: dict[str, Any]) -> dict[str, Any]:
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
                waiting += [(f"{key}.{i}.", as_dict(e), depth + 1) for i, e in enumerate(v)]
            elif type(v) is dict and depth < 8:
                waiting.append((f"{key}.", v, depth + 1))
            else:
                out[key] = v
    return out


def _parse_span_time(raw: dict[str, Any], nano: str, plain: str) -> float | None:
    value = raw.get(nano)
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 21:
        value = int(value)
    if type(value) is int:
        return value / 1e9 if 0 < value < 1 << 63 else None
    return parse_timestamp(raw.get(plain))


_MAX_ATTRIBUTES = 20_000
"""Attributes of one span that are looked at."""
_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


def extract_raw_messages(value: Any) -> list[Any]:
    """Return the messages of a trace's input or output: a list, an object around it, or one."""
    value = parse_embedded_json(value)
    if type(value) is str:
        return [{"role": "user", "content": value}] if value else []
    if type(value) is list:
        value = [parse_embedded_json(v) for v in value]
        if len(value) == 1 and type(value[0]) is list:  # LangChain: a batch of one
            value = value[0]
        found = [v for v in value if type(v) is dict]
        return [
            v["message"] if "role" not in v and type(v.get("message")) is dict else v for v in found
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
    said = next(
        (fields[k] for k in ("text", "content", "input", "query") if type(fields.get(k)) is str),
        None,
    )
    return [] if said is None else [{"role": "user", "content": said}]


def extract_prompt_and_reply(
    attributes: dict[str, Any], events: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Return raw messages of a span's prompt and reply, in whichever convention it has them."""
    prompt, reply = _instructions(attributes), list[Any]()
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


def _instructions(attributes: dict[str, Any]) -> list[Any]:
    said = parse_embedded_json(attributes.get("gen_ai.system_instructions"))
    if type(said) is str and said:
        return [{"role": "system", "content": said}]
    return [{"role": "system", "parts": said}] if as_list(said) else []


def _collect_numbered(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """Put `prefix.0.role`, `prefix.0.tool_calls.1.name` ... together again, by their numbers."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in list(attributes.items())[:_MAX_ATTRIBUTES]:
        if not key.startswith(prefix):
            continue
        first, _, rest = key[len(prefix) :].partition(".")
        if first.isascii() and first.isdigit() and len(first) < 7:
            _set_nested(found.setdefault(int(first), {}), rest.split(".")[:8], value)
    return [_numbered_to_lists(found[n]) for n in sorted(found)]


def _set_nested(into: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        inner = into.get(key)
        if type(inner) is not dict:
            inner = into[key] = {}
        into = inner
    into[keys[-1]] = value


def _numbered_to_lists(value: Any) -> Any:
    """Turn objects whose keys are all numbers into lists."""
    if type(value) is not dict:
        return value
    made = {k: _numbered_to_lists(v) for k, v in value.items()}
    if made and all(k.isascii() and k.isdigit() for k in made):
        return [made[k] for k in sorted(made, key=int)]
    return made


def _parse_openinference(raw: Any) -> dict[str, Any]:
    """OpenInference's message: fields lie in `message`, calls in `tool_call`, parts likewise."""
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
        told = as_dict(event.get("attributes"))
        if name == "gen_ai.client.inference.operation.details":
            prompt += [
                *_instructions(told),
                *extract_raw_messages(told.get("gen_ai.input.messages")),
            ]
            reply += extract_raw_messages(told.get("gen_ai.output.messages"))
        body = (
            as_dict(parse_embedded_json(told.get("gen_ai.event.content")))
            or as_dict(parse_embedded_json(event.get("body")))
            or told
        )
        if name in _EVENTS:
            prompt.append({"role": _EVENTS[name], **body})
        elif name == "gen_ai.choice":
            reply.append(
                {"role": "assistant", **(as_dict(parse_embedded_json(body.get("message"))) or body)}
            )
    return prompt, reply


def parse_span_usage(attributes: dict[str, Any]) -> Usage | None:
    """Return the usage in attributes, whose input is the whole prompt, cached tokens included."""

    def first(*keys: str) -> int | None:
        return next((n for k in keys if (n := count_or_none(attributes.get(k))) is not None), None)

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
        (
            c
            for k in (u + "cost", "llm.cost.total")
            if (c := float_or_none(attributes.get(k))) is not None
        ),
        None,
    )
    if whole is None and output is None:
        return None if cost is None else Usage(cost_usd=cost)
    thought = first(
        u + "reasoning.output_tokens",
        u + "reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    )
    return usage_from_total(whole, read, write, output, reasoning_tokens=thought, cost_usd=cost)


def get_span_model(attributes: dict[str, Any]) -> str | None:
    """Return the model that answered, or else the one asked."""
    keys = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
    return next((w for k in keys if (w := str_or_none(attributes.get(k)))), None)
