"""Reader of OpenAI Responses API items, responses, and lines of requests and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_message_and_usage_parsers import parse_usage
from ctxkit.formats.conversations_from_requests import (
    ChatConversation,
    is_chat_message,
    merge_reply_items,
)
from ctxkit.formats.session_builder import match_history_with_visible_messages
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    json_to_text,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import Edit, Message, Part, SizeOnly, Text

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "openai-responses"
ALIASES = ("responses",)
CAN = (
    "text, system prompt, calls and results, tools; usage and times if the response is included "
    "(cache reads)"
)
CANNOT = "times of tool results, encrypted reasoning (only its size), cost"
BLIND = ("tool errors",)

_ITEM_TYPES = {
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "web_search_call",
    "file_search_call",
    "computer_call",
    "computer_call_output",
    "code_interpreter_call",
    "local_shell_call",
    "local_shell_call_output",
    "image_generation_call",
    "mcp_call",
    "mcp_list_tools",
    "compaction",
}
_PAIRED_ITEM_TYPES = {
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
}
_CONTENT_TYPES = {"input_text", "output_text", "input_image", "input_file"}


# Items are compared by count, not by content: the input of a request repeats all earlier items, and
# those beyond the number seen are new. A shorter input is an edit that drops the whole prompt. With
# `previous_response_id` the provider keeps the earlier items, so that all input is new.
# Neighbouring items of the model (reasoning, text, calls) become one reply.
def sniff(source: Source) -> bool:
    """Return True for Responses API items: alone, in a list, in a response or in a request."""
    document = source.document
    values = document if type(document) is list else source.head
    first_record = as_dict(values[0]) if values else {}
    if type(document) is list or _is_item_record(first_record):
        return any(_is_item(v) for v in values[:16])
    record = (
        as_dict(first_record.get("response"))
        or as_dict(first_record.get("request"))
        or first_record
    )
    return any(
        _is_item(i) for key in ("data", "output", "input") for i in as_list(record.get(key))[:16]
    )


def _is_item(value: Any) -> bool:
    item = as_dict(value)
    item_type = item.get("type")
    if type(item_type) is not str:
        return False
    content = {as_str(as_dict(c).get("type")) for c in as_list(item.get("content"))[:4]}
    return item_type in _ITEM_TYPES or (
        item_type == "message" and is_chat_message(value) and bool(content & _CONTENT_TYPES)
    )


def _is_item_record(record: dict[str, Any]) -> bool:
    return "role" in record or as_str(record.get("type")) in _ITEM_TYPES


class _ResponsesConversation(ChatConversation):
    """A conversation that remembers the provider's last compaction item."""

    compaction_item: dict[str, Any] | None = None

    def retained_ids(self) -> set[str]:
        """Return the ids of visible system messages, which a compaction leaves in the prompt."""
        entries = ((i, self.log.entries[self.log.index_by_id[i]]) for i in self.log.visible_ids)
        return {i for i, m in entries if isinstance(m, Message) and m.role == "system"}


def read(source: Source) -> list[Session]:
    """Read the conversation of a file.

    Raises:
        ReadError: the file has no item.
    """
    conversation, document = _ResponsesConversation(NAME), source.document
    session_id: str | None = None
    if type(document) is list:
        _read_items(conversation, document)
    else:
        conversation.faults += source.faults
        records = source.records
        if records and _is_item_record(records[0][1]):
            records = [(records[0][0], {"data": [r for _, r in records]})]
        for line, record in records:
            with catch_damage(conversation.faults, line):
                session_id = session_id or str_or_none(
                    record.get("id") if record.get("object") == "response" else None
                )
                _read_record(conversation, record)
    if not conversation.log.entries:
        raise ReadError(
            "expected items of type message, reasoning or function_call; found none.", source.path
        )
    return [conversation.session(session_id or source.path.stem)]


def _read_record(conversation: _ResponsesConversation, record: dict[str, Any]) -> None:
    """Read a record: a list of items, a request, a response, or both."""
    request, response = (
        as_dict(record.get("request")) or record,
        as_dict(record.get("response")) or record,
    )
    conversation.read_settings(request)
    instructions = str_or_none(request.get("instructions")) or str_or_none(
        response.get("instructions")
    )
    if instructions and not conversation.log.entries:
        conversation.add(
            [Message(role="system", id=conversation.log.new_id(), parts=(Text(instructions),))]
        )
    request_input = request.get("input")
    raw_items = (
        [{"role": "user", "content": request_input}]
        if type(request_input) is str
        else as_list(request_input)
    )
    if response.get("object") == "response.compaction":
        _read_standalone_compaction(conversation, raw_items, response)
        return
    if raw_items and str_or_none(request.get("previous_response_id")):
        _read_items(conversation, raw_items)  # the provider keeps what came before
    elif raw_items:
        _read_new_input(conversation, raw_items)
    _read_items(conversation, as_list(record.get("data")))
    output = as_list(response.get("output"))
    if output:
        _read_items(conversation, output, response)
        at = _last_compaction(output)
        n_before = conversation.inputs if at is None else -at
        conversation.inputs = n_before + len(output)


