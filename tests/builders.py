"""Short words for tests: `user("…")`, `call("read_file")`, `result("…")`, `session(...)`."""

from __future__ import annotations

from itertools import count
from typing import Any

from ctxkit.session import Edit, Message, Session, Text, Thinking, ToolCall, Usage

_ids = count()


def _id(kind: str) -> str:
    return f"{kind}{next(_ids)}"


def system(text: str = "You are an agent.", **more: Any) -> Message:
    return Message(role="system", id=more.pop("id", _id("s")), parts=(Text(text),), **more)


def user(text: str = "Do it.", **more: Any) -> Message:
    return Message(role="user", id=more.pop("id", _id("u")), parts=(Text(text),), **more)


def assistant(text: str = "Done.", *calls: ToolCall, thinking: str = "", **more: Any) -> Message:
    parts = ((Thinking(thinking),) if thinking else ()) + ((Text(text),) if text else ()) + calls
    return Message(role="assistant", id=more.pop("id", _id("a")), parts=parts, **more)


def tool_call(name: str = "read_file", id: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall(id=id or _id("c"), name=name, arguments=arguments)


def call(name: str = "read_file", id: str | None = None, **arguments: Any) -> Message:
    """An assistant message with one tool call and no text."""
    return assistant("", tool_call(name, id, **arguments))


def result(
    text: str = "ok", of: Message | ToolCall | str = "", tool: str = "read_file", **more: Any
) -> Message:
    if isinstance(of, Message):
        of = of.tool_calls[0]
    if isinstance(of, ToolCall):
        of, tool = of.id, of.name
    return Message(
        role="tool", id=more.pop("id", _id("r")), parts=(Text(text),), call_id=of, tool=tool, **more
    )


def step(name: str = "read_file", text: str = "ok", **arguments: Any) -> tuple[Message, Message]:
    """A tool call and its result."""
    asked = call(name, **arguments)
    return asked, result(text, asked)


def usage(fresh: int = 100, read: int = 0, write: int = 0, output: int = 10) -> Usage:
    return Usage(
        input_tokens=fresh, cache_read_tokens=read, cache_write_tokens=write, output_tokens=output
    )


def summarised(targets: list[Message], text: str = "So far: nothing.", **more: Any) -> Edit:
    summary = Message(role="summary", id=_id("m"), parts=(Text(text),))
    return Edit(
        kind="summarised",
        id=_id("e"),
        targets=tuple(m.id for m in targets),
        inserted=(summary,),
        **more,
    )


def session(*log: Message | Edit | tuple[Message, ...], **more: Any) -> Session:
    flat: list[Message | Edit] = []
    for entry in log:
        flat.extend(entry) if isinstance(entry, tuple) else flat.append(entry)
    return Session(id=more.pop("id", "test"), log=tuple(flat), **more)
