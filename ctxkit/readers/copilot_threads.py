"""What an agent of Copilot CLI heard and said, one event after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Edit, Message, Text, Thinking, ToolCall, Usage
from ctxkit.readers.fields import arguments, as_text, items, mapping, number, text, word
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.usages import whole_usage

if TYPE_CHECKING:
    from ctxkit.messages import Part


class CopilotThread:
    """The main agent, or one subagent, while its events go by.

    Args:
        name: its name.
        begun: when it began, in seconds since 1970.
    """

    def __init__(self, name: str, begun: float | None) -> None:
        self.log, self.name, self.begun = ReaderLog(), name, begun
        self.asked: dict[str, str] = {}
        self.systems: set[str] = set()
        self.last: int | None = None
        """Index of the last reply, which the next usage describes."""

    def heard(
        self, kind: str, record: dict[str, Any], data: dict[str, Any], when: float | None
    ) -> None:
        """Take what the user or the program said."""
        said = text(data.get("transformedContent")) or as_text(data.get("content"))
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
        thought, content = text(data.get("reasoningText")), as_text(data.get("content"))
        sealed = len(text(data.get("reasoningOpaque"))) + len(text(data.get("encryptedContent")))
        parts: list[Part] = [Thinking(thought, hidden=sealed)] if thought or sealed else []
        parts += [Text(content)] if content else []
        for raw in map(mapping, items(data.get("toolRequests"))):
            called = ToolCall(
                text(raw.get("toolCallId")), text(raw.get("name")), *arguments(raw.get("arguments"))
            )
            self.asked[called.id] = called.name
            parts.append(called)
        output = number(data.get("outputTokens"))
        begun = (
            self.log.entries[-1] if number(data.get("chunkIndex")) and self.log.entries else None
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
            model=word(data.get("model")) or model,
            usage=None if output is None else Usage(output_tokens=output),
        )
        self.last = self.log.add(reply)

    def billed(self, data: dict[str, Any]) -> None:
        """Give the last reply what its call used; it may be told just once."""
        reply = self.log.entries[self.last] if self.last is not None else None
        if not isinstance(reply, Message) or self.last is None:
            return
        lasted = number(data.get("duration"))
        told = replace(
            reply,
            usage=_usage(data) or reply.usage,
            model=word(data.get("model")) or reply.model,
            latency=None if lasted is None else lasted / 1000,
        )
        self.log.replace(self.last, told)
        self.last = None

    def answered(self, record: dict[str, Any], data: dict[str, Any], when: float | None) -> None:
        """Take the result of a tool."""
        result, error = mapping(data.get("result")), mapping(data.get("error"))
        failed = data.get("success") is False
        said = as_text(result.get("content")) or (text(error.get("message")) if failed else "")
        called = word(data.get("toolCallId"))
        self.log.say(
            "tool",
            (Text(said),) if said else (),
            record.get("id"),
            time=when,
            tool=self.asked.get(called or "") or word(data.get("toolName")),
            call_id=called,
            is_error=failed,
            error=word(error.get("message")),
        )

    def compacted(self, record: dict[str, Any], data: dict[str, Any], when: float | None) -> None:
        """Take a compaction; the system prompts are sent anew with each call."""
        said, used = text(data.get("summaryContent")), mapping(data.get("compactionTokensUsed"))
        log = self.log
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
        log.compact(edit, self.systems)

    def truncated(self, record: dict[str, Any], data: dict[str, Any], when: float | None) -> None:
        """Take the mark of messages that were left out."""
        taken = number(data.get("messagesRemovedDuringTruncation"))
        edit = Edit(
            kind="dropped",
            id=self.log.new_id(record.get("id")),
            reason=f"{taken} messages; which, the log does not say" if taken else "",
            method="truncation",
            time=when,
            tokens_before=number(data.get("preTruncationTokensInMessages")),
            tokens_after=number(data.get("postTruncationTokensInMessages")),
        )
        self.log.add(edit)

    def cleared(self, record: dict[str, Any], when: float | None) -> None:
        """Take the mark of a conversation that begins anew."""
        own = self.log.new_id(record.get("id"))
        edit = Edit(kind="dropped", id=own, method="clear", time=when)
        self.log.compact(edit, self.systems)


def _usage(data: dict[str, Any]) -> Usage | None:
    """Return the usage of a call or compaction (`input`, `cachedInput`): input holds the cached."""
    whole = number(data.get("inputTokens", data.get("input")))
    read = number(data.get("cacheReadTokens", data.get("cachedInput")))
    write = number(data.get("cacheWriteTokens"))
    output = number(data.get("outputTokens", data.get("output")))
    if whole is None and output is None:
        return None
    thought = number(data.get("reasoningTokens"))
    return whole_usage(whole, read, write, output, reasoning_tokens=thought)
