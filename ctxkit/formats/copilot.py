"""GitHub Copilot CLI: events.jsonl of a session, subagents as children."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_messages import count_skipped, usage_from_total
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    parse_arguments,
    parse_timestamp,
    read_each_line,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Edit, Fault, Message, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session


NAME = "copilot-cli"
ALIASES = ("copilot", "github-copilot")
CAN = (
    "text, thinking, calls and results, output tokens, window, times, compactions with their usage,"
    " subagents; a session's totals; usage per call where events were streamed (assistant.usage)"
)
CANNOT = (
    "the prompt of a call (kept files leave assistant.usage out); what a truncation took; money"
    " (credits only)"
)
TRAITS = (
    (
        "all",
        "inputTokens holds the cached tokens; a truncation is a mark without the messages it took",
    ),
)
_FIRST = {"session.start", "session.resume"}


def sniff(source: Source) -> bool:
    """Say whether the first lines are events with a type in two words, data and an id."""
    head = source.head[:8]
    return any(
        as_str(r.get("type")) in _FIRST and type(r.get("data")) is dict and "id" in r for r in head
    ) or (bool(head) and all(_is_event(r) for r in head))


def _is_event(record: dict[str, Any]) -> bool:
    kind = as_str(record.get("type")).partition(".")
    return (
        kind[0] in _EVENT_GROUPS
        and bool(kind[2])
        and type(record.get("data")) is dict
        and "parentId" in record
    )


_EVENT_GROUPS = {"session", "user", "assistant", "tool", "hook", "subagent", "system", "skill"}


def read(source: Source) -> list[Session]:
    """Return the one session of a file."""
    reading = _Reading()
    faults = list[Fault]()
    read_each_line(source.stream(), reading.take, faults)
    faults += source.faults
    named, folder = source.path.stem, source.path.parent.name
    return [reading.session(folder if named == "events" and folder else named, faults)]


class _Reading:
    """A session while its events go by."""

    def __init__(self) -> None:
        self.main = AgentThread("main", None)
        self.others: dict[str, AgentThread] = {}
        self.skipped: dict[str, int] = {}
        self.meta: dict[str, Any] = {}
        self.model: str | None = None
        self.window: int | None = None
        self.totals: dict[str, Any] = {}

    def take(self, record: dict[str, Any]) -> None:
        """Take one event."""
        kind, data = as_str(record.get("type")), as_dict(record.get("data"))
        when = parse_timestamp(record.get("timestamp"))
        thread = self._thread(record, data, when)
        if kind in ("user.message", "system.message"):
            thread.heard(kind, record, data, when)
        elif kind == "assistant.message":
            thread.said(record, data, when, self.model)
        elif kind == "assistant.usage":
            thread.billed(data)
        elif kind == "tool.execution_complete":
            thread.answered(record, data, when)
        elif kind == "session.compaction_complete":
            if data.get("success") is True:
                thread.compacted(record, data, when)
            else:
                count_skipped(self.skipped, "compaction that failed")
        elif kind == "session.truncation":
            self.window = count_or_none(data.get("tokenLimit")) or self.window
            thread.truncated(record, data, when)
        elif kind == "session.context_cleared":
            thread.cleared(record, when)
        else:
            self._about(kind, data)

    def _thread(
        self, record: dict[str, Any], data: dict[str, Any], when: float | None
    ) -> AgentThread:
        own = str_or_none(record.get("agentId")) or str_or_none(data.get("parentToolCallId"))
        if own is None:
            return self.main
        if own not in self.others:
            self.others[own] = AgentThread(own, when)
        return self.others[own]

    def _about(self, kind: str, data: dict[str, Any]) -> None:
        if kind in _FIRST and not self.meta:
            self.meta = data
            self.model = str_or_none(data.get("selectedModel")) or self.model
        elif kind == "session.model_change":
            self.model = (
                str_or_none(data.get("newModel")) or str_or_none(data.get("model")) or self.model
            )
        elif kind in ("session.compaction_start", "session.usage_info"):
            self.window = count_or_none(data.get("tokenLimit")) or self.window
        elif kind == "session.shutdown":
            self.totals = {
                k: data[k] for k in ("modelMetrics", "totalPremiumRequests") if k in data
            }
        elif kind == "subagent.started":
            thread = self.others.get(as_str(data.get("toolCallId")))
            if thread is not None:
                thread.name = str_or_none(data.get("agentName")) or thread.name
        elif kind != "tool.execution_start":  # the reply has said what is called
            count_skipped(self.skipped, kind or "no type")

    def session(self, name: str, faults: list[Fault]) -> Session:
        """Return what was read."""
        own = str_or_none(self.meta.get("sessionId")) or name
        children = tuple(
            t.log.session(
                id=f"{own}/{key}",
                format=NAME,
                product=NAME,
                agent=t.name,
                parent=own,
                started=t.begun,
            )
            for key, t in self.others.items()
            if t.log.entries
        )
        return self.main.log.session(
            id=own,
            format=NAME,
            product=str_or_none(self.meta.get("producer")) or NAME,
            version=str_or_none(self.meta.get("copilotVersion")),
            cwd=str_or_none(as_dict(self.meta.get("context")).get("cwd")),
            started=parse_timestamp(self.meta.get("startTime")),
            model=self.model,
            context_window=self.window,
            children=children,
            skipped=self.skipped,
            faults=tuple(faults),
            details={"totals": self.totals} if self.totals else {},
        )


class AgentThread:
    """The main agent, or one subagent, while its events go by.

    Args:
        name: its name.
        begun: when it began, in seconds since 1970.
    """

    def __init__(self, name: str, begun: float | None) -> None:
        self.log, self.name, self.begun = SessionBuilder(), name, begun
        self.asked: dict[str, str] = {}
        self.systems: set[str] = set()
        self.last: int | None = None
        """Index of the last reply, which the next usage describes."""

    def heard(
        self, kind: str, record: dict[str, Any], data: dict[str, Any], when: float | None
    ) -> None:
        """Take what the user or the program said."""
        said = as_str(data.get("transformedContent")) or to_text(data.get("content"))
        own, parts = self.log.new_id(record.get("id")), (Text(said),) if said else ()
        if kind == "system.message":
            self.systems.add(own)
            self.log.add(Message(role="system", id=own, parts=parts, time=when))
            return
        injected = "" if data.get("source") in (None, "user") else "injected"
        self.log.add(Message(role="user", id=own, parts=parts, time=when, kind=injected))

    def said(
        self, record: dict[str, Any], data: dict[str, Any], when: float | None, model: str | None
    ) -> None:
        """Take a reply, or the next piece of one; `model`: where it names none."""
        thought, content = as_str(data.get("reasoningText")), to_text(data.get("content"))
        sealed = len(as_str(data.get("reasoningOpaque"))) + len(
            as_str(data.get("encryptedContent"))
        )
        parts: list[Part] = [Thinking(thought, hidden=sealed)] if thought or sealed else []
        parts += [Text(content)] if content else []
        for raw in map(as_dict, as_list(data.get("toolRequests"))):
            called = ToolCall(
                as_str(raw.get("toolCallId")),
                as_str(raw.get("name")),
                *parse_arguments(raw.get("arguments")),
            )
            self.asked[called.id] = called.name
            parts.append(called)
        output = count_or_none(data.get("outputTokens"))
        begun = (
            self.log.entries[-1]
            if count_or_none(data.get("chunkIndex")) and self.log.entries
            else None
        )
        if isinstance(begun, Message) and begun.role == "assistant":  # the next piece of a reply
            usage = begun.usage if output is None else Usage(output_tokens=output)
            self.last = len(self.log.entries) - 1
            self.log.replace(self.last, replace(begun, parts=(*begun.parts, *parts), usage=usage))
            return
        reply = Message(
            role="assistant",
            id=self.log.new_id(record.get("id")),
            parts=tuple(parts),
            time=when,
            model=str_or_none(data.get("model")) or model,
            usage=None if output is None else Usage(output_tokens=output),
        )
        self.last = self.log.add(reply)

    def billed(self, data: dict[str, Any]) -> None:
        """Give the last reply what its call used; it may be told just once."""
        reply = self.log.entries[self.last] if self.last is not None else None
        if not isinstance(reply, Message) or self.last is None:
            return
        lasted = count_or_none(data.get("duration"))
        told = replace(
            reply,
            usage=_usage(data) or reply.usage,
            model=str_or_none(data.get("model")) or reply.model,
            latency=None if lasted is None else lasted / 1000,
        )
        self.log.replace(self.last, told)
        self.last = None

    def answered(self, record: dict[str, Any], data: dict[str, Any], when: float | None) -> None:
        """Take the result of a tool."""
        result, error = as_dict(data.get("result")), as_dict(data.get("error"))
        failed = data.get("success") is False
        said = to_text(result.get("content")) or (as_str(error.get("message")) if failed else "")
        called = str_or_none(data.get("toolCallId"))
        self.log.say(
            "tool",
            (Text(said),) if said else (),
            record.get("id"),
            time=when,
            tool=self.asked.get(called or "") or str_or_none(data.get("toolName")),
            call_id=called,
            is_error=failed,
            error=str_or_none(error.get("message")),
        )

    def compacted(self, record: dict[str, Any], data: dict[str, Any], when: float | None) -> None:
        """Take a compaction; the system prompts are sent anew with each call."""
        said, used = as_str(data.get("summaryContent")), as_dict(data.get("compactionTokensUsed"))
        log = self.log
        summary = Message(
            role="summary", id=log.new_id(), parts=(Text(said),) if said else (), time=when
        )
        edit = Edit(
            kind="summarised",
            id=log.new_id(record.get("id")),
            inserted=(summary,),
            trigger=str_or_none(data.get("trigger")),
            method="compaction",
            time=when,
            tokens_before=count_or_none(data.get("preCompactionTokens")),
            tokens_after=count_or_none(data.get("postCompactionTokens")),
            usage=_usage(used) if used else None,
            model=str_or_none(data.get("model")),
        )
        log.compact(edit, self.systems)

    def truncated(self, record: dict[str, Any], data: dict[str, Any], when: float | None) -> None:
        """Take the mark of messages that were left out."""
        taken = count_or_none(data.get("messagesRemovedDuringTruncation"))
        edit = Edit(
            kind="dropped",
            id=self.log.new_id(record.get("id")),
            reason=f"{taken} messages; which, the log does not say" if taken else "",
            method="truncation",
            time=when,
            tokens_before=count_or_none(data.get("preTruncationTokensInMessages")),
            tokens_after=count_or_none(data.get("postTruncationTokensInMessages")),
        )
        self.log.add(edit)

    def cleared(self, record: dict[str, Any], when: float | None) -> None:
        """Take the mark of a conversation that begins anew."""
        own = self.log.new_id(record.get("id"))
        edit = Edit(kind="dropped", id=own, method="clear", time=when)
        self.log.compact(edit, self.systems)


def _usage(data: dict[str, Any]) -> Usage | None:
    """Return the usage of a call or compaction (`input`, `cachedInput`): input holds the cached."""
    whole = count_or_none(data.get("inputTokens", data.get("input")))
    read = count_or_none(data.get("cacheReadTokens", data.get("cachedInput")))
    write = count_or_none(data.get("cacheWriteTokens"))
    output = count_or_none(data.get("outputTokens", data.get("output")))
    if whole is None and output is None:
        return None
    thought = count_or_none(data.get("reasoningTokens"))
    return usage_from_total(whole, read, write, output, reasoning_tokens=thought)
