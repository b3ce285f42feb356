"""One conversation of a Claude Code transcript: messages, compactions and branches from lines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.anthropic import ContentBlockParser, parse_anthropic_usage
from ctxkit.formats.claude_code_attachments import (
    SUMMARY_PREFIX,
    WRAPPER_PREFIXES,
    get_attachment_text,
)
from ctxkit.formats.session_builder import MAX_PARTS, SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    json_to_text,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import (
    ATTACHMENT_KEY,
    INJECTED_KIND,
    WHOLE_PROMPTS_KEY,
    Edit,
    Message,
    Part,
    Text,
    ToolSchema,
    Usage,
)

if TYPE_CHECKING:
    from ctxkit.session.session import Session


# State machine over the lines of one conversation.
#
# Tree: a line is added after the entry of its parent line. A parent that is an earlier entry
# begins a branch, except that tool results and failed calls hang beside each other without being
# branches; up to _MAX_STEPS_BACK of those are stepped over. A line that is no entry maps to the
# entry before it, because later lines may name it as their parent.
# A prompt of the user whose parent is before the last reply abandons that reply: it stays on the
# path as a billed call without a place in later prompts (stop reason `abandoned`).
# Replies: one API call is written as several lines with the same message id and request id. The
# first line makes the reply; the others, even if results are between, extend it. Usage is taken
# from the last line that has one.
# Compaction: a `compact_boundary` line is pending until the summary arrives as the next user line.
# Any other message closes it without a summary. `microcompact_boundary` replaces old tool results
# by a placeholder text.
FORMAT_NAME = "claude-code"
_MAX_STEPS_BACK = 256
"""How many entries back a reply or a parent is searched for."""


class SharedTranscriptState:
    """State shared by the conversations of one file."""

    def __init__(self, uuids: set[str], *, ambiguous: bool, repeated: bool) -> None:
        self.skipped: Counter[str] = Counter()
        self.metadata: dict[str, Any] = {}
        self.call_by_agent: dict[str, str] = {}
        """Id of the call that started a subagent, by the subagent's id."""
        self.tools: tuple[ToolSchema, ...] = ()
        """Tools named by the program's output; a transcript names none."""
        self.has_ambiguous_uuids = ambiguous
        """True if a uuid names two lines; the order of lines then replaces their parents."""
        self.has_repeated_uuids = repeated
        """True if two lines, equal or not, have the same uuid."""
        self.uuids = uuids
        """The uuids of all lines of the file."""


