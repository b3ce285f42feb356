"""fuseraft's checkpoints: of a run (`SESSION.json`, a message a turn) and of the REPL
(`repl-ID.json`, in full).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.chat_messages import CHAT_ROLES, count_skipped
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    parse_arguments,
    parse_timestamp,
    str_or_none,
    to_text,
)
from ctxkit.formats.fuseraft_common import add_turn, read_companion_files
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Image, Part, Text, ToolCall

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "fuseraft-checkpoint"
CAN = (
    "text, calls (REPL: with results), summaries; usage per turn, agents and times (run only);"
    " files beside it"
)
CANNOT = (
    "single calls of a run, what its tools answered, cache; usage of a REPL session; what stood"
    " before a summary"
)


def sniff(source: Source) -> bool:
    """Say whether the document is a checkpoint of a run or of the REPL."""
    document = source.document
    if type(document) is not dict or type(document.get("SessionId")) is not str:
        return False
    return type(document.get("Messages")) is list or type(document.get("History")) is list


def read(source: Source) -> list[Session]:
    """Return the one session of the file."""
    document = as_dict(source.document)
    log = SessionBuilder()
    is_repl = type(document.get("History")) is list
    names: dict[str, str] = {}
    for n, raw in enumerate(as_list(document.get("History" if is_repl else "Messages"))):
        with catch_damage(log.faults, 0, f"message {n}: "):
            if is_repl:
                _repl(as_dict(raw), log, names)
            else:
                add_turn(log, _turn(as_dict(raw)))
    id_ = as_str(document.get("SessionId")) or source.path.stem
    told = {
        "state": str_or_none(document.get("CurrentStateName")),
        "config": str_or_none(document.get("ConfigPath")),
    }
    if type(document.get("IsComplete")) is bool:
        told["complete"] = document["IsComplete"]
    return [
        log.session(
            id=id_,
            format=NAME,
            product="fuseraft",
            title=str_or_none(document.get("Task")),
            cwd=str_or_none(document.get("WorkingDirectory")) or str_or_none(document.get("Cwd")),
            model=str_or_none(document.get("ModelId")),
            started=parse_timestamp(document.get("StartedAt")),
            details={
                **{k: v for k, v in told.items() if v is not None},
                **read_companion_files(source, id_),
            },
        )
    ]


def _turn(raw: dict[str, Any]) -> dict[str, Any]:
    usage = as_dict(raw.get("Usage"))
    return {
        "ts": raw.get("Timestamp"),
        "turn": raw.get("TurnIndex"),
        "agent": raw.get("AgentName"),
        "role": as_str(raw.get("Role")).lower(),
        "content": raw.get("Content"),
        "input_tokens": usage.get("InputTokens"),
        "output_tokens": usage.get("OutputTokens"),
        "is_compaction_summary": raw.get("IsCompactionSummary"),
        "tool_calls": [
            {
                "name": c.get("Name"),
                "args_summary": c.get("ArgsSummary"),
                "succeeded": c.get("Succeeded"),
            }
            for c in map(as_dict, as_list(raw.get("ToolCalls")))
        ],
    }


def _repl(raw: dict[str, Any], log: SessionBuilder, names: dict[str, str]) -> None:
    role = CHAT_ROLES.get(as_str(raw.get("Role")).lower())
    if role is None:
        count_skipped(log.skipped, "message: " + (as_str(raw.get("Role")) or "no role"))
        return
    parts: list[Part] = []
    results: list[dict[str, Any]] = []
    for content in map(as_dict, as_list(raw.get("Contents"))):
        kind = content.get("Type")
        if kind == "text":
            parts.append(Text(as_str(content.get("Text"))))
        elif kind == "function_call":
            args, written = parse_arguments(content.get("ArgumentsJson"))
            call = ToolCall(
                as_str(content.get("CallId")), as_str(content.get("FunctionName")), args, written
            )
            names[call.id] = call.name
            parts.append(call)
        elif kind == "function_result":
            results.append(content)
        elif kind == "image":
            parts.append(
                Image(as_str(content.get("MediaType")) or "image/png", as_str(content.get("Data")))
            )
        else:
            count_skipped(log.skipped, f"content: {as_str(kind) or 'no type'}")
    for content in results:
        called = as_str(content.get("CallId"))
        said = to_text(content.get("ResultJson"))
        tool = str_or_none(content.get("FunctionName")) or names.get(called)
        answer = (Text(said),) if said else ()
        log.say("tool", answer, tool=tool, call_id=called or None)
    if parts or not results:
        log.say("user" if role == "tool" else role, parts)
