"""mini-SWE-agent trajectories: chat messages, with the whole completion of each call beside its
reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.messages import Message, Text
from ctxkit.readers.damaged import each_of
from ctxkit.readers.dialects import named, to_messages
from ctxkit.readers.exits import exit_code, is_failure
from ctxkit.readers.fields import items, mapping, number, real, text, time, word
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count
from ctxkit.readers.talks import merged
from ctxkit.readers.usages import to_stop, to_usage

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

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
        mark = text(document.get("trajectory_format"))
        info = mapping(document.get("info"))
        return mark.startswith("mini-swe-agent") or (
            "mini_version" in info and "messages" in document
        )
    found = items(document)
    if len(found) < 3 or [mapping(m).get("role") for m in found[:2]] != ["system", "user"]:
        return False
    asked = text(mapping(found[0]).get("content"))
    return "bash code block" in asked and mapping(found[2]).get("role") == "assistant"


def read(source: Source) -> list[Session]:
    """Return the one session of the file."""
    document = source.document
    fields = mapping(document)
    info = mapping(fields.get("info"))
    log, asked = ReaderLog(), dict[str, str]()
    talk = items(fields.get("messages")) or items(document)
    each_of(talk, "message", lambda raw: _write(raw, log, asked), log.faults)
    config, stats = mapping(info.get("config")), mapping(info.get("model_stats"))
    details = {
        "exit_status": word(info.get("exit_status")),
        "cost_usd": real(stats.get("instance_cost")),
        "api_calls": number(stats.get("api_calls")),
    }
    return [
        log.session(
            id=text(fields.get("instance_id")) or source.path.name.split(".")[0],
            format=NAME,
            product="mini-swe-agent",
            version=word(info.get("mini_version")),
            model=word(mapping(config.get("model")).get("model_name")),
            cwd=word(mapping(config.get("environment")).get("cwd")),
            started=next((e.time for e in log.entries if isinstance(e, Message) and e.time), None),
            details={k: v for k, v in details.items() if v is not None},
        )
    ]


def _write(raw: dict[str, Any], log: ReaderLog, asked: dict[str, str]) -> None:
    if raw.get("role") == "exit":  # the submission, for the harness: no model sees it
        count(log.skipped, "exit")
        return
    extra = mapping(raw.get("extra"))
    fields: dict[str, Any] = {"time": time(extra.get("timestamp"))}
    if raw.get("object") == "response":  # its second version keeps what the Responses API gave
        _respond(raw, log, asked)
        return
    if raw.get("role") == "assistant":
        response = mapping(extra.get("response"))
        choice = mapping(next(iter(items(response.get("choices"))), None))
        fields["usage"] = to_usage(response.get("usage"), real(extra.get("cost")))
        fields["model"] = word(response.get("model"))
        fields["stop"] = to_stop(choice.get("finish_reason"))
    code = extra.get("returncode")
    for m in named(to_messages(raw, log, log.skipped, **fields), asked):
        log.add(_answer(m, code, word(extra.get("exception_info"))))


def _answer(m: Message, code: Any, error: str | None) -> Message:
    """Return what a command gave with its return code; older files give it as the user's words."""
    if m.role not in ("tool", "user"):
        return m
    if type(code) is not int or abs(code) >= 1 << 32:
        code = exit_code(m.parts[0].text) if m.parts and type(m.parts[0]) is Text else None
    if code is None:
        return m
    kind = m.kind if m.role == "tool" else "observation"
    details = {**m.details, "returncode": code}
    return msgspec.structs.replace(
        m, kind=kind, details=details, error=error, is_error=is_failure(code)
    )


def _respond(raw: dict[str, Any], log: ReaderLog, asked: dict[str, str]) -> None:
    extra = mapping(raw.get("extra"))
    made = merged(
        [m for item in items(raw.get("output")) for m in to_messages(item, log, log.skipped)]
    )
    for m in named(made, asked):
        log.add(
            msgspec.structs.replace(
                m,
                time=time(extra.get("timestamp")) or time(raw.get("created_at")),
                usage=to_usage(raw.get("usage"), real(extra.get("cost"))),
                model=word(raw.get("model")),
            )
        )
