"""Reader and writer of evaluation logs of Inspect (`.json`, `.eval`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_message_and_usage_parsers import (
    count_skipped,
    fill_tool_names,
    parse_chat_message,
    parse_stop_reason,
    parse_tool_schemas,
    subtract_cached,
)
from ctxkit.formats.conversations_from_requests import (
    KeyedMessage,
    PromptThreads,
    make_keyed_message,
)
from ctxkit.formats.conversion_losses import count_conversion_losses, select_sent_messages
from ctxkit.formats.log_file_content import read_zip_json
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    format_timestamp,
    json_to_text,
    parse_timestamp,
    read_each_object,
    str_or_none,
)
from ctxkit.session.messages import (
    Attachment,
    Edit,
    Fault,
    Message,
    Text,
    Thinking,
    ToolSchema,
    Usage,
)

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import ModelCall, Session


NAME = "inspect-ai"
ALIASES = ("inspect",)
CAN = (
    "text, thinking, system prompt, calls and results, tools, usage per call (cache reads and "
    "writes), times, compactions, subagents; samples"
)
CANNOT = "usage if the log has no model events"
# A sample's model events carry their whole prompts, inline or as ranges of a pool of messages. They
# are assigned to threads (`PromptThreads`); the main thread is the one that shares most with the
# sample's final messages. A compaction event applies to the edit that the next prompt shows; if
# that shows none, the edit is added without targets. Inspect marks the summary in the metadata of a
# user message. Two budgets bound the cost for hostile files: pool references, and messages that
# change between prompts.
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
"""References to pooled messages in a sample, in addition to one per two bytes of the file."""
_MAX_CHANGED_MESSAGES = 50_000
"""Messages that change between a sample's prompts, in addition to one per ten bytes of the file."""


def sniff(source: Source) -> bool:
    """Return True for a zip with Inspect's members, or a document with `eval` and `status`."""
    if source.data.startswith(b"PK"):
        names = source.data[-(1 << 16) :] + source.data[: 1 << 12]
        return b"_journal/" in names or b"header.json" in names or b"samples/" in names
    document = source.document
    return type(document) is dict and type(document.get("eval")) is dict and "status" in document


def read(source: Source) -> list[Session]:
    """Read one session per sample and epoch, also from an unfinished archive without header.

    Raises:
        ReadError: the log has no sample.
    """
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
    sessions = [
        _read_sample(header, as_dict(s), n, len(source.data))
        for n, s in enumerate(samples)
        if type(s) is dict
    ]
    if not sessions:
        raise ReadError(
            "the log has no samples." + "".join(f" {f.why}." for f in faults[:3]), source.path
        )
    sessions[0] = replace(sessions[0], faults=(*faults, *sessions[0].faults))
    return sessions


def _read_sample(header: dict[str, Any], sample: dict[str, Any], number: int, size: int) -> Session:
    evaluation = as_dict(header.get("eval"))
    reader = _SampleReader(sample, size)
    reader.read_events(as_list(sample.get("events")))
    threads = reader.finish_threads(as_list(sample.get("messages")))
    builder, agent = threads[0] if threads else (SessionBuilder(), None)
    session_id = f"{sample.get('id', number)}/{sample.get('epoch', 1)}"
    model = str_or_none(evaluation.get("model"))
    fields: dict[str, Any] = {
        "format": NAME,
        "product": "inspect-ai",
        "version": str_or_none(as_dict(evaluation.get("packages")).get("inspect_ai")),
    }
    children = tuple(
        thread_builder.session(
            id=f"{session_id}/{i}",
            parent=session_id,
            agent=agent_ or "subagent",
            model=model,
            **fields,
        )
        for i, (thread_builder, agent_) in enumerate(threads[1:], 1)
    )
    return builder.session(
        id=session_id,
        agent=agent or "main",
        title=str_or_none(evaluation.get("task")),
        started=parse_timestamp(evaluation.get("created")),
        model=model,
        tools=reader.tools,
        children=children,
        skipped=reader.skipped,
        faults=tuple(reader.faults),
        details=_read_details(sample),
        **fields,
    )


