"""Reader and writer of the native lossless format: Pi entries with custom entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, TypeVar

import msgspec

from ctxkit.formats.pi import EntryReader
from ctxkit.formats.pi_messages import (
    EntryIdsAndParents,
    encode_compaction,
    encode_entry,
    encode_header,
    encode_line,
    encode_message,
    parse_pi_parts,
)
from ctxkit.formats.untrusted_record_parsing import (
    MOST_COUNT,
    as_dict,
    as_list,
    count_or_none,
    float_or_none,
    format_timestamp,
    parse_unix_seconds,
    require_field,
)
from ctxkit.session.compactions_and_prunings import PRUNED_KEY, PromptPruningChange
from ctxkit.session.messages import (
    Attachment,
    Edit,
    Fault,
    Message,
    Part,
    Provenance,
    SizeOnly,
    Thinking,
    ToolCall,
    ToolSchema,
    Usage,
)
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ctxkit.formats import log_file_content as sources


NAME = "native"
ALIASES = ("ctxkit",)
CAN = "everything that a session contains"
CANNOT = "(nothing)"
VERSION = 1
# A native file is a valid Pi session (version 3), which any Pi reader can open. What Pi cannot hold
# is in `custom` entries, the marks:
#   ctxkit.session  fields of the session
#   ctxkit.entry    fields of one message or edit. If Pi has a form of it, that entry follows with
#                   the mark as parent and has the parts; otherwise the mark has everything
#   ctxkit.child    a subagent session, whole
#   ctxkit.origin   the session that this one was replayed from
#   ctxkit.end      number of entries, leaf and parents; valid only if the file ends with it
# Entries that other programs appended are read as plain Pi entries. Values of a wrong type become
# faults.
_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNT)]
_FIELD_TYPES: dict[str, Any] = {
    "tools": tuple[ToolSchema, ...],
    "notes": tuple[str, ...],
    "faults": tuple[Fault, ...],
    "skipped": dict[str, _Count],
    "details": dict[str, Any],
    "started": float | None,
    "context_window": _Count | None,
}
_SESSION_FIELDS = {
    "id",
    "format",
    "agent",
    "product",
    "version",
    "cwd",
    "title",
    "model",
    "parent",
    "path_",
    *_FIELD_TYPES,
}
_MAX_DEPTH = 16
_Entry = TypeVar("_Entry", Message, Edit)
_Item = TypeVar("_Item")


class _NotRun(TypedDict):
    id: str
    name: str
    arguments: dict[str, Any]


class _Processor(TypedDict):
    name: str
    n: NotRequired[int]


_DETAIL_TYPES: dict[str, Any] = {
    "calls_not_run": list[_NotRun],
    "cannot_tell": tuple[str, ...],
    "history_processor": _Processor,
    "output_source": Provenance,
    PRUNED_KEY: PromptPruningChange,
    "replay": dict[str, Any],
    "source_tokens": _Count,
    "summary_tokens": _Count,
    "tools_digest": str,
    "written_tokens": _Count,
}
"""Types of the details that metrics use; a detail of another type is dropped."""


def sniff(source: sources.Source) -> bool:
    """Return True if one of the first entries is a `ctxkit.session` mark."""
    return any(
        r.get("type") == "custom" and r.get("customType") == "ctxkit.session"
        for r in source.head[:4]
    )


def read(source: sources.Source) -> list[Session]:
    """Read the session as it was written, with entries that other programs added."""
    return [_NativeEntryReader(source).build_native_session()]


class _NativeEntryReader(EntryReader):
    """Reader of Pi entries and of the marks before them."""

    def __init__(self, source: sources.Source) -> None:
        self.session_fields: dict[str, Any] = {}
        self.end_state: dict[str, Any] = {}
        self.children: list[Session] = []
        self.origin: Session | None = None
        self.pending_marks: dict[str, tuple[int, dict[str, Any]]] = {}
        self.line = 0
        self.detail_faults: list[Fault] = []
        super().__init__(source)

    def read_record(self, line: int, kind: Any, record: dict[str, Any]) -> None:
        """Read a mark, the entry that belongs to one, or a plain Pi entry."""
        self.line = line
        marked = str(record.get("customType"))
        if kind == "custom" and marked.startswith("ctxkit."):
            self._read_mark(marked, require_field(record, "data", dict), record)
            return
        parent = record.get("parentId")
        pending = self.pending_marks.pop(parent, None) if type(parent) is str else None
        if pending is None:
            super().read_record(line, kind, record)
            return
        self.line, mark = pending
        if kind == "compaction":
            self._add_edit(require_field(mark, "edit", dict))
        else:
            content = require_field(record, "message", dict).get("content")
            self._add_message(require_field(mark, "message", dict), parse_pi_parts(content))

    def _read_mark(self, mark_type: str, data: dict[str, Any], record: dict[str, Any]) -> None:
        if mark_type == "ctxkit.session":
            if (count_or_none(data.get("format_version")) or 0) > VERSION:
                raise ValueError("expected a file of this version of ctxkit or an older one")
            self.session_fields = data
        elif mark_type == "ctxkit.child":
            self.children.append(_parse_session(data, 0))
        elif mark_type == "ctxkit.origin":
            self.origin = _parse_session(data, 0)
        elif mark_type == "ctxkit.end":
            self.end_state = data
        elif type(data.get("edit")) is dict and not _has_pi_entry(data["edit"]):
            self._add_edit(data["edit"])
        elif "parts" in as_dict(data.get("message")):
            self._add_message(data["message"], None)
        else:
            self.pending_marks[require_field(record, "id", str)] = self.line, data

    def _add_edit(self, data: dict[str, Any]) -> None:
        edit = self._drop_invalid_details(msgspec.convert(data, Edit))
        self.builder.take_id(edit.id)
        for message in edit.inserted:
            self.builder.take_id(message.id)
        self.builder.add(edit)
        self.compacted_before = len(self.builder.entries)

    def _add_message(self, data: dict[str, Any], parts: tuple[Part, ...] | None) -> None:
        if parts is not None:
            data = {**data}
            part_extras = as_dict(data.pop("more", None))
            message = msgspec.convert(data, Message)
            message = msgspec.structs.replace(
                message,
                parts=tuple(_restore_part(p, part_extras.get(str(i))) for i, p in enumerate(parts)),
            )
        else:
            message = msgspec.convert(data, Message)
        self.builder.take_id(message.id)
        self.builder.add(self._drop_invalid_details(message))

    def _drop_invalid_details(self, entry: _Entry) -> _Entry:
        entry, faults = _drop_invalid_details(entry, self.line)
        self.detail_faults += faults
        return entry

    def build_native_session(self) -> Session:
        """Return the session; its leaf and parents are those of the end mark if that is valid."""
        plain = self.build_session(NAME)
        fields, field_faults = _parse_session_fields(self.session_fields)
        end_state, n_entries = self.end_state, len(plain.log)
        parents, leaf = plain.parents, plain.leaf
        if end_state.get("entries") == n_entries and not plain.faults:
            parents = _parse_parents(end_state.get("parents"), n_entries)
            leaf = (
                end_state["leaf"]
                if type(end_state.get("leaf")) is int and -1 <= end_state["leaf"] < n_entries
                else -1
            )
        if not fields:
            return msgspec.structs.replace(plain, children=tuple(self.children))
        skipped = {**fields.pop("skipped", {})}
        for name, count in plain.skipped.items():
            skipped[name] = skipped.get(name, 0) + count
        faults = (
            *fields.pop("faults", ()),
            *plain.faults,
            *self.detail_faults,
            *field_faults,
        )
        return Session(
            **{"id": plain.id, **fields},
            log=plain.log,
            parents=parents,
            leaf=leaf,
            children=tuple(self.children),
            skipped=skipped,
            faults=faults,
            origin=self.origin,
        )


def _has_pi_entry(edit: dict[str, Any]) -> bool:
    """Return True if an edit also has a Pi form, a compaction entry that follows its mark."""
    return edit.get("kind") == "summarised" and bool(edit.get("inserted"))


def _restore_part(part: Part, extras: Any) -> Part:
    if type(extras) is dict:
        restored: Part = msgspec.convert(extras, Part)
        return restored
    if isinstance(part, Thinking):
        return Thinking(
            part.text, part.signature, extras if type(extras) is int else 0, part.redacted
        )
    return part


def _drop_invalid_details(entry: _Entry, line: int) -> tuple[_Entry, list[Fault]]:
    """Return an entry without invalid details and numbers, and a fault for each such detail."""
    invalid_names = _find_invalid_details(entry.details)
    if invalid_names:
        details = {
            name: value for name, value in entry.details.items() if name not in invalid_names
        }
        entry = msgspec.structs.replace(entry, details=details)
    return _drop_invalid_numbers(entry), _describe_invalid_fields(invalid_names, line)


def _find_invalid_details(details: dict[str, Any]) -> list[str]:
    """Return the names of the details that have a wrong type."""
    return [
        name
        for name in sorted(_DETAIL_TYPES.keys() & details.keys())
        if not _is_of_type(details[name], _DETAIL_TYPES[name])
    ]


def _is_of_type(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


_NESTED_FIELDS = ("parts", "inserted")
"""Fields that hold tuples of structs, some with numbers."""


def _number_bounds(kind: type[msgspec.Struct]) -> dict[str, tuple[Callable[[Any], Any], Any]]:
    """Return for each numeric field of a struct its check and its default."""
    checks = dict[str, tuple[Any, Any]]()
    for field in msgspec.structs.fields(kind):
        default = None if field.default is msgspec.NODEFAULT else field.default
        if field.type in (int, int | None):
            checks[field.name] = (count_or_none, default)
        elif field.type in (float, float | None):
            checks[field.name] = (
                parse_unix_seconds if field.name == "time" else float_or_none,
                default,
            )
    return checks


_BOUNDS: dict[Any, dict[str, tuple[Callable[[Any], Any], Any]]] = {
    kind: _number_bounds(kind) for kind in (Edit, Message, SizeOnly, Thinking, ToolSchema, Usage)
}


def _drop_invalid_numbers(entry: _Item) -> _Item:
    """Return an entry with its invalid numbers, also nested ones, replaced by the defaults."""
    checks = _BOUNDS.get(type(entry))
    if checks is None:
        return entry
    changes: dict[str, Any] = {}
    for name, (check, default) in checks.items():
        value = getattr(entry, name)
        if value is not None and check(value) is None:
            changes[name] = default
    for name in _NESTED_FIELDS:
        items = getattr(entry, name, None)
        if items and (bounded_items := _drop_invalid_numbers_each(items)) is not items:
            changes[name] = bounded_items
    usage = getattr(entry, "usage", None)
    if usage is not None and (bounded_usage := _drop_invalid_numbers(usage)) is not usage:
        changes["usage"] = None if bounded_usage == Usage() else bounded_usage
    return msgspec.structs.replace(entry, **changes) if changes else entry  # type: ignore[type-var]


def _drop_invalid_numbers_each(entries: tuple[_Item, ...]) -> tuple[_Item, ...]:
    """Apply `_drop_invalid_numbers` to each entry; an unchanged tuple is returned itself."""
    bounded_entries = tuple(map(_drop_invalid_numbers, entries))
    return (
        entries
        if all(a is b for a, b in zip(bounded_entries, entries, strict=True))
        else bounded_entries
    )


def _parse_session_fields(data: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return the valid fields of a session, and faults for those of a wrong type."""
    fields, faults = dict[str, Any](), list[Fault]()
    for name in sorted(_SESSION_FIELDS & data.keys()):
        try:
            fields[name] = msgspec.convert(data[name], _FIELD_TYPES.get(name, str))
        except msgspec.ValidationError:
            faults += _describe_invalid_fields([name])
    for name in _find_invalid_details(fields.get("details", {})):
        del fields["details"][name]
        faults += _describe_invalid_fields([name])
    fields["tools"] = _drop_invalid_numbers_each(fields.get("tools", ()))
    fields["started"] = parse_unix_seconds(fields.get("started"))
    return fields, faults