def _last_compaction(raw_items: list[Any]) -> int | None:
    places = range(len(raw_items) - 1, -1, -1)
    return next((i for i in places if as_dict(raw_items[i]).get("type") == "compaction"), None)


def _read_standalone_compaction(
    conversation: _ResponsesConversation, raw_input: list[Any], response: dict[str, Any]
) -> None:
    """Read a call of `/responses/compact`: user messages that stay, and one item for the rest."""
    if not conversation.log.entries:
        _read_items(conversation, raw_input)
    output = as_list(response.get("output"))
    at = _last_compaction(output)
    if at is None:
        return
    history = [m for raw in output[:at] for m in _parse_item(conversation, raw, as_dict(raw))]
    repeated_ids, _ = match_history_with_visible_messages(conversation.log, history, None)
    edit = Edit(
        kind="summarised",
        method="compaction",
        trigger="manual",
        usage=parse_usage(response.get("usage")),
        model=str_or_none(response.get("model")) or conversation.model,
        time=parse_timestamp(response.get("created_at")),
    )
    _add_compaction(conversation, as_dict(output[at]), edit, repeated_ids)
    _read_items(conversation, output[at + 1 :])
    conversation.inputs = len(output) - at


def _read_new_input(conversation: _ResponsesConversation, raw_items: list[Any]) -> None:
    """Read the items of a request's input that no earlier request had.

    Items before a known compaction item are no longer in the prompt.
    """
    at = _last_compaction(raw_items)
    if at is not None and raw_items[at] == conversation.compaction_item:
        raw_items = raw_items[at:]
    n_earlier = conversation.inputs
    if len(raw_items) < n_earlier:  # no continuation: the caller replaced the prompt
        visible_ids = tuple(conversation.log.visible_ids)
        conversation.log.add(
            Edit(
                kind="dropped",
                id=conversation.log.new_id(),
                targets=visible_ids,
                method="request",
                source="derived",
            )
        )
        n_earlier = 0
    _read_items(conversation, raw_items[n_earlier:])
    at = _last_compaction(raw_items)
    conversation.inputs = len(raw_items) - (at or 0)


def _read_items(
    conversation: _ResponsesConversation,
    raw_items: list[Any],
    response: dict[str, Any] | None = None,
) -> None:
    messages: list[Message] = []
    for raw in raw_items:
        item = as_dict(raw)
        if item.get("type") == "compaction":
            _add_messages(conversation, messages, None)
            messages = []
            edit = Edit(kind="summarised", method="compaction", trigger="auto")
            _add_compaction(conversation, item, edit, set())
        else:
            messages += _parse_item(conversation, raw, item)
    _add_messages(conversation, messages, response)


def _parse_item(
    conversation: _ResponsesConversation, raw_item: Any, item: dict[str, Any]
) -> list[Message]:
    item_type = as_str(item.get("type"))
    if (
        item_type in _ITEM_TYPES and item_type not in _PAIRED_ITEM_TYPES
    ):  # server tools have no result item
        part = SizeOnly(item_type, chars=len(json_to_text(raw_item)))
        return [
            Message(role="assistant", id=conversation.log.new_id(item.get("id")), parts=(part,))
        ]
    time = parse_timestamp(item.get("created_at"))
    return (
        conversation.parse_message(raw_item)
        if time is None
        else conversation.parse_message(raw_item, time=time)
    )


def _add_messages(
    conversation: _ResponsesConversation, messages: list[Message], response: dict[str, Any] | None
) -> None:
    """Add messages, with a reply's items merged; the last reply of a response gets its usage."""
    merged = merge_reply_items(messages)
    if response is not None and merged and merged[-1].role == "assistant":
        status = str_or_none(response.get("status"))
        merged[-1] = replace(
            merged[-1],
            usage=parse_usage(response.get("usage")),
            model=str_or_none(response.get("model")) or conversation.model,
            time=parse_timestamp(response.get("completed_at"))
            or parse_timestamp(response.get("created_at")),
            stop={"completed": "stop", "incomplete": "length", "failed": "error"}.get(
                status or "", status
            ),
            is_error=status == "failed",
        )
    conversation.add(merged)


def _add_compaction(
    conversation: _ResponsesConversation, item: dict[str, Any], edit: Edit, retained_ids: set[str]
) -> None:
    """Add the provider's compaction, which replaces all before it but instructions and `retained`.

    An encrypted item is sealed: its length says nothing of its tokens.
    """
    summary_text = str_or_none(item.get("summary"))
    parts: tuple[Part, ...] = (Text(summary_text),) if summary_text else (SizeOnly("compaction"),)
    edit_id = conversation.log.new_id(item.get("id"))
    summary = Message(role="summary", id=conversation.log.new_id(f"{edit_id}-summary"), parts=parts)
    conversation.log.compact(
        replace(edit, id=edit_id, inserted=(summary,)),
        retained_ids | conversation.retained_ids(),
    )
    conversation.compaction_item = item
