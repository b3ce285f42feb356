"""Reader of Cline and Roo Code: task folders, and sessions of Cline 4."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_message_and_usage_parsers import (
    fill_tool_names,
    is_supported_part,
    make_usage_from_total,
    parse_chat_message,
    subtract_cached,
)
from ctxkit.formats.log_file_content import Source, read_json_or_none
from ctxkit.formats.session_builder import SessionBuilder, match_history_with_visible_messages
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    json_to_text,
    parse_timestamp,
    read_each_object,
    str_or_none,
)
from ctxkit.session.messages import Edit, Message, Text, ToolCall, Usage
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ctxkit.session.messages import Part


NAME = "cline"
ALIASES = ("roo", "roo-code", "cline-roo")
CAN = (
    "text, thinking, calls and results (also as XML), times; usage per call (cache) and cost if "
    "ui_messages.json is in the folder, or in each reply (Cline from 4.0); summaries (Roo; "
    "Cline from 4.0: the latest), truncated ranges (older Cline), subagents"
)
CANNOT = (
    "system prompt (except Cline from 4.0), tool schemas; file contents that Cline shortened in "
    "requests (context_history.json); Cline's compactions before the latest"
)
TRAITS = (
    (
        "Cline",
        (
            "a truncation is recognised by the range that the next request leaves out; tokensIn "
            "excludes cached tokens"
        ),
    ),
    (
        "Roo",
        ("tokensIn includes the cached tokens if it is at least as large"),
    ),
)
# A task folder has two files: the API history (Anthropic's messages), and the messages of the
# window, among them one per request with its usage. The two are joined in
# `_match_requests_to_replies` by history index, else by time, else by order.
# Compactions have three forms:
#   Cline    each request names the range of messages that it leaves out; growth of the range is
#            an edit
#   Roo      messages name the summary or marker that hides them
#   Cline 4  a file beside the session has the history that replaced the first N messages
# Tools without an API are called in XML: the call is in the text of a reply, the result in the next
# user message. Both are rewritten as a call and a result.
_HISTORY_FILE = "api_conversation_history.json"
_UI_FILES = ("ui_messages.json", "claude_messages.json")
_CLINE_FIELDS = {"ts", "modelInfo", "metrics", "condenseParent", "isSummary", "truncationParent"}


def sniff(source: Source) -> bool:
    """Return True for a task's API history (Anthropic messages with times or marks) or session."""
    document = source.document
    if type(document) is not list or not document:
        return _is_cline_session(document)
    first_messages = [as_dict(m) for m in document[:4]]
    return all(
        m.get("role") in ("user", "assistant") and "content" in m for m in first_messages
    ) and any(_CLINE_FIELDS & m.keys() for m in first_messages)


def read(source: Source) -> list[Session]:
    """Read the task of an API history, with the window's messages if they are beside it."""
    if _is_cline_session(source.document):
        return [_read_cline_session(source)]
    folder = source.path.parent
    name = folder.name if source.on_disk and source.path.name == _HISTORY_FILE else source.path.stem
    ui_messages = (
        _read_ui_messages(folder) if source.on_disk and source.path.name == _HISTORY_FILE else []
    )
    return [_TaskReader(as_list(source.document), ui_messages).build_session(name)]


def sniff_folder(path: Path) -> bool:
    """Return True if a folder is a task (has an API history) or a session."""
    return (path / _HISTORY_FILE).is_file() or _is_cline_session_folder(path)


def read_folder(path: Path) -> list[Session]:
    """Read the task or session of a folder.

    Raises:
        ReadError: its history is no list.
    """
    if _is_cline_session_folder(path):
        return [_read_cline_session(Source(_get_messages_file(path)))]
    history = Source(path / _HISTORY_FILE).document
    if type(history) is not list:
        raise ReadError("expected a list of messages in api_conversation_history.json.", path)
    return [
        replace(
            _TaskReader(history, _read_ui_messages(path)).build_session(path.name),
            path_=str(path / _HISTORY_FILE),
        )
    ]


def _read_ui_messages(folder: Path) -> list[Any]:
    documents = (read_json_or_none(folder / name) for name in _UI_FILES)
    return next((as_list(value) for value in documents if value is not None), [])