def _describe_invalid_fields(names: Iterable[str], line: int = 0) -> list[Fault]:
    return [Fault(line, f"its {name} is of another kind") for name in names]


def _parse_parents(value: Any, n_entries: int) -> tuple[int, ...]:
    indices = tuple(i for i in as_list(value) if type(i) is int and -1 <= i < n_entries)
    return indices if len(indices) == n_entries else ()


def _parse_session(data: dict[str, Any], depth: int) -> Session:
    if depth > _MAX_DEPTH:
        raise ValueError("expected fewer levels of subagents")
    log, faults = list[Message | Edit](), list[Fault]()
    for raw in as_list(data.get("log")):
        fields = as_dict(raw)
        entry, entry_faults = (
            _drop_invalid_details(msgspec.convert(fields["edit"], Edit), 0)
            if "edit" in fields
            else _drop_invalid_details(msgspec.convert(fields["message"], Message), 0)
        )
        log.append(entry)
        faults += entry_faults
    leaf = data.get("leaf")
    session_fields, field_faults = _parse_session_fields(as_dict(data.get("session")))
    return Session(
        **{
            **session_fields,
            "faults": (*session_fields.get("faults", ()), *faults, *field_faults),
        },
        log=tuple(log),
        parents=_parse_parents(data.get("parents"), len(log)),
        leaf=leaf if type(leaf) is int and -1 <= leaf < len(log) else -1,
        children=tuple(
            _parse_session(as_dict(child), depth + 1) for child in as_list(data.get("children"))
        ),
    )


