"""What fuseraft readers share: turn records, and the JSON files beside a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    parse_timestamp,
    str_or_none,
)
from ctxkit.formats.source import read_neighbour_json
from ctxkit.session.messages import Edit, Message, Part, Role, SizeOnly, Text, ToolCall, Usage

if TYPE_CHECKING:
    from ctxkit.formats.session_builder import SessionBuilder
    from ctxkit.formats.source import Source

_MOST = 2_000
"""Entries of one companion file that are kept."""
_FIELDS = {
    "intents": ("Agent", "TurnIndex", "Status", "ErrorMessage", "Timestamp"),
    "changes": ("Agent", "TurnIndex", "FilesWritten", "FilesDeleted", "Timestamp"),
    "evidence": (
        "Id",
        "NodeType",
        "Agent",
        "Turn",
        "Path",
        "Command",
        "ExitCode",
        "Status",
        "Timestamp",
    ),
}


def add_turn(log: SessionBuilder, turn: dict[str, Any]) -> None:
    """Write one message of a checkpoint or a post-mortem: a turn's usage is summed over its calls.

    The keys are those of `turns.jsonl`; a checkpoint's are turned into them by its reader.
    """
    said = as_str(turn.get("content"))
    when, agent = parse_timestamp(turn.get("ts")), str_or_none(turn.get("agent"))
    index, id_ = count_or_none(turn.get("turn")), log.new_id()
    parts: list[Part] = [Text(said)] if said else []
    if turn.get("is_compaction_summary") is True:
        summary = Message(role="summary", id=id_, parts=tuple(parts), time=when, turn=index)
        log.add(
            Edit(
                kind="summarised",
                id=log.new_id(),
                inserted=(summary,),
                time=when,
                method="compaction",
            )
        )
        return
    if turn.get("role") != "assistant":
        role: Role = "system" if turn.get("role") == "system" else "user"
        log.add(Message(role=role, id=id_, parts=tuple(parts), time=when, turn=index))
        return
    calls = [as_dict(c) for c in as_list(turn.get("tool_calls"))]
    asked = [_call(c, f"{id_}-{n}") for n, c in enumerate(calls)]
    about: dict[str, Any] = {"agent": agent, "turn": index, "time": when}
    reply = Message(
        role="assistant",
        id=id_,
        parts=(*parts, *asked),
        kind="turn",
        usage=parse_turn_usage(turn),
        **about,
    )
    log.add(reply)
    for raw, call in zip(calls, asked, strict=True):
        log.say(
            "tool",
            (SizeOnly("tool_result"),),  # the record says that it ran, not what came of it
            tool=call.name,
            call_id=call.id,
            is_error=raw.get("succeeded") is False,
            **about,
        )


def parse_turn_usage(told: dict[str, Any]) -> Usage | None:
    """Return the input and output that a turn or a call is billed; None where none is told."""
    given, output = (
        count_or_none(told.get("input_tokens")),
        count_or_none(told.get("output_tokens")),
    )
    if given is None and output is None:
        return None
    return Usage(input_tokens=given, output_tokens=output)


def _call(raw: dict[str, Any], id_: str) -> ToolCall:
    return ToolCall(id_, as_str(raw.get("name")), {}, str_or_none(raw.get("args_summary")))


def read_companion_files(source: Source, session: str) -> dict[str, Any]:
    """Return in short what `intents`, `changes`, `evidence` (.json) beside it say of a session."""
    out: dict[str, Any] = {}
    for name, keys in _FIELDS.items():
        told = as_list(
            read_companion_file(source, f"{name}.json").get(
                "Nodes" if name == "evidence" else "Entries"
            )
        )
        mine = [e for e in map(as_dict, told) if e and as_str(e.get("SessionId")) in ("", session)]
        if mine:
            out[name] = [_short(e, keys) for e in mine[:_MOST]]
            if len(mine) > _MOST:
                out[f"{name}_n"] = len(mine)
    return out


def read_companion_file(source: Source, name: str) -> dict[str, Any]:
    """Return the object in a file beside a log; empty where there is none that can be read."""
    return as_dict(read_neighbour_json(source.path.parent / name)) if source.on_disk else {}


def _short(entry: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    short = {k: entry[k] for k in keys if k in entry and entry[k] is not None}
    operation = as_dict(entry.get("Operation"))
    if operation:
        short["FunctionName"] = as_str(operation.get("FunctionName"))
        if str_or_none(operation.get("TargetPath")):
            short["TargetPath"] = operation["TargetPath"]
    commands = [as_dict(c) for c in as_list(entry.get("CommandsRun"))]
    if commands:
        short["CommandsRun"] = [
            {k: c[k] for k in ("Command", "succeeded") if k in c} for c in commands[:50]
        ]
    return short
