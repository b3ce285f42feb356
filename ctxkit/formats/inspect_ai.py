"""Evaluation logs of Inspect (.json, .eval), read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_messages import (
    count_skipped,
    fill_tool_names,
    parse_chat_message,
    parse_stop_reason,
    parse_tool_schemas,
    subtract_cached,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    format_timestamp,
    parse_timestamp,
    read_each_object,
    str_or_none,
    to_text,
)
from ctxkit.formats.losses import count_losses, visible_messages
from ctxkit.formats.prompt_threads import KeyedMessage, PromptThreads, key_message
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.source import read_zip_json
from ctxkit.session.messages import Edit, Fault, Image, Message, Text, Thinking, ToolSchema, Usage

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from ctxkit.formats.source import Source
    from ctxkit.session.session import ModelCall, Session


NAME = "inspect-ai"
ALIASES = ("inspect",)
CAN = (
    "text, calls and results, tools, usage per call (cache reads and writes), times, compactions,"
    " subagents; samples"
)
CANNOT = "usage where the log has no model events"
_IGNORED_EVENTS = {
    "state",
    "store",
    "sample_init",
    "span_begin",
    "span_end",
    "step",
    "tool",
    "score",
    "sandbox",
    "info",
    "logger",
}
_MAX_REFS = 500_000
"""References to pooled messages followed in a sample, besides one for every two bytes of file."""
_MAX_WORK = 50_000
"""Messages that come and go between a sample's prompts, besides one for every ten bytes of file."""


def sniff(source: Source) -> bool:
    """Say whether this is a zip with Inspect's members, or a document with `eval` and `status`."""
    if source.data.startswith(b"PK"):
        names = source.data[-(1 << 16) :] + source.data[: 1 << 12]
        return b"_journal/" in names or b"header.json" in names or b"samples/" in names
    document = source.document
    return type(document) is dict and type(document.get("eval")) is dict and "status" in document


def read(source: Source) -> list[Session]:
    """Return one session a sample and epoch, also of an unfinished archive without its header."""
    faults: list[Fault] = []
    if source.data.startswith(b"PK"):
        members = read_zip_json(
            source,
            lambda n: n == "header.json" or n.startswith(("samples/", "_journal/start")),
            faults,
        )
        header = as_dict(members.pop("header.json", None)) or as_dict(
            members.pop("_journal/start.json", None)
        )
        members.pop("_journal/start.json", None)
        samples = [members[n] for n in sorted(members)]
    else:
        header = as_dict(source.document)
        samples = as_list(header.get("samples"))
    out = [
        _read_sample(header, as_dict(s), n, len(source.data))
        for n, s in enumerate(samples)
        if type(s) is dict
    ]
    if not out:
        raise ReadError(
            "the log has no samples." + "".join(f" {f.why}." for f in faults[:3]), source.path
        )
    out[0] = replace(out[0], faults=(*faults, *out[0].faults))
    return out


def _read_sample(header: dict[str, Any], sample: dict[str, Any], n: int, size: int) -> Session:
    told = as_dict(header.get("eval"))
    reading = _Episode(sample, size)
    reading.take(as_list(sample.get("events")))
    threads = reading.close(as_list(sample.get("messages")))
    log, agent = threads[0] if threads else (SessionBuilder(), None)
    id_ = f"{sample.get('id', n)}/{sample.get('epoch', 1)}"
    model = str_or_none(told.get("model"))
    base: dict[str, Any] = {
        "format": NAME,
        "product": "inspect-ai",
        "version": str_or_none(as_dict(told.get("packages")).get("inspect_ai")),
    }
    children = tuple(
        x.session(id=f"{id_}/{i}", parent=id_, agent=a or "subagent", model=model, **base)
        for i, (x, a) in enumerate(threads[1:], 1)
    )
    return log.session(
        id=id_,
        agent=agent or "main",
        title=str_or_none(told.get("task")),
        started=parse_timestamp(told.get("created")),
        model=model,
        tools=reading.tools,
        children=children,
        skipped=reading.skipped,
        faults=tuple(reading.faults),
        details=_read_details(sample),
        **base,
    )


def _read_details(sample: dict[str, Any]) -> dict[str, Any]:
    scores = {
        k[:80]: as_dict(v).get("value") for k, v in list(as_dict(sample.get("scores")).items())[:20]
    }
    plain = {k: v for k, v in scores.items() if type(v) in (int, float, str, bool)}
    took = float_or_none(sample.get("total_time"))
    return {**({"scores": plain} if plain else {}), **({} if took is None else {"seconds": took})}


