"""Reader of fuseraft event logs: calls, sizes, compactions, sub-agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_message_and_usage_parsers import count_skipped, subtract_cached
from ctxkit.formats.fuseraft_turn_messages_and_work_records import (
    parse_turn_usage,
    summarize_work_records,
)
from ctxkit.formats.log_file_content import Source
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    json_to_text,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import Edit, Message, Part, SizeOnly, Text, ToolCall
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


NAME = "fuseraft-events"
ALIASES = ("fuseraft-repl",)
CAN = (
    "usage and occupancy per call, sizes by kind, requests, answers, calls, tools with sizes, "
    "times, compactions, agents, subagents"
)
CANNOT = "tool results (only sizes), cache per call (only per turn), system prompt, cost"


# Events are JSON lines {ts, session, agent, turn, event_type, payload}. State per agent: the
# context announced for the next call, the time of the request, the last reply, and calls without a
# result. Tool calls and text arrive after the reply event; they are collected and added to the
# reply when the next one begins or the turn ends. Older logs have no call events: then the tools of
# a turn hang on one reply of kind `turn`, which gets the turn's usage. A sub-agent's events carry
# the name of its parent while it works; they go to a child session.
def sniff(source: Source) -> bool:
    """Return True if the first lines are events: a time, a type and a payload."""
    return any(
        type(r.get("event_type")) is str and ("ts" in r or "session" in r) for r in source.head[:3]
    )


def read(source: Source) -> list[Session]:
    """Read one session per id (older versions write all sessions of a project to one file)."""
    readers: dict[str, _EventReader] = {}
    faults = list(source.faults)
    for line, record in source.records:
        session_id = as_str(record.get("session")) or next(reversed(readers), source.path.stem)
        if session_id not in readers:
            readers[session_id] = _EventReader(session_id)
        with catch_damage(faults, line):
            readers[session_id].read_event(record)
    sessions = [t.build_session(summarize_work_records(source, t.id)) for t in readers.values()]
    if sessions:
        sessions[0] = replace(sessions[0], faults=tuple(faults))
    return sessions


def sniff_folder(path: Path) -> bool:
    """Return True if a folder is a session, with an event log and a companion file."""
    file = path / "events.jsonl"
    try:
        return (
            file.is_file()
            and any((path / name).exists() for name in _COMPANION_NAMES)
            and sniff(Source(file))
        )
    except (OSError, ReadError):
        return False


def read_folder(path: Path) -> list[Session]:
    """Read the folder's `events.jsonl`; companion files are summarized in `details`."""
    return read(Source(path / "events.jsonl"))


_COMPANION_NAMES = {
    "ctx_snapshots.jsonl",
    "intents.json",
    "evidence.json",
    "tool-results",
    "context_summary.md",
    "ctx_viz.html",
}
"""Companions of the event log of one session; without one, a folder may have other logs, too."""

_MAX_OPEN_CALLS = 200
"""Largest number of calls that wait for a result."""
_IGNORED_EVENTS = {"compaction_start", "turn_start", "model_call", "session_end", "agent_start"}


class _AgentCallsBuilder:
    """Builder of one agent's replies and results."""

    def __init__(self, builder: SessionBuilder) -> None:
        self.builder = builder
        self.context: dict[str, Any] = {}
        self.requested_at: float | None = None
        self.reply_index: int | None = None
        """Index of the last reply."""
        self.open_calls: list[ToolCall] = []
        self._pending_parts: list[Part] = []
        """Parts to be added to the last reply when it is complete."""
        self.n_calls = 0
        """Number of calls since the turn began."""

    def add_part(self, part: Part) -> None:
        """Add a part to the last reply, if there is one."""
        if self.reply_index is not None:
            self._pending_parts.append(part)

    def complete_reply(self, **changes: Any) -> None:
        """Complete the last reply with its parts and other fields."""
        entry = None if self.reply_index is None else self.builder.entries[self.reply_index]
        if self.reply_index is not None and isinstance(entry, Message):
            parts = (*entry.parts, *self._pending_parts)
            if not parts and entry.usage is not None and entry.usage.output_tokens:
                parts = (SizeOnly("reply", tokens=entry.usage.output_tokens),)
            self.builder.replace(self.reply_index, replace(entry, parts=parts, **changes))
        self._pending_parts = []


