"""Reader of `codex exec --json` output: items of a thread, and the usage of each turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import count_skipped
from ctxkit.formats.codex_replies_from_items import parse_codex_usage
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    is_failed_exit,
    json_to_text,
    parse_arguments,
    read_each_line,
    str_or_none,
)
from ctxkit.session.messages import Message, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session

NAME = "codex-exec"
ALIASES = ("codex-json",)
CAN = (
    "text, thinking, commands with output and exit code, tool calls and results; usage per turn"
    " (cache reads)"
)
CANNOT = "the request, system prompt, model, times, usage per call, cost, compactions"
BLIND = ("compactions",)
TRAITS = (("all", "usage is of a whole turn: the reply that ends it is of kind `turn`"),)
# Events are JSON lines: `item.started` and `item.completed` carry an item (text, reasoning, a call
# with its result), `turn.completed` the usage of all calls of a turn. Only the last state of an
# item is read. Reasoning is collected until the next reply. The usage of a turn goes to its last
# reply, which thereby becomes one of kind `turn`; without a reply it gets a message of its own. An
# error counts only if the turn does not continue after it.
_EVENT_TYPES = {
    "thread.started",
    "turn.started",
    "turn.completed",
    "turn.failed",
    "item.started",
    "item.updated",
    "item.completed",
}


def sniff(source: Source) -> bool:
    """Return True if the first lines are events of a thread, a turn or an item."""
    head = source.head[:4]
    return (
        bool(head)
        and all(as_str(r.get("type")) in _EVENT_TYPES | {"error"} for r in head)
        and any(
            "thread_id" in r or type(r.get("item")) is dict or r.get("type") == "turn.started"
            for r in head
        )
    )


def read(source: Source) -> list[Session]:
    """Read the thread; an item that was not completed is read from its start event."""
    completed_ids = {
        _get_item_id(r) for _, r in source.records if r.get("type") == "item.completed"
    }
    reader = _ThreadReader(completed_ids)
    reader.builder.faults += source.faults
    read_each_line(source.records, reader.read_event, reader.builder.faults)
    reader.close()
    return [
        reader.builder.session(
            id=reader.thread_id or source.path.stem,
            format=NAME,
            product="codex",
        )
    ]


def _get_item_id(record: dict[str, Any]) -> str:
    return as_str(as_dict(record.get("item")).get("id"))


class _ThreadReader:
    """Reader of one thread, event by event."""

    def __init__(self, completed_ids: set[str]) -> None:
        self.builder = SessionBuilder()
        self._completed_ids = completed_ids
        """Ids of the items that have a completion event."""
        self.thread_id: str | None = None
        self._thoughts: list[Part] = []
        self._last_error: str | None = None
        """The last error, after which the turn may still continue ("Reconnecting... 1/5")."""

    def close(self) -> None:
        """Add an error that nothing followed."""
        if self._last_error is not None:
            self._add_turn_error(self._last_error)

    def _clear_error(self) -> None:
        if self._last_error is not None:
            count_skipped(self.builder.skipped, "error that a turn went on after")
            self._last_error = None

    def read_event(self, record: dict[str, Any]) -> None:
        """Read one event; the start of an item that is completed later is skipped."""
        event_type = as_str(record.get("type"))
        if event_type == "thread.started":
            self.thread_id = str_or_none(record.get("thread_id")) or self.thread_id
        elif event_type == "turn.completed":
            self._clear_error()
            self._add_turn_usage(parse_codex_usage(as_dict(record.get("usage"))))
        elif event_type == "turn.failed":
            self._last_error = None
            self._add_turn_error(str_or_none(as_dict(record.get("error")).get("message")))
        elif event_type == "error":
            self._last_error = str_or_none(record.get("message")) or "error"
        elif event_type == "item.completed" or (
            event_type == "item.started" and _get_item_id(record) not in self._completed_ids
        ):
            self._read_item(as_dict(record.get("item")), is_ended=event_type == "item.completed")
        elif event_type not in _EVENT_TYPES:
            count_skipped(self.builder.skipped, event_type or "no type")

    def _read_item(self, item: dict[str, Any], *, is_ended: bool) -> None:
        self._clear_error()
        item_type = as_str(item.get("type")) or as_str(item.get("item_type"))
        if item_type == "reasoning":
            self._thoughts.append(Thinking(as_str(item.get("text"))))
        elif item_type in ("agent_message", "assistant_message", "plan"):
            self._add_reply([Text(as_str(item.get("text")))])
        elif item_type in (
            "command_execution",
            "mcp_tool_call",
            "file_change",
            "web_search",
            "collab_tool_call",
        ):
            self._read_call(item_type, item, is_ended=is_ended)
        else:
            count_skipped(self.builder.skipped, f"item: {item_type or 'no type'}")

    def _add_reply(self, parts: list[Part]) -> None:
        message_id, parts = self.builder.new_id(), [*self._thoughts, *parts]
        self._thoughts = []
        self.builder.add(Message(role="assistant", id=message_id, parts=tuple(parts)))

    def _read_call(self, item_type: str, item: dict[str, Any], *, is_ended: bool) -> None:
        call_id = str_or_none(item.get("id")) or self.builder.new_id()
        name, arguments, output = _parse_call(item_type, item)
        self._add_reply([ToolCall(call_id, name, arguments)])
        if not is_ended:
            return
        is_failed = as_str(item.get("status")) in ("failed", "declined")
        is_failed = is_failed or is_failed_exit(item.get("exit_code"))
        details = {"exit_code": item["exit_code"]} if type(item.get("exit_code")) is int else {}
        parts = (Text(output),) if output else ()
        self.builder.add_message(
            "tool", parts, tool=name, call_id=call_id, is_error=is_failed, details=details
        )

    def _add_turn_usage(self, usage: Usage | None) -> None:
        self._update_last_reply(usage=usage, kind="turn")

    def _add_turn_error(self, message: str | None) -> None:
        self._update_last_reply(is_error=True, stop="error", error=message and message[:2000])

    def _update_last_reply(self, **fields: Any) -> None:
        """Set fields of the turn's last reply, or of a new message if there is none."""
        last_entry = self.builder.entries[-1] if self.builder.entries else None
        if (
            isinstance(last_entry, Message)
            and last_entry.role == "assistant"
            and not last_entry.kind
        ):
            self.builder.replace(len(self.builder.entries) - 1, replace(last_entry, **fields))
            return
        parts, self._thoughts = tuple(self._thoughts), []
        self.builder.add(Message(role="assistant", id=self.builder.new_id(), parts=parts, **fields))


def _parse_call(item_type: str, item: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """Return the tool's name, the arguments, and the output of a call item."""
    if item_type == "command_execution":
        return "shell", {"command": item.get("command")}, as_str(item.get("aggregated_output"))
    if item_type == "file_change":
        return "apply_patch", {"changes": as_list(item.get("changes"))}, as_str(item.get("status"))
    if item_type == "web_search":
        return "web_search", {"query": item.get("query")}, ""
    if item_type == "collab_tool_call":
        return (
            as_str(item.get("tool")),
            {"prompt": item.get("prompt")},
            json_to_text(item.get("agents_states")),
        )
    result, error = as_dict(item.get("result")), as_dict(item.get("error"))
    texts = [as_str(as_dict(c).get("text")) for c in as_list(result.get("content"))]
    name = "__".join(filter(None, ("mcp", as_str(item.get("server")), as_str(item.get("tool")))))
    return (
        name,
        parse_arguments(item.get("arguments"))[0],
        "\n".join(filter(None, texts)) or as_str(error.get("message")),
    )
