"""Reader of OpenHands evaluation outputs, V1 conversations and completion logs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_message_and_usage_parsers import (
    count_skipped,
    fill_tool_names,
    parse_chat_message,
    parse_parts_and_results,
    parse_stop_reason,
    parse_tool_schemas,
    parse_usage,
)
from ctxkit.formats.conversations_from_requests import PromptThreads, make_keyed_message
from ctxkit.formats.log_file_content import Source, read_json_object_or_fault
from ctxkit.formats.openhands_v0 import is_v0_history, is_v0_run, read_v0_run
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS, SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    is_failed_exit,
    json_to_text,
    parse_arguments,
    parse_timestamp,
    read_each_object,
    str_or_none,
)
from ctxkit.session.messages import (
    Edit,
    Fault,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolSchema,
    Usage,
)
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from pathlib import Path


NAME = "openhands"
CAN = (
    "text, system prompt, tools, calls and results, times, condensations; usage per call with "
    "cache reads (outputs, completion logs), latency"
)
CANNOT = (
    "usage of a V1 conversation without its base_state; time zone of V0 events without a completion"
)
TRAITS = (
    (
        "all",
        (
            "a failed command is recognised by its exit code or an error; the cost of completion "
            "logs is as logged"
        ),
    ),
)
_COMPLETION_FILE_NAME = re.compile(r".*-\d{9,}(\.\d+)?\.json$")
_MAX_LISTED_FILES = 20_000


# Layouts:
#   evaluation output   JSON lines, a run each, with the event history of V0 or V1
#   trajectory          a list of events, V0 or V1; or lines of V1 events
#   conversation        a folder with one file per event and (V1) base_state.json, which has the
#                       usage of each response
#   completion logs     a folder with one file per API call: prompt, completion, cost. The calls are
#                       assigned to threads; the largest thread is the main session
# V0 events are read in `openhands_v0`. A V1 action names the response that it came from; all
# actions of one response become one reply, completed at the end. A condensation names the events
# that it forgets.
def sniff(source: Source) -> bool:
    """Return True for an output, a trajectory, an event or a completion log."""
    document = source.document
    if type(document) is list:
        return is_v0_history(document) or bool(document and _is_v1_event(document[0]))
    if (
        _is_v1_event(document)
        or _is_completion(document)
        or is_v0_history(as_dict(document).get("trajectory"))
    ):
        return True
    if len(source.head) > 1 and all(_is_v1_event(r) for r in source.head[:4]):
        return True
    return any(is_v0_run(r) or _is_v1_run(r) for r in source.head[:1])


def read(source: Source) -> list[Session]:
    """Read one session per run; a single event is a message, a single completion a call."""
    document = source.document
    if type(document) is list:
        if is_v0_history(document):
            return [read_v0_run({"history": document}, source.path.stem)]
        return [_read_v1_events(document, {}, source.path.stem, [])]
    if _is_v1_event(document):
        return [_read_v1_events([document], {}, source.path.stem, [])]
    if type(document) is dict and is_v0_history(document.get("trajectory")):
        return [read_v0_run({"history": document["trajectory"]}, source.path.stem)]
    if document is None and all(_is_v1_event(r) for r in source.head[:4]):
        return [
            _read_v1_events(
                [r for _, r in source.records], {}, source.path.stem, list(source.faults)
            )
        ]
    if _is_completion(document):
        return [_read_completions([(source.path.name, document)], source.path.stem, [])]
    sessions, faults = list[Session](), list(source.faults)
    for line, record in source.records:
        if is_v0_run(record):
            sessions.append(read_v0_run(record, f"{source.path.stem}/{line}"))
        elif _is_v1_run(record):
            sessions.append(_read_v1_run(record, f"{source.path.stem}/{line}"))
        else:
            faults.append(Fault(line, "expected a run with a 'history'"))
    if sessions:
        sessions[0] = replace(sessions[0], faults=(*faults, *sessions[0].faults))
    return sessions


def _is_v1_run(record: Any) -> bool:
    """Return True for a run of a V1 evaluation, whose history has events with a kind."""
    history = as_list(as_dict(record).get("history"))
    return "instance_id" in as_dict(record) and bool(history) and _is_v1_event(history[0])


def _read_v1_run(record: dict[str, Any], name: str) -> Session:
    session_id = as_str(record.get("instance_id")) or name
    return _read_v1_events(as_list(record.get("history")), {}, session_id, [])


def sniff_folder(path: Path) -> bool:
    """Return True for a folder of events (or with `events/`), or of completion logs only."""
    try:
        if _numbered_event_files(path):
            return is_v0_history([Source(_numbered_event_files(path)[0]).document])
        first_event = next(_get_events_folder(path).glob("event-*.json"), None)
        names = os.listdir(path)[:_MAX_LISTED_FILES]  # noqa: PTH208  a folder may have many, paths take longer
        if first_event is None and (
            len(names) < 2 or not all(map(_COMPLETION_FILE_NAME.match, names))
        ):
            return False
        document = Source(first_event or path / names[0]).document
    except (OSError, ReadError):
        return False
    return _is_v1_event(document) if first_event else _is_completion(document)


def read_folder(path: Path) -> list[Session]:
    """Read the session of a conversation folder, or of completion logs in order of time.

    Raises:
        ReadError: the folder has neither completion logs nor event files.
    """
    faults: list[Fault] = []
    numbered = _numbered_event_files(path)
    name = path.parent.name if path.name == "events" else path.name
    if numbered:
        session = read_v0_run(
            {"history": [read_json_object_or_fault(f, faults) for f in numbered]}, name
        )
        return [replace(session, faults=(*session.faults, *faults))]
    files = sorted(_get_events_folder(path).glob("event-*.json"))
    if files:
        base = path if (path / "base_state.json").is_file() else path.parent
        state_file = base / "base_state.json"
        state = read_json_object_or_fault(state_file, []) if state_file.is_file() else {}
        events = [read_json_object_or_fault(f, faults) for f in files]
        return [_read_v1_events(events, state, as_str(state.get("id")) or name, faults)]
    named_documents = [(f.name, read_json_object_or_fault(f, faults)) for f in path.iterdir()]
    logs = [(file_name, d) for file_name, d in named_documents if _is_completion(d)]
    if not logs:
        raise ReadError("expected completion logs or event files, found none.", path)
    logs.sort(key=lambda log: float_or_none(log[1].get("timestamp")) or 0)
    return [_read_completions(logs, path.name, faults)]


def _get_events_folder(path: Path) -> Path:
    return path / "events" if (path / "events").is_dir() else path


def _numbered_event_files(path: Path) -> list[Path]:
    """Return the event files of V0's store, named by number (`events/0.json`), in order."""
    if not (path / "events" / "0.json").is_file() and not (
        path.name == "events" and (path / "0.json").is_file()
    ):
        return []
    files = [
        f for f in _get_events_folder(path).glob("*.json") if f.stem.isascii() and f.stem.isdigit()
    ]
    return sorted(files, key=lambda f: int(f.stem[:18]))


