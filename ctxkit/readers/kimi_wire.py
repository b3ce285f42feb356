"""A Kimi Code wire log while its records go by: steps become replies, compactions edits."""

from __future__ import annotations

from typing import Any

from ctxkit.messages import Edit, Message, Part, Text, ToolCall, Usage
from ctxkit.readers.dialects import to_messages
from ctxkit.readers.fields import arguments, mapping, number, text, time, word
from ctxkit.readers.kimi_steps import kimi_part, result
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count, to_parts
from ctxkit.readers.usages import to_stop

_QUIET = {
    "turn.prompt",
    "turn.steer",
    "turn.cancel",
    "usage.record",
    "full_compaction.begin",
    "full_compaction.complete",
    "metadata",
}
"""Records that repeat what another says, or that were taken on the way."""


class Wire:
    """A wire log's state between records: the step being written, request, configuration."""

    def __init__(self) -> None:
        self.log = ReaderLog()
        self.config: dict[str, Any] = {}
        self.agent = "main"
        self._open: str | None = None
        """Id of the step that has begun."""
        self._at: int | None = None
        """Index of its message in the log, once there is one."""
        self._parts: list[Part] = []
        self._model: str | None = None
        self._system: Message | None = None
        self._names: dict[str, str] = {}
        self._users: set[str] = set()
        self._side: Usage | None = None
        self._source: str | None = None

    def take(self, record: dict[str, Any]) -> None:
        """Take one record."""
        kind, when = text(record.get("type")), time(record.get("time"))
        if kind == "context.append_loop_event":
            self._event(mapping(record.get("event")), when)
        elif kind == "context.append_message":
            self._message(mapping(record.get("message")), when)
        elif kind == "context.apply_compaction":
            self._compact(record, when)
        elif kind in ("config.update", "metadata"):
            self.config.update(record)
            self._prompt(text(record.get("systemPrompt")), when)
        elif kind == "tools.set_active_tools":
            self.config["tools"] = record.get("names")
        elif kind == "llm.request":
            self._model = word(record.get("model")) or self._model
        else:
            if kind == "usage.record":
                self.agent = text(record.get("agentId")) or self.agent
                if record.get("usageScope") == "session":
                    self._side = _usage(record.get("usage"))
            elif kind == "full_compaction.begin":
                self._source, self._side = word(record.get("source")), None
            if kind not in _QUIET:
                count(self.log.skipped, kind or "record without a type")

    def _event(self, event: dict[str, Any], when: float | None) -> None:
        kind = event.get("type")
        if kind == "step.begin":
            self.end({}, None)
            self._open = text(event.get("uuid"))
        elif kind == "content.part":
            parts, _ = to_parts([kimi_part(event.get("part"))], self.log.skipped)
            self._parts += parts
        elif kind == "tool.call":
            args, written = arguments(event.get("args"))
            call = ToolCall(text(event.get("toolCallId")), text(event.get("name")), args, written)
            self._names[call.id] = call.name
            self._parts.append(call)
            if self._at is None:  # its place is before its results
                self._write(when, {})
        elif kind == "tool.result":
            self._result(event, when)
        elif kind == "step.end":
            self.end(event, when)
        else:
            count(self.log.skipped, "event: " + (text(kind) or "no type"))

    def end(self, event: dict[str, Any], when: float | None) -> None:
        """Close the step that is being written; one that never got a reply is counted."""
        if self._parts or event:
            self._write(when, event)
        elif self._open is not None:
            count(self.log.skipped, "step without a reply")
        self._open, self._at, self._parts = None, None, []

    def _write(self, when: float | None, event: dict[str, Any]) -> None:
        known = None if self._at is None else self.log.entries[self._at]
        took = [
            n
            for k in ("llmFirstTokenLatencyMs", "llmStreamDurationMs")
            if (n := number(event.get(k))) is not None
        ]
        reply = Message(
            role="assistant",
            id=known.id if known else self.log.new_id(self._open),
            parts=tuple(self._parts),
            time=known.time if known and when is None else when,
            usage=_usage(event.get("usage")),
            model=self._model,
            stop=to_stop(event.get("finishReason")),
            latency=sum(took) / 1000 if took else None,
        )
        if self._at is None:
            self._at = self.log.add(reply)
        else:
            self.log.replace(self._at, reply)

    def _result(self, event: dict[str, Any], when: float | None) -> None:
        told, asked = mapping(event.get("result")), text(event.get("toolCallId"))
        about = {
            "tool": self._names.get(asked),
            "call_id": asked or None,
            "is_error": told.get("isError") is True,
        }
        self.log.add(
            result(told.get("output"), self.log.skipped, id=self.log.new_id(), time=when, **about)
        )

    def _message(self, raw: dict[str, Any], when: float | None) -> None:
        origin = text(mapping(raw.get("origin")).get("kind"))
        more = {"kind": "injected"} if origin not in ("", "user") else {}
        for m in to_messages(raw, self.log, self.log.skipped, time=when, **more):
            self.log.add(m)
            if m.role == "user" and not m.kind:
                self._users.add(m.id)

    def _prompt(self, said: str, when: float | None) -> None:
        if not said or (self._system is not None and self._system.text == said):
            return
        new = Message(role="system", id=self.log.new_id(), parts=(Text(said),), time=when)
        if self._system is None:
            self.log.add(new)
        else:
            self.log.add(
                Edit(
                    kind="replaced",
                    id=self.log.new_id(),
                    targets=(self._system.id,),
                    inserted=(new,),
                    time=when,
                )
            )
        self._system = new

    def _compact(self, record: dict[str, Any], when: float | None) -> None:
        """The context becomes the summary and the last user messages; the system prompt stays."""
        self.end({}, None)
        said = text(record.get("contextSummary")) or text(record.get("summary"))
        users = [i for i in self.log.shown if i in self._users] if self.log.may_edit() else []
        kept = number(record.get("keptUserMessageCount")) or 0
        stays = set(users[len(users) - kept :] if kept else ())
        if self._system is not None:
            stays.add(self._system.id)
        summary = Message(role="summary", id=self.log.new_id(), parts=(Text(said),), time=when)
        edit = Edit(
            kind="summarised",
            id=self.log.new_id(),
            inserted=(summary,),
            trigger=self._source,
            method="full_compaction",
            time=when,
            tokens_before=number(record.get("tokensBefore")),
            tokens_after=number(record.get("tokensAfter")),
            usage=self._side,
            model=self._model if self._side else None,
        )
        self.log.compact(edit, stays)
        self._side = self._source = None


def _usage(raw: Any) -> Usage | None:
    raw = mapping(raw)
    if not raw:
        return None
    return Usage(
        input_tokens=number(raw.get("inputOther")),
        cache_read_tokens=number(raw.get("inputCacheRead")),
        cache_write_tokens=number(raw.get("inputCacheCreation")),
        output_tokens=number(raw.get("output")),
    )
