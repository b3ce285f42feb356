"""OpenHands: evaluation outputs, V1 conversations, completion logs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_messages import (
    count_skipped,
    fill_tool_names,
    parse_chat_message,
    parse_parts,
    parse_stop_reason,
    parse_tool_schemas,
    parse_usage,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    is_failed_exit,
    parse_arguments,
    parse_timestamp,
    read_each_object,
    str_or_none,
    to_text,
)
from ctxkit.formats.openhands_v0 import is_v0_history, is_v0_run, read_v0_run
from ctxkit.formats.prompt_threads import PromptThreads, key_message
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS, SessionBuilder
from ctxkit.formats.source import Source, read_json_object
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
    "text, system prompt, tools, calls and results, condensations; usage per call (outputs,"
    " completion logs), latency"
)
CANNOT = (
    "usage of a V1 conversation without its base_state; time zone of V0 without a completion"
    " beside it"
)
TRAITS = (
    (
        "all",
        (
            "a failed command is told by its exit code, beside errors; money of completion logs is"
            " their own"
        ),
    ),
)
_LOGGED = re.compile(r".*-\d{9,}(\.\d+)?\.json$")
_FILES = 20_000


def sniff(source: Source) -> bool:
    """Say whether this is an output, a trajectory, an event or a completion log."""
    document = source.document
    if type(document) is list:
        return is_v0_history(document) or bool(document and is_v1_event(document[0]))
    if (
        is_v1_event(document)
        or _is_completion(document)
        or is_v0_history(as_dict(document).get("trajectory"))
    ):
        return True
    if len(source.head) > 1 and all(is_v1_event(r) for r in source.head[:4]):
        return True
    return any(is_v0_run(r) or _is_v1_run(r) for r in source.head[:1])


def read(source: Source) -> list[Session]:
    """Return one session a run; an event reads as one message, a completion as one call."""
    document = source.document
    if type(document) is list:
        if is_v0_history(document):
            return [read_v0_run({"history": document}, source.path.stem)]
        return [read_v1_events(document, {}, source.path.stem, [])]
    if is_v1_event(document):
        return [read_v1_events([document], {}, source.path.stem, [])]
    if type(document) is dict and is_v0_history(document.get("trajectory")):
        return [read_v0_run({"history": document["trajectory"]}, source.path.stem)]
    if document is None and all(is_v1_event(r) for r in source.head[:4]):
        return [
            read_v1_events(
                [r for _, r in source.records], {}, source.path.stem, list(source.faults)
            )
        ]
    if _is_completion(document):
        return [_completions([(source.path.name, document)], source.path.stem, [])]
    out, faults = list[Session](), list(source.faults)
    for line, record in source.records:
        if is_v0_run(record):
            out.append(read_v0_run(record, f"{source.path.stem}/{line}"))
        elif _is_v1_run(record):
            out.append(_read_v1_run(record, f"{source.path.stem}/{line}"))
        else:
            faults.append(Fault(line, "expected a run with a 'history'"))
    if out:
        out[0] = replace(out[0], faults=(*faults, *out[0].faults))
    return out


def _is_v1_run(record: Any) -> bool:
    """Say whether a record is a V1 evaluation's run: its history is of events with a kind."""
    history = as_list(as_dict(record).get("history"))
    return "instance_id" in as_dict(record) and bool(history) and is_v1_event(history[0])


def _read_v1_run(record: dict[str, Any], name: str) -> Session:
    own = as_str(record.get("instance_id")) or name
    return read_v1_events(as_list(record.get("history")), {}, own, [])


def sniff_folder(path: Path) -> bool:
    """Say whether a folder is one conversation: events (or `events/`), or completion logs only."""
    try:
        if _numbered_event_files(path):
            return is_v0_history([Source(_numbered_event_files(path)[0]).document])
        first = next(_events(path).glob("event-*.json"), None)
        names = os.listdir(path)[:_FILES]  # noqa: PTH208  a folder may have many, paths take longer
        if first is None and (len(names) < 2 or not all(map(_LOGGED.match, names))):
            return False
        document = Source(first or path / names[0]).document
    except (OSError, ReadError):
        return False
    return is_v1_event(document) if first else _is_completion(document)


def read_folder(path: Path) -> list[Session]:
    """Return the one session of a conversation folder, or of completion logs in order of time."""
    faults: list[Fault] = []
    numbered = _numbered_event_files(path)
    name = path.parent.name if path.name == "events" else path.name
    if numbered:
        made = read_v0_run({"history": [read_json_object(f, faults) for f in numbered]}, name)
        return [replace(made, faults=(*made.faults, *faults))]
    files = sorted(_events(path).glob("event-*.json"))
    if files:
        base = path if (path / "base_state.json").is_file() else path.parent
        held = base / "base_state.json"
        state = read_json_object(held, []) if held.is_file() else {}
        events = [read_json_object(f, faults) for f in files]
        return [read_v1_events(events, state, as_str(state.get("id")) or name, faults)]
    found = [(f.name, read_json_object(f, faults)) for f in path.iterdir()]
    logs = [(n, d) for n, d in found if _is_completion(d)]
    if not logs:
        raise ReadError("expected completion logs or event files, found none.", path)
    logs.sort(key=lambda log: float_or_none(log[1].get("timestamp")) or 0)
    return [_completions(logs, path.name, faults)]


