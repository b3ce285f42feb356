"""Reader of fuseraft checkpoints: of a run (one message per turn) and of the REPL (complete)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.chat_message_and_usage_parsers import CHAT_ROLES, count_skipped
from ctxkit.formats.fuseraft_turn_messages_and_work_records import (
    add_turn,
    summarize_work_records,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    json_to_text,
    parse_arguments,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import Attachment, Part, Text, ToolCall

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "fuseraft-checkpoint"
CAN = (
    "text, calls (REPL: with results, system prompt), summaries; usage per turn, agents and times "
    "(only of a run); companion files"
)
CANNOT = (
    "single calls of a run and their results, cache; usage of a REPL session; messages before a "
    "summary"
)


# A run's checkpoint has `Messages`, one per turn, with the turn's usage and the names of its calls.
# The REPL's has `History`, the chat messages with all contents and results, without usage.
def sniff(source: Source) -> bool:
    """Return True for a checkpoint of a run or of the REPL."""
    document = source.document
    if type(document) is not dict or type(document.get("SessionId")) is not str:
        return False
    return type(document.get("Messages")) is list or type(document.get("History")) is list


def read(source: Source) -> list[Session]:
    """Read the session of the file."""
    document = as_dict(source.document)
    builder = SessionBuilder()
    is_repl = type(document.get("History")) is list
    names: dict[str, str] = {}
    for number, raw_message in enumerate(
        as_list(document.get("History" if is_repl else "Messages"))
    ):
        with catch_damage(builder.faults, 0, f"message {number}: "):
            if is_repl:
                _add_repl_message(as_dict(raw_message), builder, names)
            else:
                add_turn(builder, _to_turn_record(as_dict(raw_message)))
    session_id = as_str(document.get("SessionId")) or source.path.stem
    details = {
        "state": str_or_none(document.get("CurrentStateName")),
        "config": str_or_none(document.get("ConfigPath")),
    }
    if type(document.get("IsComplete")) is bool:
        details["complete"] = document["IsComplete"]
    return [
        builder.session(
            id=session_id,
            format=NAME,
            product="fuseraft",
            title=str_or_none(document.get("Task")),
            cwd=str_or_none(document.get("WorkingDirectory")) or str_or_none(document.get("Cwd")),
            model=str_or_none(document.get("ModelId")),
            started=parse_timestamp(document.get("StartedAt")),
            details={
                **{name: value for name, value in details.items() if value is not None},
                **summarize_work_records(source, session_id),
            },
        )
    ]


def _to_turn_record(raw: dict[str, Any]) -> dict[str, Any]:
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


def _add_repl_message(raw: dict[str, Any], builder: SessionBuilder, names: dict[str, str]) -> None:
    role = CHAT_ROLES.get(as_str(raw.get("Role")).lower())
    if role is None:
        count_skipped(builder.skipped, "message: " + (as_str(raw.get("Role")) or "no role"))
        return
    parts: list[Part] = []
    results: list[dict[str, Any]] = []
    for content in map(as_dict, as_list(raw.get("Contents"))):
        content_type = content.get("Type")
        if content_type == "text":
            parts.append(Text(as_str(content.get("Text"))))
        elif content_type == "function_call":
            arguments, raw_arguments = parse_arguments(content.get("ArgumentsJson"))
            call = ToolCall(
                as_str(content.get("CallId")),
                as_str(content.get("FunctionName")),
                arguments,
                raw_arguments,
            )
            names[call.id] = call.name
            parts.append(call)
        elif content_type == "function_result":
            results.append(content)
        elif content_type == "image":
            parts.append(
                Attachment(
                    as_str(content.get("MediaType")) or "image/png", as_str(content.get("Data"))
                )
            )
        else:
            count_skipped(builder.skipped, f"content: {as_str(content_type) or 'no type'}")
    for content in results:
        call_id = as_str(content.get("CallId"))
        output = json_to_text(content.get("ResultJson"))
        tool = str_or_none(content.get("FunctionName")) or names.get(call_id)
        result_parts = (Text(output),) if output else ()
        builder.add_message("tool", result_parts, tool=tool, call_id=call_id or None)
    if parts or not results:
        builder.add_message("user" if role == "tool" else role, parts)
