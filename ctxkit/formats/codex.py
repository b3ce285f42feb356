"""Reader of Codex CLI rollouts: items, events, compactions, rollbacks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ReadError
from ctxkit.formats.chat_message_and_usage_parsers import parse_tool_schemas
from ctxkit.formats.codex_replies_from_items import (
    CALL_TYPES,
    OUTPUT_TYPES,
    SERVER_CALL_TYPES,
    SUMMARY_TYPES,
    ReplyAssembler,
    get_ids_before_first_prompt,
    is_context_wrapper,
    make_message_key,
    parse_call_item,
    parse_content,
    parse_output_item,
    parse_reasoning_item,
    parse_summary_item,
)
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    json_to_text,
    parse_timestamp,
    read_each_line,
    str_or_none,
)
from ctxkit.session.messages import (
    SEALED_SUMMARY,
    Attachment,
    Edit,
    Fault,
    Message,
    Part,
    Text,
    ToolSchema,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session


NAME = "codex"
CAN = (
    "text, system prompt, calls and results, usage per call (cache reads), window, times,"
    " compactions"
)
CANNOT = "encrypted reasoning (only its size), cost"
TRAITS = (
    (
        "all",
        (
            "a failed command is recognised by its exit code; the window is recorded; summaries "
            "are not priced: estimated"
        ),
    ),
    (
        "all",
        (
            "reasoning of earlier turns leaves the prompt without a mark: an unmarked drop if it "
            "is large"
        ),
    ),
)

# A rollout is a file of JSON lines {timestamp, type, payload}:
#   session_meta    metadata and base instructions; a forked session repeats that of its origin
#   turn_context    the model of the following calls
#   response_item   messages, reasoning, calls and outputs, as the Responses API has them
#   event_msg       token counts, errors, rollbacks; user-interface events, which are counted
#   compacted       a summary, or a whole replacement history
# The first versions write bare items, in lines or in one JSON document. `ReplyAssembler` groups the
# items into one reply per API call. A rollback moves the position before the last inputs, so that
# what followed becomes an abandoned branch. A replacement history is compared with the visible
# messages: what it repeats stays, the rest is inserted.
_TYPES = {"session_meta", "turn_context", "response_item", "event_msg", "compacted"}


def sniff(source: Source) -> bool:
    """Return True for lines with Codex's types and a payload, or bare items of early versions."""
    for record in source.head[:4]:
        if as_str(record.get("type")) in _TYPES and type(record.get("payload")) is dict:
            return True
    return _has_bare_items(source) or _is_first_layout(source.document)


def _has_bare_items(source: Source) -> bool:
    first_record = source.head[0] if len(source.head) > 1 else {}
    return (
        "instructions" in first_record
        and "timestamp" in first_record
        and "type" not in first_record
        and type(first_record.get("id")) is str
    )


def _is_first_layout(document: Any) -> bool:
    """Return True for the document of the first (TypeScript) versions: a session and its items."""
    session = as_dict(as_dict(document).get("session"))
    return (
        "instructions" in session and "timestamp" in session and type(document.get("items")) is list
    )


def read(source: Source) -> list[Session]:
    """Read the session of a rollout; each API call is one reply with its usage.

    Raises:
        ReadError: the file has no line of a rollout.
    """
    faults = list[Fault]()
    records: Iterable[tuple[int, Any]] = source.stream()
    early_items = [r.get("payload") for r in source.head[:12] if r.get("type") == "response_item"]
    is_bare = _has_bare_items(source)
    if _is_first_layout(source.document):
        document, is_bare = as_dict(source.document), True
        records = [(0, document["session"]), *((0, r) for r in as_list(document.get("items")))]
    reader = _RolloutReader(early_items, bare=is_bare)
    read_each_line(records, reader.read_record, faults)
    if not reader.builder.entries and not reader.meta:
        raise ReadError(
            "expected lines of session_meta and response_item; found none.", source.path
        )
    faults += source.faults
    return [_build_session(reader, source.path.stem, faults)]


