"""What `codex exec --json` prints: items of a thread, and the usage of each turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_messages import count_skipped
from ctxkit.formats.codex_items import parse_codex_usage
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    is_failed_exit,
    parse_arguments,
    read_each_line,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Message, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session

NAME = "codex-exec"
ALIASES = ("codex-json",)
CAN = (
    "text, thinking, commands with output and exit code, tool calls and results; usage per turn"
    " (cache reads)"
)
CANNOT = "the request, system prompt, model, times, usage per call, money, compactions"
BLIND = ("compactions",)
TRAITS = (("all", "usage is of a whole turn: the reply that ends it is of kind `turn`"),)
_KINDS = {
    "thread.started",
    "turn.started",
    "turn.completed",
    "turn.failed",
    "item.started",
    "item.updated",
    "item.completed",
}


def sniff(source: Source) -> bool:
    """Say whether the first lines are events of a thread, a turn or an item."""
    head = source.head[:4]
    return (
        bool(head)
        and all(as_str(r.get("type")) in _KINDS | {"error"} for r in head)
        and any(
            "thread_id" in r or type(r.get("item")) is dict or r.get("type") == "turn.started"
            for r in head
        )
    )


def read(source: Source) -> list[Session]:
    """Return the one thread; an item that never ended is told as it began."""
    done = {_id(r) for _, r in source.records if r.get("type") == "item.completed"}
    reading = _Reading(done)
    reading.log.faults += source.faults
    read_each_line(source.records, reading.take, reading.log.faults)
    reading.end()
    return [
        reading.log.session(
            id=reading.thread or source.path.stem,
            format=NAME,
            product="codex",
        )
    ]


def _id(record: dict[str, Any]) -> str:
    return as_str(as_dict(record.get("item")).get("id"))


class _Reading:
    """A thread while its events go by."""

    def __init__(self, done: set[str]) -> None:
        self.log = SessionBuilder()
        self._done = done
        """Ids of the items that come to an end."""
        self.thread: str | None = None
        self._thoughts: list[Part] = []
        self._error: str | None = None
        """What went wrong last; the turn may go on after it ("Reconnecting... 1/5")."""

    def end(self) -> None:
        """Tell of an error that nothing came after."""
        if self._error is not None:
            self._failed(self._error)

    def _recovered(self) -> None:
        if self._error is not None:
            count_skipped(self.log.skipped, "error that a turn went on after")
            self._error = None

    def take(self, record: dict[str, Any]) -> None:
        """Take one event; of an item that comes to an end, only the end."""
        kind = as_str(record.get("type"))
        if kind == "thread.started":
            self.thread = str_or_none(record.get("thread_id")) or self.thread
        elif kind == "turn.completed":
            self._recovered()
            self._billed(parse_codex_usage(as_dict(record.get("usage"))))
        elif kind == "turn.failed":
            self._error = None
            self._failed(str_or_none(as_dict(record.get("error")).get("message")))
        elif kind == "error":
            self._error = str_or_none(record.get("message")) or "error"
        elif kind == "item.completed" or (kind == "item.started" and _id(record) not in self._done):
            self._item(as_dict(record.get("item")), ended=kind == "item.completed")
        elif kind not in _KINDS:
            count_skipped(self.log.skipped, kind or "no type")

    def _item(self, item: dict[str, Any], *, ended: bool) -> None:
        self._recovered()
        kind = as_str(item.get("type")) or as_str(item.get("item_type"))
        if kind == "reasoning":
            self._thoughts.append(Thinking(as_str(item.get("text"))))
        elif kind in ("agent_message", "assistant_message", "plan"):
            self._reply([Text(as_str(item.get("text")))])
        elif kind in (
            "command_execution",
            "mcp_tool_call",
            "file_change",
            "web_search",
            "collab_tool_call",
        ):
            self._called(kind, item, ended=ended)
        else:
            count_skipped(self.log.skipped, f"item: {kind or 'no type'}")

    def _reply(self, parts: list[Part]) -> None:
        own, parts = self.log.new_id(), [*self._thoughts, *parts]
        self._thoughts = []
        self.log.add(Message(role="assistant", id=own, parts=tuple(parts)))

    def _called(self, kind: str, item: dict[str, Any], *, ended: bool) -> None:
        own = str_or_none(item.get("id")) or self.log.new_id()
        name, given, said = _call(kind, item)
        self._reply([ToolCall(own, name, given)])
        if not ended:
            return
        failed = as_str(item.get("status")) in ("failed", "declined")
        failed = failed or is_failed_exit(item.get("exit_code"))
        about = {"exit_code": item["exit_code"]} if type(item.get("exit_code")) is int else {}
        parts = (Text(said),) if said else ()
        self.log.say("tool", parts, tool=name, call_id=own, is_error=failed, details=about)

    def _billed(self, usage: Usage | None) -> None:
        self._tail(usage=usage, kind="turn")

    def _failed(self, said: str | None) -> None:
        self._tail(is_error=True, stop="error", error=said and said[:2000])

    def _tail(self, **told: Any) -> None:
        """Tell something of a turn at its last reply; without one, in a message of its own."""
        last = self.log.entries[-1] if self.log.entries else None
        if isinstance(last, Message) and last.role == "assistant" and not last.kind:
            self.log.replace(len(self.log.entries) - 1, replace(last, **told))
            return
        parts, self._thoughts = tuple(self._thoughts), []
        self.log.add(Message(role="assistant", id=self.log.new_id(), parts=parts, **told))


def _call(kind: str, item: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """Return the name of a call, its arguments, and what it gave."""
    if kind == "command_execution":
        return "shell", {"command": item.get("command")}, as_str(item.get("aggregated_output"))
    if kind == "file_change":
        return "apply_patch", {"changes": as_list(item.get("changes"))}, as_str(item.get("status"))
    if kind == "web_search":
        return "web_search", {"query": item.get("query")}, ""
    if kind == "collab_tool_call":
        return (
            as_str(item.get("tool")),
            {"prompt": item.get("prompt")},
            to_text(item.get("agents_states")),
        )
    result, error = as_dict(item.get("result")), as_dict(item.get("error"))
    said = [as_str(as_dict(c).get("text")) for c in as_list(result.get("content"))]
    name = "__".join(filter(None, ("mcp", as_str(item.get("server")), as_str(item.get("tool")))))
    return (
        name,
        parse_arguments(item.get("arguments"))[0],
        "\n".join(filter(None, said)) or as_str(error.get("message")),
    )