class _Episode:
    """The model events of a sample as threads, and its final messages where there are none."""

    def __init__(self, sample: dict[str, Any], size: int) -> None:
        self.skipped, self.faults = dict[str, int](), list[Fault]()
        self.tools: tuple[ToolSchema, ...] = ()
        self._attachments = as_dict(sample.get("attachments"))
        self._pool = as_list(sample.get("message_pool")) or as_list(
            as_dict(sample.get("events_data")).get("messages")
        )
        self._pooled: dict[int, list[KeyedMessage]] = {}
        self._refs, self._work = _MAX_REFS + size // 2, _MAX_WORK + size // 10
        """What is left of the two bounds."""
        self._threads = PromptThreads()
        self._asked: dict[str, str] = {}
        self._spans: dict[str, str] = {}
        self._compacted: dict[str, Any] | None = None

    def take(self, events: list[Any]) -> None:
        read_each_object(events, "event", self._event, self.faults)

    def _event(self, event: dict[str, Any]) -> None:
        kind = as_str(event.get("event"))
        if kind == "model":
            self._model(event)
        elif kind == "compaction":
            self._compacted = event
        elif kind == "span_begin":
            name = as_str(event.get("name")) if event.get("type") == "agent" else ""
            self._spans[as_str(event.get("id"))] = name or self._spans.get(
                as_str(event.get("parent_id")), ""
            )
        elif kind not in _IGNORED_EVENTS:
            count_skipped(self.skipped, "event: " + (kind or "no name"))

    def _model(self, event: dict[str, Any]) -> None:
        output = as_dict(event.get("output"))
        choice = as_dict(next(iter(as_list(output.get("choices"))), None))
        begun, ended = (
            parse_timestamp(event.get("timestamp")),
            parse_timestamp(event.get("completed")),
        )
        took = float_or_none(event.get("working_time"))
        if took is None:
            took = float_or_none(output.get("time"))
        fields: dict[str, Any] = {
            "time": ended or begun,
            "usage": parse_inspect_usage(output.get("usage")),
            "model": str_or_none(event.get("model")),
            "stop": parse_stop_reason(choice.get("stop_reason")),
            "latency": took,
            "error": as_str(event.get("error") or output.get("error"))[:2000] or None,
        }
        if fields["error"]:
            fields |= {"is_error": True, "stop": "error"}
        if not self.tools:
            self.tools = parse_tool_schemas(event.get("tools"))
        prompt = [
            s for raw in as_list(event.get("input")) for s in self._said(raw)
        ] + self._referred(event)
        made = (
            fill_tool_names(self._heard(choice.get("message"), **fields), self._asked)
            if choice
            else []
        )
        reply = next((m for m in made if m.role == "assistant"), None) or Message(
            role="assistant", **fields
        )
        agent = self._spans.get(as_str(event.get("span_id"))) or None
        if self._threads.work > self._work:
            raise ValueError("prompts that change more than a log can tell")
        compacted, self._compacted = self._compacted, None
        thread = self._threads.call(prompt, reply, agent, compacted=compacted is not None)
        if compacted is not None:
            _apply_compaction_event(thread.log, thread.since, compacted)

    def _referred(self, event: dict[str, Any]) -> list[KeyedMessage]:
        out: list[KeyedMessage] = []
        for ref in as_list(event.get("input_refs")):
            first, stop = (count_or_none(n) for n in [*as_list(ref), None, None][:2])
            if first is None or stop is None:
                count_skipped(self.skipped, "reference: not a range")
                continue
            stop = min(stop, len(self._pool))
            self._refs -= max(stop - first, 0)
            if self._refs < 0 or len(out) > 2 * len(self._pool):
                raise ValueError("more references to pooled messages than a log can have")
            for i in range(first, stop):
                if i not in self._pooled:
                    self._pooled[i] = self._said(self._pool[i])
                out += self._pooled[i]
        return out

    def _said(self, raw: Any) -> list[KeyedMessage]:
        return [key_message(m) for m in fill_tool_names(self._heard(raw), self._asked)]

    def _heard(self, raw: Any, **fields: Any) -> list[Message]:
        raw = self._resolved(as_dict(raw), 0) if self._attachments else as_dict(raw)
        made = parse_chat_message(raw, SessionBuilder(), self.skipped, **fields)
        error = as_dict(raw.get("error"))
        if raw.get("role") == "assistant":
            made += _server_results(raw)
        if raw.get("role") == "tool":
            told = as_str(error.get("message"))
            parts = made[0].parts or ((Text(told),) if told else ())
            tool = made[0].tool or str_or_none(raw.get("function"))
            made[0] = replace(
                made[0], parts=parts, tool=tool, is_error=bool(error), error=told[:2000] or None
            )
        return [replace(m, id=as_str(raw.get("id"))) for m in made]

    def _resolved(self, value: Any, depth: int) -> Any:
        """Put attachments in the place of their references, in a message's own fields only."""
        if type(value) is str:
            if value.startswith("attachment://"):
                found = self._attachments.get(value[13:])
                return found if type(found) is str else value
            return value
        if depth > 6:
            return value
        if type(value) is dict:
            return {k: self._resolved(v, depth + 1) for k, v in value.items()}
        return [self._resolved(v, depth + 1) for v in value] if type(value) is list else value

    def close(self, messages: list[Any]) -> list[tuple[SessionBuilder, str | None]]:
        """Return the threads, the main one first: it shows most of the final messages."""
        final: list[KeyedMessage] = []
        for raw in messages:
            with catch_damage(self.faults, 0, "message: "):
                final += self._said(raw)
        threads = self._threads.all
        main = max(threads, key=lambda t: t.common(final), default=None)
        if main is None or not main.common(final):
            log = SessionBuilder()
            for _, m in final:
                log.add(replace(m, id=log.new_id(m.id)))
            return ([(log, None)] if final else []) + [(t.log, t.agent) for t in threads]
        main.finish(final)
        return [(main.log, main.agent), *((t.log, t.agent) for t in threads if t is not main)]