# -- completion logs ------------------------------------------------------------------------------


def _is_completion(document: Any) -> bool:
    if type(document) is not dict or type(document.get("messages")) is not list:
        return False
    has_choices = type(as_dict(document.get("response")).get("choices")) is list
    return has_choices and ("latency_sec" in document or "kwargs" in document)


def _read_completions(
    logs: list[tuple[str, dict[str, Any]]], name: str, faults: list[Fault]
) -> Session:
    threads, skipped, tool_by_call = PromptThreads(), dict[str, int](), dict[str, str]()
    for file, log in logs:
        with catch_damage(faults, 0, f"{file[:80]}: "):
            prompt = [
                m
                for raw in log["messages"]
                for m in fill_tool_names(
                    parse_chat_message(raw, SessionBuilder(), skipped), tool_by_call
                )
            ]
            threads.add_call(
                [make_keyed_message(m) for m in prompt],
                fill_tool_names([_parse_completion_reply(log, skipped)], tool_by_call)[0],
            )
    last_log = logs[-1][1]
    ordered = sorted(threads.all, key=lambda t: -t.visible_count)
    kwargs = as_dict(last_log.get("kwargs"))
    return Session(
        id=name,
        format=NAME,
        product="openhands",
        log=tuple(ordered[0].log.entries) if ordered else (),
        children=tuple(
            t.log.session(id=f"{name}/{i}", format=NAME, parent=name, agent="subagent")
            for i, t in enumerate(ordered[1:], 1)
        ),
        model=str_or_none(as_dict(last_log.get("response")).get("model")),
        context_window=count_or_none(last_log.get("context_window")),
        tools=parse_tool_schemas(last_log.get("tools") or kwargs.get("tools")),
        skipped=skipped,
        faults=tuple(faults),
    )


def _parse_completion_reply(completion: dict[str, Any], skipped: dict[str, int]) -> Message:
    response = as_dict(completion.get("response"))
    choice = as_dict(next(iter(as_list(response.get("choices"))), None))
    fields: dict[str, Any] = {
        "time": parse_timestamp(completion.get("timestamp")),
        "usage": parse_usage(response.get("usage"), float_or_none(completion.get("cost"))),
        "model": str_or_none(response.get("model")),
        "stop": parse_stop_reason(choice.get("finish_reason")),
        "latency": float_or_none(completion.get("latency_sec")),
        "context_window": count_or_none(completion.get("context_window")),
    }
    messages = parse_chat_message(choice.get("message"), SessionBuilder(), skipped, **fields)
    return next((m for m in messages if m.role == "assistant"), None) or Message(
        role="assistant", **fields
    )