def _read_details(sample: dict[str, Any]) -> dict[str, Any]:
    scores = {
        k[:80]: as_dict(v).get("value") for k, v in list(as_dict(sample.get("scores")).items())[:20]
    }
    values = {k: v for k, v in scores.items() if type(v) in (int, float, str, bool)}
    seconds = float_or_none(sample.get("total_time"))
    return {
        **({"scores": values} if values else {}),
        **({} if seconds is None else {"seconds": seconds}),
    }


class _SampleReader:
    """Reader of one sample: its model events as threads, or else its final messages."""

    def __init__(self, sample: dict[str, Any], size: int) -> None:
        self.skipped, self.faults = dict[str, int](), list[Fault]()
        self.tools: tuple[ToolSchema, ...] = ()
        self._attachments = as_dict(sample.get("attachments"))
        self._pool = as_list(sample.get("message_pool")) or as_list(
            as_dict(sample.get("events_data")).get("messages")
        )
        self._parsed_pool: dict[int, list[KeyedMessage]] = {}
        self._remaining_references, self._max_changed = (
            _MAX_REFS + size // 2,
            _MAX_CHANGED_MESSAGES + size // 10,
        )
        """Remaining references, and the bound of changed messages."""
        self._threads = PromptThreads()
        self._tool_by_call: dict[str, str] = {}
        self._agent_by_span: dict[str, str] = {}
        self._compaction_event: dict[str, Any] | None = None

    def read_events(self, events: list[Any]) -> None:
        read_each_object(events, "event", self._read_event, self.faults)

    def _read_event(self, event: dict[str, Any]) -> None:
        event_type = as_str(event.get("event"))
        if event_type == "model":
            self._read_model_event(event)
        elif event_type == "compaction":
            self._compaction_event = event
        elif event_type == "span_begin":
            name = as_str(event.get("name")) if event.get("type") == "agent" else ""
            self._agent_by_span[as_str(event.get("id"))] = name or self._agent_by_span.get(
                as_str(event.get("parent_id")), ""
            )
        elif event_type not in _IGNORED_EVENTS:
            count_skipped(self.skipped, "event: " + (event_type or "no name"))

    def _read_model_event(self, event: dict[str, Any]) -> None:
        output = as_dict(event.get("output"))
        choice = as_dict(next(iter(as_list(output.get("choices"))), None))
        started, completed = (
            parse_timestamp(event.get("timestamp")),
            parse_timestamp(event.get("completed")),
        )
        latency = float_or_none(event.get("working_time"))
        if latency is None:
            latency = float_or_none(output.get("time"))
        fields: dict[str, Any] = {
            "time": completed or started,
            "usage": parse_inspect_usage(output.get("usage")),
            "model": str_or_none(event.get("model")),
            "stop": parse_stop_reason(choice.get("stop_reason")),
            "latency": latency,
            "error": as_str(event.get("error") or output.get("error"))[:2000] or None,
        }
        if fields["error"]:
            fields |= {"is_error": True, "stop": "error"}
        if not self.tools:
            self.tools = parse_tool_schemas(event.get("tools"))
        prompt = [
            keyed for raw in as_list(event.get("input")) for keyed in self._parse_keyed(raw)
        ] + self._resolve_references(event)
        messages = (
            fill_tool_names(
                self._parse_message(choice.get("message"), **fields), self._tool_by_call
            )
            if choice
            else []
        )
        reply = next((m for m in messages if m.role == "assistant"), None) or Message(
            role="assistant", **fields
        )
        agent = self._agent_by_span.get(as_str(event.get("span_id"))) or None
        if self._threads.work > self._max_changed:
            raise ValueError("too many messages change between the prompts of the sample")
        compacted, self._compaction_event = self._compaction_event, None
        thread = self._threads.add_call(prompt, reply, agent, compacted=compacted is not None)
        if compacted is not None:
            _apply_compaction_event(thread.log, thread.first_new_index, compacted)

    def _resolve_references(self, event: dict[str, Any]) -> list[KeyedMessage]:
        messages: list[KeyedMessage] = []
        for ref in as_list(event.get("input_refs")):
            start, stop = (count_or_none(n) for n in [*as_list(ref), None, None][:2])
            if start is None or stop is None:
                count_skipped(self.skipped, "reference: not a range")
                continue
            stop = min(stop, len(self._pool))
            self._remaining_references -= max(stop - start, 0)
            if self._remaining_references < 0 or len(messages) > 2 * len(self._pool):
                raise ValueError("too many references to pooled messages")
            for i in range(start, stop):
                if i not in self._parsed_pool:
                    self._parsed_pool[i] = self._parse_keyed(self._pool[i])
                messages += self._parsed_pool[i]
        return messages

    def _parse_keyed(self, raw: Any) -> list[KeyedMessage]:
        return [
            make_keyed_message(m)
            for m in fill_tool_names(self._parse_message(raw), self._tool_by_call)
        ]

    def _parse_message(self, raw: Any, **fields: Any) -> list[Message]:
        raw = self._resolve_attachments(as_dict(raw), 0) if self._attachments else as_dict(raw)
        messages = parse_chat_message(raw, SessionBuilder(), self.skipped, **fields)
        error = as_dict(raw.get("error"))
        if raw.get("role") == "assistant":
            messages += _parse_server_results(raw)
        if raw.get("role") == "tool":
            error_text = as_str(error.get("message"))
            parts = messages[0].parts or ((Text(error_text),) if error_text else ())
            tool = messages[0].tool or str_or_none(raw.get("function"))
            messages[0] = replace(
                messages[0],
                parts=parts,
                tool=tool,
                is_error=bool(error),
                error=error_text[:2000] or None,
            )
        if raw.get("role") == "user" and "summary" in as_dict(raw.get("metadata")):
            messages = [replace(m, role="summary") for m in messages]
        return [replace(m, id=as_str(raw.get("id"))) for m in messages]

    def _resolve_attachments(self, value: Any, depth: int) -> Any:
        """Replace references to attachments by their text, at most six levels deep."""
        if type(value) is str:
            if value.startswith("attachment://"):
                attachment = self._attachments.get(value[13:])
                return attachment if type(attachment) is str else value
            return value
        if depth > 6:
            return value
        if type(value) is dict:
            return {k: self._resolve_attachments(v, depth + 1) for k, v in value.items()}
        return (
            [self._resolve_attachments(v, depth + 1) for v in value]
            if type(value) is list
            else value
        )

    def finish_threads(self, messages: list[Any]) -> list[tuple[SessionBuilder, str | None]]:
        """Return (builder, agent) of each thread, the main one first."""
        final: list[KeyedMessage] = []
        for raw_message in messages:
            with catch_damage(self.faults, 0, "message: "):
                final += self._parse_keyed(raw_message)
        threads = self._threads.all
        main_thread = max(threads, key=lambda t: t.count_shared(final), default=None)
        if main_thread is None or not main_thread.count_shared(final):
            builder = SessionBuilder()
            for _, m in final:
                builder.add(replace(m, id=builder.new_id(m.id)))
            return ([(builder, None)] if final else []) + [(t.log, t.agent) for t in threads]
        main_thread.add_final(final)
        return [
            (main_thread.log, main_thread.agent),
            *((t.log, t.agent) for t in threads if t is not main_thread),
        ]