def _server_results(raw: dict[str, Any]) -> list[Message]:
    """Return what tools run by the provider gave: it stands in the reply's content."""
    out = []
    for part in map(as_dict, as_list(raw.get("content"))):
        given = to_text(part.get("result")) if part.get("type") == "tool_use" else ""
        if given:
            own, tool = str_or_none(part.get("id")), str_or_none(part.get("name"))
            failed = bool(part.get("error"))
            parts = (Text(given),)
            out.append(
                Message(
                    role="tool",
                    id="",
                    parts=parts,
                    kind="server",
                    call_id=own,
                    tool=tool,
                    is_error=failed,
                )
            )
    return out


def _apply_compaction_event(log: SessionBuilder, since: int, event: dict[str, Any]) -> None:
    """Tell an edit that a prompt showed what the log's compaction event says; if none, write it."""
    told: dict[str, Any] = {
        "method": str_or_none(event.get("type")),
        "tokens_before": count_or_none(event.get("tokens_before")),
        "tokens_after": count_or_none(event.get("tokens_after")),
        "time": parse_timestamp(event.get("timestamp")),
        "source": "recorded",
    }
    for i in range(since, len(log.entries)):
        entry = log.entries[i]
        if isinstance(entry, Edit):
            log.entries[i] = replace(
                entry, reason=str_or_none(event.get("source")) or "compaction", **told
            )
            return
    log.add(Edit(kind="summarised", id=log.new_id(), **told))


def parse_inspect_usage(raw: Any) -> Usage | None:
    """Return a call's usage; if input + output is the total, the input holds the cached tokens."""
    raw = as_dict(raw)
    if not raw:
        return None
    given, output = count_or_none(raw.get("input_tokens")), count_or_none(raw.get("output_tokens"))
    read = count_or_none(raw.get("input_tokens_cache_read"))
    write = count_or_none(raw.get("input_tokens_cache_write"))
    total = count_or_none(raw.get("total_tokens"))
    inside = total is None or (given or 0) + (output or 0) >= total
    return Usage(
        input_tokens=subtract_cached(given, read, write) if inside else given,
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        reasoning_tokens=count_or_none(raw.get("reasoning_tokens")),
        cost_usd=float_or_none(raw.get("total_cost")),
    )


_INSPECT_HOLDS = {
    "usages",
    "times",
    "models of calls",
    "stop reasons",
    "latencies",
    "compactions",
    "system prompts",
    "tool schemas",
    "thoughts",
    "images",
    "error marks",
    "edits (dropped)",
}
_STOPS_TO_INSPECT = {"tool": "tool_calls", "stop": "stop", "length": "max_tokens"}


def encode_session(session: Session) -> tuple[list[bytes], Counter[str]]:
    """Return the file, and what it cannot hold."""
    lost = count_losses(session, _INSPECT_HOLDS)
    lost["money of calls"] += sum(
        c.message.usage is not None and c.message.usage.cost_usd is not None for c in session.calls
    )
    lost["parameters of tools"] += sum(bool(t.parameters) for t in session.tools)
    return [msgspec.json.format(msgspec.json.encode(_document(session)), indent=1), b"\n"], lost


def _document(session: Session) -> dict[str, Any]:
    model = session.model or "unknown"
    begun = format_timestamp(session.started)
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": session.id,
            "run_id": session.id,
            "task_id": session.id,
            "created": begun,
            "task": session.product or "session",
            "dataset": {"name": session.format, "samples": 1, "sample_ids": [session.id]},
            "model": model,
            "config": {},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "stats": {"started_at": begun, "completed_at": begun, "model_usage": {}},
        "samples": [_encode_sample(session, model)],
    }


