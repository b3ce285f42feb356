"""The same talk for a real package and for the kit: a script of turns, and what of it each of them still shows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from builders import assistant, result, tool_call, user
from histories import CHARS, shown

if TYPE_CHECKING:
    from ctxkit.policies import History
    from ctxkit.session import Message


class Line(NamedTuple):
    """One message of a script: a role, an id, a text, the ids of its calls or the call that it answers."""

    role: str
    id: str
    text: str
    calls: tuple[str, ...] = ()
    of: str = ""


def script(seed: int, turns: int = 12, chars: int = 200) -> list[Line]:
    """A talk of so many turns with tool loops, some of parallel calls."""
    rng = random.Random(seed)
    out: list[Line] = []
    for t in range(turns):
        out.append(Line("user", f"u{t}", f"ask {t} " + "u" * rng.randrange(chars)))
        for s in range(rng.randrange(4)):
            calls = tuple(f"c{t}-{s}-{k}" for k in range(rng.choice([1, 1, 2])))
            out.append(Line("assistant", f"a{t}-{s}", f"step {s}", calls))
            out += [
                Line("tool", f"r{c}", f"{c} " + "r" * rng.randrange(40, 4 * chars), (), c)
                for c in calls
            ]
        out.append(Line("assistant", f"a{t}", f"reply {t} " + "a" * rng.randrange(chars)))
    out.append(Line("user", "last", "and now"))
    return out


def alone(seed: int) -> list[Line]:
    """A script without parallel calls, for packages that keep all calls or results of a reply in another way."""
    lines = [x for x in script(seed, turns=2 + seed % 9) if not x.of.endswith("-1")]
    return [x._replace(calls=x.calls[:1]) for x in lines]


def history(lines: list[Line]) -> History:
    """The script as a history of the kit."""
    return shown(messages(lines), counter=CHARS)


def messages(lines: list[Line]) -> list[Message]:
    """The script as messages of the kit."""
    return [_message(x) for x in lines]


def _message(x: Line) -> Message:
    if x.role == "user":
        return user(x.text, id=x.id)
    if x.role == "tool":
        return result(x.text, x.of, "bash", id=x.id)
    return assistant(x.text, *(tool_call("bash", c, command=c) for c in x.calls), id=x.id)


def kept(new: History) -> list[str]:
    """The ids that the kit still shows, a summary as `S`."""
    return ["S" if m.role == "summary" else m.id.split("~")[0] for m in new.messages]


def cleared(new: History, mark: str) -> list[str]:
    """The ids of the results that say only the mark."""
    return [m.id.split("~")[0] for m in new.messages if m.role == "tool" and m.text == mark]


def run(coroutine: Any) -> Any:
    """Wait for a coroutine of the package."""
    import asyncio

    return asyncio.run(coroutine)