class _TaskReader:
    """Reader of one task, message by message."""

    def __init__(self, history: list[Any], ui_messages: list[Any]) -> None:
        self.builder = SessionBuilder()
        self.tool_by_call: dict[str, str] = {}
        self._history, self._requests = history, _parse_ui_requests(ui_messages)
        self._usages = _match_requests_to_replies(history, self._requests)
        self._title = next((as_str(as_dict(m).get("text")) for m in ui_messages[:1]), "")
        self._ids_by_message: list[list[str]] = []
        """Message ids of each message of the history."""
        self._ids_hidden_by: dict[str, list[str]] = {}
        """Message ids by the id of the summary or marker that hides them."""
        self._last_truncated = -1
        """Index of the last message of the history that a request left out."""

    def build_session(self, name: str) -> Session:
        """Return the task as a session."""
        for n, raw in enumerate(self._history):
            self._ids_by_message.append([])
            with catch_damage(self.builder.faults, 0, f"message {n}: "):
                self._read_message(n, as_dict(raw))
        entries = self.builder.entries
        model = next((e.model for e in entries if e.model), None)
        return Session(
            id=name,
            format=NAME,
            product="roo"
            if any(r.is_roo for r in self._requests) or self._ids_hidden_by
            else "cline",
            log=tuple(entries),
            title=self._title[:200] or None,
            model=model,
            started=next((e.time for e in entries if e.time), None),
        )

    def _read_message(self, number: int, raw: dict[str, Any]) -> None:
        n_before = len(self.builder.entries)
        request = self._usages.get(number)
        if request is not None:
            self._add_truncation(request)
        fields: dict[str, Any] = {"time": parse_timestamp(raw.get("ts"))}
        if raw.get("role") == "assistant":
            fields |= self._reply_fields(raw, request)
        messages = [
            m
            for m in parse_chat_message(
                _plain_task_message(raw), self.builder, self.builder.skipped, **fields
            )
            if m.parts or m.usage
        ]
        messages = _unwrap_xml_results(messages, self.builder, number)
        summary_id = str_or_none(raw.get("condenseId")) if raw.get("isSummary") is True else None
        if summary_id or raw.get("isTruncationMarker") is True:
            self._add_roo_compaction(
                summary_id or as_str(raw.get("truncationId")), messages, is_summary=bool(summary_id)
            )
        else:
            for m in fill_tool_names(messages, self.tool_by_call):
                self.builder.add(m)
        message_ids = [
            m.id
            for e in self.builder.entries[n_before:]
            for m in (e.inserted if isinstance(e, Edit) else (e,))
        ]
        self._ids_by_message[number] = message_ids
        for key in ("condenseParent", "truncationParent"):
            if type(raw.get(key)) is str:
                self._ids_hidden_by.setdefault(raw[key], []).extend(message_ids)

    @staticmethod
    def _reply_fields(raw: dict[str, Any], request: _UiRequest | None) -> dict[str, Any]:
        model = str_or_none(as_dict(raw.get("modelInfo")).get("modelId"))
        if request is None:
            return {"model": model}
        fields: dict[str, Any] = {"usage": request.usage, "model": model or request.model}
        if request.stop_reason:
            fields |= {"stop": request.stop_reason, "is_error": request.stop_reason == "error"}
        return fields

    def _add_roo_compaction(
        self, compaction_id: str, messages: list[Message], *, is_summary: bool
    ) -> None:
        """Add Roo's compaction: a summary replaces what it hides, a marker what it truncates."""
        visible_ids = set(self.builder.visible_ids) if self.builder.may_edit() else set[str]()
        removed_ids = tuple(
            i for i in self._ids_hidden_by.get(compaction_id, ()) if i in visible_ids
        )
        time = messages[0].time if messages else None
        inserted = (
            tuple(replace(m, role="summary") for m in messages) if is_summary else tuple(messages)
        )
        method = "condense" if is_summary else "truncation"
        edit = Edit(
            kind="summarised",
            id=self.builder.new_id(),
            targets=removed_ids,
            inserted=inserted,
            method=method,
            time=time,
        )
        self.builder.add(edit)

    def _add_truncation(self, request: _UiRequest) -> None:
        """Add Cline's truncation, if the range that a request leaves out has grown."""
        first, last = request.truncated_range
        last = min(last, len(self._ids_by_message) - 1)
        if last <= self._last_truncated or first < 0 or not self.builder.may_edit():
            return
        visible_ids = set(self.builder.visible_ids)
        range_ids = (
            i
            for ids in self._ids_by_message[max(first, self._last_truncated + 1) : last + 1]
            for i in ids
        )
        removed_ids = tuple(i for i in range_ids if i in visible_ids)
        self._last_truncated = last
        if removed_ids:
            edit_id = self.builder.new_id()
            self.builder.add(
                Edit(
                    kind="dropped",
                    id=edit_id,
                    targets=removed_ids,
                    method="truncation",
                    time=request.time,
                )
            )


