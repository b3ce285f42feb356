"""OpenHands V1: a conversation's events (one file each on disk), usage from the state beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Edit, Fault, Message, Part, Text, Thinking, ToolCall, ToolSchema, Usage
from ctxkit.readers.damaged import each_of
from ctxkit.readers.dialects import to_messages
from ctxkit.readers.exits import is_failure
from ctxkit.readers.fields import arguments, as_text, items, mapping, number, real, text, time, word
from ctxkit.readers.logs import TOO_MANY, ReaderLog
from ctxkit.readers.parts import count, to_parts
from ctxkit.readers.usages import to_schemas, to_usage

if TYPE_CHECKING:
    from ctxkit.session import Session

_SAID = {
    "SystemPromptEvent",
    "SystemPromptUpdateEvent",
    "MessageEvent",
    "ActionEvent",
    "ObservationEvent",
}
_REFUSED = {"AgentErrorEvent", "UserRejectObservation"}
_MARKS = {
    "Condensation",
    "CondensationRequest",
    "CondensationSummaryEvent",
    "ConversationStateUpdateEvent",
    "PauseEvent",
}


def is_event(record: Any) -> bool:
    """Say whether a record is an event: source, time, and a kind known or ending in `Event`."""
    if type(record) is not dict or "source" not in record or "timestamp" not in record:
        return False
    kind = text(record.get("kind"))
    return kind in _SAID or kind in _REFUSED or kind in _MARKS or kind.endswith("Event")


def read_events(
    events: list[Any], state: dict[str, Any], name: str, faults: list[Fault]
) -> Session:
    """Return one conversation as a session; `state` is its base_state, where there is one."""
    teller = _Teller(state)
    teller.log.faults += faults
    each_of(events, "event", teller.take, teller.log.faults)
    teller.close()
    log = teller.log
    agent = mapping(state.get("agent"))
    return log.session(
        id=name,
        format="openhands",
        product="openhands",
        started=next((e.time for e in log.entries if e.time), None),
        model=word(mapping(agent.get("llm")).get("model")),
        context_window=number(mapping(agent.get("llm")).get("max_input_tokens")),
        cwd=word(mapping(state.get("workspace")).get("working_dir")),
        tools=teller.tools,
    )


class _Teller:
    """Writes events as messages: actions of one response are one reply."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.log = ReaderLog()
        self.tools: tuple[ToolSchema, ...] = ()
        self._usages: dict[str, Usage | None] = {}
        self._latencies: dict[str, float | None] = {}
        self._learn(state)
        self._more: dict[int, list[ToolCall]] = {}
        """Place of a reply to the calls that it made besides the first."""
        self._replies: dict[str, int] = {}
        """Response id to place of its reply in the log."""
        self._messages: dict[str, str] = {}
        """Event id to id of the message that it became."""

    def _learn(self, state: dict[str, Any]) -> None:
        stats = mapping(state.get("stats"))
        told = mapping(stats.get("usage_to_metrics") or stats.get("service_to_metrics")) or stats
        for metrics in map(mapping, told.values()):
            for u in map(mapping, items(metrics.get("token_usages"))):
                self._usages[text(u.get("response_id"))] = to_usage(u)
            for t in map(mapping, items(metrics.get("response_latencies"))):
                self._latencies[text(t.get("response_id"))] = real(t.get("latency"))

    def take(self, event: dict[str, Any]) -> None:
        kind, when = text(event.get("kind")), time(event.get("timestamp"))
        if kind == "ActionEvent":
            self._act(event, when)
        elif kind == "MessageEvent":
            self._message(event, when)
        elif kind == "ObservationEvent":
            self._observe(event, when, mapping(event.get("observation")))
        elif kind in _REFUSED:
            said = {
                "content": text(event.get("error")) or text(event.get("rejection_reason")),
                "is_error": True,
            }
            self._observe(event, when, said)
        elif kind == "SystemPromptEvent":
            self.tools = to_schemas(event.get("tools")) or self.tools
            parts, _ = to_parts(event.get("system_prompt"), self.log.skipped)
            extra, _ = to_parts(event.get("dynamic_context"), self.log.skipped)
            self._add(event, Message(role="system", parts=(*parts, *extra), time=when))
        elif kind == "Condensation":
            self._condense(event, when)
        else:
            count(self.log.skipped, "event: " + (kind or "no kind"))

    def _add(self, event: dict[str, Any], message: Message) -> int:
        made = replace(message, id=self.log.new_id(event.get("id")))
        self._messages[text(event.get("id"))] = made.id
        return self.log.add(made)

    def _message(self, event: dict[str, Any], when: float | None) -> None:
        made = text(event.get("llm_response_id"))
        more = (
            {"usage": self._usages.get(made), "latency": self._latencies.get(made)} if made else {}
        )
        for m in to_messages(
            event.get("llm_message"), ReaderLog(), self.log.skipped, time=when, **more
        ):
            extra, _ = to_parts(event.get("extended_content"), self.log.skipped)
            self._add(event, replace(m, parts=(*m.parts, *extra)))

    def _act(self, event: dict[str, Any], when: float | None) -> None:
        told = mapping(event.get("tool_call"))
        args, written = arguments(told.get("arguments", mapping(event.get("action"))))
        name = word(event.get("tool_name")) or text(told.get("name"))
        call = ToolCall(
            text(event.get("tool_call_id")) or text(told.get("id")), name, args, written
        )
        made = text(event.get("llm_response_id"))
        at = self._replies.get(made) if made else None
        if at is not None:
            known = self.log.entries[at]
            if isinstance(known, Message):
                self._more.setdefault(at, []).append(call)
                self._messages[text(event.get("id"))] = known.id
            return
        reply = Message(
            role="assistant",
            parts=(*self._thoughts(event), call),
            time=when,
            usage=self._usages.get(made),
            latency=self._latencies.get(made),
            stop="tool",
        )
        at = self._add(event, reply)
        if made:
            self._replies[made] = at

    def close(self) -> None:
        """Give each reply the calls that came of it."""
        for at, calls in self._more.items():
            known = self.log.entries[at]
            if isinstance(known, Message):
                self.log.replace(at, replace(known, parts=(*known.parts, *calls)))

    def _thoughts(self, event: dict[str, Any]) -> list[Part]:
        parts, _ = to_parts(event.get("thinking_blocks"), self.log.skipped)
        reason = word(event.get("reasoning_content"))
        if reason and not parts:
            parts = [Thinking(reason)]
        return [*parts, *to_parts(event.get("thought"), self.log.skipped)[0]]

    def _observe(self, event: dict[str, Any], when: float | None, seen: dict[str, Any]) -> None:
        content = seen.get("content", seen.get("output"))
        parts, _ = to_parts(
            content if type(content) in (str, list) else as_text(content), self.log.skipped
        )
        code = seen.get("exit_code")
        wrong = seen.get("is_error") is True or (
            code != -1 and is_failure(code)
        )  # -1: it still runs
        self._add(
            event,
            Message(
                role="tool",
                parts=tuple(parts),
                time=when,
                tool=word(event.get("tool_name")),
                call_id=word(event.get("tool_call_id")),
                is_error=wrong,
                details={"exit_code": code} if type(code) is int and abs(code) < 1 << 32 else {},
            ),
        )

    def _condense(self, event: dict[str, Any], when: float | None) -> None:
        may, said = self.log.may_edit(), text(event.get("summary"))
        shown = set(self.log.shown) if may else set[str]()
        gone = (
            self._messages.get(i) for i in items(event.get("forgotten_event_ids")) if type(i) is str
        )
        targets = tuple(dict.fromkeys(m for m in gone if m in shown and m is not None))
        usage = self._usages.get(text(event.get("llm_response_id")))
        edit = Edit(
            kind="dropped",
            id=self.log.new_id(),
            targets=targets,
            reason="" if may else TOO_MANY,
            method="condensation",
            time=when,
            usage=usage,
        )
        if said:
            summary = Message(role="summary", id=self.log.new_id(), parts=(Text(said),), time=when)
            edit = replace(edit, kind="summarised", inserted=(summary,))
        self.log.add(edit)
