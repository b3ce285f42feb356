"""Talks with late, pending and pinned results, writes of files that were read, and pauses; and logs cut at a call."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
from builders import assistant, result, system, tool_call, user

from ctxkit.policies import MessageLog
from ctxkit.session import ToolCall

if TYPE_CHECKING:
    from ctxkit.session import Message

TOOLS = ("read_file", "write_file", "shell")
WORDS = ("go on ", "RETRY it ", "fix it ")


def late_talk(
    seed: int, calls: int = 40, *, late: float = 0.15, large: int = 4000
) -> list[Message]:
    """Return messages with parallel calls; a share of the results comes up to six calls late."""
    r = random.Random(seed)
    now, out, owed = 1e6, [system("s " * 50)], []
    for n in range(calls):
        if n == 0 or r.random() < 0.2:
            now += r.choice([5, 50, 700])
            words = r.choice(WORDS) + "u " * r.randint(1, 300)
            out.append(user(words, id=f"u{n}", time=now, pinned=r.random() < 0.05))
        now += r.randint(1, 30)
        asked = [
            tool_call(r.choice(TOOLS), id=f"c{n}.{i}", path=f"f{r.randint(0, 5)}")
            for i in range(r.choice([0, 1, 1, 2]))
        ]
        out.append(assistant("a " * r.randint(0, 300), *asked, id=f"a{n}", time=now, latency=1.0))
        for call in asked:
            text = "r\n" * (r.choice([3, 40, 400, large]) // 2)
            said = result(text, call, id=f"r{call.id}", time=now + 1, pending=r.random() < late / 5)
            if r.random() < late:
                owed.append((n + r.randint(1, 6), said))
            else:
                out.append(said)
        for due in [o for o in owed if o[0] <= n]:
            out.append(msgspec.structs.replace(due[1], time=now + 1))
            owed.remove(due)
    return out


def ids_again(messages: list[Message], of: int = 4) -> list[Message]:
    """Return the messages of a late talk with only so many ids for the calls of its replies."""

    def again(call_id: str | None) -> str | None:
        n, _, i = (call_id or "").removeprefix("c").partition(".")
        return f"c{int(n) % of}.{i}" if call_id else call_id

    return [
        msgspec.structs.replace(
            m,
            call_id=again(m.call_id),
            parts=tuple(
                msgspec.structs.replace(p, id=again(p.id)) if isinstance(p, ToolCall) else p
                for p in m.parts
            ),
        )
        for m in messages
    ]


def grown(log: MessageLog, stop: int) -> Any:
    """Yield each call of a log with a log that grows as a live session's: nothing in it comes after the call."""
    live = MessageLog(log.counter, fixed=log.fixed_at[0] if log.fixed_at else 0, agent=log.agent)
    live.recorded_size, live.scale, row = log.recorded_size, log.scale, 0
    for call in range(stop):
        for row in range(row, log.upto[call]):  # noqa: B020  it continues where it was
            live.append(log.messages[row], log.tokens.sizes[row], turn=log.turns[row])
        row = log.upto[call]
        if live.calls:
            live.end_times[-1] = log.end_times[call - 1]
        live.open(log.sent[call], log.agents[call], log.fixed_at[call])
        yield call, live


def among_others(messages: list[Message], seed: int, *, numbered: bool = False) -> list[Message]:
    """Return a talk in which others are heard, agents have names, and some inputs are injected.

    `numbered`: each message says its turn, and injected ones do not begin another.
    """
    r, out, turn, speaker = random.Random(seed), [], -1, "main"
    for n, m in enumerate(messages):
        known = len(out)
        kind = r.choice(["", "", "injected"]) if m.role == "user" else ""
        turn += m.role == "user" and (not kind or turn < 0)
        speaker = r.choice(["main", "Dev"]) if n % 7 == 0 else speaker
        if r.random() < 0.15:
            heard = r.choice(["heard", "frame"])
            words = "w " * r.randint(1, 400)
            out.append(user(words, id=f"h{n}", time=m.time, kind=heard, agent="Dev", tool="shell"))
        out.append(
            msgspec.structs.replace(m, kind=kind, agent=speaker if m.role == "assistant" else None)
        )
        if numbered:
            out[known:] = [msgspec.structs.replace(x, turn=max(turn, 0)) for x in out[known:]]
    return out