def _encode_sample(session: Session, model: str) -> dict[str, Any]:
    sent = visible_messages(session.messages)
    asked = next((m.text for m in sent if m.role == "user"), "")
    last = session.calls[-1].message if session.calls else None
    return {
        "id": session.id,
        "epoch": 1,
        "input": asked,
        "target": "",
        "messages": [_encode_message(m) for m in sent],
        "output": _encode_output(last, model) if last else {"model": model, "choices": []},
        "events": _events(session, model),
        "store": {},
        "metadata": {},
        "scores": {},
        "model_usage": {},
        "attachments": {},
    }


def _events(session: Session, model: str) -> list[dict[str, Any]]:
    """Return a model event a call, after a compaction event for each cut since the call before."""
    events: list[dict[str, Any]] = []
    done = 0
    for call, shown in session.views():
        events += [
            _encode_compaction_event(session, e)
            for e in session.path[done : call.position]
            if isinstance(e, Edit) and e.kind in ("summarised", "dropped")
        ]
        done = call.position
        events.append(_encode_model_event(session, call, visible_messages(shown), model))
    return events


def _encode_compaction_event(session: Session, edit: Edit) -> dict[str, Any]:
    told = {"tokens_before": edit.tokens_before, "tokens_after": edit.tokens_after}
    return {
        "event": "compaction",
        "type": "summary" if edit.inserted else "trim",
        "timestamp": format_timestamp(edit.time if edit.time is not None else session.started),
        "source": edit.method or "ctxkit",
        **{k: v for k, v in told.items() if v is not None},
    }


def _encode_model_event(
    session: Session, call: ModelCall, sent: Sequence[Message], model: str
) -> dict[str, Any]:
    reply = call.message
    ended = reply.time if reply.time is not None else session.started
    begun = ended - reply.latency if ended is not None and reply.latency else ended
    event = {
        "event": "model",
        "timestamp": format_timestamp(begun),
        "model": reply.model or model,
        "input": [_encode_message(m) for m in sent],
        "tools": [
            {
                "name": t.name,
                "description": t.description,
                "parameters": {"type": "object", "properties": {}},
            }
            for t in session.tools
        ],
        "tool_choice": "auto",
        "config": {},
        "output": _encode_output(reply, model),
        "completed": format_timestamp(ended),
    }
    return {**event, "error": reply.error or "error"} if reply.is_error else event


def _encode_output(reply: Message, model: str) -> dict[str, Any]:
    stop = _STOPS_TO_INSPECT.get(reply.stop or "", "tool_calls" if reply.tool_calls else "unknown")
    out: dict[str, Any] = {
        "model": reply.model or model,
        "choices": [{"message": _encode_message(reply), "stop_reason": stop}],
    }
    if reply.usage:
        out["usage"] = _encode_usage(reply.usage)
    if reply.latency is not None:
        out["time"] = reply.latency
    return out


def _encode_usage(u: Usage) -> dict[str, Any]:
    writes = [n for n in (u.cache_write_tokens, u.cache_write_1h_tokens) if n is not None]
    told = {
        "input_tokens": u.input_tokens or 0,
        "output_tokens": u.output_tokens or 0,
        "total_tokens": (u.prompt_tokens or 0) + (u.output_tokens or 0),
        "input_tokens_cache_read": u.cache_read_tokens,
        "input_tokens_cache_write": sum(writes) if writes else None,
        "reasoning_tokens": u.reasoning_tokens,
    }
    return {k: v for k, v in told.items() if v is not None}


def _encode_message(m: Message) -> dict[str, Any]:
    out: dict[str, Any] = {"id": m.id, "role": m.sent_as, "content": _encode_content(m)}
    if m.role == "assistant" and m.tool_calls:
        out["tool_calls"] = [
            {"id": c.id, "function": c.name, "arguments": c.arguments, "type": "function"}
            for c in m.tool_calls
        ]
    if m.role == "tool":
        out |= {"tool_call_id": m.call_id or "", "function": m.tool or ""}
        if m.is_error:
            out["error"] = {"type": "unknown", "message": m.error or m.text[:2000]}
    return out


def _encode_content(m: Message) -> Any:
    if all(isinstance(p, Text) for p in m.parts) and len(m.parts) < 2:
        return m.text
    out: list[dict[str, Any]] = []
    for p in m.parts:
        if isinstance(p, Text):
            out.append({"type": "text", "text": p.text})
        elif isinstance(p, Thinking) and m.role == "assistant":
            out.append({"type": "reasoning", "reasoning": p.text, "signature": p.signature})
        elif isinstance(p, Image) and p.kind == "image":
            place = p.url or f"data:{p.media_type};base64,{p.data}"
            out.append({"type": "image", "image": place})
    return out or ""
