"""fuseraft's checkpoints: of a run (`SESSION.json`, a message a turn) and of the REPL
(`repl-ID.json`, in full).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.messages import Image, Part, Text, ToolCall
from ctxkit.readers.damaged import noting
from ctxkit.readers.dialects import ROLES
from ctxkit.readers.fields import arguments, as_text, items, mapping, text, time, word
from ctxkit.readers.fuseraft_files import companions, write_turn
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

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
    document = mapping(source.document)
    log = ReaderLog()
    is_repl = type(document.get("History")) is list
    names: dict[str, str] = {}
    for n, raw in enumerate(items(document.get("History" if is_repl else "Messages"))):
        with noting(log.faults, 0, f"message {n}: "):
            if is_repl:
                _repl(mapping(raw), log, names)
            else:
                write_turn(log, _turn(mapping(raw)))
    id_ = text(document.get("SessionId")) or source.path.stem
    told = {
        "state": word(document.get("CurrentStateName")),
        "config": word(document.get("ConfigPath")),
    }
    if type(document.get("IsComplete")) is bool:
        told["complete"] = document["IsComplete"]
    return [
        log.session(
            id=id_,
            format=NAME,
            product="fuseraft",
            title=word(document.get("Task")),
            cwd=word(document.get("WorkingDirectory")) or word(document.get("Cwd")),
            model=word(document.get("ModelId")),
            started=time(document.get("StartedAt")),
            details={
                **{k: v for k, v in told.items() if v is not None},
                **companions(source, id_),
            },
        )
    ]


def _turn(raw: dict[str, Any]) -> dict[str, Any]:
    usage = mapping(raw.get("Usage"))
    return {
        "ts": raw.get("Timestamp"),
        "turn": raw.get("TurnIndex"),
        "agent": raw.get("AgentName"),
        "role": text(raw.get("Role")).lower(),
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
            for c in map(mapping, items(raw.get("ToolCalls")))
        ],
    }


def _repl(raw: dict[str, Any], log: ReaderLog, names: dict[str, str]) -> None:
    role = ROLES.get(text(raw.get("Role")).lower())
    if role is None:
        count(log.skipped, "message: " + (text(raw.get("Role")) or "no role"))
        return
    parts: list[Part] = []
    results: list[dict[str, Any]] = []
    for content in map(mapping, items(raw.get("Contents"))):
        kind = content.get("Type")
        if kind == "text":
            parts.append(Text(text(content.get("Text"))))
        elif kind == "function_call":
            args, written = arguments(content.get("ArgumentsJson"))
            call = ToolCall(
                text(content.get("CallId")), text(content.get("FunctionName")), args, written
            )
            names[call.id] = call.name
            parts.append(call)
        elif kind == "function_result":
            results.append(content)
        elif kind == "image":
            parts.append(
                Image(text(content.get("MediaType")) or "image/png", text(content.get("Data")))
            )
        else:
            count(log.skipped, f"content: {text(kind) or 'no type'}")
    for content in results:
        called = text(content.get("CallId"))
        said = as_text(content.get("ResultJson"))
        tool = word(content.get("FunctionName")) or names.get(called)
        answer = (Text(said),) if said else ()
        log.say("tool", answer, tool=tool, call_id=called or None)
    if parts or not results:
        log.say("user" if role == "tool" else role, parts)