class TranscriptConversationReader:
    """Reader of one conversation, line by line."""

    def __init__(self, shared: SharedTranscriptState, name: str) -> None:
        self.state, self.name = shared, name
        self.builder = SessionBuilder()
        self.blocks = ContentBlockParser(shared.skipped)
        self.index_by_uuid: dict[str, int] = {}
        """Index of the entry at or before a line, by the line's uuid."""
        self.reply_index_by_call: dict[tuple[str, Any], int] = {}
        """Index of a reply by its message and request ids, to which further lines are added."""
        self.pending_boundary: dict[str, Any] | None = None
        """The boundary of a compaction whose summary has not been read yet."""
        self.model: str | None = None
        self._last_usage: tuple[Any, Usage | None] = (None, None)
        """The usage of the last line of a reply, as written and as parsed."""
        self.is_resumed = False
        """True if the program was restarted since the last reply."""
        self.is_headless: bool | None = None
        """True if the parent of the first line is not in the file; None before the first line."""
        self.root = -1
        """Index of the system prompt, the parent of every new beginning; -1 without one."""

    def note_first_parent(self, record: dict[str, Any]) -> None:
        """Determine from the first line with a uuid whether the file begins in the middle."""
        if self.is_headless is None and type(record.get("uuid")) is str:
            parent = record.get("parentUuid")
            self.is_headless = type(parent) is str and parent not in self.state.uuids

    def add_system_prompt(self, parts: tuple[Part, ...]) -> None:
        """Begin the conversation with its system prompt, before the first line is read."""
        self.root = self.builder.add_message("system", parts)

    # -- position in the tree ---------------------------------------------------------------------

    def _find_parent_index(self, record: dict[str, Any]) -> int:
        """Return the index of the entry of a line's parent, or else of the current entry."""
        parent = record.get("parentUuid")
        if self.state.has_ambiguous_uuids:
            return self.builder.at
        if parent is None:
            is_new_root = (
                record.get("type") == "user"
                and "parentUuid" in record
                and record.get("isMeta") is not True
            )
            return self.root if is_new_root and self.index_by_uuid else self.builder.at
        index = self.index_by_uuid.get(parent) if type(parent) is str else None
        if index is None:
            if self.index_by_uuid:
                self.state.skipped["parent not in the file"] += 1
            return self.builder.at
        return index

    def _move_to_parent(self, record: dict[str, Any], *, is_prompt: bool = False) -> None:
        """Move to a line's parent, unless only tool results and failed calls are between.

        Before a prompt of the user an interrupted reply may be between, too: it is abandoned and
        stays on the path, as it was billed.
        """
        builder, target = self.builder, self._find_parent_index(record)
        if builder.at == target:
            return
        if is_prompt and target > self.root and (abandoned := self._find_interrupted_reply(target)):
            builder.abandon(abandoned)
            return
        position = builder.at
        for _ in range(_MAX_STEPS_BACK - 1):
            entry = builder.entries[position] if position >= 0 else None
            if type(entry) is not Message or not (
                entry.role == "tool" or entry.kind == "api_error"
            ):
                break
            position = builder.parents[position]
            if position == target:
                return
        builder.move_to(target)

    def _find_interrupted_reply(self, target: int) -> list[int]:
        """Return the entries after another if they are replies with usage and their results."""
        builder, position = self.builder, self.builder.at
        between: list[int] = []
        while position > target and len(between) < _MAX_STEPS_BACK:
            between.append(position)
            position = builder.parents[position]
        entries = [e for i in between if type(e := builder.entries[i]) is Message]
        are_replies = len(entries) == len(between) and all(
            e.role in ("assistant", "tool") or e.kind == "api_error" for e in entries
        )
        has_usage = any(e.role == "assistant" and e.usage for e in entries)
        return between if position == target and are_replies and has_usage else []

    def _note_index(self, record: dict[str, Any]) -> None:
        uuid = record.get("uuid")
        if type(uuid) is str:
            self.index_by_uuid[uuid] = self.builder.at

    def skip_line(self, record: dict[str, Any]) -> None:
        """Note the position of a line that is not part of the context, as it may be a parent."""
        if not self.is_resumed:
            self.is_resumed = _is_program_restart(record)
        uuid, parent = record.get("uuid"), record.get("parentUuid")
        if type(uuid) is str:
            index = self.index_by_uuid.get(parent) if type(parent) is str else None
            self.index_by_uuid[uuid] = self.builder.at if index is None else index

    # -- messages ---------------------------------------------------------------------------------

    def read_user_line(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        """Read a line of the user: input, results, or a summary.

        Args:
            record: the line.
            message: its field `message`.
        """
        if record.get("isCompactSummary") is True or (
            self.pending_boundary and _is_compact_summary(record, message.get("content"))
        ):
            self._read_summary(record, message)
            return
        if self.pending_boundary is not None:
            self.close_pending_compaction()
        self._read_input(record, message.get("content"))

    def read_reply(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        """Read a line with a reply, or with a further piece of one.

        Args:
            record: the line.
            message: its field `message`, a reply of Anthropic's API with some of its blocks.
        """
        if self.pending_boundary is not None:
            self.close_pending_compaction()
        parts, results = self.blocks.parse_content(message.get("content"))
        call_key = _get_call_key(record, message)
        index = self._find_open_reply(call_key, message.get("model"))
        usage = self._parse_usage(message.get("usage"))
        if index is not None:
            reply = _extend_reply(self.builder.entries[index], record, message, parts, usage)  # type: ignore[arg-type]
            self.builder.replace(index, reply)
        else:
            self._add_reply(call_key, record, message, parts, usage)
        uuid = record.get("uuid")
        if type(uuid) is str:  # `_note_index`, without a call for each line
            self.index_by_uuid[uuid] = self.builder.at
        for block in results:  # results of server tools are inside the reply
            self._read_result(record, block, "server")

    def _add_reply(
        self,
        call_key: tuple[str, Any] | None,
        record: dict[str, Any],
        message: dict[str, Any],
        parts: list[Part],
        usage: Usage | None,
    ) -> None:
        self._move_to_parent(record)
        reply_id = self.builder.new_id(record.get("uuid"))
        reply = _parse_reply(record, message, parts, reply_id, usage)
        if self.is_resumed and reply.role == "assistant":
            reply = msgspec.structs.replace(reply, details={"resumed": True})
            self.is_resumed = False
        self.model = reply.model or self.model
        index = self.builder.add(reply)
        if call_key is not None and reply.role == "assistant":
            self.reply_index_by_call[call_key] = index

    def _parse_usage(self, value: Any) -> Usage | None:
        """Return a line's usage, parsed once for all lines of a reply that repeat it."""
        if type(value) is not dict:
            return None
        if value != self._last_usage[0]:
            self._last_usage = value, parse_anthropic_usage(value)
        return self._last_usage[1]

    def _find_open_reply(self, call_key: tuple[str, Any] | None, model: Any) -> int | None:
        """Return the index of the reply that a line extends, or None if this branch has none."""
        index = None if call_key is None else self.reply_index_by_call.get(call_key)
        if index is None:
            return None
        entry, position = self.builder.entries[index], self.builder.at
        if (
            type(entry) is not Message
            or len(entry.parts) >= MAX_PARTS
            or entry.model != str_or_none(model)
        ):
            return None
        # With ambiguous ids only the line right after a reply extends it.
        for _ in range(0 if self.state.has_ambiguous_uuids else _MAX_STEPS_BACK):
            if position <= index:
                break
            position = self.builder.parents[position]
        return index if position == index else None

    def _read_input(self, record: dict[str, Any], content: Any) -> None:
        parts, results = self.blocks.parse_content(content)
        self._move_to_parent(record, is_prompt=bool(parts) and not results)
        for block in results:
            self._read_result(record, block, "")
        if parts or not results:
            message_id = self.builder.new_id(None if results else record.get("uuid"))
            self.builder.add(_parse_input(record, parts, message_id, has_results=bool(results)))
        self._note_index(record)

    def _read_result(self, record: dict[str, Any], block: dict[str, Any], kind: str) -> None:
        call_id = str_or_none(block.get("tool_use_id"))
        parts, _ = self.blocks.parse_content(block.get("content"))
        agent = _get_subagent_of_result(record)
        if agent and call_id:
            self.state.call_by_agent.setdefault(agent, call_id)
        result = Message(
            role="tool",
            id=self.builder.new_id(None if kind else record.get("uuid")),
            parts=tuple(parts),
            kind=kind,
            time=parse_timestamp(record.get("timestamp")),
            tool=self.blocks.tool_by_call.get(call_id or ""),
            call_id=call_id,
            is_error=block.get("is_error") is True,
            details={"child": f"agent-{agent}"} if agent else {},
        )
        self.builder.add(result)

    def read_attachment(self, record: dict[str, Any]) -> bool:
        """Read content that the program added to the prompt; return False if its text is unknown.

        In newer versions a prompt typed while the agent worked is an attachment, too.
        """
        attachment = as_dict(record.get("attachment"))
        if attachment.get("type") == "queued_command":
            self.close_pending_compaction()
            self._read_input(record, attachment.get("prompt"))
            return True
        text = get_attachment_text(record)
        if not text:
            return False
        self._move_to_parent(record)
        message = _parse_input(
            {**record, "isMeta": True},
            [Text(text)],
            self.builder.new_id(record.get("uuid")),
            has_results=False,
        )
        details = {ATTACHMENT_KEY: as_str(attachment.get("type"))}
        self.builder.add(msgspec.structs.replace(message, kind=INJECTED_KIND, details=details))
        self._note_index(record)
        return True

    # -- compactions and other system lines -------------------------------------------------------

    def read_system_line(self, record: dict[str, Any]) -> None:
        """Read a system line: compaction boundaries and failed calls; others are counted."""
        subtype = record.get("subtype")
        if subtype == "compact_boundary":
            self.close_pending_compaction()
            self.pending_boundary = record  # the summary is on a later line
        elif subtype == "microcompact_boundary":
            self._read_microcompaction(record)
        elif subtype == "api_error":
            self.builder.add(_parse_api_retry(record, self.builder.new_id(record.get("uuid"))))
        else:
            self.state.skipped[f"system {subtype}" if type(subtype) is str else "system"] += 1
            self.skip_line(record)
            return
        self._note_index(record)

    def _read_summary(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        boundary, self.pending_boundary = self.pending_boundary or {}, None
        parts, _ = self.blocks.parse_content(message.get("content"))
        summary = Message(
            role="summary",
            id=self.builder.new_id(record.get("uuid")),
            parts=tuple(parts),
            time=parse_timestamp(record.get("timestamp")),
        )
        self._add_compaction(boundary or record, (summary,))
        self._note_index(record)

    def close_pending_compaction(self) -> None:
        """Add a pending compaction whose summary is missing."""
        if self.pending_boundary is not None:
            boundary, self.pending_boundary = self.pending_boundary, None
            self._add_compaction(boundary, ())
            self._note_index(boundary)

    def _add_compaction(self, boundary: dict[str, Any], inserted: tuple[Message, ...]) -> None:
        preserved = as_list(
            as_dict(_get_compact_metadata(boundary).get("preservedMessages")).get("uuids")
        )
        edit_id = self.builder.new_id(_get_boundary_id(boundary))
        self.builder.compact(
            _parse_compaction(boundary, edit_id, inserted), self._preserved_ids(preserved)
        )

    def _preserved_ids(self, uuids: list[Any]) -> set[str]:
        indices = {
            self.index_by_uuid[u] for u in uuids if type(u) is str and u in self.index_by_uuid
        }
        return {self.builder.entries[i].id for i in (*indices, self.root) if i >= 0}

    def _read_microcompaction(self, record: dict[str, Any]) -> None:
        """Replace the tool results that a microcompaction cleared."""
        metadata = as_dict(record.get("microcompactMetadata"))
        call_ids = {c for c in as_list(metadata.get("compactedToolIds")) if type(c) is str}
        visible_ids = (
            set(self.builder.visible_ids) if call_ids and self.builder.may_edit() else set[str]()
        )
        indices = sorted(i for id_ in visible_ids if (i := self.builder.index_by_id[id_]) >= 0)
        results = (self.builder.entries[i] for i in indices)
        cleared = [
            entry for entry in results if type(entry) is Message and entry.call_id in call_ids
        ]
        self.builder.add(
            _parse_microcompaction(record, self.builder.new_id(_get_boundary_id(record)), cleared)
        )

    def build_session(self, session_id: str, agent: str) -> Session:
        """Return the conversation as a session.

        Args:
            session_id: id of the session.
            agent: name of the agent, empty for the main one.
        """
        log, metadata = self.builder, self.state.metadata
        return log.session(
            id=session_id,
            format=FORMAT_NAME,
            agent=agent,
            product=FORMAT_NAME,
            version=metadata.get("version"),
            cwd=metadata.get("cwd"),
            started=parse_timestamp(metadata.get("timestamp")),
            model=self.model,
            details={
                **({"headless": True} if self.is_headless else {}),
                **({WHOLE_PROMPTS_KEY: True} if self.root >= 0 else {}),
            },
        )


_CLEARED_TEXT = "[Old tool result content cleared]"


def _get_call_key(record: dict[str, Any], message: dict[str, Any]) -> tuple[str, Any] | None:
    """Return the key that the lines of one API call share: message id and request id."""
    message_id, request_id = message.get("id"), record.get("requestId")
    if type(message_id) is not str or not message_id:
        return None
    return message_id, request_id if type(request_id) is str and request_id else None


def _parse_reply(
    record: dict[str, Any],
    message: dict[str, Any],
    parts: list[Part],
    message_id: str,
    usage: Usage | None,
) -> Message:
    """Return the message of a reply's first line; a synthetic reply becomes an event."""
    model, is_failed = str_or_none(message.get("model")), record.get("isApiErrorMessage") is True
    if model == "<synthetic>":
        return _make_event(
            record,
            message_id,
            "synthetic",
            "\n".join(p.text for p in parts if type(p) is Text),
            is_failed=is_failed,
        )
    return Message(
        role="assistant",
        id=message_id,
        parts=tuple(parts),
        time=parse_timestamp(record.get("timestamp")),
        is_error=is_failed,
        error="\n".join(p.text for p in parts if type(p) is Text)[:500] or None
        if is_failed
        else None,
        usage=usage,
        model=model,
        stop="error"
        if is_failed
        else ContentBlockParser.map_stop_reason(message.get("stop_reason")),
    )


def _make_event(
    record: dict[str, Any], message_id: str, kind: str, text: str, *, is_failed: bool
) -> Message:
    """Return an invisible message for something that the program itself wrote."""
    return Message(
        role="system",
        id=message_id,
        kind=kind,
        parts=(Text(text[:500]),) if text else (),
        time=parse_timestamp(record.get("timestamp")),
        visible=False,
        is_error=is_failed,
        error=text[:500] or None if is_failed else None,
    )


def _extend_reply(
    reply: Message,
    record: dict[str, Any],
    message: dict[str, Any],
    parts: list[Part],
    usage: Usage | None,
) -> Message:
    """Return a reply extended by one more of its lines."""
    old = reply.parts
    recent = old[-64:]
    return msgspec.structs.replace(
        reply,
        parts=(*old, *[p for p in parts if p not in recent]),
        time=parse_timestamp(record.get("timestamp")) or reply.time,
        usage=usage or reply.usage,
        stop=ContentBlockParser.map_stop_reason(message.get("stop_reason")) or reply.stop,
    )


def _parse_input(
    record: dict[str, Any], parts: list[Part], message_id: str, *, has_results: bool
) -> Message:
    """Return a user message; `has_results` says that its line also has tool results."""
    text = parts[0].text if parts and type(parts[0]) is Text else ""
    kind = "injected" if record.get("isMeta") is True or has_results else ""
    return Message(
        role="user",
        id=message_id,
        kind="wrapper" if text.startswith(WRAPPER_PREFIXES) else kind,
        parts=tuple(parts),
        time=parse_timestamp(record.get("timestamp")),
    )


def _is_compact_summary(record: dict[str, Any], content: Any) -> bool:
    """Return True if a line after a boundary is its summary (older versions do not mark it)."""
    is_marked = record.get("isCompactSummary") is True or record.get("isSynthetic") is True
    return is_marked or (type(content) is str and content.startswith(SUMMARY_PREFIX))


_RESTART_HOOKS = ("SessionStart:resume", "SessionStart:clear")
"""Hooks that run when a process resumes a conversation or begins a new one."""


def _is_program_restart(record: dict[str, Any]) -> bool:
    """Return True if a line shows a restart of the program: a hook, or titles written again."""
    if record.get("type") == "summary":
        return True
    hook = record.get("data")
    if not hook or type(hook) is not dict:
        hook = record.get("attachment")
    return type(hook) is dict and hook.get("hookName") in _RESTART_HOOKS


def _get_subagent_of_result(record: dict[str, Any]) -> str | None:
    """Return the id of the subagent whose result this line has, or None."""
    extra = record.get("toolUseResult")
    return str_or_none(extra.get("agentId")) if type(extra) is dict else None


def _parse_api_retry(record: dict[str, Any], message_id: str) -> Message:
    """Return the event of a call that failed and was retried."""
    error = as_dict(record.get("error"))
    inner_error = as_dict(as_dict(error.get("error")).get("error")) or as_dict(error.get("error"))
    message = (
        str_or_none(error.get("formatted"))
        or str_or_none(error.get("message"))
        or str_or_none(inner_error.get("message"))
    )
    error_text = message or json_to_text(error.get("cause") or error.get("status") or error)
    return _make_event(record, message_id, "api_error", error_text, is_failed=True)


def _get_compact_metadata(boundary: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a compaction boundary, in either spelling."""
    return as_dict(boundary.get("compactMetadata") or boundary.get("compact_metadata"))


def _parse_compaction(
    boundary: dict[str, Any], edit_id: str, inserted: tuple[Message, ...]
) -> Edit:
    """Return the compaction of a boundary or lone summary, without its targets."""
    metadata = _get_compact_metadata(boundary)
    return Edit(
        kind="summarised",
        id=edit_id,
        inserted=inserted,
        trigger=str_or_none(metadata.get("trigger")),
        method="compact",
        time=parse_timestamp(boundary.get("timestamp")),
        tokens_before=count_or_none(metadata.get("preTokens", metadata.get("pre_tokens"))) or None,
        tokens_after=count_or_none(metadata.get("postTokens", metadata.get("post_tokens"))) or None,
    )


def _parse_microcompaction(record: dict[str, Any], edit_id: str, cleared: list[Message]) -> Edit:
    """Return the edit of a microcompaction, which replaces old tool results by a placeholder."""
    metadata = as_dict(record.get("microcompactMetadata"))
    return Edit(
        kind="replaced",
        id=edit_id,
        targets=tuple(m.id for m in cleared),
        inserted=tuple(msgspec.structs.replace(m, parts=(Text(_CLEARED_TEXT),)) for m in cleared),
        trigger=str_or_none(metadata.get("trigger")),
        method="microcompact",
        time=parse_timestamp(record.get("timestamp")),
        tokens_before=count_or_none(metadata.get("preTokens")) or None,
    )


def _get_boundary_id(record: dict[str, Any]) -> str:
    """Return the id that the edit of a boundary should have."""
    return f"compact-{as_str(record.get('uuid')) or 'boundary'}"