def _build_session(reader: _RolloutReader, name: str, faults: list[Fault]) -> Session:
    reader.replies.flush_pending_usage()
    meta, builder = reader.meta, reader.builder
    spawn = as_dict(as_dict(as_dict(meta.get("source")).get("subagent")).get("thread_spawn"))
    parent = str_or_none(meta.get("parent_thread_id")) or str_or_none(spawn.get("parent_thread_id"))
    return builder.session(
        id=str_or_none(meta.get("id")) or name,
        format=NAME,
        agent=str_or_none(meta.get("agent_nickname"))
        or str_or_none(spawn.get("agent_nickname"))
        or "main",
        product=str_or_none(meta.get("originator")) or NAME,
        version=str_or_none(meta.get("cli_version")),
        cwd=str_or_none(meta.get("cwd")),
        title=reader.title,
        started=parse_timestamp(meta.get("timestamp")),
        model=reader.replies.model,
        context_window=reader.replies.context_window,
        tools=reader.tools,
        parent=parent or str_or_none(meta.get("forked_from_id")),
        skipped=dict(reader.skipped),
        faults=tuple(sorted(faults, key=lambda f: f.line)),
    )


class _RolloutReader:
    """Reader of one rollout, record by record.

    Args:
        early: the first items, which may contain the system prompt of the metadata.
        bare: True if lines are items without a payload, as the first versions wrote them.
    """

    def __init__(self, early: list[Any], *, bare: bool) -> None:
        self.replies = ReplyAssembler()
        self.builder = self.replies.builder
        self.skipped: Counter[str] = Counter()
        self.meta: dict[str, Any] = {}
        self.title: str | None = None
        self.tools: tuple[ToolSchema, ...] = ()
        self._early_items, self._has_bare_items = early, bare
        self._key_by_id: dict[str, bytes] = {}
        self._inserted_by_id: dict[str, Message] = {}
        """Messages that a compaction inserted, by id."""

    def read_record(self, record: dict[str, Any]) -> None:
        """Read one record.

        Raises:
            ValueError: its payload is no object.
        """
        record_type, payload = record.get("type"), record.get("payload")
        if record_type in {"response_item", "event_msg", "compacted", "session_meta"}:
            if type(payload) is not dict:
                raise ValueError("expected 'payload' to be an object")
            if record_type == "event_msg":
                self._read_event(payload, record)
            elif record_type == "response_item":
                self.read_item(payload, parse_timestamp(record.get("timestamp")))
            elif record_type == "compacted":
                self._read_compaction(payload, parse_timestamp(record.get("timestamp")))
            else:
                self.read_metadata(payload)
        elif record_type == "turn_context":
            self.replies.model = str_or_none(as_dict(payload).get("model")) or self.replies.model
        elif "payload" in record:
            self.skipped[record_type if type(record_type) is str else "no type"] += 1
        elif record_type is None and "instructions" in record:
            self.read_metadata(record)
        elif self._has_bare_items:
            self.read_item(record, parse_timestamp(record.get("timestamp")))
        else:
            self.skipped[record_type if type(record_type) is str else "no type"] += 1

    def read_metadata(self, payload: dict[str, Any]) -> None:
        """Read the session's metadata; that of a copied older session is only counted."""
        if self.meta:
            self.skipped["session_meta"] += 1
            return
        self.meta = payload
        self.tools = parse_tool_schemas(as_dict(payload.get("dynamic_tools")).get("tools"))
        system_prompt = str_or_none(
            as_dict(payload.get("base_instructions")).get("text")
        ) or str_or_none(payload.get("instructions"))
        if system_prompt is not None and not any(
            system_prompt[:2000] in json_to_text(e) or system_prompt in _join_content_text(e)
            for e in self._early_items
        ):
            self.builder.add_message("system", (Text(system_prompt),))

    # -- items ------------------------------------------------------------------------------------

    def read_item(self, payload: dict[str, Any], time: float | None) -> None:
        """Read one item; the type of a message may be missing."""
        item_type = payload.get("type", "message" if "role" in payload else None)
        if item_type == "message" and payload.get("role") != "assistant":
            self._read_input(payload, time)
        elif item_type == "message":
            self.replies.add_reply_parts(
                payload, list(parse_content(payload.get("content"), self.skipped)), time
            )
        elif item_type == "reasoning":
            self.replies.add_reply_parts(payload, [parse_reasoning_item(payload)], time)
        elif item_type in CALL_TYPES:
            self._read_call(payload, str(item_type), time)
        elif item_type in OUTPUT_TYPES:
            parts, is_failed, details = parse_output_item(payload, self.skipped)
            self.replies.add_result(
                as_str(payload.get("call_id")), parts, time, is_error=is_failed, details=details
            )
        elif item_type == "agent_message":
            self._add_input(
                "user", parse_content(payload.get("content"), self.skipped), time, "agent", payload
            )
        elif item_type in SUMMARY_TYPES:
            self._add_input("summary", parse_summary_item(payload, "compaction"), time, "", payload)
        else:
            self.skipped[
                f"response_item {item_type}" if type(item_type) is str else "response_item"
            ] += 1

    def _read_input(self, item: dict[str, Any], time: float | None) -> None:
        role, parts = item.get("role"), parse_content(item.get("content"), self.skipped)
        if role in ("developer", "system"):
            self._add_input("system", parts, time, "developer" if role == "developer" else "", item)
        else:
            self._add_input(
                "user", parts, time, "wrapper" if is_context_wrapper(parts) else "", item
            )

    def _add_input(
        self,
        role: Any,
        parts: tuple[Part, ...],
        time: float | None,
        kind: str,
        item: dict[str, Any],
    ) -> None:
        self.replies.flush_pending_usage()
        self.replies.add_input(
            Message(
                role=role, id=self.builder.new_id(item.get("id")), parts=parts, time=time, kind=kind
            )
        )

    def _read_call(self, item: dict[str, Any], item_type: str, time: float | None) -> None:
        call_id = (
            str_or_none(item.get("call_id")) or str_or_none(item.get("id")) or self.builder.new_id()
        )
        self.replies.add_call(item, parse_call_item(item, item_type, call_id), time)
        if item_type in SERVER_CALL_TYPES:
            data = str_or_none(item.get("result"))
            self.replies.add_result(
                call_id, (Attachment("image/png", data),) if data else (), time, kind="server"
            )

    # -- events -----------------------------------------------------------------------------------

    def _read_event(self, payload: dict[str, Any], record: dict[str, Any]) -> None:
        event_type = payload.get("type")
        if event_type == "token_count":
            self.replies.read_token_count(as_dict(payload.get("info")), record)
        elif event_type in ("error", "stream_error"):
            self.replies.add_failed_call(
                "error",
                str_or_none(payload.get("message")),
                parse_timestamp(record.get("timestamp")),
            )
        elif event_type == "turn_aborted":
            self.replies.add_failed_call(
                "aborted",
                str_or_none(payload.get("reason")),
                parse_timestamp(record.get("timestamp")),
            )
        elif event_type == "thread_rolled_back":
            self._roll_back_turns(count_or_none(payload.get("num_turns")) or 0)
        else:
            self.skipped[f"event {event_type}" if type(event_type) is str else "event"] += 1
            if event_type == "thread_name_updated":
                self.title = str_or_none(payload.get("thread_name")) or self.title
            elif event_type == "task_started":
                self.replies.context_window = (
                    count_or_none(payload.get("model_context_window"))
                    or self.replies.context_window
                )

    def _roll_back_turns(self, n_turns: int) -> None:
        """Move before the last `n_turns` inputs; what followed becomes an abandoned branch."""
        self.replies.begin_new_reply()
        path = self.builder.path(self.builder.at) if n_turns else None
        entries = [self.builder.entries[i] for i in path or ()]
        input_indices = [i for i, e in zip(path or (), entries, strict=True) if _is_input(e)]
        if input_indices:
            self.builder.move_to(
                self.builder.parents[
                    input_indices[-n_turns] if n_turns <= len(input_indices) else input_indices[0]
                ]
            )

    # -- compactions ------------------------------------------------------------------------------

    def _read_compaction(self, payload: dict[str, Any], time: float | None) -> None:
        """Read a compaction, whose replacement history may repeat visible messages."""
        self.replies.begin_new_reply()
        edit_id, summary = self.builder.new_id(), as_str(payload.get("message"))
        if not self.builder.may_edit():
            self.builder.add(
                Edit(
                    kind="summarised",
                    id=edit_id,
                    method="compacted",
                    time=time,
                    reason=TOO_MANY_COMPACTIONS,
                    details={SEALED_SUMMARY: True},
                )
            )
            return
        replacement, visible = payload.get("replacement_history"), self._visible_messages()
        retained_ids = {m.id for m in visible if m.role == "system" and not m.kind}
        if type(replacement) is list:
            new_messages = self._parse_replacement(replacement, summary)
        else:
            new_messages = [Message(role="summary", parts=(Text(summary),))]
            retained_ids |= get_ids_before_first_prompt(visible)
        inserted = self._select_inserted(new_messages, visible, retained_ids, time)
        is_sealed = not any(m.role == "summary" and m.text for m in new_messages)
        edit = Edit(
            kind="summarised",
            id=edit_id,
            inserted=inserted,
            method="compacted",
            time=time,
            details={SEALED_SUMMARY: True} if is_sealed else {},
        )
        self.builder.compact(edit, retained_ids)

    def _select_inserted(
        self,
        new_messages: list[Message],
        visible: list[Message],
        retained_ids: set[str],
        time: float | None,
    ) -> tuple[Message, ...]:
        """Return the messages to insert; of those that are visible, add the ids to
        `retained_ids`.
        """
        ids_by_key: dict[bytes, list[str]] = {}
        for message in reversed(visible):
            ids_by_key.setdefault(self._get_message_key(message), []).append(message.id)
        inserted = []
        for message in new_messages:
            same_ids = ids_by_key.get(make_message_key(message))
            if same_ids:
                retained_ids.add(same_ids.pop())
            else:
                inserted.append(
                    msgspec.structs.replace(message, id=self.builder.new_id(message.id), time=time)
                )
                self._inserted_by_id[inserted[-1].id] = inserted[-1]
        return tuple(inserted)

    def _visible_messages(self) -> list[Message]:
        messages = []
        for id_ in self.builder.visible_ids:
            index = self.builder.index_by_id[id_]
            entry = self.builder.entries[index] if index >= 0 else self._inserted_by_id.get(id_)
            if isinstance(entry, Message):
                messages.append(entry)
        return messages

    def _get_message_key(self, message: Message) -> bytes:
        key = self._key_by_id.get(message.id)
        if key is None:
            key = self._key_by_id[message.id] = make_message_key(message)
        return key

    def _parse_replacement(self, replacement: list[Any], summary: str) -> list[Message]:
        """Return a replacement history as messages; the last new user message is the summary."""
        history_reader = _RolloutReader([], bare=False)
        history_reader.skipped, history_reader.replies.counts_first = self.skipped, False
        history_reader.replies.tool_by_call = dict(self.replies.tool_by_call)
        for item in replacement:
            if type(item) is not dict:
                raise ValueError("expected the items of 'replacement_history' to be objects")
            history_reader.read_item(item, None)
        messages = [
            message for message in history_reader.builder.entries if type(message) is Message
        ]
        visible_keys = {self._get_message_key(message) for message in self._visible_messages()}
        for i in range(len(messages) - 1, -1, -1):
            message = messages[i]
            if make_message_key(message) not in visible_keys and (
                message.role == "summary"
                or (message.role == "user" and (not summary or summary in message.text))
            ):
                messages[i] = msgspec.structs.replace(message, role="summary")
                break
        return messages


def _is_input(entry: Message | Edit) -> bool:
    return type(entry) is Message and entry.role == "user" and not entry.kind


def _join_content_text(payload: Any) -> str:
    return "".join(as_str(as_dict(c).get("text")) for c in as_list(as_dict(payload).get("content")))
