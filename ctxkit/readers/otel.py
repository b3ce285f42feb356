"""OpenTelemetry GenAI spans as JSON: what an OTLP exporter writes, or one span a line;
OpenInference's too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Edit, Fault, Message, ToolSchema
from ctxkit.readers.dialects import named, to_messages
from ctxkit.readers.fields import DAMAGE, items, mapping, text, time, why, word
from ctxkit.readers.growing_logs import Said, Threads, said
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count
from ctxkit.readers.trace_spans import content, model_of, parsed, to_span_usage
from ctxkit.readers.usages import to_schemas, to_stop
from ctxkit.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.readers.source import Source

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
_CHAT = {"chat", "text_completion", "generate_content", "LLM"}


def sniff(source: Source) -> bool:
    """Say whether this is OTLP JSON or spans with attributes of a GenAI convention."""
    document = source.document
    if type(document) is dict and type(document.get("resourceSpans")) is list:
        return True
    found = document if type(document) is list else source.head
    return any("resourceSpans" in mapping(r) or _is_genai(mapping(r)) for r in found[:16])


def _is_genai(span: dict[str, Any]) -> bool:
    given = span.get("attributes")
    keys = (
        list(given)[:200]
        if type(given) is dict
        else [mapping(a).get("key") for a in items(given)[:200]]
    )
    return any(type(k) is str and k.startswith(("gen_ai.", "llm.", "openinference.")) for k in keys)


def read(source: Source) -> list[Session]:
    """Return one session a conversation (or trace, where none is named), threads of other agents as
    its children.
    """
    faults, skipped = list[Fault](), dict[str, int]()
    return _sessions(_spans(source, faults, skipped), source.path.stem, NAME, faults, skipped)


def from_spans(
    raw: list[dict[str, Any]], stem: str, name: str, faults: Iterable[Fault] = ()
) -> list[Session]:
    """Return the sessions of spans that another reader put into the words of these conventions.

    Args:
        raw: spans with `spanId`, `parentSpanId`, `attributes` as one object, and the like.
        stem: what a session without a name is called.
        name: the format.
        faults: what could not be read before.
    """
    known, skipped = list(faults), dict[str, int]()
    return _sessions(_each(raw, known, skipped), stem, name, known, skipped)


def _sessions(
    found: Iterable[_Span], stem: str, name: str, faults: list[Fault], skipped: dict[str, int]
) -> list[Session]:
    spans = _in_order(found)
    agents = {s.id: s for s in spans}
    groups: dict[str, list[_Span]] = {}
    for s in spans:
        groups.setdefault(s.conversation(agents), []).append(s)
    for talk in [n for n, some in groups.items() if not any(s.is_call for s in some)]:
        if len(groups) > 1:  # tools and the like of a trace whose calls name their conversation
            for s in groups.pop(talk):
                count(skipped, "span: " + (s.kind or "of another kind"))
    out = [
        replace(_session(talk, some, agents, stem), format=name) for talk, some in groups.items()
    ]
    if out:
        out[0] = replace(
            out[0], faults=(*faults, *out[0].faults), skipped=_summed(skipped, out[0].skipped)
        )
    return out


def _each(
    raw: Iterable[dict[str, Any]], faults: list[Fault], skipped: dict[str, int]
) -> Iterator[_Span]:
    for n, one in enumerate(raw):
        try:
            yield _Span(one)
        except DAMAGE as e:
            faults.append(Fault(n + 1, why(e)))
            count(skipped, "span: damaged")


def _in_order(spans: Iterable[_Span]) -> list[_Span]:
    """Return spans by their begin; one without a time stays behind the one that it was written
    after.
    """
    begun, placed = 0.0, list[tuple[float, _Span]]()
    for s in spans:
        begun = begun if s.begun is None else s.begun
        placed.append((begun, s))
    return [s for _, s in sorted(placed, key=lambda pair: pair[0])]


def _summed(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {k: a.get(k, 0) + b.get(k, 0) for k in {**a, **b}}


class _Span:
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
        a = self.attributes
        return text(a.get("gen_ai.operation.name")) or text(a.get("openinference.span.kind"))

    @property
    def is_call(self) -> bool:
        a = self.attributes
        asked = "gen_ai.request.model" in a or "llm.model_name" in a
        return self.kind in _CHAT or (not self.kind and asked and to_span_usage(a) is not None)

    def conversation(self, spans: dict[str, _Span]) -> str:
        for s in self.line(spans):
            named_ = word(s.attributes.get("gen_ai.conversation.id")) or word(
                s.attributes.get("session.id")
            )
            if named_:
                return named_
        return self.trace

    def agent(self, spans: dict[str, _Span]) -> str | None:
        names = (word(s.attributes.get("gen_ai.agent.name")) for s in self.line(spans))
        return next((n for n in names if n), None)

    def line(self, spans: dict[str, _Span]) -> Iterator[_Span]:
        at: _Span | None = self
        for _ in range(64):
            if at is None:
                return
            yield at
            at = spans.get(at.parent) if at.parent else None


def _session(name: str, spans: list[_Span], all_: dict[str, _Span], stem: str) -> Session:
    threads, skipped, faults = Threads(), dict[str, int](), list[Fault]()
    asked, tools = dict[str, str](), tuple[ToolSchema, ...]()
    for s in spans:
        if not s.is_call:
            count(skipped, "span: " + (s.kind or "of another kind"))
            continue
        try:
            prompt, reply = content(s.attributes, s.events)
            heard = [
                said(m)
                for r in prompt
                for m in _summed_up(r, named(to_messages(r, ReaderLog(), skipped), asked))
            ]
            _call(threads, heard, _reply(s, reply, skipped, asked), s, s.agent(all_))
            tools = tools or to_schemas(parsed(s.attributes.get("gen_ai.tool.definitions")))
        except DAMAGE as e:
            faults.append(Fault(0, f"span {s.id[:40]}: {why(e)}"))
    id_ = name or stem
    made = [
        Session(
            id=id_ if i == 0 else f"{id_}/{i}",
            format=NAME,
            agent=t.agent or ("main" if i == 0 else "subagent"),
            product=next((w for s in spans if (w := word(s.attributes.get("service.name")))), None),
            started=spans[0].begun,
            model=next((e.model for e in t.log.entries if e.model), None),
            tools=tools if i == 0 else (),
            log=tuple(t.log.entries),
            parent=None if i == 0 else id_,
        )
        for i, t in enumerate(threads.all)
    ] or [Session(id=id_, format=NAME)]
    return replace(made[0], children=tuple(made[1:]), skipped=skipped, faults=tuple(faults))


def _summed_up(raw: Any, made: list[Message]) -> list[Message]:
    """A message with a part of type `compaction` stands for what was compacted."""
    marked = any(mapping(p).get("type") == "compaction" for p in items(mapping(raw).get("parts")))
    return [replace(m, role="summary") if marked and m.role != "tool" else m for m in made]


def _call(threads: Threads, heard: list[Said], reply: Message, s: _Span, agent: str | None) -> None:
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
        if isinstance(entry, Edit) and (alone or any(m.role == "summary" for m in entry.inserted)):
            told: dict[str, Any] = {"source": "recorded", "method": "compacted", "reason": ""}
            log.entries[i] = replace(entry, kind="summarised", time=s.begun, **told)


def _reply(s: _Span, reply: list[Any], skipped: dict[str, int], asked: dict[str, str]) -> Message:
    heard = [m for r in reply for m in named(to_messages(r, ReaderLog(), skipped), asked)]
    why_ = parsed(s.attributes.get("gen_ai.response.finish_reasons"))
    stop = next(iter(items(why_)), None) or next(
        (mapping(r).get("finish_reason") for r in reply), None
    )
    return Message(
        role="assistant",
        id=s.id,
        parts=tuple(p for m in heard if m.role == "assistant" for p in m.parts),
        time=s.ended or s.begun,
        usage=to_span_usage(s.attributes),
        model=model_of(s.attributes),
        latency=s.ended - s.begun if s.begun and s.ended and s.ended >= s.begun else None,
        stop="error" if s.failed else to_stop(stop),
        is_error=s.failed,
        error=word(s.attributes.get("error.type")) or s.why,
    )


# -- the exporters' shapes
# ---------------------------------------------------------------------------------------------


def _spans(source: Source, faults: list[Fault], skipped: dict[str, int]) -> Iterator[_Span]:
    records: list[Any] = (
        source.document if type(source.document) is list else [r for _, r in source.records]
    )
    if type(source.document) is not list:
        faults += source.faults
    for n, record in enumerate(records):
        for raw in _unwrapped(mapping(record)):
            try:
                yield _Span(raw)
            except DAMAGE as e:
                faults.append(Fault(n + 1, why(e)))
                count(skipped, "span: damaged")


def _unwrapped(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "resourceSpans" not in record:
        yield record
        return
    for resource in map(mapping, items(record.get("resourceSpans"))):
        about = items(mapping(resource.get("resource")).get("attributes"))
        for scope in map(
            mapping,
            items(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")),
        ):
            for span in items(scope.get("spans")):
                if type(span) is dict:
                    yield {**span, "attributes": [*about, *items(span.get("attributes"))]}


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
    """Attributes as a flat object: Phoenix nests them (`llm` holds `token_count` holds
    `prompt`).
    """
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
