"""Reader of sessions of Pi and its family (versions 1 to 3), and writer of version 3."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.conversion_losses import count_conversion_losses
from ctxkit.formats.pi_message_parsing_and_encoding import (
    WrittenEntryIdsAndParents,
    apply_kind_and_user_visibility,
    encode_compaction,
    encode_entry,
    encode_header,
    encode_line,
    encode_message,
    is_visible_to_model,
    parse_pi_parts,
    parse_pi_usage,
    parse_reply,
    parse_result,
    parse_user_shell_command,
)
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS, SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    DAMAGE_ERRORS,
    as_dict,
    as_str,
    count_or_none,
    describe_damage,
    format_timestamp,
    parse_timestamp,
    require_field,
    str_or_none,
)
from ctxkit.session.messages import Edit, Fault, Message, Part, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session


NAME = "pi"
ALIASES = ("openclaw", "fased", "ai")
CAN = (
    "text, thinking, calls and results, usage per call (cache reads and writes), cost, times, "
    "branches, compactions"
)
CANNOT = "system prompt, tool schemas"
TRAITS = (
    (
        "all",
        (
            "tool calls of interrupted replies were not run, but count; a failed call's zeros are "
            "missing"
        ),
    ),
    (
        "1 to 3",
        ("summaries are mostly not priced: estimated"),
    ),
    (
        "all",
        ("cost is as logged; $0 (a free model, or one without a price) is missing"),
    ),
)


# A session is a file of JSON lines: a header, then entries. From version 2 on, entries have an id
# and a parent id and thus form a tree; the last entry is the current leaf. Version 1 is a list.
# Invariants:
#   - every line, even a damaged one, is a position in the tree, since later entries may name it
#   - calls of a failed reply were not run and leave the prompt; if a result arrives all the same,
#     the reply gets its whole parts back
#   - a compaction removes the visible messages before its first kept entry. If that is before the
#     first kept entry of an earlier compaction, the messages between become visible again
# Version 1 names the first kept entry by its line instead of its id.
def sniff(source: Source) -> bool:
    """Return True if the first lines are Pi's header, its entries, or bare messages of early ai."""
    for record in source.head[:4]:
        entry_type = record.get("type")
        if entry_type == "session":
            return type(record.get("id")) is str or "cwd" in record or "version" in record
        message = (
            record.get("message")
            if entry_type == "message"
            else record
            if entry_type is None
            else None
        )
        if type(message) is dict and as_str(message.get("role")) in MESSAGE_ROLES:
            return "parentId" in record or "stopReason" in message or _has_pi_fields(message)
    return False


def _has_pi_fields(message: dict[str, Any]) -> bool:
    return message["role"] not in ("user", "assistant") or type(message.get("timestamp")) is int


def read(source: Source) -> list[Session]:
    """Read the session of a file; damaged entries become faults."""
    return [EntryReader(source).build_session(NAME)]


MESSAGE_ROLES = {
    "user",
    "assistant",
    "toolResult",
    "bashExecution",
    "custom",
    "hookMessage",
    "branchSummary",
}