def _parse_server_results(raw: dict[str, Any]) -> list[Message]:
    """Return the results of server tools, which are in the reply's content."""
    results = []
    for part in map(as_dict, as_list(raw.get("content"))):
        output = json_to_text(part.get("result")) if part.get("type") == "tool_use" else ""
        if output:
            call_id, tool = str_or_none(part.get("id")), str_or_none(part.get("name"))
            is_error = bool(part.get("error"))
            parts = (Text(output),)
            results.append(
                Message(
                    role="tool",
                    id="",
                    parts=parts,
                    kind="server",
                    call_id=call_id,
                    tool=tool,
                    is_error=is_error,
                )
            )
    return results


def _apply_compaction_event(
    builder: SessionBuilder, first_new_index: int, event: dict[str, Any]
) -> None:
    """Apply a compaction event to the edit that the prompt showed, or add an edit."""
    fields: dict[str, Any] = {
        "method": str_or_none(event.get("type")),
        "tokens_before": count_or_none(event.get("tokens_before")),
        "tokens_after": count_or_none(event.get("tokens_after")),
        "time": parse_timestamp(event.get("timestamp")),
        "source": "recorded",
    }
    for i in range(first_new_index, len(builder.entries)):
        entry = builder.entries[i]
        if isinstance(entry, Edit):
            builder.entries[i] = replace(
                entry, reason=str_or_none(event.get("source")) or "compaction", **fields
            )
            return
    builder.add(Edit(kind="summarised", id=builder.new_id(), **fields))


