"""Reader of GitHub Copilot CLI sessions (`events.jsonl`), with subagents as children."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import count_skipped, make_usage_from_total
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    json_to_text,
    parse_arguments,
    parse_timestamp,
    read_each_line,
    str_or_none,
)
from ctxkit.session.messages import Edit, Fault, Message, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session


NAME = "copilot-cli"
ALIASES = ("copilot", "github-copilot")
CAN = (
    "text, thinking, calls and results, output tokens, window, times, compactions with their "
    "usage, subagents; totals of a session; usage per call if events were streamed "
    "(assistant.usage)"
)
CANNOT = (
    "the prompt of a call (stored files omit assistant.usage); messages removed by a "
    "truncation; cost (only credits)"
)
TRAITS = (
    (
        "all",
        ("inputTokens includes cached tokens; a truncation is a mark without the removed messages"),
    ),
)
# Events are JSON lines {type, data, id, parentId, timestamp}. An event with an agent id, or with
# the id of the call that started a subagent, belongs to that subagent's thread; all others belong
# to the main agent. A reply may come in chunks, which are merged. A usage event describes the last
# reply. A compaction replaces everything but the system prompts, which are sent with each call.
_START_EVENTS = {"session.start", "session.resume"}


def sniff(source: Source) -> bool:
    """Return True if the first lines are events with a dotted type, data and an id."""
    head = source.head[:8]
    return any(
        as_str(r.get("type")) in _START_EVENTS and type(r.get("data")) is dict and "id" in r
        for r in head
    ) or (bool(head) and all(_is_event(r) for r in head))


def _is_event(record: dict[str, Any]) -> bool:
    type_parts = as_str(record.get("type")).partition(".")
    return (
        type_parts[0] in _EVENT_GROUPS
        and bool(type_parts[2])
        and type(record.get("data")) is dict
        and "parentId" in record
    )


_EVENT_GROUPS = {"session", "user", "assistant", "tool", "hook", "subagent", "system", "skill"}


def read(source: Source) -> list[Session]:
    """Read the session of a file."""
    reader = _SessionReader()
    faults = list[Fault]()
    read_each_line(source.stream(), reader.read_event, faults)
    faults += source.faults
    stem, folder = source.path.stem, source.path.parent.name
    return [reader.build_session(folder if stem == "events" and folder else stem, faults)]


class _SessionReader:
    """Reader of one session, event by event."""

    def __init__(self) -> None:
        self.main = _AgentThread("main", None)
        self.subagents: dict[str, _AgentThread] = {}
        self.skipped: dict[str, int] = {}
        self.metadata: dict[str, Any] = {}
        self.model: str | None = None
        self.context_window: int | None = None
        self.totals: dict[str, Any] = {}

    def read_event(self, record: dict[str, Any]) -> None:
        """Read one event."""
        event_type, data = as_str(record.get("type")), as_dict(record.get("data"))
        time = parse_timestamp(record.get("timestamp"))
        thread = self._find_thread(record, data, time)
        if event_type in ("user.message", "system.message"):
            thread.add_input(event_type, record, data, time)
        elif event_type == "assistant.message":
            thread.add_reply(record, data, time, self.model)
        elif event_type == "assistant.usage":
            thread.add_usage(data)
        elif event_type == "tool.execution_complete":
            thread.add_result(record, data, time)
        elif event_type == "session.compaction_complete":
            if data.get("success") is True:
                thread.add_compaction(record, data, time)
            else:
                count_skipped(self.skipped, "compaction that failed")
        elif event_type == "session.truncation":
            self.context_window = count_or_none(data.get("tokenLimit")) or self.context_window
            thread.add_truncation(record, data, time)
        elif event_type == "session.context_cleared":
            thread.add_clear(record, time)
        else:
            self._read_session_event(event_type, data, thread)

    def _find_thread(
        self, record: dict[str, Any], data: dict[str, Any], time: float | None
    ) -> _AgentThread:
        agent_id = str_or_none(record.get("agentId")) or str_or_none(data.get("parentToolCallId"))
        if agent_id is None and record.get("type") == "subagent.started":
            agent_id = str_or_none(data.get("toolCallId"))
        if agent_id is None:
            return self.main
        if agent_id not in self.subagents:
            self.subagents[agent_id] = _AgentThread(agent_id, time)
        return self.subagents[agent_id]

    def _read_session_event(
        self, event_type: str, data: dict[str, Any], thread: _AgentThread
    ) -> None:
        if event_type in _START_EVENTS and not self.metadata:
            self.metadata = data
            self.model = str_or_none(data.get("selectedModel")) or self.model
        elif event_type == "session.model_change":
            self.model = (
                str_or_none(data.get("newModel")) or str_or_none(data.get("model")) or self.model
            )
        elif event_type in ("session.compaction_start", "session.usage_info"):
            self.context_window = count_or_none(data.get("tokenLimit")) or self.context_window
        elif event_type == "session.shutdown":
            self.totals = {
                k: data[k] for k in ("modelMetrics", "totalPremiumRequests") if k in data
            }
        elif event_type == "subagent.started":
            thread.name = str_or_none(data.get("agentName")) or thread.name
        elif event_type != "tool.execution_start":  # the call is in the reply already
            count_skipped(self.skipped, event_type or "no type")

    def build_session(self, name: str, faults: list[Fault]) -> Session:
        """Return the session."""
        session_id = str_or_none(self.metadata.get("sessionId")) or name
        children = tuple(
            thread.builder.session(
                id=f"{session_id}/{key}",
                format=NAME,
                product=NAME,
                agent=thread.name,
                parent=session_id,
                started=thread.started,
            )
            for key, thread in self.subagents.items()
            if thread.builder.entries
        )
        return self.main.builder.session(
            id=session_id,
            format=NAME,
            product=str_or_none(self.metadata.get("producer")) or NAME,
            version=str_or_none(self.metadata.get("copilotVersion")),
            cwd=str_or_none(as_dict(self.metadata.get("context")).get("cwd")),
            started=parse_timestamp(self.metadata.get("startTime")),
            model=self.model,
            context_window=self.context_window,
            children=children,
            skipped=self.skipped,
            faults=tuple(faults),
            details={"totals": self.totals} if self.totals else {},
        )


class _AgentThread:
    """Builder of the conversation of the main agent or of one subagent.

    Args:
        name: the agent's name.
        start: POSIX time at which it began.
    """

    def __init__(self, name: str, start: float | None) -> None:
        self.builder, self.name, self.started = SessionBuilder(), name, start
        self.tool_by_call: dict[str, str] = {}
        self.system_ids: set[str] = set()
        self.last_reply: int | None = None
        """Index of the last reply, which the next usage event describes."""

    def add_input(
        self, event_type: str, record: dict[str, Any], data: dict[str, Any], time: float | None
    ) -> None:
        """Add a user or system message."""
        text = as_str(data.get("transformedContent")) or json_to_text(data.get("content"))
        message_id, parts = self.builder.new_id(record.get("id")), (Text(text),) if text else ()
        if event_type == "system.message":
            self.system_ids.add(message_id)
            self.builder.add(Message(role="system", id=message_id, parts=parts, time=time))
            return
        message_kind = "" if data.get("source") in (None, "user") else "injected"
        self.builder.add(
            Message(role="user", id=message_id, parts=parts, time=time, kind=message_kind)
        )

    def add_reply(
        self, record: dict[str, Any], data: dict[str, Any], time: float | None, model: str | None
    ) -> None:
        """Add a reply, or the next chunk of one; `model` is the default if it names none."""
        thinking, content = as_str(data.get("reasoningText")), json_to_text(data.get("content"))
        hidden_chars = len(as_str(data.get("reasoningOpaque"))) + len(
            as_str(data.get("encryptedContent"))
        )
        parts: list[Part] = (
            [Thinking(thinking, hidden=hidden_chars)] if thinking or hidden_chars else []
        )
        parts += [Text(content)] if content else []
        for raw in map(as_dict, as_list(data.get("toolRequests"))):
            call = ToolCall(
                as_str(raw.get("toolCallId")),
                as_str(raw.get("name")),
                *parse_arguments(raw.get("arguments")),
            )
            self.tool_by_call[call.id] = call.name
            parts.append(call)
        output = count_or_none(data.get("outputTokens"))
        open_reply = (
            self.builder.entries[-1]
            if count_or_none(data.get("chunkIndex")) and self.builder.entries
            else None
        )
        if isinstance(open_reply, Message) and open_reply.role == "assistant":
            usage = open_reply.usage if output is None else Usage(output_tokens=output)
            self.last_reply = len(self.builder.entries) - 1
            self.builder.replace(
                self.last_reply, replace(open_reply, parts=(*open_reply.parts, *parts), usage=usage)
            )
            return
        reply = Message(
            role="assistant",
            id=self.builder.new_id(record.get("id")),
            parts=tuple(parts),
            time=time,
            model=str_or_none(data.get("model")) or model,
            usage=None if output is None else Usage(output_tokens=output),
        )
        self.last_reply = self.builder.add(reply)

    def add_usage(self, data: dict[str, Any]) -> None:
        """Set the usage of the last reply, once."""
        reply = self.builder.entries[self.last_reply] if self.last_reply is not None else None
        if not isinstance(reply, Message) or self.last_reply is None:
            return
        duration = count_or_none(data.get("duration"))
        with_usage = replace(
            reply,
            usage=_parse_usage(data) or reply.usage,
            model=str_or_none(data.get("model")) or reply.model,
            latency=None if duration is None else duration / 1000,
        )
        self.builder.replace(self.last_reply, with_usage)
        self.last_reply = None

    def add_result(self, record: dict[str, Any], data: dict[str, Any], time: float | None) -> None:
        """Add the result of a tool call."""
        result, error = as_dict(data.get("result")), as_dict(data.get("error"))
        is_failed = data.get("success") is False
        output = json_to_text(result.get("content")) or (
            as_str(error.get("message")) if is_failed else ""
        )
        call_id = str_or_none(data.get("toolCallId"))
        self.builder.add_message(
            "tool",
            (Text(output),) if output else (),
            record.get("id"),
            time=time,
            tool=self.tool_by_call.get(call_id or "") or str_or_none(data.get("toolName")),
            call_id=call_id,
            is_error=is_failed,
            error=str_or_none(error.get("message")),
        )

    def add_compaction(
        self, record: dict[str, Any], data: dict[str, Any], time: float | None
    ) -> None:
        """Add a compaction, which keeps the system prompts."""
        summary_text, usage = (
            as_str(data.get("summaryContent")),
            as_dict(data.get("compactionTokensUsed")),
        )
        builder = self.builder
        summary = Message(
            role="summary",
            id=builder.new_id(),
            parts=(Text(summary_text),) if summary_text else (),
            time=time,
        )
        edit = Edit(
            kind="summarised",
            id=builder.new_id(record.get("id")),
            inserted=(summary,),
            trigger=str_or_none(data.get("trigger")),
            method="compaction",
            time=time,
            tokens_before=count_or_none(data.get("preCompactionTokens")),
            tokens_after=count_or_none(data.get("postCompactionTokens")),
            usage=_parse_usage(usage) if usage else None,
            model=str_or_none(data.get("model")),
        )
        builder.compact(edit, self.system_ids)

    def add_truncation(
        self, record: dict[str, Any], data: dict[str, Any], time: float | None
    ) -> None:
        """Add a truncation, of which the log has only the number of messages."""
        n_removed = count_or_none(data.get("messagesRemovedDuringTruncation"))
        edit = Edit(
            kind="dropped",
            id=self.builder.new_id(record.get("id")),
            reason=f"{n_removed} messages; which, the log does not say" if n_removed else "",
            method="truncation",
            time=time,
            tokens_before=count_or_none(data.get("preTruncationTokensInMessages")),
            tokens_after=count_or_none(data.get("postTruncationTokensInMessages")),
        )
        self.builder.add(edit)

    def add_clear(self, record: dict[str, Any], time: float | None) -> None:
        """Add a clear of the context, which keeps the system prompts."""
        edit_id = self.builder.new_id(record.get("id"))
        edit = Edit(kind="dropped", id=edit_id, method="clear", time=time)
        self.builder.compact(edit, self.system_ids)


def _parse_usage(data: dict[str, Any]) -> Usage | None:
    """Return the usage of a call or compaction; the input includes cached tokens."""
    input_tokens = count_or_none(data.get("inputTokens", data.get("input")))
    cache_read = count_or_none(data.get("cacheReadTokens", data.get("cachedInput")))
    cache_write = count_or_none(data.get("cacheWriteTokens"))
    output_tokens = count_or_none(data.get("outputTokens", data.get("output")))
    if input_tokens is None and output_tokens is None:
        return None
    reasoning = count_or_none(data.get("reasoningTokens"))
    return make_usage_from_total(
        input_tokens, cache_read, cache_write, output_tokens, reasoning_tokens=reasoning
    )
