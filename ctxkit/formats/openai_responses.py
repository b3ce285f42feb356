"""OpenAI's Responses: a list of items, a response, a request with its input, or lines of requests
and responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_messages import parse_usage
from ctxkit.formats.chat_requests import ChatConversation, is_chat_message, merge_reply_items
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    parse_timestamp,
    str_or_none,
    to_text,
)
from ctxkit.session.messages import Edit, Message, Part, SizeOnly, Text

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "openai-responses"
ALIASES = ("responses",)
CAN = "text, calls and results, tools and usage where the response is there"
CANNOT = "times of calls, encrypted reasoning (its size only), money"
BLIND = ("tool errors",)

_ITEMS = {
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
_KNOWN = {
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
}
_CONTENT = {"input_text", "output_text", "input_image", "input_file"}


def sniff(source: Source) -> bool:
    """Say whether there are Responses API items: alone, in a list, in a response or a request."""
    document = source.document
    values = document if type(document) is list else source.head
    first = as_dict(values[0]) if values else {}
    if type(document) is list or _is_bare(first):
        return any(_is_item(v) for v in values[:16])
    inner = as_dict(first.get("response")) or as_dict(first.get("request")) or first
    return any(
        _is_item(i) for key in ("data", "output", "input") for i in as_list(inner.get(key))[:16]
    )


def _is_item(value: Any) -> bool:
    item = as_dict(value)
    kind = item.get("type")
    if type(kind) is not str:
        return False
    content = {as_str(as_dict(c).get("type")) for c in as_list(item.get("content"))[:4]}
    return kind in _ITEMS or (
        kind == "message" and is_chat_message(value) and bool(content & _CONTENT)
    )


def _is_bare(record: dict[str, Any]) -> bool:
    return "role" in record or as_str(record.get("type")) in _ITEMS


def read(source: Source) -> list[Session]:
    """Read the one conversation of a file."""
    talk, document = ChatConversation(NAME), source.document
    own: str | None = None
    if type(document) is list:
        _items(talk, document)
    else:
        talk.faults += source.faults
        records = source.records
        if records and _is_bare(records[0][1]):
            records = [(records[0][0], {"data": [r for _, r in records]})]
        for line, record in records:
            with catch_damage(talk.faults, line):
                own = own or str_or_none(
                    record.get("id") if record.get("object") == "response" else None
                )
                _record(talk, record)
    if not talk.log.entries:
        raise ReadError(
            "expected items of type message, reasoning or function_call; found none.", source.path
        )
    return [talk.session(own or source.path.stem)]


def _record(talk: ChatConversation, record: dict[str, Any]) -> None:
    """Take a line: a list of items, a request, a response, or both."""
    request, response = (
        as_dict(record.get("request")) or record,
        as_dict(record.get("response")) or record,
    )
    talk.settings(request)
    said = str_or_none(request.get("instructions")) or str_or_none(response.get("instructions"))
    if said and not talk.log.entries:
        talk.add([Message(role="system", id=talk.log.new_id(), parts=(Text(said),))])
    given = request.get("input")
    raws = [{"role": "user", "content": given}] if type(given) is str else as_list(given)
    if raws and str_or_none(request.get("previous_response_id")):
        _items(talk, raws)  # the provider keeps what came before
    elif raws:
        _grown(talk, raws)
    _items(talk, as_list(record.get("data")))
    if as_list(response.get("output")):
        _items(talk, as_list(response["output"]), response)
        talk.inputs += len(response["output"])


def _grown(talk: ChatConversation, raws: list[Any]) -> None:
    """Take the input of a request: what an earlier one held already is passed over."""
    seen = talk.inputs
    if len(raws) < seen:  # no continuation: the caller sends something else in its place
        shown = tuple(talk.log.shown)
        talk.log.add(
            Edit(
                kind="dropped",
                id=talk.log.new_id(),
                targets=shown,
                method="request",
                source="derived",
            )
        )
        seen = 0
    _items(talk, raws[seen:])
    talk.inputs = len(raws)


def _items(talk: ChatConversation, raws: list[Any], response: dict[str, Any] | None = None) -> None:
    made: list[Message] = []
    for raw in raws:
        item = as_dict(raw)
        if item.get("type") == "compaction":
            _flush(talk, made, None)
            made = []
            _compaction(talk, item)
        else:
            made += _item(talk, raw, item)
    _flush(talk, made, response)


def _item(talk: ChatConversation, raw: Any, item: dict[str, Any]) -> list[Message]:
    kind = as_str(item.get("type"))
    if (
        kind in _ITEMS and kind not in _KNOWN
    ):  # tools that the provider runs: no result to be paired with
        part = SizeOnly(kind, chars=len(to_text(raw)))
        return [Message(role="assistant", id=talk.log.new_id(item.get("id")), parts=(part,))]
    when = parse_timestamp(item.get("created_at"))
    return talk.make(raw) if when is None else talk.make(raw, time=when)


def _flush(talk: ChatConversation, made: list[Message], response: dict[str, Any] | None) -> None:
    """Write messages, a reply's items as one; the last reply of a response bears its usage."""
    whole = merge_reply_items(made)
    if response is not None and whole and whole[-1].role == "assistant":
        status = str_or_none(response.get("status"))
        whole[-1] = replace(
            whole[-1],
            usage=parse_usage(response.get("usage")),
            model=str_or_none(response.get("model")) or talk.model,
            time=parse_timestamp(response.get("completed_at"))
            or parse_timestamp(response.get("created_at")),
            stop={"completed": "stop", "incomplete": "length", "failed": "error"}.get(
                status or "", status
            ),
            is_error=status == "failed",
        )
    talk.add(whole)


def _compaction(talk: ChatConversation, item: dict[str, Any]) -> None:
    """Let what the provider made of the conversation stand for all that came before."""
    said, blob = str_or_none(item.get("summary")), as_str(item.get("encrypted_content"))
    parts: tuple[Part, ...] = (Text(said),) if said else (SizeOnly("compaction", chars=len(blob)),)
    own = talk.log.new_id(item.get("id"))
    summary = Message(role="summary", id=talk.log.new_id(f"{own}-summary"), parts=parts)
    talk.log.compact(Edit(kind="summarised", id=own, inserted=(summary,), method="compaction"), ())
