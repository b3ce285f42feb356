"""Reader of mini-SWE-agent trajectories: chat messages, with each call's completion in `extra`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.chat_message_and_usage_parsers import (
    count_skipped,
    fill_tool_names,
    parse_chat_message,
    parse_stop_reason,
    parse_usage,
)
from ctxkit.formats.conversations_from_requests import merge_reply_items
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    float_or_none,
    is_failed_exit,
    parse_exit_code,
    parse_timestamp,
    read_each_object,
    str_or_none,
)
from ctxkit.session.messages import Message, Text

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "mini-swe-agent"
CAN = (
    "text, system prompt, calls and results, usage per call (cache reads), cost, times, return "
    "codes"
)
CANNOT = "tool schemas; in older files (a bare list) usage and times"
TRAITS = (
    (
        "all",
        (
            "a failed command is recognised by its return code, in older files at the head of an "
            "observation; cost is as logged"
        ),
    ),
)


def sniff(source: Source) -> bool:
    """Return True for a marked trajectory, or a list whose system prompt asks for bash blocks."""
    document = source.document
    if type(document) is dict:
        mark = as_str(document.get("trajectory_format"))
        info = as_dict(document.get("info"))
        return mark.startswith("mini-swe-agent") or (
            "mini_version" in info and "messages" in document
        )
    messages = as_list(document)
    if len(messages) < 3 or [as_dict(m).get("role") for m in messages[:2]] != ["system", "user"]:
        return False
    system_prompt = as_str(as_dict(messages[0]).get("content"))
    return "bash code block" in system_prompt and as_dict(messages[2]).get("role") == "assistant"


def read(source: Source) -> list[Session]:
    """Read the session of the file."""
    document = source.document
    fields = as_dict(document)
    info = as_dict(fields.get("info"))
    builder, tool_by_call = SessionBuilder(), dict[str, str]()
    raw_messages = as_list(fields.get("messages")) or as_list(document)
    read_each_object(
        raw_messages,
        "message",
        lambda raw: _add_message(raw, builder, tool_by_call),
        builder.faults,
    )
    config, stats = as_dict(info.get("config")), as_dict(info.get("model_stats"))
    details = {
        "exit_status": str_or_none(info.get("exit_status")),
        "cost_usd": float_or_none(stats.get("instance_cost")),
        "api_calls": count_or_none(stats.get("api_calls")),
    }
    return [
        builder.session(
            id=as_str(fields.get("instance_id")) or source.path.name.split(".")[0],
            format=NAME,
            product="mini-swe-agent",
            version=str_or_none(info.get("mini_version")),
            model=str_or_none(as_dict(config.get("model")).get("model_name")),
            cwd=str_or_none(as_dict(config.get("environment")).get("cwd")),
            started=next(
                (e.time for e in builder.entries if isinstance(e, Message) and e.time), None
            ),
            details={k: v for k, v in details.items() if v is not None},
        )
    ]


def _add_message(
    raw: dict[str, Any], builder: SessionBuilder, tool_by_call: dict[str, str]
) -> None:
    if raw.get("role") == "exit":  # the submission, which is not sent to a model
        count_skipped(builder.skipped, "exit")
        return
    extra = as_dict(raw.get("extra"))
    fields: dict[str, Any] = {"time": parse_timestamp(extra.get("timestamp"))}
    if raw.get("object") == "response":  # version 2 stores responses of the Responses API
        _add_response(raw, builder, tool_by_call)
        return
    if raw.get("role") == "assistant":
        response = as_dict(extra.get("response"))
        choice = as_dict(next(iter(as_list(response.get("choices"))), None))
        fields["usage"] = parse_usage(response.get("usage"), float_or_none(extra.get("cost")))
        fields["model"] = str_or_none(response.get("model"))
        fields["stop"] = parse_stop_reason(choice.get("finish_reason"))
    exit_code = extra.get("returncode")
    for message in fill_tool_names(
        parse_chat_message(raw, builder, builder.skipped, **fields), tool_by_call
    ):
        builder.add(_add_exit_code(message, exit_code, str_or_none(extra.get("exception_info"))))


def _add_exit_code(message: Message, exit_code: Any, error: str | None) -> Message:
    """Return a result with its exit code; in older files it is a user message."""
    if message.role not in ("tool", "user"):
        return message
    if type(exit_code) is not int or abs(exit_code) >= 1 << 32:
        exit_code = (
            parse_exit_code(message.parts[0].text)
            if message.parts and type(message.parts[0]) is Text
            else None
        )
    if exit_code is None:
        return message
    kind = message.kind if message.role == "tool" else "observation"
    details = {**message.details, "returncode": exit_code}
    return msgspec.structs.replace(
        message, kind=kind, details=details, error=error, is_error=is_failed_exit(exit_code)
    )


def _add_response(
    raw: dict[str, Any], builder: SessionBuilder, tool_by_call: dict[str, str]
) -> None:
    extra = as_dict(raw.get("extra"))
    messages = merge_reply_items(
        [
            message
            for item in as_list(raw.get("output"))
            for message in parse_chat_message(item, builder, builder.skipped)
        ]
    )
    for message in fill_tool_names(messages, tool_by_call):
        builder.add(
            msgspec.structs.replace(
                message,
                time=parse_timestamp(extra.get("timestamp"))
                or parse_timestamp(raw.get("created_at")),
                usage=parse_usage(raw.get("usage"), float_or_none(extra.get("cost"))),
                model=str_or_none(raw.get("model")),
            )
        )