class EntryReader:
    """Reader of one file, entry by entry.

    Raises:
        ReadError: there is neither a header nor an entry.
    """

    def __init__(self, source: Source) -> None:
        self.name = source.path.stem
        self.builder = SessionBuilder()
        self.faults = list(source.faults)
        self.skipped: Counter[str] = Counter()
        self.header: dict[str, Any] = {}
        self.index_by_entry_id: dict[str, int] = {}
        """Index of the builder's entry at or before an entry of the file, by its id."""
        self.unrun_calls: dict[str, tuple[int, tuple[Part, ...]]] = {}
        """Index and whole parts of a failed reply, by the ids of its calls."""
        self.indices_by_line: list[tuple[int, int]] = []
        """(line from 0, where the header is 0, index of its entry), for version 1."""
        self.title: str | None = None
        self.model: str | None = None
        self.thinking_level: str | None = None
        """The thinking level, if the file has one."""
        self.has_parents = False
        """True once an entry named a parent."""
        self.is_headless = False
        """True if the parent of the first entry is not in the file."""
        self.compacted_before = 0
        """Index of the first entry that no compaction has removed."""
        for line, record in source.records:
            try:
                self.read_entry(line, record)
            except DAMAGE_ERRORS as e:
                self.faults.append(Fault(line, describe_damage(e)))
        if not self.builder.entries and not self.header:
            raise ReadError(
                "expected a header of type session, or entries; found none.", source.path
            )

    @property
    def is_early(self) -> bool:
        """True for versions 1 and 2, which sent the text of an aborted reply."""
        version = self.header.get("version")
        return not (type(version) is int and version >= 3)

    def read_entry(self, line: int, record: dict[str, Any]) -> None:
        """Read one line: the header, or an entry at its position in the tree.

        Args:
            line: number of the line, from 1.
            record: the line as an object.
        """
        entry_type = record.get("type")
        if entry_type == "session":
            if self.header:
                self.skipped["session"] += 1
            else:
                self.header = record
                self.thinking_level = str_or_none(record.get("thinkingLevel"))
            return
        entry_id = record.get("id")
        if "parentId" in record:
            self.has_parents = True
            self._move_to_parent(line, record["parentId"])
        elif self.has_parents and self.builder.at != len(self.builder.entries) - 1:
            # Without a parent it follows the last entry of the file.
            self.builder.move_to(len(self.builder.entries) - 1)
        try:
            self.read_record(line, entry_type, record)
        finally:  # a damaged entry is a position in the tree, too
            if type(entry_id) is str:
                self.index_by_entry_id[entry_id] = self.builder.at
            self.indices_by_line.append((line - 1, self.builder.at))

    def _move_to_parent(self, line: int, parent: Any) -> None:
        if parent is None:
            position: int | None = -1
            if self.builder.entries and not self.index_by_entry_id:
                position = None
        else:
            position = self.index_by_entry_id.get(parent) if type(parent) is str else None
        if position is None:
            self.is_headless = self.is_headless or not self.index_by_entry_id
            self.faults.append(
                Fault(
                    line, "expected 'parentId' to name an entry before this one; taken as the last"
                )
            )
        elif position != self.builder.at and not self.builder.move_to(position):
            self.faults.append(
                Fault(line, "branches too often; taken as following the entry before")
            )

    def read_record(self, line: int, entry_type: Any, record: dict[str, Any]) -> None:
        """Read an entry by its type; those that are not sent to the model are counted.

        Args:
            line: number of the line, from 1.
            entry_type: the entry's `type`; None: old files have bare messages.
            record: the line as an object.
        """
        if entry_type == "message":
            self.read_message(record, require_field(record, "message", dict))
        elif entry_type == "compaction":
            self.read_compaction(line, record)
        elif entry_type == "branch_summary":
            self._add_user_message(
                record,
                "branch_summary",
                as_str(record.get("summary")),
                {"fromId": record.get("fromId")},
            )
        elif entry_type == "custom_message":
            self._add_user_message(
                record, "custom", record.get("content"), {"customType": record.get("customType")}
            )
        elif entry_type is None and record.get("role") in MESSAGE_ROLES:
            self.read_message(record, record)
        else:
            self.skipped[entry_type if type(entry_type) is str else "no type"] += 1
            if entry_type == "session_info":
                self.title = (
                    str_or_none(record.get("name"))
                    or str_or_none(record.get("title"))
                    or self.title
                )
            elif entry_type == "model_change":
                self.model = str_or_none(record.get("modelId")) or self.model
            elif entry_type == "thinking_level_change":
                self.thinking_level = (
                    str_or_none(record.get("thinkingLevel")) or self.thinking_level
                )

    def read_message(self, record: dict[str, Any], raw_message: dict[str, Any]) -> None:
        """Read a message by its role.

        Args:
            record: the entry, with id and timestamp.
            raw_message: the message in it; the entry itself where it is a bare message.
        """
        role = raw_message.get("role")
        if role == "assistant":
            self._read_reply(record, raw_message)
        elif role == "toolResult":
            self._read_result(record, raw_message)
        elif role in ("user", "custom", "hookMessage"):
            kind = "" if role == "user" else "custom"
            self._add_user_message(
                record,
                kind,
                raw_message.get("content"),
                {"customType": raw_message["customType"]} if "customType" in raw_message else {},
                raw_message,
            )
        elif role == "bashExecution":
            self.builder.add(
                parse_user_shell_command(record, raw_message, self.builder.new_id(record.get("id")))
            )
        elif role in ("branchSummary", "compactionSummary"):
            self._add_user_message(
                record,
                "branch_summary" if role == "branchSummary" else "summary",
                raw_message.get("summary"),
                {},
                raw_message,
            )
        else:
            name = f"message {role}" if type(role) is str else "message without role"
            self.skipped[name] += 1

    def _read_reply(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        message_id = self.builder.new_id(record.get("id"))
        reply, all_parts = parse_reply(record, message, message_id, is_version_1_or_2=self.is_early)
        for part in all_parts:
            if type(part) is ToolCall:
                self.unrun_calls[part.id] = (len(self.builder.entries), all_parts)
        if self.thinking_level is not None:
            reply = replace(reply, details=reply.details | {"effort": self.thinking_level})
        self.builder.add(reply)

    def _read_result(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        is_visible, call_id = is_visible_to_model(message), str_or_none(message.get("toolCallId"))
        if call_id in self.unrun_calls:  # the call was run after all
            index, all_parts = self.unrun_calls.pop(call_id)
            reply = self.builder.entries[index]
            if type(reply) is Message:
                details = {k: v for k, v in reply.details.items() if k != "calls_not_run"}
                self.builder.replace(index, replace(reply, parts=all_parts, details=details))
                is_visible = is_visible and reply.visible
        self.builder.add(
            parse_result(
                record, message, self.builder.new_id(record.get("id")), is_visible=is_visible
            )
        )

    def _add_user_message(
        self,
        record: dict[str, Any],
        kind: str,
        content: Any,
        details: dict[str, Any],
        message: dict[str, Any] | None = None,
    ) -> None:
        user_message = Message(
            role="summary" if kind == "summary" else "user",
            id=self.builder.new_id(record.get("id")),
            kind="" if kind == "summary" else kind,
            parts=parse_pi_parts(content),
            time=parse_timestamp(record.get("timestamp"))
            or parse_timestamp((message or {}).get("timestamp")),
            visible=message is None or is_visible_to_model(message),
            details={k: v for k, v in details.items() if v is not None},
        )
        self.builder.add(
            user_message
            if message is None
            else apply_kind_and_user_visibility(user_message, message)
        )

    def read_compaction(self, line: int, record: dict[str, Any]) -> None:
        """Read a compaction: a summary replaces the messages before the first kept entry.

        Args:
            line: number of the line, from 1, for faults.
            record: the entry, with the summary and the id of the first kept entry.
        """
        builder, edit_id = self.builder, self.builder.new_id(record.get("id"))
        first_kept = self._find_first_kept(line, record)
        removed_ids, restored = self._select_removed(line, first_kept)
        time = parse_timestamp(record.get("timestamp"))
        summary = Message(
            role="summary",
            id=builder.new_id(f"{edit_id}-summary"),
            parts=(Text(as_str(record.get("summary"))),),
            time=time,
        )
        edit = Edit(
            kind="summarised",
            id=edit_id,
            targets=removed_ids,
            inserted=(summary, *restored),
            method="hook" if record.get("fromHook") is True else "summary",
            time=time,
            tokens_before=count_or_none(record.get("tokensBefore")),
            tokens_after=count_or_none(record.get("tokensAfter")),
            usage=parse_pi_usage(record.get("usage")),
            details=as_dict(record.get("details")),
        )
        builder.add(edit)
        self.compacted_before = (
            len(builder.entries) if first_kept is None else max(first_kept, self.compacted_before)
        )

    def _select_removed(
        self, line: int, first_retained: int | None
    ) -> tuple[tuple[str, ...], tuple[Message, ...]]:
        """Return the ids that a compaction removes, and the messages that it restores."""
        builder = self.builder
        if not builder.may_edit():
            self.faults.append(Fault(line, TOO_MANY_COMPACTIONS))
            return (), ()
        if first_retained is None:
            return tuple(builder.visible_ids), ()
        return tuple(
            i for i in builder.visible_ids if builder.index_by_id[i] < first_retained
        ), self._select_restored(first_retained)

    def _select_restored(self, first_retained: int) -> tuple[Message, ...]:
        """Return the messages that an earlier compaction removed and this one keeps."""
        if first_retained >= self.compacted_before:
            return ()
        builder, visible_ids = self.builder, set(self.builder.visible_ids)
        path = (builder.entries[i] for i in builder.path(builder.at) or () if i >= first_retained)
        return tuple(
            e for e in path if type(e) is Message and e.visible and e.id not in visible_ids
        )

    def _find_first_kept(self, line: int, record: dict[str, Any]) -> int | None:
        """Return the index of the first kept entry; None if there is none or it is unknown."""
        first_kept_id = record.get("firstKeptEntryId")
        if first_kept_id is not None and first_kept_id == record.get("id"):
            return None  # its own id means that nothing is kept
        if type(first_kept_id) is str and first_kept_id in self.index_by_entry_id:
            position = self.index_by_entry_id[first_kept_id]
            return (
                position
                if position >= 0 and self.builder.entries[position].id == first_kept_id
                else position + 1
            )
        index = record.get("firstKeptEntryIndex")
        if type(index) is int and type(first_kept_id) is not str:
            return self._find_index_at_line(index)
        if first_kept_id or index is not None:
            self.faults.append(
                Fault(line, "expected the first kept entry to exist; nothing was kept")
            )
        return None

    def _find_index_at_line(self, index: int) -> int:
        """Return the index of the first entry at a line (from 0) or after it."""
        i = bisect_left(self.indices_by_line, (index, -1))
        if i == len(self.indices_by_line):
            return len(self.builder.entries)
        position = self.indices_by_line[i][1]
        previous = self.indices_by_line[i - 1][1] if i else -1
        return position if position > previous else position + 1

    def build_session(self, format_: str) -> Session:
        """Return the session."""
        header, builder = self.header, self.builder
        version = header.get("version")
        models = (e.model for e in reversed(builder.entries) if type(e) is Message and e.model)
        details = {
            k: header[k]
            for k in ("branchedFrom", "lastCompactionId", "gitCommit")
            if str_or_none(header.get(k))
        }
        return builder.session(
            id=str_or_none(header.get("id")) or self.name,
            format=format_,
            product="ai" if version == 1 and self.has_parents else "pi",
            version=str(version) if type(version) is int else "1" if header else None,
            cwd=str_or_none(header.get("cwd")),
            title=self.title,
            started=parse_timestamp(header.get("timestamp")),
            model=next(models, None) or self.model or str_or_none(header.get("modelId")),
            parent=str_or_none(header.get("parentSession")),
            skipped=dict(self.skipped),
            faults=tuple(sorted(self.faults, key=lambda f: f.line)),
            details=details | ({"headless": True} if self.is_headless else {}),
        )


_SUPPORTED = {
    "compactions",
    "usages",
    "times",
    "models of calls",
    "stop reasons",
    "error texts",
    "error marks",
    "thoughts",
    "images",
    "entries of other branches",
    "latencies",
}


def encode_session(session: Session) -> tuple[Iterator[bytes], Counter[str]]:
    """Return the lines of a Pi session, and counts of what it cannot hold."""
    losses = count_conversion_losses(session, _SUPPORTED)
    n_hour_writes = sum(
        1 for e in session.log if e.usage is not None and e.usage.cache_write_1h_tokens
    )
    losses["lives of cache writes (one hour)"] += n_hour_writes
    return _encode_lines(session), losses


def _encode_lines(session: Session) -> Iterator[bytes]:
    yield encode_line(encode_header(session))
    tree = WrittenEntryIdsAndParents(session)
    entry_ids: dict[int, str | None] = {-1: None}
    for i, entry in enumerate(session.log):
        parent_id = entry_ids[tree.before(i)]
        if isinstance(entry, Edit):
            line = encode_compaction(entry, tree.first_kept(i, entry))
        else:
            message = encode_message(entry)
            line = None if message is None else {"type": "message", "message": message}
        if line is None:
            entry_ids[i] = parent_id  # not representable: its children get its parent
            continue
        entry_ids[i] = tree.id(i)
        yield encode_entry(line, tree.id(i), parent_id, format_timestamp(entry.time))