class _EventReader:
    """Reader of the events of one session."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self._builder = SessionBuilder()
        self._calls_by_agent: dict[str, _AgentCallsBuilder] = {}
        self._open_subagents: dict[str, tuple[_AgentCallsBuilder, Session]] = {}
        """Working sub-agents by the name of their parent."""
        self._children: list[Session] = []
        self._start: dict[str, Any] = {}
        self._started: float | None = None
        self._model: str | None = None
        self._n_tool_calls = 0
        self._compactions = _CompactionRecorder(self._builder)

    def read_event(self, record: dict[str, Any]) -> None:
        """Read one event; an unknown one is counted."""
        event_type, payload = as_str(record.get("event_type")), as_dict(record.get("payload"))
        time, turn = parse_timestamp(record.get("ts")), count_or_none(record.get("turn"))
        event = _FuseraftEvent(payload, time, turn, as_str(record.get("agent")))
        self._started = self._started or time
        if event_type in self._HANDLERS:
            self._HANDLERS[event_type](self, event)
        elif event_type not in _IGNORED_EVENTS:
            count_skipped(self._builder.skipped, "event: " + (event_type or "no type"))
        if event_type == "model_call":
            self._get_agent_calls(event.agent).requested_at = time
        elif event_type == "turn_start":
            self._get_agent_calls(event.agent).n_calls = 0

    def _get_agent_calls(self, agent: str) -> _AgentCallsBuilder:
        subagent = self._open_subagents.get(agent)
        return (
            subagent[0]
            if subagent
            else self._calls_by_agent.setdefault(agent, _AgentCallsBuilder(self._builder))
        )

    def _session_start(self, event: _FuseraftEvent) -> None:
        self._start = event.payload
        self._model = str_or_none(event.payload.get("model")) or self._model

    def _user_input(self, event: _FuseraftEvent) -> None:
        text = json_to_text(event.payload.get("content"))
        self._builder.add_message("user", (Text(text),), time=event.time, turn=event.turn)

    def _inner_call_context(self, event: _FuseraftEvent) -> None:
        chars = as_dict(event.payload.get("content_chars"))
        context = {
            "est_tokens": count_or_none(event.payload.get("est_tokens")),
            **{f"{name}_chars": count_or_none(count) for name, count in chars.items()},
        }
        context |= {
            f"{name}_messages": count_or_none(count)
            for name, count in as_dict(event.payload.get("msg_counts")).items()
        }
        self._get_agent_calls(event.agent).context = {
            name[:60]: count for name, count in list(context.items())[:40] if count is not None
        }

    def _model_response(self, event: _FuseraftEvent) -> None:
        self._add_reply(
            event,
            usage=parse_turn_usage(event.payload),
            stop=str_or_none(event.payload.get("finish_reason")),
        )

    def _model_error(self, event: _FuseraftEvent) -> None:
        error_text = (as_str(event.payload.get("error")) or as_str(event.payload.get("message")))[
            :2000
        ]
        self._add_reply(event, stop="error", is_error=True, error=error_text or "the call failed")

    def _add_reply(self, event: _FuseraftEvent, **fields: Any) -> None:
        agent_calls = self._get_agent_calls(event.agent)
        agent_calls.complete_reply()
        latency = (
            event.time - agent_calls.requested_at
            if event.time and agent_calls.requested_at and event.time >= agent_calls.requested_at
            else None
        )
        agent_calls.reply_index = agent_calls.builder.add_message(
            "assistant",
            agent=event.agent or None,
            turn=event.turn,
            time=event.time,
            model=str_or_none(event.payload.get("model")) or self._model,
            latency=latency,
            details={"context": agent_calls.context} if agent_calls.context else {},
            **fields,
        )
        agent_calls.open_calls, agent_calls.requested_at, agent_calls.context = [], None, {}
        agent_calls.n_calls += 1

    def _tool_call(self, event: _FuseraftEvent) -> None:
        agent_calls = self._get_agent_calls(event.agent)
        name = as_str(event.payload.get("tool_name")) or as_str(event.payload.get("tool"))
        raw_arguments = event.payload.get("args", event.payload.get("arg"))
        arguments = raw_arguments if type(raw_arguments) is dict else {}
        self._n_tool_calls += 1
        call = ToolCall(
            f"call-{self._n_tool_calls}",
            name,
            arguments,
            None if arguments or raw_arguments is None else json_to_text(raw_arguments),
        )
        if agent_calls.reply_index is None:  # a log without call events: one reply for the turn
            agent_calls.reply_index = agent_calls.builder.add_message(
                "assistant", agent=event.agent or None, turn=event.turn, kind="turn"
            )
        agent_calls.open_calls = [*agent_calls.open_calls[-_MAX_OPEN_CALLS:], call]
        agent_calls.add_part(call)

    def _tool_result(self, event: _FuseraftEvent) -> None:
        agent_calls = self._get_agent_calls(event.agent)
        name = as_str(event.payload.get("tool_name")) or as_str(event.payload.get("tool"))
        call = next((call_ for call_ in agent_calls.open_calls if call_.name == name), None)
        if call is not None:
            agent_calls.open_calls.remove(call)
        agent_calls.builder.add_message(
            "tool",
            (SizeOnly("tool_result", chars=count_or_none(event.payload.get("result_chars"))),),
            agent=event.agent or None,
            turn=event.turn,
            time=event.time,
            tool=name or None,
            call_id=call.id if call else None,
            is_error="error" in event.payload,
            error=json_to_text(event.payload.get("error"))[:2000] or None,
        )

    def _assistant_response(self, event: _FuseraftEvent) -> None:
        text = json_to_text(event.payload.get("content"))
        if text:
            self._get_agent_calls(event.agent).add_part(Text(text))

    def _turn_end(self, event: _FuseraftEvent) -> None:
        """Read a turn's sums: the usage if the log has no call events, else only cached tokens."""
        agent_calls = self._get_agent_calls(event.agent)
        cache_read = count_or_none(event.payload.get("cached_input_tokens"))
        if agent_calls.n_calls:
            entry = (
                None
                if agent_calls.reply_index is None
                else agent_calls.builder.entries[agent_calls.reply_index]
            )
            if (
                cache_read is not None
                and agent_calls.reply_index is not None
                and isinstance(entry, Message)
            ):
                agent_calls.complete_reply(
                    details={**entry.details, "turn_cached_input_tokens": cache_read}
                )
        else:
            self._add_turn_usage(agent_calls, event)
        agent_calls.complete_reply()
        agent_calls.n_calls, agent_calls.open_calls = 0, []

    def _add_turn_usage(self, agent_calls: _AgentCallsBuilder, event: _FuseraftEvent) -> None:
        usage, cache_read = (
            parse_turn_usage(event.payload),
            count_or_none(event.payload.get("cached_input_tokens")),
        )
        if usage is None:
            return
        uncached = subtract_cached(usage.input_tokens, cache_read)
        usage = replace(usage, input_tokens=uncached, cache_read_tokens=cache_read)
        elapsed_ms = float_or_none(event.payload.get("elapsed_ms"))
        entry = (
            None
            if agent_calls.reply_index is None
            else agent_calls.builder.entries[agent_calls.reply_index]
        )
        if (
            agent_calls.reply_index is not None
            and isinstance(entry, Message)
            and entry.kind == "turn"
            and entry.usage is None
        ):
            agent_calls.complete_reply(usage=usage, time=event.time)
        else:
            agent_calls.builder.add_message(
                "assistant",
                agent=event.agent or None,
                turn=event.turn,
                time=event.time,
                kind="turn",
                usage=usage,
                model=self._model,
                latency=None if elapsed_ms is None else elapsed_ms / 1000,
            )
        agent_calls.reply_index = None

    def _agent_end(self, event: _FuseraftEvent) -> None:
        if not self._get_agent_calls(event.agent).n_calls:
            self._add_turn_usage(self._get_agent_calls(event.agent), event)

    # -- compactions and sub-agents ---------------------------------------------------------------

    def _compaction(self, event: _FuseraftEvent) -> None:
        self._compactions.add_by_turns(event)

    def _compaction_end(self, event: _FuseraftEvent) -> None:
        if event.payload.get("outcome") == "compacted":
            self._compactions.add_by_size(event)
        else:
            outcome = str_or_none(event.payload.get("outcome")) or "without an outcome"
            count_skipped(self._builder.skipped, f"compaction: {outcome}")

    def _sub_agent_start(self, event: _FuseraftEvent) -> None:
        if event.agent in self._open_subagents:  # the end of the last one is missing
            self._close_subagent(event.agent)
        builder = SessionBuilder()
        builder.add_message(
            "user",
            (Text(json_to_text(event.payload.get("query"))),),
            time=event.time,
            turn=event.turn,
        )
        child = Session(
            id=f"{self.id}/{len(self._children) + len(self._open_subagents)}",
            format="fuseraft-events",
            product="fuseraft",
            agent=as_str(event.payload.get("mode")) or "subagent",
            parent=self.id,
            started=event.time,
        )
        self._open_subagents[event.agent] = (_AgentCallsBuilder(builder), child)

    def _sub_agent_end(self, event: _FuseraftEvent) -> None:
        chars = count_or_none(event.payload.get("summary_chars"))
        if event.agent in self._open_subagents and chars is not None:
            self._open_subagents[event.agent][0].add_part(SizeOnly("text", chars=chars))
        self._close_subagent(event.agent, str_or_none(event.payload.get("outcome")))

    def _close_subagent(self, agent: str, outcome: str | None = None) -> None:
        if agent not in self._open_subagents:
            return
        agent_calls, child = self._open_subagents.pop(agent)
        agent_calls.complete_reply()
        entries = tuple(
            replace(entry, agent=None) if isinstance(entry, Message) else entry
            for entry in agent_calls.builder.entries
        )
        self._children.append(
            replace(child, log=entries, details={"outcome": outcome} if outcome else {})
        )

    def build_session(self, companions: dict[str, Any]) -> Session:
        """Return the session; `companions` are the summaries of its companion files."""
        for agent in list(self._open_subagents):
            self._close_subagent(agent)
        for agent_calls in self._calls_by_agent.values():
            agent_calls.complete_reply()
        tool_count = count_or_none(self._start.get("tool_count"))
        details = {"tool_count": tool_count} if tool_count is not None else {}
        if self._start.get("resumed") is True:
            details["resumed"] = 1
        return self._builder.session(
            id=self.id,
            format="fuseraft-events",
            product="fuseraft",
            agent=next((agent_ for agent_ in self._calls_by_agent if agent_), "main"),
            cwd=str_or_none(self._start.get("cwd")),
            model=self._model,
            started=self._started,
            children=tuple(self._children),
            details={**details, **companions},
        )

    _HANDLERS: ClassVar[dict[str, Callable[[_EventReader, _FuseraftEvent], None]]] = {
        "session_start": _session_start,
        "user_input": _user_input,
        "inner_call_context": _inner_call_context,
        "model_response": _model_response,
        **dict.fromkeys(("model_error", "model_timeout"), _model_error),
        **dict.fromkeys(("tool_call", "sub_agent_tool_call"), _tool_call),
        **dict.fromkeys(("tool_result", "tool_error", "tool_timeout"), _tool_result),
        "assistant_response": _assistant_response,
        "turn_end": _turn_end,
        "agent_end": _agent_end,
        "compaction": _compaction,
        "compaction_end": _compaction_end,
        "sub_agent_start": _sub_agent_start,
        "sub_agent_end": _sub_agent_end,
    }
    """Handlers by event type; other events are counted."""