_MESSAGE_KINDS = {
    "SystemPromptEvent",
    "SystemPromptUpdateEvent",
    "MessageEvent",
    "ActionEvent",
    "ObservationEvent",
}
_REFUSAL_KINDS = {"AgentErrorEvent", "UserRejectObservation"}
_MARKER_KINDS = {
    "Condensation",
    "CondensationRequest",
    "CondensationSummaryEvent",
    "ConversationStateUpdateEvent",
    "PauseEvent",
}


def _is_v1_event(record: Any) -> bool:
    """Return True for a V1 event: source, time, and a kind known or ending in `Event`."""
    if type(record) is not dict or "source" not in record or "timestamp" not in record:
        return False
    kind = as_str(record.get("kind"))
    return (
        kind in _MESSAGE_KINDS
        or kind in _REFUSAL_KINDS
        or kind in _MARKER_KINDS
        or kind.endswith("Event")
    )


def _read_v1_events(
    events: list[Any], state: dict[str, Any], name: str, faults: list[Fault]
) -> Session:
    """Read a V1 conversation; `state` is its base_state, or empty."""
    reader = _EventReader(state)
    reader.builder.faults += faults
    read_each_object(events, "event", reader.read_event, reader.builder.faults)
    reader.finish_replies()
    builder = reader.builder
    agent = as_dict(state.get("agent"))
    return builder.session(
        id=name,
        format="openhands",
        product="openhands",
        started=next((e.time for e in builder.entries if e.time), None),
        model=str_or_none(as_dict(agent.get("llm")).get("model")),
        context_window=count_or_none(as_dict(agent.get("llm")).get("max_input_tokens")),
        cwd=str_or_none(as_dict(state.get("workspace")).get("working_dir")),
        tools=reader.tools,
    )