def _plain_task_message(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the chat fields of a message; a lone item of reasoning becomes a reply."""
    if raw.get("type") == "reasoning" and "content" not in raw:
        summary = as_list(raw.get("summary")) or as_str(raw.get("text"))
        return {"role": "assistant", "content": [{"type": "reasoning", "summary": summary}]}
    return {k: v for k, v in raw.items() if k in ("role", "content", "id", "reasoning_content")}


_MESSAGES_SUFFIX = ".messages.json"
_AGENT_ROLES = ("lead", "subagent", "teammate")
_COMPACTION_KINDS = ("compaction", "compaction_summary")
_MAX_SUBAGENT_FILES = 200
"""Largest number of subagent files read with a session."""


def _is_cline_session(document: Any) -> bool:
    """Return True if a document is the messages file of an agent or subagent."""
    fields = as_dict(document)
    return (
        fields.get("agent") in _AGENT_ROLES
        and type(fields.get("messages")) is list
        and type(fields.get("sessionId")) is str
    )


def _get_messages_file(folder: Path) -> Path:
    """Return the path of the main agent's messages file in a session folder."""
    return folder / (folder.name + _MESSAGES_SUFFIX)


def _is_cline_session_folder(path: Path) -> bool:
    """Return True if a folder is a session, with a messages file of its own name."""
    return _get_messages_file(path).is_file()


def _read_cline_session(source: Source) -> Session:
    """Read a session with its manifest and compaction; the main agent's with its subagents."""
    document = as_dict(source.document)
    folder, stem = source.path.parent, source.path.name.removesuffix(_MESSAGES_SUFFIX)
    if not source.on_disk or stem == source.path.name:
        return _read_session(document, {}, {}, source.path.stem)
    manifest, compaction = (
        read_json_or_none(folder / f"{stem}{e}.json") for e in ("", ".compaction")
    )
    session = _read_session(document, as_dict(manifest), as_dict(compaction), stem)
    session = replace(session, path_=str(source.path))
    if document.get("agent") != "lead" or folder.name != stem:
        return session
    subagent_files = [p for p in sorted(folder.glob("*" + _MESSAGES_SUFFIX)) if p != source.path][
        :_MAX_SUBAGENT_FILES
    ]
    return replace(session, children=tuple(_read_subagents(subagent_files, session)))


def _read_subagents(paths: Iterable[Path], parent: Session) -> Iterable[Session]:
    for path in paths:
        if not _is_cline_session(document := read_json_or_none(path)):
            continue
        child = _read_session(document, {}, {}, path.name.removesuffix(_MESSAGES_SUFFIX))
        yield replace(child, parent=parent.id, path_=str(path))


def _read_session(
    document: dict[str, Any], manifest: dict[str, Any], compaction: dict[str, Any], stem: str
) -> Session:
    reader = _SessionReader(compaction)
    if system_prompt := str_or_none(document.get("system_prompt")):
        reader.system_ids = {reader.builder.new_id()}
        reader.builder.add(
            Message(role="system", id=next(iter(reader.system_ids)), parts=(Text(system_prompt),))
        )
    read_each_object(
        as_list(document.get("messages")), "message", reader.read_message, reader.builder.faults
    )
    reader.compact_at_end()
    origin, entries = as_dict(document.get("origin")), reader.builder.entries
    agent = str_or_none(origin.get("subagent")) or as_str(document.get("agent"))
    return Session(
        id=str_or_none(document.get("sessionId")) or stem,
        format="cline",
        product="cline",
        version=str_or_none(origin.get("version")),
        agent="main" if document.get("agent") == "lead" else agent,
        parent=str_or_none(origin.get("parentThreadId")),
        title=str_or_none(as_dict(manifest.get("metadata")).get("title")),
        cwd=str_or_none(manifest.get("cwd")),
        started=parse_timestamp(manifest.get("started_at"))
        or next((e.time for e in entries if e.time), None),
        model=next((e.model for e in entries if e.model), None)
        or str_or_none(manifest.get("model")),
        log=tuple(entries),
    )


class _SessionReader:
    """Reader of a session's messages; `compaction` is the state file of its latest compaction."""

    def __init__(self, compaction: dict[str, Any]) -> None:
        self.builder, self.tool_by_call = SessionBuilder(), dict[str, str]()
        self.system_ids = set[str]()
        """The id of the system message, which compactions keep."""
        self._compaction = compaction
        self._messages_until_compaction = (
            count_or_none(compaction.get("source_message_count")) if compaction else None
        )
        """Number of messages until the compaction; None if there is none or it was added."""

    def read_message(self, raw: dict[str, Any]) -> None:
        """Read one message."""
        if self._messages_until_compaction == 0:
            self._add_compaction()
        self._messages_until_compaction = (
            None if self._messages_until_compaction is None else self._messages_until_compaction - 1
        )
        metadata = as_dict(raw.get("metadata"))
        fields: dict[str, Any] = {"time": parse_timestamp(raw.get("ts"))}
        if raw.get("role") == "assistant":
            usage = _parse_metrics(as_dict(raw.get("metrics")))
            fields |= {
                "usage": usage,
                "model": str_or_none(as_dict(raw.get("modelInfo")).get("id")),
            }
        elif str_or_none(metadata.get("kind")) and metadata.get("displayRole") != "user":
            fields["kind"] = "injected"
        messages = fill_tool_names(
            parse_chat_message(
                _plain_session_message(raw), self.builder, self.builder.skipped, **fields
            ),
            self.tool_by_call,
        )
        # The messages after such a summary are in no file.
        if metadata.get("kind") in _COMPACTION_KINDS and messages:
            summary = replace(messages[0], role="summary", kind="")
            edit_id = self.builder.new_id()
            self.builder.add(
                Edit(kind="summarised", id=edit_id, inserted=(summary,), method="compaction",
                     time=summary.time)
            )  # fmt: skip
            messages = messages[1:]
        for m in messages:
            self.builder.add(m)

    def compact_at_end(self) -> None:
        """Add a compaction that no message follows."""
        if self._messages_until_compaction == 0:
            self._add_compaction()

    def _add_compaction(self) -> None:
        self._messages_until_compaction = None
        raw_messages = [as_dict(r) for r in as_list(self._compaction.get("messages"))]
        history = [
            m
            for r in raw_messages
            for m in fill_tool_names(
                parse_chat_message(
                    _plain_session_message(r), SessionBuilder(), self.builder.skipped
                ),
                self.tool_by_call,
            )
        ]
        if not history or not self.builder.may_edit():
            return
        time = parse_timestamp(self._compaction.get("updated_at"))
        retained_ids, inserted = match_history_with_visible_messages(self.builder, history, time)
        metadata = next(
            (
                candidate
                for r in raw_messages
                if (candidate := as_dict(r.get("metadata"))).get("kind") in _COMPACTION_KINDS
            ),
            {},
        )
        edit = Edit(
            kind="summarised",
            id=self.builder.new_id(),
            inserted=tuple(inserted),
            trigger=str_or_none(metadata.get("reason")),
            method=str_or_none(metadata.get("kind")) or "compaction",
            time=time,
            tokens_before=count_or_none(metadata.get("tokensBefore")),
        )
        self.builder.compact(edit, retained_ids | self.system_ids)


def _plain_session_message(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the chat fields of a message; results that are no parts become JSON text."""
    content = raw.get("content")
    if type(content) is list:
        content = [
            _encode_foreign_result(b) if as_dict(b).get("type") == "tool_result" else b
            for b in content
        ]
    return {"role": raw.get("role"), "content": content, "id": raw.get("id")}


def _encode_foreign_result(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    if type(content) is list and not all(map(is_supported_part, content)):
        return {**block, "content": json_to_text(content)}
    return block


def _parse_metrics(raw: dict[str, Any]) -> Usage | None:
    """Return a reply's usage; the input includes cache reads and writes."""
    input_tokens, output_tokens = (
        count_or_none(raw.get("inputTokens")),
        count_or_none(raw.get("outputTokens")),
    )
    cache_read, cache_write = (
        count_or_none(raw.get("cacheReadTokens")),
        count_or_none(raw.get("cacheWriteTokens")),
    )
    if not (input_tokens or output_tokens or cache_read or cache_write):
        return None
    return make_usage_from_total(
        input_tokens,
        cache_read,
        cache_write,
        output_tokens,
        cost_usd=float_or_none(raw.get("cost")),
    )


_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class _UiRequest:
    """One request to the model, from the window's messages."""

    time: float | None
    usage: Usage | None
    model: str | None
    truncated_range: tuple[int, int]
    """First and last index of the history that it left out; (-1, -1): none."""
    history_index: int | None
    """Index of the last message of the history before it, if given."""
    stop_reason: str
    """`aborted`, `error` or empty."""
    is_roo: bool


def _parse_ui_requests(ui_messages: list[Any]) -> list[_UiRequest]:
    """Parse the requests among the window's messages, in order."""
    requests = []
    for raw in map(as_dict, ui_messages):
        if raw.get("say") != "api_req_started":
            continue
        try:
            fields = as_dict(_decode(as_str(raw.get("text")) or "{}"))
        except (msgspec.DecodeError, ValueError, RecursionError):
            fields = {}
        requests.append(_parse_request(raw, fields))
    return requests


def _parse_request(raw: dict[str, Any], fields: dict[str, Any]) -> _UiRequest:
    deleted_range = [count_or_none(n) for n in as_list(raw.get("conversationHistoryDeletedRange"))]
    first, last = (
        (deleted_range[0], deleted_range[1])
        if len(deleted_range) == 2 and None not in deleted_range
        else (-1, -1)
    )
    history_index = raw.get("conversationHistoryIndex")
    cancel_reason = as_str(fields.get("cancelReason"))
    is_roo = "apiProtocol" in fields
    return _UiRequest(
        time=parse_timestamp(raw.get("ts")),
        usage=_parse_request_usage(fields, is_roo=is_roo),
        model=str_or_none(as_dict(raw.get("modelInfo")).get("modelId")),
        truncated_range=(first if first is not None else -1, last if last is not None else -1),
        history_index=history_index
        if type(history_index) is int and -1 <= history_index < 1 << 32
        else None,
        stop_reason=""
        if not cancel_reason
        else "aborted"
        if cancel_reason == "user_cancelled"
        else "error",
        is_roo=is_roo,
    )


def _parse_request_usage(fields: dict[str, Any], *, is_roo: bool) -> Usage | None:
    input_tokens, output_tokens = (
        count_or_none(fields.get("tokensIn")),
        count_or_none(fields.get("tokensOut")),
    )
    cache_read, cache_write = (
        count_or_none(fields.get("cacheReads")),
        count_or_none(fields.get("cacheWrites")),
    )
    cost = float_or_none(fields.get("cost"))
    if input_tokens is None and output_tokens is None and cost is None:
        return None
    return Usage(
        input_tokens=subtract_cached(input_tokens, cache_read, cache_write)
        if is_roo
        else input_tokens,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        output_tokens=output_tokens,
        cost_usd=cost,
    )


def _match_requests_to_replies(
    history: list[Any], requests: list[_UiRequest]
) -> dict[int, _UiRequest]:
    """Return the request of each reply, by the reply's index in the history.

    They are matched by the history index of the requests; without it by time; without times by
    order, if there are as many replies as requests (a failed request may have no reply).
    """
    replies = [i for i, m in enumerate(history) if as_dict(m).get("role") == "assistant"]
    if any(r.history_index is not None for r in requests):
        reply_indices = set(replies)
        return {
            r.history_index + 2: r
            for r in requests
            if r.history_index is not None and r.history_index + 2 in reply_indices
        }
    times = {
        i: time
        for i in replies
        if (time := parse_timestamp(as_dict(history[i]).get("ts"))) is not None
    }
    if len(times) == len(replies) and all(r.time is not None for r in requests):
        return _match_by_time(times, requests)
    return dict(zip(replies, requests, strict=True)) if len(replies) == len(requests) else {}


def _match_by_time(times: dict[int, float], requests: list[_UiRequest]) -> dict[int, _UiRequest]:
    request_by_reply: dict[int, _UiRequest] = {}
    sorted_requests = sorted(requests, key=lambda r: r.time or 0.0)
    position = 0
    for i, when in sorted(times.items()):
        latest = None
        while position < len(sorted_requests) and (sorted_requests[position].time or 0.0) <= when:
            latest = sorted_requests[position]
            position += 1
        if latest is not None:
            request_by_reply[i] = latest
    return request_by_reply


_XML_RESULT_PATTERN = re.compile(r"\[(\w{2,60})(?: for [^\n]{0,4000})?\] Result:\s*")
_OPENING_TAG, _CLOSING_TAG = re.compile(r"<(\w{1,60})>"), re.compile(r"</(\w{1,60})>")
_ENVIRONMENT_MARK = "<environment_details>"
_MAX_SEARCHED_CHARS = 1 << 20
"""Characters at the end of a reply that are searched for a call."""


def _unwrap_xml_results(
    messages: list[Message], builder: SessionBuilder, number: int
) -> list[Message]:
    """Turn a user message with the result of an XML call into a tool result.

    Args:
        messages: the messages parsed from one message of the history.
        builder: the builder, whose last reply gets the call.
        number: index of the message, for the id of the call.
    """
    if len(messages) != 1 or messages[0].role != "user":
        return messages
    (m,) = messages
    mark = (
        _XML_RESULT_PATTERN.match(m.parts[0].text)
        if m.parts and isinstance(m.parts[0], Text)
        else None
    )
    if mark is None or not _write_xml_call(builder, mark[1], f"xml-{number}"):
        return messages
    remainder = m.parts[0].text[mark.end() :] if isinstance(m.parts[0], Text) else ""
    parts: list[Part] = [*([Text(remainder)] if remainder else []), *m.parts[1:]]
    environment_start = next(
        (
            i
            for i, p in enumerate(parts)
            if isinstance(p, Text) and p.text.startswith(_ENVIRONMENT_MARK)
        ),
        len(parts),
    )
    result_parts = tuple(parts[:environment_start])
    is_error = (
        result_parts[:1]
        and isinstance(result_parts[0], Text)
        and result_parts[0].text.startswith("The tool execution failed")
    )
    result = replace(
        m,
        role="tool",
        parts=result_parts,
        tool=mark[1],
        call_id=f"xml-{number}",
        is_error=bool(is_error),
    )
    if environment_start == len(parts):
        return [result]
    return [
        result,
        replace(m, id=builder.new_id(), parts=tuple(parts[environment_start:]), kind="wrapper"),
    ]


def _write_xml_call(builder: SessionBuilder, tool: str, call_id: str) -> bool:
    """Add an XML call to the last reply; return False if its text has no such call."""
    index = builder.at
    while index >= 0 and isinstance(builder.entries[index], Edit):
        index -= 1
    reply = builder.entries[index] if index >= 0 else None
    if not isinstance(reply, Message) or reply.role != "assistant":
        return False
    for i in range(len(reply.parts) - 1, -1, -1):
        part = reply.parts[i]
        if not isinstance(part, Text):
            continue
        searched = part.text[-_MAX_SEARCHED_CHARS:]
        begin, end = searched.find(f"<{tool}>"), searched.rfind(f"</{tool}>")
        if begin < 0 or end < begin:
            continue
        inner = searched[begin + len(tool) + 2 : end]
        call = ToolCall(call_id, tool, _parse_xml_arguments(inner))
        text_before = part.text[: len(part.text) - len(searched) + begin].rstrip()
        parts = (
            *reply.parts[:i],
            *([Text(text_before)] if text_before else []),
            call,
            *reply.parts[i + 1 :],
        )
        builder.replace(index, replace(reply, parts=parts))
        return True
    return False


def _parse_xml_arguments(inner: str) -> dict[str, Any]:
    """Parse `<name>value</name>` pairs in O(n log n); a value ends at its first closing tag."""
    end_positions: dict[str, list[int]] = {}
    for tag in _CLOSING_TAG.finditer(inner):
        end_positions.setdefault(tag[1], []).append(tag.start())
    arguments, position = dict[str, Any](), 0
    for tag in _OPENING_TAG.finditer(inner):
        candidates = end_positions.get(tag[1], [])
        end_index = bisect_left(candidates, tag.end())
        if tag.start() >= position and end_index < len(candidates):
            arguments[tag[1]] = inner[tag.end() : candidates[end_index]].strip("\n")
            position = candidates[end_index]
    return arguments
