"""tau-bench results, also of tau2: runs of an agent with a simulated user, with a reward; its
few-shot talks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_messages import fill_tool_names, parse_chat_message, parse_usage
from ctxkit.formats.fields import (
    DAMAGE_ERRORS,
    as_dict,
    as_list,
    as_str,
    describe_damage,
    float_or_none,
    parse_timestamp,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Fault, Message, Role, Text, ToolCall

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "tau-bench"
ALIASES = ("tau2-bench",)
CAN = (
    "text, system prompt, calls and results, rewards; several runs a file; usage, money and times"
    " (tau2)"
)
CANNOT = (
    "usage, times, money and model (tau-bench); calls (few-shot talks); tool schemas; the system"
    " prompt (tau2)"
)


def sniff(source: Source) -> bool:
    """Say whether this is a list of runs with a `traj`, or an object with tau2's simulations."""
    runs = _runs(source)
    return (bool(runs) and _is_run(runs[0])) or _is_shown(source)


def _is_shown(source: Source) -> bool:
    """Say whether this is the file of few-shot talks: each a text under `messages_display`."""
    head = source.head[:4]
    return bool(head) and all(as_str(r.get("messages_display")).startswith("user: ") for r in head)


def _runs(source: Source) -> list[Any]:
    return as_list(source.document) or as_list(as_dict(source.document).get("simulations"))


def _is_run(run: Any) -> bool:
    return (
        type(run) is dict
        and "task_id" in run
        and type(run.get("traj", run.get("messages"))) is list
    )


def read(source: Source) -> list[Session]:
    """Return one session a run; what is no run is a fault of the first."""
    if _is_shown(source):
        return _shown(source)
    out: list[Session] = []
    faults: list[Fault] = []
    for i, run in enumerate(_runs(source)):
        if _is_run(run):
            out.append(_session(source, run, i, faults))
            faults = []
        else:
            faults.append(Fault(0, f"run {i}: expected an object with 'task_id' and 'traj'"))
    return out


_SPEAKER = re.compile(r"^(user|assistant|tool): ", re.MULTILINE)


def _shown(source: Source) -> list[Session]:
    """The few-shot talks, one a line: a call is written as `None`, a result follows its call."""
    out = []
    for line, record in source.records:
        log, said = SessionBuilder(), as_str(record.get("messages_display"))
        marks = list(_SPEAKER.finditer(said))
        ends = [*(m.start() - 1 for m in marks[1:]), len(said)]
        for mark, end in zip(marks, ends, strict=False):
            _speak(log, mark[1], said[mark.end() : end], end)
        name = f"{source.path.stem}/{line}"
        out.append(log.session(id=name, format=NAME, product="tau-bench"))
    if out:
        out[0] = replace(out[0], faults=(*out[0].faults, *source.faults))
    return out


def _speak(log: SessionBuilder, role: str, said: str, at: int) -> None:
    """Write what one speaker said; the tool that answered, and its arguments, are not told."""
    last = log.entries[-1] if log.entries else None
    if role == "tool" and isinstance(last, Message) and last.role == "assistant":
        call = ToolCall(f"call-{at}", "")
        log.replace(len(log.entries) - 1, replace(last, parts=(*last.parts, call)))
        log.say("tool", (Text(said),), call_id=call.id)
        return
    parts = () if role == "assistant" and said == "None" else (Text(said),)
    as_: Role = "assistant" if role == "assistant" else "user"
    log.say(as_, parts)


def _session(source: Source, run: dict[str, Any], index: int, faults: list[Fault]) -> Session:
    log, asked = SessionBuilder(), dict[str, str]()
    log.faults += faults
    second = "traj" not in run
    for n, raw in enumerate(run["messages"] if second else run["traj"]):
        try:
            for m in (
                _second(raw, log, asked)
                if second
                else fill_tool_names(parse_chat_message(raw, log, log.skipped), asked)
            ):
                log.add(m)
        except DAMAGE_ERRORS as e:
            log.faults.append(Fault(0, f"run {index}, message {n}: {describe_damage(e)}"))
    info = as_dict(run.get("info"))
    task = run["task_id"] if type(run["task_id"]) in (int, str) else index
    trial = run.get("trial") if type(run.get("trial")) in (int, str) else 0
    details = {
        "task_id": task,
        "trial": trial,
        "reward": float_or_none(run.get("reward", as_dict(run.get("reward_info")).get("reward"))),
        "user_cost": float_or_none(info.get("user_cost", run.get("user_cost"))),
    }
    return log.session(
        id=f"{source.path.stem}/{task}/{trial}",
        format=NAME,
        product="tau-bench",
        details={k: v for k, v in details.items() if v is not None},
    )


def _second(raw: Any, log: SessionBuilder, asked: dict[str, str]) -> list[Message]:
    """Return a message of tau2's, with usage and time; the simulated user's tools are not shown."""
    raw = as_dict(raw)
    several = as_list(raw.get("tool_messages"))
    if several:
        return [m for one in several for m in _second(as_dict(one), log, asked)]
    when, said = parse_timestamp(raw.get("timestamp")), raw.get("role")
    cost = float_or_none(raw.get("cost"))
    usage = (
        parse_usage(raw.get("usage"), cost) if said == "assistant" and raw.get("usage") else None
    )
    plain = {k: v for k, v in raw.items() if k != "usage"}
    aside = raw.get("requestor") == "user" or (said == "user" and bool(raw.get("tool_calls")))
    failed = raw.get("error") is True
    made = fill_tool_names(
        parse_chat_message(plain, log, log.skipped, time=when, usage=usage, visible=not aside),
        asked,
    )
    return [replace(m, is_error=True) for m in made] if failed else made