class _EventReader:
    """Reader of V1 events; the actions of one response become one reply."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.builder = SessionBuilder()
        self.tools: tuple[ToolSchema, ...] = ()
        self._usages: dict[str, Usage | None] = {}
        self._latencies: dict[str, float | None] = {}
        self._read_metrics(state)
        self._further_calls: dict[int, list[ToolCall]] = {}
        """Calls of a reply after the first, by the reply's index."""
        self._reply_by_response: dict[str, int] = {}
        """Index of a reply by its response id."""
        self._message_by_event: dict[str, str] = {}
        """Message id by event id."""

    def _read_metrics(self, state: dict[str, Any]) -> None:
        stats = as_dict(state.get("stats"))
        metrics_by_service = (
            as_dict(stats.get("usage_to_metrics") or stats.get("service_to_metrics")) or stats
        )
        for metrics in map(as_dict, metrics_by_service.values()):
            for usage in map(as_dict, as_list(metrics.get("token_usages"))):
                self._usages[as_str(usage.get("response_id"))] = parse_usage(usage)
            for latency in map(as_dict, as_list(metrics.get("response_latencies"))):
                self._latencies[as_str(latency.get("response_id"))] = float_or_none(
                    latency.get("latency")
                )

    def read_event(self, event: dict[str, Any]) -> None:
        event_kind, time = as_str(event.get("kind")), parse_timestamp(event.get("timestamp"))
        if event_kind == "ActionEvent":
            self._read_action(event, time)
        elif event_kind == "MessageEvent":
            self._read_message(event, time)
        elif event_kind == "ObservationEvent":
            self._read_observation(event, time, as_dict(event.get("observation")))
        elif event_kind in _REFUSAL_KINDS:
            observation = {
                "content": as_str(event.get("error")) or as_str(event.get("rejection_reason")),
                "is_error": True,
            }
            self._read_observation(event, time, observation)
        elif event_kind == "SystemPromptEvent":
            self.tools = parse_tool_schemas(event.get("tools")) or self.tools
            parts, _ = parse_parts_and_results(event.get("system_prompt"), self.builder.skipped)
            extra, _ = parse_parts_and_results(event.get("dynamic_context"), self.builder.skipped)
            self._add_message(event, Message(role="system", parts=(*parts, *extra), time=time))
        elif event_kind == "Condensation":
            self._read_condensation(event, time)
        else:
            count_skipped(self.builder.skipped, "event: " + (event_kind or "no kind"))

    def _add_message(self, event: dict[str, Any], message: Message) -> int:
        with_id = replace(message, id=self.builder.new_id(event.get("id")))
        self._message_by_event[as_str(event.get("id"))] = with_id.id
        return self.builder.add(with_id)

    def _read_message(self, event: dict[str, Any], time: float | None) -> None:
        response_id = as_str(event.get("llm_response_id"))
        fields = (
            {"usage": self._usages.get(response_id), "latency": self._latencies.get(response_id)}
            if response_id
            else {}
        )
        for m in parse_chat_message(
            event.get("llm_message"), SessionBuilder(), self.builder.skipped, time=time, **fields
        ):
            extra, _ = parse_parts_and_results(event.get("extended_content"), self.builder.skipped)
            self._add_message(event, replace(m, parts=(*m.parts, *extra)))

    def _read_action(self, event: dict[str, Any], time: float | None) -> None:
        tool_call = as_dict(event.get("tool_call"))
        arguments, raw_arguments = parse_arguments(
            tool_call.get("arguments", as_dict(event.get("action")))
        )
        name = str_or_none(event.get("tool_name")) or as_str(tool_call.get("name"))
        call = ToolCall(
            as_str(event.get("tool_call_id")) or as_str(tool_call.get("id")),
            name,
            arguments,
            raw_arguments,
        )
        response_id = as_str(event.get("llm_response_id"))
        reply_index = self._reply_by_response.get(response_id) if response_id else None
        if reply_index is not None:
            earlier_reply = self.builder.entries[reply_index]
            if isinstance(earlier_reply, Message):
                self._further_calls.setdefault(reply_index, []).append(call)
                self._message_by_event[as_str(event.get("id"))] = earlier_reply.id
            return
        reply = Message(
            role="assistant",
            parts=(*self._parse_thoughts(event), call),
            time=time,
            usage=self._usages.get(response_id),
            latency=self._latencies.get(response_id),
            stop="tool",
        )
        reply_index = self._add_message(event, reply)
        if response_id:
            self._reply_by_response[response_id] = reply_index

    def finish_replies(self) -> None:
        """Add its further calls to each reply."""
        for index, calls in self._further_calls.items():
            reply = self.builder.entries[index]
            if isinstance(reply, Message):
                self.builder.replace(index, replace(reply, parts=(*reply.parts, *calls)))

    def _parse_thoughts(self, event: dict[str, Any]) -> list[Part]:
        parts, _ = parse_parts_and_results(event.get("thinking_blocks"), self.builder.skipped)
        reason = str_or_none(event.get("reasoning_content"))
        if reason and not parts:
            parts = [Thinking(reason)]
        return [*parts, *parse_parts_and_results(event.get("thought"), self.builder.skipped)[0]]

    def _read_observation(
        self, event: dict[str, Any], time: float | None, observation: dict[str, Any]
    ) -> None:
        content = observation.get("content", observation.get("output"))
        parts, _ = parse_parts_and_results(
            content if type(content) in (str, list) else json_to_text(content), self.builder.skipped
        )
        exit_code = observation.get("exit_code")
        # The exit code -1 means that the command is still running.
        is_error = observation.get("is_error") is True or (
            exit_code != -1 and is_failed_exit(exit_code)
        )
        self._add_message(
            event,
            Message(
                role="tool",
                parts=tuple(parts),
                time=time,
                tool=str_or_none(event.get("tool_name")),
                call_id=str_or_none(event.get("tool_call_id")),
                is_error=is_error,
                details={"exit_code": exit_code}
                if type(exit_code) is int and abs(exit_code) < 1 << 32
                else {},
            ),
        )

    def _read_condensation(self, event: dict[str, Any], time: float | None) -> None:
        has_budget, summary_text = self.builder.may_edit(), as_str(event.get("summary"))
        visible_ids = set(self.builder.visible_ids) if has_budget else set[str]()
        forgotten_ids = (
            self._message_by_event.get(i)
            for i in as_list(event.get("forgotten_event_ids"))
            if type(i) is str
        )
        targets = tuple(
            dict.fromkeys(m for m in forgotten_ids if m in visible_ids and m is not None)
        )
        usage = self._usages.get(as_str(event.get("llm_response_id")))
        edit = Edit(
            kind="dropped",
            id=self.builder.new_id(),
            targets=targets,
            reason="" if has_budget else TOO_MANY_COMPACTIONS,
            method="condensation",
            time=time,
            usage=usage,
        )
        if summary_text:
            summary = Message(
                role="summary", id=self.builder.new_id(), parts=(Text(summary_text),), time=time
            )
            edit = replace(edit, kind="summarised", inserted=(summary,))
        self.builder.add(edit)
