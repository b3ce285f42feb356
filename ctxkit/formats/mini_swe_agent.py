"""mini-SWE-agent trajectories: chat messages, with the whole completion of each call beside its
reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.chat_messages import (
    count_skipped,
    fill_tool_names,
    parse_chat_message,
    parse_stop_reason,
    parse_usage,
)
from ctxkit.formats.chat_requests import merge_reply_items
from ctxkit.formats.fields import (
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
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Message, Text

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "mini-swe-agent"
CAN = (
    "text, system prompt, calls and results, usage per call (cache reads), money, times, return"
    " codes"
)
CANNOT = "tool schemas; older files (a bare list) have no usage and no times"
TRAITS = (
    (
        "all",
        (
            "a failed command is told by its return code, in older files at the head of an "
            "observation; money is the log's own"
        ),
    ),
)


def sniff(source: Source) -> bool:
    """Say whether it has the mark, or is a list whose system prompt asks for one bash block."""
    document = source.document
    if type(document) is dict:
        mark = as_str(document.get("trajectory_format"))
        info = as_dict(document.get("info"))
        return mark.startswith("mini-swe-agent") or (
            "mini_version" in info and "messages" in document
        )
    found = as_list(document)
    if len(found) < 3 or [as_dict(m).get("role") for m in found[:2]] != ["system", "user"]:
        return False
    asked = as_str(as_dict(found[0]).get("content"))
    return "bash code block" in asked and as_dict(found[2]).get("role") == "assistant"


def read(source: Source) -> list[Session]:
    """Return the one session of the file."""
    document = source.document
    fields = as_dict(document)
    info = as_dict(fields.get("info"))
    log, asked = SessionBuilder(), dict[str, str]()
    talk = as_list(fields.get("messages")) or as_list(document)
    read_each_object(talk, "message", lambda raw: _write(raw, log, asked), log.faults)
    config, stats = as_dict(info.get("config")), as_dict(info.get("model_stats"))
    details = {
        "exit_status": str_or_none(info.get("exit_status")),
        "cost_usd": float_or_none(stats.get("instance_cost")),
        "api_calls": count_or_none(stats.get("api_calls")),
    }
    return [
        log.session(
            id=as_str(fields.get("instance_id")) or source.path.name.split(".")[0],
            format=NAME,
            product="mini-swe-agent",
            version=str_or_none(info.get("mini_version")),
            model=str_or_none(as_dict(config.get("model")).get("model_name")),
            cwd=str_or_none(as_dict(config.get("environment")).get("cwd")),
            started=next((e.time for e in log.entries if isinstance(e, Message) and e.time), None),
            details={k: v for k, v in details.items() if v is not None},
        )
    ]


def _write(raw: dict[str, Any], log: SessionBuilder, asked: dict[str, str]) -> None:
    if raw.get("role") == "exit":  # the submission, for the harness: no model sees it
        count_skipped(log.skipped, "exit")
        return
    extra = as_dict(raw.get("extra"))
    fields: dict[str, Any] = {"time": parse_timestamp(extra.get("timestamp"))}
    if raw.get("object") == "response":  # its second version keeps what the Responses API gave
        _respond(raw, log, asked)
        return
    if raw.get("role") == "assistant":
        response = as_dict(extra.get("response"))
        choice = as_dict(next(iter(as_list(response.get("choices"))), None))
        fields["usage"] = parse_usage(response.get("usage"), float_or_none(extra.get("cost")))
        fields["model"] = str_or_none(response.get("model"))
        fields["stop"] = parse_stop_reason(choice.get("finish_reason"))
    code = extra.get("returncode")
    for m in fill_tool_names(parse_chat_message(raw, log, log.skipped, **fields), asked):
        log.add(_answer(m, code, str_or_none(extra.get("exception_info"))))


def _answer(m: Message, code: Any, error: str | None) -> Message:
    """Return what a command gave with its return code; older files give it as the user's words."""
    if m.role not in ("tool", "user"):
        return m
    if type(code) is not int or abs(code) >= 1 << 32:
        code = parse_exit_code(m.parts[0].text) if m.parts and type(m.parts[0]) is Text else None
    if code is None:
        return m
    kind = m.kind if m.role == "tool" else "observation"
    details = {**m.details, "returncode": code}
    return msgspec.structs.replace(
        m, kind=kind, details=details, error=error, is_error=is_failed_exit(code)
    )


def _respond(raw: dict[str, Any], log: SessionBuilder, asked: dict[str, str]) -> None:
    extra = as_dict(raw.get("extra"))
    made = merge_reply_items(
        [
            m
            for item in as_list(raw.get("output"))
            for m in parse_chat_message(item, log, log.skipped)
        ]
    )
    for m in fill_tool_names(made, asked):
        log.add(
            msgspec.structs.replace(
                m,
                time=parse_timestamp(extra.get("timestamp"))
                or parse_timestamp(raw.get("created_at")),
                usage=parse_usage(raw.get("usage"), float_or_none(extra.get("cost"))),
                model=str_or_none(raw.get("model")),
            )
        )
