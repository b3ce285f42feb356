"""Shared parts of the fuseraft readers: turn records, and the JSON files beside a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.log_file_content import read_json_or_none
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import Edit, Message, Part, Role, SizeOnly, Text, ToolCall, Usage

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.formats.session_builder import SessionBuilder

_MAX_COMPANION_ENTRIES = 2_000
"""Largest number of entries read from one companion file."""
_COMPANION_FIELDS = {
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


def add_turn(builder: SessionBuilder, turn: dict[str, Any]) -> None:
    """Add one message of a checkpoint or post-mortem.

    Args:
        builder: the builder.
        turn: the message with the keys of `turns.jsonl`; its usage is the sum over a turn's calls.
    """
    text = as_str(turn.get("content"))
    time, agent = parse_timestamp(turn.get("ts")), str_or_none(turn.get("agent"))
    index, message_id = count_or_none(turn.get("turn")), builder.new_id()
    parts: list[Part] = [Text(text)] if text else []
    if turn.get("is_compaction_summary") is True:
        summary = Message(role="summary", id=message_id, parts=tuple(parts), time=time, turn=index)
        builder.add(
            Edit(
                kind="summarised",
                id=builder.new_id(),
                inserted=(summary,),
                time=time,
                method="compaction",
            )
        )
        return
    if turn.get("role") != "assistant":
        role: Role = "system" if turn.get("role") == "system" else "user"
        builder.add(Message(role=role, id=message_id, parts=tuple(parts), time=time, turn=index))
        return
    calls = [as_dict(c) for c in as_list(turn.get("tool_calls"))]
    raw_calls = [_parse_call(c, f"{message_id}-{n}") for n, c in enumerate(calls)]
    fields: dict[str, Any] = {"agent": agent, "turn": index, "time": time}
    reply = Message(
        role="assistant",
        id=message_id,
        parts=(*parts, *raw_calls),
        kind="turn",
        usage=parse_turn_usage(turn),
        **fields,
    )
    builder.add(reply)
    for raw, call in zip(calls, raw_calls, strict=True):
        builder.add_message(
            "tool",
            (SizeOnly("tool_result"),),  # the record has no output
            tool=call.name,
            call_id=call.id,
            is_error=raw.get("succeeded") is False,
            **fields,
        )


def parse_turn_usage(record: dict[str, Any]) -> Usage | None:
    """Return the usage of a turn or call, or None if the record has none."""
    input_tokens, output_tokens = (
        count_or_none(record.get("input_tokens")),
        count_or_none(record.get("output_tokens")),
    )
    if input_tokens is None and output_tokens is None:
        return None
    return Usage(input_tokens=input_tokens, output_tokens=output_tokens)


def _parse_call(raw: dict[str, Any], id_: str) -> ToolCall:
    return ToolCall(id_, as_str(raw.get("name")), {}, str_or_none(raw.get("args_summary")))


def summarize_work_records(source: Source, session_id: str) -> dict[str, Any]:
    """Summarize the entries of a session in `intents`, `changes` and `evidence` (.json).

    Args:
        source: the log that the files are beside.
        session_id: the session's id; entries without one count as the session's.

    Returns:
        By file its entries, each with a few fields; where more than `_MAX_COMPANION_ENTRIES` are
        there, the rest is left out and `<file>_n` is the number of all.
    """
    companions: dict[str, Any] = {}
    for name, keys in _COMPANION_FIELDS.items():
        entries = as_list(
            read_companion_file(source, f"{name}.json").get(
                "Nodes" if name == "evidence" else "Entries"
            )
        )
        session_entries = [
            entry
            for entry in map(as_dict, entries)
            if entry and as_str(entry.get("SessionId")) in ("", session_id)
        ]
        if session_entries:
            companions[name] = [
                _summarize_entry(entry, keys) for entry in session_entries[:_MAX_COMPANION_ENTRIES]
            ]
            if len(session_entries) > _MAX_COMPANION_ENTRIES:
                companions[f"{name}_n"] = len(session_entries)
    return companions


def read_companion_file(source: Source, name: str) -> dict[str, Any]:
    """Return the JSON object in a file beside a log; an empty one where there is none.

    Args:
        source: the log; one that is not on disk has no companions.
        name: name of the file.
    """
    return as_dict(read_json_or_none(source.path.parent / name)) if source.on_disk else {}


def _summarize_entry(entry: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    summary = {key: entry[key] for key in keys if key in entry and entry[key] is not None}
    operation = as_dict(entry.get("Operation"))
    if operation:
        summary["FunctionName"] = as_str(operation.get("FunctionName"))
        if str_or_none(operation.get("TargetPath")):
            summary["TargetPath"] = operation["TargetPath"]
    commands = [as_dict(command) for command in as_list(entry.get("CommandsRun"))]
    if commands:
        summary["CommandsRun"] = [
            {key: command[key] for key in ("Command", "succeeded") if key in command}
            for command in commands[:50]
        ]
    return summary
