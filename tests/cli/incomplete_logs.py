"""Logs that lack what most have: each is short, and none is damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from builders import assistant, result, session, summarised, system, tool_call, usage, user

if TYPE_CHECKING:
    from ctxkit.session import Message, Session

START = 1_770_000_000.0
MODEL = "claude-sonnet-4-5"
_replace = msgspec.structs.replace


def make_talk(turns: int) -> list[Message]:
    """Return turns of a request with a rule, a call and its result; the prompt grows, with pauses."""
    out = [system()]
    for n in range(turns):
        now = START + 400 * n
        asked = tool_call(path=f"src/part{n}.py")
        used = usage(50, read=900 * n, write=900, output=40)
        out += [
            user(f"Never touch prod-{n}. Mend src/part{n}.py.", time=now),
            assistant("", asked, usage=used, time=now + 5, model=MODEL),
            result(f"def part{n}(): return {7_919 * n}", asked, time=now + 6),
        ]
    return [*out, assistant("Done.", usage=usage(20, read=900 * turns), time=START + 400 * turns)]


def _without(log: list[Message], **fields: Any) -> list[Message]:
    return [_replace(m, **{k: v for k, v in fields.items() if hasattr(m, k)}) for m in log]


def _compacted(log: list[Message], first: int, end: int) -> list[Any]:
    return [*log[:end], summarised(log[first:end], time=log[end - 1].time), *log[end:]]


def _with_agents(log: list[Message]) -> list[Message]:
    names = ("Dev", "Tester")
    return [
        _replace(m, agent=names[i % 2]) if m.role == "assistant" else m for i, m in enumerate(log)
    ]


def make_odd_logs() -> dict[str, Session]:
    """Return sessions by what is odd about them."""
    talk = make_talk(12)
    times = [m.time or START for m in talk]
    logs: dict[str, list[Any]] = {
        "usual": _compacted(talk, 1, 25),
        "one call": [user("Hi.", time=START), assistant(usage=usage(), time=START + 5)],
        "no call": [user("Hi.", time=START)],
        "no user": [m for m in talk if m.role != "user"],
        "no usage": _without(_compacted(talk, 1, 25), usage=None),
        "no times": _without(_compacted(talk, 1, 25), time=None),
        "no text": [m if m.role == "assistant" else _replace(m, parts=()) for m in talk],
        "one time": [_replace(m, time=START) for m in talk],
        "times run back": [_replace(m, time=t) for m, t in zip(talk, times[::-1], strict=True)],
        "times of 1601 and 9999": [
            _replace(m, time=-1.1e10 if i % 2 else 2.5e11) for i, m in enumerate(talk)
        ],
        "no cache": [_replace(m, usage=usage(900)) if m.usage else m for m in talk],
        "all compacted": _compacted(talk, 0, len(talk)),
        "compacted twice": [*_compacted(talk, 1, 25), summarised(talk[25:28])],
        "several agents": _compacted(_with_agents(talk), 1, 25),
    }
    made = {name: session(*log, model=MODEL) for name, log in logs.items()}
    made["no price"] = session(*_without(talk, model=None), model="nobody-7b")
    made["no model"] = session(*_without(talk, model=None))
    child = session(*make_talk(6), model=MODEL, id="child")
    made["subagents"] = session(*talk, model=MODEL, children=(child,))
    ledger = session(
        user("Write roman.py.", time=START), id="ledger", children=(child, made["usual"])
    )
    made["ledger of a team"] = ledger
    return made