class _FuseraftEvent(NamedTuple):
    """One event: payload, time, turn, and agent (empty if it has none)."""

    payload: dict[str, Any]
    time: float | None
    turn: int | None
    agent: str


class _CompactionRecorder:
    """Recorder of a session's compactions; what stayed is derived from counts of turns."""

    def __init__(self, builder: SessionBuilder) -> None:
        self._builder = builder
        self._message_by_id: dict[str, Message] = {}
        self._n_indexed = 0

    def add_by_turns(self, event: _FuseraftEvent) -> None:
        """Add a compaction whose event has the number of retained turns, or none."""
        retained = count_or_none(event.payload.get("turns_retained"))
        is_window = event.payload.get("mode") == "window"
        retained_ids, details = set[str](), dict[str, Any]()
        if retained is not None:
            retained_ids = (
                self._ids_of_last_turns(retained) if self._builder.may_edit() else retained_ids
            )
            details = {"targets": "derived from the number of turns retained"}
        tokens_after = count_or_none(event.payload.get("after_tokens"))
        summary = self._make_summary(tokens_after if retained is None else None, event)
        edit = Edit(
            kind="dropped" if is_window else "summarised",
            id=self._builder.new_id(),
            inserted=() if is_window else (summary,),
            reason=json_to_text(event.payload.get("focus"))[:200],
            trigger=str_or_none(event.payload.get("source"))
            or str_or_none(event.payload.get("reason")),
            method=str_or_none(event.payload.get("mode")) or "compaction",
            agent=event.agent or None,
            time=event.time,
            tokens_before=count_or_none(event.payload.get("before_tokens")),
            tokens_after=tokens_after,
            details=details,
        )
        self._builder.compact(edit, retained_ids)

    def add_by_size(self, event: _FuseraftEvent) -> None:
        """Add a compaction of a live ctxkit session, whose event has only sizes."""
        tokens_after = count_or_none(event.payload.get("tokens_after"))
        counts = {
            f"messages_{side}": count_or_none(event.payload.get(side))
            for side in ("before", "after")
        }
        summary = self._make_summary(tokens_after, event)
        edit = Edit(
            kind="summarised",
            id=self._builder.new_id(),
            inserted=(summary,),
            reason="what stayed is not in the log, only its size",
            trigger=str_or_none(event.payload.get("trigger")),
            method="compaction",
            agent=event.agent or None,
            time=event.time,
            tokens_before=count_or_none(event.payload.get("tokens_before")),
            tokens_after=tokens_after,
            details={side: count for side, count in counts.items() if count is not None},
        )
        self._builder.compact(edit, ())

    def _make_summary(self, size: int | None, event: _FuseraftEvent) -> Message:
        parts, message_id = (SizeOnly("summary", tokens=size),), self._builder.new_id()
        return Message(role="summary", id=message_id, parts=parts, time=event.time, turn=event.turn)

    def _ids_of_last_turns(self, n_turns: int) -> set[str]:
        """Return the ids of the visible messages of the last turns, and of system messages."""
        for entry in self._builder.entries[self._n_indexed :]:
            if isinstance(entry, Message):
                self._message_by_id[entry.id] = entry
        self._n_indexed = len(self._builder.entries)
        visible = [
            message
            for i in self._builder.visible_ids
            if (message := self._message_by_id.get(i)) is not None
        ]
        turns = list(dict.fromkeys(message.turn for message in visible if message.turn is not None))
        last_turns = set(turns[max(len(turns) - n_turns, 0) :])
        return {
            message.id
            for message in visible
            if message.turn in last_turns or message.role == "system"
        }
