"""GitHub Copilot CLI: `events.jsonl` of a session, one event a line; events of subagents as its
children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Edit, Fault, Message, Text, Thinking, ToolCall, Usage
from ctxkit.readers.damaged import each_line
from ctxkit.readers.fields import arguments, as_text, items, mapping, number, text, time, word
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count
from ctxkit.readers.usages import uncached
from ctxkit.session import Session

if TYPE_CHECKING:
    from ctxkit.messages import Part
    from ctxkit.readers.source import Source

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
        text(r.get("type")) in _FIRST and type(r.get("data")) is dict and "id" in r for r in head
    ) or (bool(head) and all(_is_event(r) for r in head))


def _is_event(record: dict[str, Any]) -> bool:
    kind = text(record.get("type")).partition(".")
    return (
        kind[0] in _ROOMS
        and bool(kind[2])
        and type(record.get("data")) is dict
        and "parentId" in record
    )


_ROOMS = {"session", "user", "assistant", "tool", "hook", "subagent", "system", "skill"}


def read(source: Source) -> list[Session]:
    """Return the one session of a file."""
    reading = _Reading()
    faults = list[Fault]()
    each_line(source.stream(), reading.take, faults)
    faults += source.faults
    named, folder = source.path.stem, source.path.parent.name
    return [reading.session(folder if named == "events" and folder else named, faults)]


class _Thread:
    """The main agent, or one subagent."""

    def __init__(self, name: str, begun: float | None) -> None:
        self.log, self.name, self.begun = ReaderLog(), name, begun
        self.asked: dict[str, str] = {}
        self.systems: set[str] = set()
        self.last: int | None = None
        """Index of the last reply, which the next usage describes."""


class _Reading:
    """A session while its events go by."""

    def __init__(self) -> None:
        self.main = _Thread("main", None)
        self.others: dict[str, _Thread] = {}
        self.skipped: dict[str, int] = {}
        self.meta: dict[str, Any] = {}
        self.model: str | None = None
        self.window: int | None = None
        self.totals: dict[str, Any] = {}

    def take(self, record: dict[str, Any]) -> None:
        """Take one event."""
        kind, data = text(record.get("type")), mapping(record.get("data"))
        when = time(record.get("timestamp"))
        thread = self._thread(record, data, when)
        if kind in ("user.message", "system.message"):
            self._heard(thread, kind, record, data, when)
        elif kind == "assistant.message":
            self._said(thread, record, data, when)
        elif kind == "assistant.usage":
            self._billed(thread, data)
        elif kind == "tool.execution_complete":
            self._answered(thread, record, data, when)
        elif kind == "session.compaction_complete":
            self._compacted(thread, record, data, when)
        elif kind == "session.truncation":
            self._truncated(thread, record, data, when)
        elif kind == "session.context_cleared":
            own = thread.log.new_id(record.get("id"))
            edit = Edit(kind="dropped", id=own, method="clear", time=when)
            thread.log.compact(edit, thread.systems)
        else:
            self._about(kind, data)

    def _thread(self, record: dict[str, Any], data: dict[str, Any], when: float | None) -> _Thread:
        own = word(record.get("agentId")) or word(data.get("parentToolCallId"))
        if own is None:
            return self.main
        if own not in self.others:
            self.others[own] = _Thread(own, when)
        return self.others[own]

    def _about(self, kind: str, data: dict[str, Any]) -> None:
        if kind in _FIRST and not self.meta:
            self.meta = data
            self.model = word(data.get("selectedModel")) or self.model
        elif kind == "session.model_change":
            self.model = word(data.get("newModel")) or word(data.get("model")) or self.model
        elif kind in ("session.compaction_start", "session.usage_info"):
            self.window = number(data.get("tokenLimit")) or self.window
        elif kind == "session.shutdown":
            self.totals = {
                k: data[k] for k in ("modelMetrics", "totalPremiumRequests") if k in data
            }
        elif kind == "subagent.started":
            thread = self.others.get(text(data.get("toolCallId")))
            if thread is not None:
                thread.name = word(data.get("agentName")) or thread.name
        elif kind != "tool.execution_start":  # the reply has said what is called
            count(self.skipped, kind or "no type")

    @staticmethod
    def _heard(
        t: _Thread, kind: str, record: dict[str, Any], data: dict[str, Any], when: float | None
    ) -> None:
        said = text(data.get("transformedContent")) or as_text(data.get("content"))
        own, parts = t.log.new_id(record.get("id")), (Text(said),) if said else ()
        if kind == "system.message":
            t.systems.add(own)
            t.log.add(Message(role="system", id=own, parts=parts, time=when))
            return
        injected = "" if data.get("source") in (None, "user") else "injected"
        t.log.add(Message(role="user", id=own, parts=parts, time=when, kind=injected))

    def _said(
        self, t: _Thread, record: dict[str, Any], data: dict[str, Any], when: float | None
    ) -> None:
        thought, content = text(data.get("reasoningText")), as_text(data.get("content"))
        sealed = len(text(data.get("reasoningOpaque"))) + len(text(data.get("encryptedContent")))
        parts: list[Part] = [Thinking(thought, hidden=sealed)] if thought or sealed else []
        parts += [Text(content)] if content else []
        for raw in map(mapping, items(data.get("toolRequests"))):
            called = ToolCall(
                text(raw.get("toolCallId")), text(raw.get("name")), *arguments(raw.get("arguments"))
            )
            t.asked[called.id] = called.name
            parts.append(called)
        output = number(data.get("outputTokens"))
        begun = t.log.entries[-1] if number(data.get("chunkIndex")) and t.log.entries else None
        if isinstance(begun, Message) and begun.role == "assistant":  # the next piece of a reply
            usage = begun.usage if output is None else Usage(output_tokens=output)
            t.last = len(t.log.entries) - 1
            t.log.replace(t.last, replace(begun, parts=(*begun.parts, *parts), usage=usage))
            return
        reply = Message(
            role="assistant",
            id=t.log.new_id(record.get("id")),
            parts=tuple(parts),
            time=when,
            model=word(data.get("model")) or self.model,
            usage=None if output is None else Usage(output_tokens=output),
        )
        t.last = t.log.add(reply)

    @staticmethod
    def _billed(t: _Thread, data: dict[str, Any]) -> None:
        """Give the last reply what its call used; it may be told just once."""
        reply = t.log.entries[t.last] if t.last is not None else None
        if not isinstance(reply, Message) or t.last is None:
            return
        lasted = number(data.get("duration"))
        told = replace(
            reply,
            usage=_usage(data) or reply.usage,
            model=word(data.get("model")) or reply.model,
            latency=None if lasted is None else lasted / 1000,
        )
        t.log.replace(t.last, told)
        t.last = None

    @staticmethod
    def _answered(
        t: _Thread, record: dict[str, Any], data: dict[str, Any], when: float | None
    ) -> None:
        result, error = mapping(data.get("result")), mapping(data.get("error"))
        failed = data.get("success") is False
        said = as_text(result.get("content")) or (text(error.get("message")) if failed else "")
        called = word(data.get("toolCallId"))
        t.log.add(
            Message(
                role="tool",
                id=t.log.new_id(record.get("id")),
                parts=(Text(said),) if said else (),
                time=when,
                tool=t.asked.get(called or "") or word(data.get("toolName")),
                call_id=called,
                is_error=failed,
                error=word(error.get("message")),
            )
        )

    def _compacted(
        self, t: _Thread, record: dict[str, Any], data: dict[str, Any], when: float | None
    ) -> None:
        if data.get("success") is not True:
            count(self.skipped, "compaction that failed")
            return
        said, used = text(data.get("summaryContent")), mapping(data.get("compactionTokensUsed"))
        log = t.log
        kept = t.systems  # sent anew with each call
        summary = Message(
            role="summary", id=log.new_id(), parts=(Text(said),) if said else (), time=when
        )
        edit = Edit(
            kind="summarised",
            id=log.new_id(record.get("id")),
            inserted=(summary,),
            trigger=word(data.get("trigger")),
            method="compaction",
            time=when,
            tokens_before=number(data.get("preCompactionTokens")),
            tokens_after=number(data.get("postCompactionTokens")),
            usage=_usage(used) if used else None,
            model=word(data.get("model")),
        )
        log.compact(edit, kept)

    def _truncated(
        self, t: _Thread, record: dict[str, Any], data: dict[str, Any], when: float | None
    ) -> None:
        self.window = number(data.get("tokenLimit")) or self.window
        taken = number(data.get("messagesRemovedDuringTruncation"))
        edit = Edit(
            kind="dropped",
            id=t.log.new_id(record.get("id")),
            reason=f"{taken} messages; which, the log does not say" if taken else "",
            method="truncation",
            time=when,
            tokens_before=number(data.get("preTruncationTokensInMessages")),
            tokens_after=number(data.get("postTruncationTokensInMessages")),
        )
        t.log.add(edit)

    def session(self, name: str, faults: list[Fault]) -> Session:
        """Return what was read."""
        own = word(self.meta.get("sessionId")) or name
        children = tuple(
            Session(
                id=f"{own}/{key}",
                format=NAME,
                product=NAME,
                agent=t.name,
                parent=own,
                started=t.begun,
                log=tuple(t.log.entries),
            )
            for key, t in self.others.items()
            if t.log.entries
        )
        return Session(
            id=own,
            format=NAME,
            product=word(self.meta.get("producer")) or NAME,
            version=word(self.meta.get("copilotVersion")),
            cwd=word(mapping(self.meta.get("context")).get("cwd")),
            started=time(self.meta.get("startTime")),
            model=self.model,
            context_window=self.window,
            log=tuple(self.main.log.entries),
            children=children,
            skipped=self.skipped,
            faults=tuple(faults),
            details={"totals": self.totals} if self.totals else {},
        )


def _usage(data: dict[str, Any]) -> Usage | None:
    """Usage of a call, or of a compaction's own (`input`, `output`, `cachedInput`): the input holds
    the cached.
    """
    whole = number(data.get("inputTokens", data.get("input")))
    read = number(data.get("cacheReadTokens", data.get("cachedInput")))
    write = number(data.get("cacheWriteTokens"))
    output = number(data.get("outputTokens", data.get("output")))
    if whole is None and output is None:
        return None
    return Usage(
        input_tokens=uncached(whole, read, write),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        reasoning_tokens=number(data.get("reasoningTokens")),
    )