WRITTEN_VERSION = 1
_ROOT_ID = "00000000"
_STRUCTURAL_FIELDS = {"log", "children", "parents", "leaf", "origin"}


def encode_session_lines(session: Session) -> Iterator[bytes]:
    """Yield the lines of a file: header, session, marks and entries, children, end."""
    timestamp = format_timestamp(session.started)
    yield encode_line(encode_header(session))
    yield encode_session_fields_line(session)
    tree = EntryIdsAndParents(session)
    for i, entry in enumerate(session.log):
        yield from encode_entry_lines(tree, i, entry)
    last_id = tree.id(len(session.log) - 1) if session.log else _ROOT_ID
    for i, child in enumerate(session.children):
        yield _encode_custom_entry(
            f"{0xC0000000 + i:08x}", last_id, timestamp, "ctxkit.child", _session_to_dict(child)
        )
    if session.origin is not None:
        yield _encode_custom_entry(
            "e0000000", last_id, timestamp, "ctxkit.origin", _session_to_dict(session.origin)
        )
    yield encode_end_line(session)


def encode_session_fields_line(session: Session) -> bytes:
    """Return the `ctxkit.session` line, with the fields of a session."""
    fields = {"format_version": WRITTEN_VERSION, **_encode_session_fields(session)}
    return _encode_custom_entry(
        _ROOT_ID, None, format_timestamp(session.started), "ctxkit.session", fields
    )


