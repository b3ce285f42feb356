"""Reader of tau-bench and tau2-bench results, and of tau-bench's few-shot conversations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import (
    fill_tool_names,
    parse_chat_message,
    parse_usage,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    DAMAGE_ERRORS,
    as_dict,
    as_list,
    as_str,
    describe_damage,
    float_or_none,
    parse_timestamp,
)
from ctxkit.session.messages import Fault, Message, Role, Text, ToolCall

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "tau-bench"
ALIASES = ("tau2-bench",)
CAN = (
    "text, system prompt, calls and results, rewards; several runs per file; usage, cost and "
    "times (tau2)"
)
CANNOT = (
    "usage, times, cost and model (tau-bench); calls (few-shot conversations); tool schemas; "
    "the system prompt (tau2)"
)


# A result file is a list of runs (tau-bench: `traj`) or an object with `simulations` (tau2:
# `messages` with usage, cost and time; calls of the simulated user's own tools are hidden). The
# few-shot file has a conversation per line as text with `user: `, `assistant: `, `tool: ` at line
# starts; a reply that calls a tool is the text `None`, so that name and arguments are unknown.
def sniff(source: Source) -> bool:
    """Return True for a list of runs, an object with simulations, or few-shot conversations."""
    runs = _get_runs(source)
    return (bool(runs) and _is_run(runs[0])) or _is_few_shot_file(source)


def _is_few_shot_file(source: Source) -> bool:
    """Return True for the file of few-shot conversations, each a text in `messages_display`."""
    head = source.head[:4]
    return bool(head) and all(as_str(r.get("messages_display")).startswith("user: ") for r in head)


def _get_runs(source: Source) -> list[Any]:
    return as_list(source.document) or as_list(as_dict(source.document).get("simulations"))


def _is_run(run: Any) -> bool:
    return (
        type(run) is dict
        and "task_id" in run
        and type(run.get("traj", run.get("messages"))) is list
    )


def read(source: Source) -> list[Session]:
    """Read one session per run; a record that is no run becomes a fault of the next session."""
    if _is_few_shot_file(source):
        return _read_few_shot_file(source)
    sessions: list[Session] = []
    faults: list[Fault] = []
    for number, run in enumerate(_get_runs(source)):
        if _is_run(run):
            sessions.append(_read_run(source, run, number, faults))
            faults = []
        else:
            faults.append(Fault(0, f"run {number}: expected an object with 'task_id' and 'traj'"))
    return sessions


_SPEAKER_PATTERN = re.compile(r"^(user|assistant|tool): ", re.MULTILINE)


def _read_few_shot_file(source: Source) -> list[Session]:
    """Read the few-shot conversations, one per line."""
    sessions = []
    for line, record in source.records:
        builder, text = SessionBuilder(), as_str(record.get("messages_display"))
        speakers = list(_SPEAKER_PATTERN.finditer(text))
        ends = [*(m.start() - 1 for m in speakers[1:]), len(text)]
        for speaker, end in zip(speakers, ends, strict=False):
            _add_few_shot_message(builder, speaker[1], text[speaker.end() : end], end)
        name = f"{source.path.stem}/{line}"
        sessions.append(builder.session(id=name, format=NAME, product="tau-bench"))
    if sessions:
        sessions[0] = replace(sessions[0], faults=(*sessions[0].faults, *source.faults))
    return sessions


def _add_few_shot_message(builder: SessionBuilder, role: str, text: str, number: int) -> None:
    """Add one message; before a result, the call is added to the reply, without name."""
    last_entry = builder.entries[-1] if builder.entries else None
    if role == "tool" and isinstance(last_entry, Message) and last_entry.role == "assistant":
        call = ToolCall(f"call-{number}", "")
        builder.replace(
            len(builder.entries) - 1, replace(last_entry, parts=(*last_entry.parts, call))
        )
        builder.add_message("tool", (Text(text),), call_id=call.id)
        return
    parts = () if role == "assistant" and text == "None" else (Text(text),)
    message_role: Role = "assistant" if role == "assistant" else "user"
    builder.add_message(message_role, parts)


def _read_run(source: Source, run: dict[str, Any], index: int, faults: list[Fault]) -> Session:
    builder, tool_by_call = SessionBuilder(), dict[str, str]()
    builder.faults += faults
    is_tau2 = "traj" not in run
    for number, raw in enumerate(run["messages"] if is_tau2 else run["traj"]):
        try:
            for m in (
                _parse_tau2_message(raw, builder, tool_by_call)
                if is_tau2
                else fill_tool_names(
                    parse_chat_message(raw, builder, builder.skipped), tool_by_call
                )
            ):
                builder.add(m)
        except DAMAGE_ERRORS as e:
            builder.faults.append(Fault(0, f"run {index}, message {number}: {describe_damage(e)}"))
    info = as_dict(run.get("info"))
    task = run["task_id"] if type(run["task_id"]) in (int, str) else index
    trial = run.get("trial") if type(run.get("trial")) in (int, str) else 0
    details = {
        "task_id": task,
        "trial": trial,
        "reward": float_or_none(run.get("reward", as_dict(run.get("reward_info")).get("reward"))),
        "user_cost": float_or_none(info.get("user_cost", run.get("user_cost"))),
    }
    return builder.session(
        id=f"{source.path.stem}/{task}/{trial}",
        format=NAME,
        product="tau-bench",
        details={k: v for k, v in details.items() if v is not None},
    )


def _parse_tau2_message(
    raw: Any, builder: SessionBuilder, tool_by_call: dict[str, str]
) -> list[Message]:
    """Parse a message of tau2-bench; the calls of the simulated user's tools are not visible."""
    raw = as_dict(raw)
    nested = as_list(raw.get("tool_messages"))
    if nested:
        return [m for inner in nested for m in _parse_tau2_message(inner, builder, tool_by_call)]
    time, role = parse_timestamp(raw.get("timestamp")), raw.get("role")
    cost = float_or_none(raw.get("cost"))
    usage = (
        parse_usage(raw.get("usage"), cost) if role == "assistant" and raw.get("usage") else None
    )
    chat_message = {k: v for k, v in raw.items() if k != "usage"}
    is_hidden = raw.get("requestor") == "user" or (role == "user" and bool(raw.get("tool_calls")))
    is_failed = raw.get("error") is True
    messages = fill_tool_names(
        parse_chat_message(
            chat_message, builder, builder.skipped, time=time, usage=usage, visible=not is_hidden
        ),
        tool_by_call,
    )
    return [replace(m, is_error=True) for m in messages] if is_failed else messages