def parse_inspect_usage(raw: Any) -> Usage | None:
    """Return a call's usage; if input + output is the total, the input includes cached tokens."""
    raw = as_dict(raw)
    if not raw:
        return None
    input_tokens, output_tokens = (
        count_or_none(raw.get("input_tokens")),
        count_or_none(raw.get("output_tokens")),
    )
    cache_read = count_or_none(raw.get("input_tokens_cache_read"))
    cache_write = count_or_none(raw.get("input_tokens_cache_write"))
    total = count_or_none(raw.get("total_tokens"))
    includes_cached = total is None or (input_tokens or 0) + (output_tokens or 0) >= total
    return Usage(
        input_tokens=subtract_cached(input_tokens, cache_read, cache_write)
        if includes_cached
        else input_tokens,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        output_tokens=output_tokens,
        reasoning_tokens=count_or_none(raw.get("reasoning_tokens")),
        cost_usd=float_or_none(raw.get("total_cost")),
    )


_SUPPORTED = {
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
_STOP_REASONS_TO_INSPECT = {"tool": "tool_calls", "stop": "stop", "length": "max_tokens"}


def encode_session(session: Session) -> tuple[list[bytes], Counter[str]]:
    """Return the file's content, and counts of what it cannot hold."""
    losses = count_conversion_losses(session, _SUPPORTED)
    losses["money of calls"] += sum(
        c.message.usage is not None and c.message.usage.cost_usd is not None for c in session.calls
    )
    losses["parameters of tools"] += sum(bool(t.parameters) for t in session.tools)
    return [
        msgspec.json.format(msgspec.json.encode(_encode_document(session)), indent=1),
        b"\n",
    ], losses


def _encode_document(session: Session) -> dict[str, Any]:
    model = session.model or "unknown"
    started = format_timestamp(session.started)
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": session.id,
            "run_id": session.id,
            "task_id": session.id,
            "created": started,
            "task": session.product or "session",
            "dataset": {"name": session.format, "samples": 1, "sample_ids": [session.id]},
            "model": model,
            "config": {},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "stats": {"started_at": started, "completed_at": started, "model_usage": {}},
        "samples": [_encode_sample(session, model)],
    }


def _encode_sample(session: Session, model: str) -> dict[str, Any]:
    sent = select_sent_messages(session.messages)
    first_input = next((m.text for m in sent if m.role == "user"), "")
    last_reply = session.calls[-1].message if session.calls else None
    return {
        "id": session.id,
        "epoch": 1,
        "input": first_input,
        "target": "",
        "messages": [_encode_message(m) for m in sent],
        "output": _encode_output(last_reply, model)
        if last_reply
        else {"model": model, "choices": []},
        "events": _encode_events(session, model),
        "store": {},
        "metadata": {},
        "scores": {},
        "model_usage": {},
        "attachments": {},
    }


