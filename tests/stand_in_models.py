"""Models that say what they are given, and an agent around them."""

from __future__ import annotations

import asyncio
from itertools import count

from builders import session

from ctxkit import tokens
from ctxkit.agent import Agent, LiveSession, Workspace, tool
from ctxkit.policies import Rules
from ctxkit.session import Message, Text, ToolCall, Usage

COUNT = tokens.get_counter("chars/4")
USAGE = Usage(input_tokens=10, output_tokens=1)


class Says:
    """A model that says what it is given, one reply a call, and then `done`."""

    name, notice, context_window = "test/says", "test model", 50_000

    def __init__(self, *replies):
        self.replies, self.asked = list(replies), []

    async def __call__(self, request, emit):
        self.asked.append(request)
        reply = self.replies.pop(0) if self.replies else said("done")
        if isinstance(reply, BaseException):
            raise reply
        return reply


def said(*parts, stop="stop", usage=USAGE):
    parts = tuple(Text(p) if isinstance(p, str) else p for p in parts)
    return Message(role="assistant", parts=parts, stop=stop, usage=usage)


def agent(*replies, at=None, rules=None, heard=None, **more):
    ticks = count(1_800_000_000)
    clock = more.pop("clock", lambda: float(next(ticks)))
    hear = heard.append if heard is not None else lambda _: None
    return Agent(at or session(), model=more.pop("model", None) or Says(*replies), rules=rules or Rules(counter=COUNT),
                 clock=clock, listener=hear, **more)  # fmt: skip


def run(coroutine):
    return asyncio.run(coroutine)


def echo(x: str = "") -> str:
    """Say it again."""
    return f"<{x}>"


ECHO = tool(echo)


def live(folder, *replies, name="main", **more):
    """Return a live session of a folder; unless told otherwise its model writes `x.txt`."""
    ticks = count(1_800_000_000)
    write = ToolCall("c", "write_file", {"path": "x.txt", "content": "written"})
    replies = replies or (said(write, stop="tool"), said("done"))
    return LiveSession(name, model=Says(*replies), rules=more.pop("rules", Rules(counter=COUNT)),
                       clock=lambda: float(next(ticks)), workspace=Workspace(folder),
                       **more)  # fmt: skip