def _events(path: Path) -> Path:
    return path / "events" if (path / "events").is_dir() else path


def _numbered_event_files(path: Path) -> list[Path]:
    """V0's store of a session: a file an event, named by its number (`events/0.json`)."""
    if not (path / "events" / "0.json").is_file() and not (
        path.name == "events" and (path / "0.json").is_file()
    ):
        return []
    found = [f for f in _events(path).glob("*.json") if f.stem.isascii() and f.stem.isdigit()]
    return sorted(found, key=lambda f: int(f.stem[:18]))


# -- completion logs ------------------------------------------------------------------------------


def _is_completion(document: Any) -> bool:
    if type(document) is not dict or type(document.get("messages")) is not list:
        return False
    answered = type(as_dict(document.get("response")).get("choices")) is list
    return answered and ("latency_sec" in document or "kwargs" in document)


def _completions(logs: list[tuple[str, dict[str, Any]]], name: str, faults: list[Fault]) -> Session:
    threads, skipped, asked = PromptThreads(), dict[str, int](), dict[str, str]()
    for file, log in logs:
        with catch_damage(faults, 0, f"{file[:80]}: "):
            heard = [
                m
                for raw in log["messages"]
                for m in fill_tool_names(parse_chat_message(raw, SessionBuilder(), skipped), asked)
            ]
            threads.call(
                [key_message(m) for m in heard], fill_tool_names([_reply(log, skipped)], asked)[0]
            )
    last = logs[-1][1]
    found = sorted(threads.all, key=lambda t: -t.size)
    kwargs = as_dict(last.get("kwargs"))
    return Session(
        id=name,
        format=NAME,
        product="openhands",
        log=tuple(found[0].log.entries) if found else (),
        children=tuple(
            t.log.session(id=f"{name}/{i}", format=NAME, parent=name, agent="subagent")
            for i, t in enumerate(found[1:], 1)
        ),
        model=str_or_none(as_dict(last.get("response")).get("model")),
        context_window=count_or_none(last.get("context_window")),
        tools=parse_tool_schemas(last.get("tools") or kwargs.get("tools")),
        skipped=skipped,
        faults=tuple(faults),
    )


def _reply(log: dict[str, Any], skipped: dict[str, int]) -> Message:
    response = as_dict(log.get("response"))
    choice = as_dict(next(iter(as_list(response.get("choices"))), None))
    fields: dict[str, Any] = {
        "time": parse_timestamp(log.get("timestamp")),
        "usage": parse_usage(response.get("usage"), float_or_none(log.get("cost"))),
        "model": str_or_none(response.get("model")),
        "stop": parse_stop_reason(choice.get("finish_reason")),
        "latency": float_or_none(log.get("latency_sec")),
        "context_window": count_or_none(log.get("context_window")),
    }
    made = parse_chat_message(choice.get("message"), SessionBuilder(), skipped, **fields)
    return next((m for m in made if m.role == "assistant"), None) or Message(
        role="assistant", **fields
    )


_SPOKEN_KINDS = {
    "SystemPromptEvent",
    "SystemPromptUpdateEvent",
    "MessageEvent",
    "ActionEvent",
    "ObservationEvent",
}
_REFUSED = {"AgentErrorEvent", "UserRejectObservation"}
_MARKER_KINDS = {
    "Condensation",
    "CondensationRequest",
    "CondensationSummaryEvent",
    "ConversationStateUpdateEvent",
    "PauseEvent",
}


def is_v1_event(record: Any) -> bool:
    """Say whether a record is an event: source, time, and a kind known or ending in `Event`."""
    if type(record) is not dict or "source" not in record or "timestamp" not in record:
        return False
    kind = as_str(record.get("kind"))
    return (
        kind in _SPOKEN_KINDS or kind in _REFUSED or kind in _MARKER_KINDS or kind.endswith("Event")
    )


def read_v1_events(
    events: list[Any], state: dict[str, Any], name: str, faults: list[Fault]
) -> Session:
    """Return one conversation as a session; `state` is its base_state, where there is one."""
    teller = _EventReader(state)
    teller.log.faults += faults
    read_each_object(events, "event", teller.take, teller.log.faults)
    teller.close()
    log = teller.log
    agent = as_dict(state.get("agent"))
    return log.session(
        id=name,
        format="openhands",
        product="openhands",
        started=next((e.time for e in log.entries if e.time), None),
        model=str_or_none(as_dict(agent.get("llm")).get("model")),
        context_window=count_or_none(as_dict(agent.get("llm")).get("max_input_tokens")),
        cwd=str_or_none(as_dict(state.get("workspace")).get("working_dir")),
        tools=teller.tools,
    )