def encode_end_line(session: Session) -> bytes:
    """Return the `ctxkit.end` line: number of entries, leaf and, if it branches, parents."""
    last_index = len(session.log) - 1
    state: dict[str, Any] = {"entries": len(session.log), "leaf": session.leaf}
    if session.parents:
        state["parents"] = session.parents
    leaf = session.leaf if 0 <= session.leaf <= last_index else last_index
    parent = EntryIdsAndParents.id(leaf) if leaf >= 0 else _ROOT_ID
    return _encode_custom_entry(
        "ffffffff", parent, format_timestamp(session.started), "ctxkit.end", state
    )


def encode_entry_lines(ids: EntryIdsAndParents, i: int, entry: Message | Edit) -> Iterator[bytes]:
    """Yield the lines of an entry: its mark, and its Pi form if it has one.

    Args:
        ids: ids and parents of all entries of the file.
        i: index of the entry.
        entry: a message or an edit.
    """
    timestamp, parent_index = format_timestamp(entry.time), ids.before(i)
    parent = _ROOT_ID if parent_index < 0 else ids.id(parent_index)
    if isinstance(entry, Edit):
        pi_entry = encode_compaction(entry, ids.first_kept(i, entry))
        mark: dict[str, Any] = {"edit": msgspec.to_builtins(entry)}
    else:
        pi_message = encode_message(entry)
        pi_entry = None if pi_message is None else {"type": "message", "message": pi_message}
        mark = {"message": _encode_message_fields(entry, has_no_pi_form=pi_message is None)}
    mark_id = ids.id(i) if pi_entry is None else ids.mark(i)
    yield _encode_custom_entry(mark_id, parent, timestamp, "ctxkit.entry", mark)
    if pi_entry is not None:
        yield encode_entry(pi_entry, ids.id(i), mark_id, timestamp)


def _session_to_dict(session: Session) -> dict[str, Any]:
    """Return a session with its log and children as plain values."""
    return {
        "session": _encode_session_fields(session),
        "log": [
            {"edit" if isinstance(e, Edit) else "message": msgspec.to_builtins(e)}
            for e in session.log
        ],
        "parents": list(session.parents),
        "leaf": session.leaf,
        "children": [_session_to_dict(c) for c in session.children],
    }


def _encode_session_fields(session: Session) -> dict[str, Any]:
    fields = {
        field: getattr(session, field)
        for field in session.__struct_fields__
        if field not in _STRUCTURAL_FIELDS
    }
    return {k: msgspec.to_builtins(v) for k, v in fields.items() if v is not None}


def _encode_message_fields(message: Message, *, has_no_pi_form: bool) -> dict[str, Any]:
    if has_no_pi_form:
        return {**msgspec.to_builtins(message), "parts": msgspec.to_builtins(message.parts)}
    fields: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(message, parts=()))
    part_extras = {
        str(i): x for i, p in enumerate(message.parts) if (x := _encode_part_extras(p)) is not None
    }
    return {**fields, "more": part_extras} if part_extras else fields


def _encode_part_extras(part: Any) -> Any:
    """Return what Pi's form of a part lacks: a hidden size, the whole part, or None."""
    if isinstance(part, Thinking):
        if part.signature == "":
            return msgspec.to_builtins(part)
        return part.hidden or None
    needs_all_fields = isinstance(part, SizeOnly) or (
        isinstance(part, ToolCall) and part.raw is not None
    )
    needs_all_fields = needs_all_fields or (
        isinstance(part, Attachment)
        and (part.kind != "image" or not part.data or not part.media_type or part.url is not None)
    )
    return msgspec.to_builtins(part) if needs_all_fields else None


def _encode_custom_entry(
    entry_id: str, parent: str | None, timestamp: str, mark_type: str, data: Any
) -> bytes:
    return encode_entry(
        {"type": "custom", "customType": mark_type, "data": data}, entry_id, parent, timestamp
    )
