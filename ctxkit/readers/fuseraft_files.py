"""What fuseraft's readers share: messages for whole turns, and the JSON files beside a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.messages import Edit, Message, Part, Role, Sized, Text, ToolCall, Usage
from ctxkit.readers.fields import items, mapping, number, text, time, word
from ctxkit.readers.source import beside

if TYPE_CHECKING:
    from ctxkit.readers.logs import ReaderLog
    from ctxkit.readers.source import Source

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


def write_turn(log: ReaderLog, turn: dict[str, Any]) -> None:
    """Write one message of a checkpoint or a post-mortem: a turn's usage is summed over its calls.

    The keys are those of `turns.jsonl`; a checkpoint's are turned into them by its reader.
    """
    said = text(turn.get("content"))
    when, agent = time(turn.get("ts")), word(turn.get("agent"))
    index, id_ = number(turn.get("turn")), log.new_id()
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
    calls = [mapping(c) for c in items(turn.get("tool_calls"))]
    asked = [_call(c, f"{id_}-{n}") for n, c in enumerate(calls)]
    about: dict[str, Any] = {"agent": agent, "turn": index, "time": when}
    reply = Message(
        role="assistant",
        id=id_,
        parts=(*parts, *asked),
        kind="turn",
        usage=turn_usage(turn),
        **about,
    )
    log.add(reply)
    for raw, call in zip(calls, asked, strict=True):
        log.say(
            "tool",
            (Sized("tool_result"),),  # the record says that it ran, not what came of it
            tool=call.name,
            call_id=call.id,
            is_error=raw.get("succeeded") is False,
            **about,
        )


def turn_usage(told: dict[str, Any]) -> Usage | None:
    """Return the input and output that a turn or a call is billed; None where none is told."""
    given, output = number(told.get("input_tokens")), number(told.get("output_tokens"))
    if given is None and output is None:
        return None
    return Usage(input_tokens=given, output_tokens=output)


def _call(raw: dict[str, Any], id_: str) -> ToolCall:
    return ToolCall(id_, text(raw.get("name")), {}, word(raw.get("args_summary")))


def companions(source: Source, session: str) -> dict[str, Any]:
    """Return in short what `intents`, `changes`, `evidence` (.json) beside it say of a session."""
    out: dict[str, Any] = {}
    for name, keys in _FIELDS.items():
        told = items(
            companion(source, f"{name}.json").get("Nodes" if name == "evidence" else "Entries")
        )
        mine = [e for e in map(mapping, told) if e and text(e.get("SessionId")) in ("", session)]
        if mine:
            out[name] = [_short(e, keys) for e in mine[:_MOST]]
            if len(mine) > _MOST:
                out[f"{name}_n"] = len(mine)
    return out


def companion(source: Source, name: str) -> dict[str, Any]:
    """Return the object in a file beside a log; empty where there is none that can be read."""
    return mapping(beside(source.path.parent / name)) if source.on_disk else {}


def _short(entry: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    short = {k: entry[k] for k in keys if k in entry and entry[k] is not None}
    operation = mapping(entry.get("Operation"))
    if operation:
        short["FunctionName"] = text(operation.get("FunctionName"))
        if word(operation.get("TargetPath")):
            short["TargetPath"] = operation["TargetPath"]
    commands = [mapping(c) for c in items(entry.get("CommandsRun"))]
    if commands:
        short["CommandsRun"] = [
            {k: c[k] for k in ("Command", "succeeded") if k in c} for c in commands[:50]
        ]
    return short