class _EventReader:
    """Writes events as messages: actions of one response are one reply."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.log = SessionBuilder()
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
        stats = as_dict(state.get("stats"))
        told = as_dict(stats.get("usage_to_metrics") or stats.get("service_to_metrics")) or stats
        for metrics in map(as_dict, told.values()):
            for u in map(as_dict, as_list(metrics.get("token_usages"))):
                self._usages[as_str(u.get("response_id"))] = parse_usage(u)
            for t in map(as_dict, as_list(metrics.get("response_latencies"))):
                self._latencies[as_str(t.get("response_id"))] = float_or_none(t.get("latency"))

    def take(self, event: dict[str, Any]) -> None:
        kind, when = as_str(event.get("kind")), parse_timestamp(event.get("timestamp"))
        if kind == "ActionEvent":
            self._act(event, when)
        elif kind == "MessageEvent":
            self._message(event, when)
        elif kind == "ObservationEvent":
            self._observe(event, when, as_dict(event.get("observation")))
        elif kind in _REFUSED:
            said = {
                "content": as_str(event.get("error")) or as_str(event.get("rejection_reason")),
                "is_error": True,
            }
            self._observe(event, when, said)
        elif kind == "SystemPromptEvent":
            self.tools = parse_tool_schemas(event.get("tools")) or self.tools
            parts, _ = parse_parts(event.get("system_prompt"), self.log.skipped)
            extra, _ = parse_parts(event.get("dynamic_context"), self.log.skipped)
            self._add(event, Message(role="system", parts=(*parts, *extra), time=when))
        elif kind == "Condensation":
            self._condense(event, when)
        else:
            count_skipped(self.log.skipped, "event: " + (kind or "no kind"))

    def _add(self, event: dict[str, Any], message: Message) -> int:
        made = replace(message, id=self.log.new_id(event.get("id")))
        self._messages[as_str(event.get("id"))] = made.id
        return self.log.add(made)

    def _message(self, event: dict[str, Any], when: float | None) -> None:
        made = as_str(event.get("llm_response_id"))
        more = (
            {"usage": self._usages.get(made), "latency": self._latencies.get(made)} if made else {}
        )
        for m in parse_chat_message(
            event.get("llm_message"), SessionBuilder(), self.log.skipped, time=when, **more
        ):
            extra, _ = parse_parts(event.get("extended_content"), self.log.skipped)
            self._add(event, replace(m, parts=(*m.parts, *extra)))

    def _act(self, event: dict[str, Any], when: float | None) -> None:
        told = as_dict(event.get("tool_call"))
        args, written = parse_arguments(told.get("arguments", as_dict(event.get("action"))))
        name = str_or_none(event.get("tool_name")) or as_str(told.get("name"))
        call = ToolCall(
            as_str(event.get("tool_call_id")) or as_str(told.get("id")), name, args, written
        )
        made = as_str(event.get("llm_response_id"))
        at = self._replies.get(made) if made else None
        if at is not None:
            known = self.log.entries[at]
            if isinstance(known, Message):
                self._more.setdefault(at, []).append(call)
                self._messages[as_str(event.get("id"))] = known.id
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
        parts, _ = parse_parts(event.get("thinking_blocks"), self.log.skipped)
        reason = str_or_none(event.get("reasoning_content"))
        if reason and not parts:
            parts = [Thinking(reason)]
        return [*parts, *parse_parts(event.get("thought"), self.log.skipped)[0]]

    def _observe(self, event: dict[str, Any], when: float | None, seen: dict[str, Any]) -> None:
        content = seen.get("content", seen.get("output"))
        parts, _ = parse_parts(
            content if type(content) in (str, list) else to_text(content), self.log.skipped
        )
        code = seen.get("exit_code")
        wrong = seen.get("is_error") is True or (
            code != -1 and is_failed_exit(code)
        )  # -1: it still runs
        self._add(
            event,
            Message(
                role="tool",
                parts=tuple(parts),
                time=when,
                tool=str_or_none(event.get("tool_name")),
                call_id=str_or_none(event.get("tool_call_id")),
                is_error=wrong,
                details={"exit_code": code} if type(code) is int and abs(code) < 1 << 32 else {},
            ),
        )

    def _condense(self, event: dict[str, Any], when: float | None) -> None:
        may, said = self.log.may_edit(), as_str(event.get("summary"))
        shown = set(self.log.shown) if may else set[str]()
        gone = (
            self._messages.get(i)
            for i in as_list(event.get("forgotten_event_ids"))
            if type(i) is str
        )
        targets = tuple(dict.fromkeys(m for m in gone if m in shown and m is not None))
        usage = self._usages.get(as_str(event.get("llm_response_id")))
        edit = Edit(
            kind="dropped",
            id=self.log.new_id(),
            targets=targets,
            reason="" if may else TOO_MANY_COMPACTIONS,
            method="condensation",
            time=when,
            usage=usage,
        )
        if said:
            summary = Message(role="summary", id=self.log.new_id(), parts=(Text(said),), time=when)
            edit = replace(edit, kind="summarised", inserted=(summary,))
        self.log.add(edit)