def _encode_events(session: Session, model: str) -> list[dict[str, Any]]:
    """Return a model event per call, each after the compaction events since the last call."""
    events: list[dict[str, Any]] = []
    position = 0
    for call, visible in session.views():
        events += [
            _encode_compaction_event(session, e)
            for e in session.path[position : call.position]
            if isinstance(e, Edit) and e.kind in ("summarised", "dropped")
        ]
        position = call.position
        events.append(_encode_model_event(session, call, select_sent_messages(visible), model))
    return events


def _encode_compaction_event(session: Session, edit: Edit) -> dict[str, Any]:
    sizes = {"tokens_before": edit.tokens_before, "tokens_after": edit.tokens_after}
    return {
        "event": "compaction",
        "type": "summary" if edit.inserted else "trim",
        "timestamp": format_timestamp(edit.time if edit.time is not None else session.started),
        "source": edit.method or "ctxkit",
        **{k: v for k, v in sizes.items() if v is not None},
    }


def _encode_model_event(
    session: Session, call: ModelCall, sent: Sequence[Message], model: str
) -> dict[str, Any]:
    reply = call.message
    completed = reply.time if reply.time is not None else session.started
    started = completed - reply.latency if completed is not None and reply.latency else completed
    event = {
        "event": "model",
        "timestamp": format_timestamp(started),
        "model": reply.model or model,
        "input": [_encode_message(m) for m in sent],
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": {"type": "object", "properties": {}},
            }
            for tool in session.tools
        ],
        "tool_choice": "auto",
        "config": {},
        "output": _encode_output(reply, model),
        "completed": format_timestamp(completed),
    }
    return {**event, "error": reply.error or "error"} if reply.is_error else event


def _encode_output(reply: Message, model: str) -> dict[str, Any]:
    stop_reason = _STOP_REASONS_TO_INSPECT.get(
        reply.stop or "", "tool_calls" if reply.tool_calls else "unknown"
    )
    encoded: dict[str, Any] = {
        "model": reply.model or model,
        "choices": [{"message": _encode_message(reply), "stop_reason": stop_reason}],
    }
    if reply.usage:
        encoded["usage"] = _encode_usage(reply.usage)
    if reply.latency is not None:
        encoded["time"] = reply.latency
    return encoded


def _encode_usage(usage: Usage) -> dict[str, Any]:
    cache_writes = [
        n for n in (usage.cache_write_tokens, usage.cache_write_1h_tokens) if n is not None
    ]
    encoded = {
        "input_tokens": usage.input_tokens or 0,
        "output_tokens": usage.output_tokens or 0,
        "total_tokens": (usage.prompt_tokens or 0) + (usage.output_tokens or 0),
        "input_tokens_cache_read": usage.cache_read_tokens,
        "input_tokens_cache_write": sum(cache_writes) if cache_writes else None,
        "reasoning_tokens": usage.reasoning_tokens,
    }
    return {k: v for k, v in encoded.items() if v is not None}


def _encode_message(message: Message) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "id": message.id,
        "role": message.sent_as,
        "content": _encode_content(message),
    }
    if message.role == "assistant" and message.tool_calls:
        encoded["tool_calls"] = [
            {"id": c.id, "function": c.name, "arguments": c.arguments, "type": "function"}
            for c in message.tool_calls
        ]
    if message.role == "tool":
        encoded |= {"tool_call_id": message.call_id or "", "function": message.tool or ""}
        if message.is_error:
            encoded["error"] = {"type": "unknown", "message": message.error or message.text[:2000]}
    return encoded


def _encode_content(message: Message) -> Any:
    if all(isinstance(part, Text) for part in message.parts) and len(message.parts) < 2:
        return message.text
    encoded: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            encoded.append({"type": "text", "text": part.text})
        elif isinstance(part, Thinking) and message.role == "assistant":
            encoded.append(
                {"type": "reasoning", "reasoning": part.text, "signature": part.signature}
            )
        elif isinstance(part, Attachment) and part.kind == "image":
            address = part.url or f"data:{part.media_type};base64,{part.data}"
            encoded.append({"type": "image", "image": address})
    return encoded or ""
