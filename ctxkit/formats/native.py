"""Our own lossless format: Pi entries with custom entries; read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, TypeVar

import msgspec

from ctxkit.formats.bounded_numbers import bounded, bounded_each
from ctxkit.formats.fields import (
    MOST_COUNT,
    as_dict,
    as_list,
    count_or_none,
    format_timestamp,
    require_field,
    seconds_since_1970,
)
from ctxkit.formats.pi import EntryReader
from ctxkit.formats.pi_messages import (
    EntryTree,
    encode_compaction,
    encode_entry,
    encode_header,
    encode_line,
    encode_message,
    parse_pi_parts,
)
from ctxkit.session.messages import (
    Edit,
    Fault,
    Image,
    Message,
    Part,
    Provenance,
    SizeOnly,
    Thinking,
    ToolCall,
    ToolSchema,
)
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.formats import source as sources


NAME = "native"
ALIASES = ("ctxkit",)
CAN = "all that a session holds"
CANNOT = "nothing is left out"
VERSION = 1
_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNT)]
_TYPES: dict[str, Any] = {
    "tools": tuple[ToolSchema, ...],
    "notes": tuple[str, ...],
    "faults": tuple[Fault, ...],
    "skipped": dict[str, _Count],
    "details": dict[str, Any],
    "started": float | None,
    "context_window": _Count | None,
}
_FIELDS = {
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
    *_TYPES,
}
_DEPTH = 16
E = TypeVar("E", Message, Edit)


class _NotRun(TypedDict):
    id: str
    name: str
    arguments: dict[str, Any]


class _Processor(TypedDict):
    name: str
    n: NotRequired[int]


_DETAILS: dict[str, Any] = {
    "calls_not_run": list[_NotRun],
    "cannot_tell": tuple[str, ...],
    "history_processor": _Processor,
    "output_source": Provenance,
    "replay": dict[str, Any],
    "source_tokens": _Count,
    "tools_digest": str,
}
"""Details on which figures rest; in a file that is not of their kind they are left out."""


def sniff(source: sources.Source) -> bool:
    """Say whether one of the first entries is our mark."""
    return any(
        r.get("type") == "custom" and r.get("customType") == "ctxkit.session"
        for r in source.head[:4]
    )


def read(source: sources.Source) -> list[Session]:
    """Read a session as it was written; what other programs added is read as Pi's entries."""
    return [_NativeEntryReader(source).whole()]


class _NativeEntryReader(EntryReader):
    """Entries of which most come after a mark of ours."""

    def __init__(self, source: sources.Source) -> None:
        self.facts: dict[str, Any] = {}
        self.stands: dict[str, Any] = {}
        self.children: list[Session] = []
        self.origin: Session | None = None
        self.marks: dict[str, dict[str, Any]] = {}
        super().__init__(source)

    def take(self, line: int, kind: Any, record: dict[str, Any]) -> None:
        """Take our marks, what they belong to, and anything else as Pi would."""
        marked = str(record.get("customType"))
        if kind == "custom" and marked.startswith("ctxkit."):
            self._mark(marked, require_field(record, "data", dict), record)
            return
        parent = record.get("parentId")
        mark = self.marks.pop(parent, None) if type(parent) is str else None
        if mark is None:
            super().take(line, kind, record)
        elif kind == "compaction":
            self._edit(require_field(mark, "edit", dict))
        else:
            content = require_field(record, "message", dict).get("content")
            self._message(require_field(mark, "message", dict), parse_pi_parts(content))

    def _mark(self, kind: str, data: dict[str, Any], record: dict[str, Any]) -> None:
        if kind == "ctxkit.session":
            if (count_or_none(data.get("format_version")) or 0) > VERSION:
                raise ValueError("expected a file of this version of ctxkit or an older one")
            self.facts = data
        elif kind == "ctxkit.child":
            self.children.append(_parse_session(data, 0))
        elif kind == "ctxkit.origin":
            self.origin = _parse_session(data, 0)
        elif kind == "ctxkit.end":
            self.stands = data
        elif type(data.get("edit")) is dict and not _has_pi_entry(data["edit"]):
            self._edit(data["edit"])
        elif "parts" in as_dict(data.get("message")):
            self._message(data["message"], None)
        else:
            self.marks[require_field(record, "id", str)] = data

    def _edit(self, data: dict[str, Any]) -> None:
        edit = _drop_odd_details(msgspec.convert(data, Edit))
        self.log.take_id(edit.id)
        for m in edit.inserted:
            self.log.take_id(m.id)
        self.log.add(edit)
        self.floor = len(self.log.entries)

    def _message(self, data: dict[str, Any], parts: tuple[Part, ...] | None) -> None:
        if parts is not None:
            data = {**data}
            more = as_dict(data.pop("more", None))
            m = msgspec.convert(data, Message)
            m = msgspec.structs.replace(
                m, parts=tuple(_restore_part(p, more.get(str(i))) for i, p in enumerate(parts))
            )
        else:
            m = msgspec.convert(data, Message)
        self.log.take_id(m.id)
        self.log.add(_drop_odd_details(m))

    def whole(self) -> Session:
        """Return the session: as written if the file ends so, else with what came after."""
        read = self.session(NAME)
        facts, wrong = _parse_facts(self.facts)
        stands, n = self.stands, len(read.log)
        parents, leaf = read.parents, read.leaf
        if stands.get("entries") == n and not read.faults:
            parents = _indices(stands.get("parents"), n)
            leaf = (
                stands["leaf"]
                if type(stands.get("leaf")) is int and -1 <= stands["leaf"] < n
                else -1
            )
        if not facts:
            return msgspec.structs.replace(read, children=tuple(self.children))
        skipped = {**facts.pop("skipped", {})}
        for name, count in read.skipped.items():
            skipped[name] = skipped.get(name, 0) + count
        faults = (*facts.pop("faults", ()), *read.faults, *wrong)
        return Session(
            **{"id": read.id, **facts},
            log=read.log,
            parents=parents,
            leaf=leaf,
            children=tuple(self.children),
            skipped=skipped,
            faults=faults,
            origin=self.origin,
        )


def _has_pi_entry(edit: dict[str, Any]) -> bool:
    """Say whether Pi holds an edit too, as a compaction entry that follows the mark."""
    return edit.get("kind") == "summarised" and bool(edit.get("inserted"))


def _restore_part(part: Part, more: Any) -> Part:
    if type(more) is dict:
        whole: Part = msgspec.convert(more, Part)
        return whole
    if isinstance(part, Thinking):
        return Thinking(part.text, part.signature, more if type(more) is int else 0, part.redacted)
    return part


def _drop_odd_details(entry: E) -> E:
    """Return an entry without details of another kind, and without numbers that none can be."""
    odd = _odd_details(entry.details)
    if odd:
        details = {k: v for k, v in entry.details.items() if k not in odd}
        entry = msgspec.structs.replace(entry, details=details)
    return bounded(entry)


def _odd_details(details: dict[str, Any]) -> list[str]:
    """Return the names of details that are of another kind than figures take them for."""
    return [k for k in _DETAILS.keys() & details.keys() if not _is_kind(details[k], _DETAILS[k])]


def _is_kind(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _parse_facts(data: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return what is told of the session, and what of it is of another kind."""
    out, wrong = dict[str, Any](), list[Fault]()
    for name in sorted(_FIELDS & data.keys()):
        try:
            out[name] = msgspec.convert(data[name], _TYPES.get(name, str))
        except msgspec.ValidationError:
            wrong.append(Fault(0, f"its {name} is of another kind"))
    for name in _odd_details(out.get("details", {})):
        del out["details"][name]
        wrong.append(Fault(0, f"its {name} is of another kind"))
    out["tools"] = bounded_each(out.get("tools", ()))
    out["started"] = seconds_since_1970(out.get("started"))
    return out, wrong


def _indices(value: Any, n: int) -> tuple[int, ...]:
    out = tuple(i for i in as_list(value) if type(i) is int and -1 <= i < n)
    return out if len(out) == n else ()


def _parse_session(data: dict[str, Any], depth: int) -> Session:
    if depth > _DEPTH:
        raise ValueError("expected fewer levels of subagents")
    log: list[Message | Edit] = []
    for raw in as_list(data.get("log")):
        fields = as_dict(raw)
        log.append(
            _drop_odd_details(msgspec.convert(fields["edit"], Edit))
            if "edit" in fields
            else _drop_odd_details(msgspec.convert(fields["message"], Message))
        )
    leaf = data.get("leaf")
    facts, wrong = _parse_facts(as_dict(data.get("session")))
    return Session(
        **{**facts, "faults": (*facts.get("faults", ()), *wrong)},
        log=tuple(log),
        parents=_indices(data.get("parents"), len(log)),
        leaf=leaf if type(leaf) is int and -1 <= leaf < len(log) else -1,
        children=tuple(
            _parse_session(as_dict(c), depth + 1) for c in as_list(data.get("children"))
        ),
    )


WRITTEN_VERSION = 1
_ROOT = "00000000"
_STRUCTURAL_FIELDS = {"log", "children", "parents", "leaf", "origin"}


def encode_session_lines(session: Session) -> Iterator[bytes]:
    """Yield the lines: header, session, entries after their marks, children, the tree's state."""
    when = format_timestamp(session.started)
    yield encode_line(encode_header(session))
    yield encode_session_facts(session)
    tree = EntryTree(session)
    for i, entry in enumerate(session.log):
        yield from encode_entry_lines(tree, i, entry)
    last = tree.id(len(session.log) - 1) if session.log else _ROOT
    for i, child in enumerate(session.children):
        yield _encode_custom_entry(
            f"{0xC0000000 + i:08x}", last, when, "ctxkit.child", session_to_dict(child)
        )
    if session.origin is not None:
        yield _encode_custom_entry(
            "e0000000", last, when, "ctxkit.origin", session_to_dict(session.origin)
        )
    yield encode_tree_state(session)


def encode_session_facts(session: Session) -> bytes:
    """Return the line that holds what a session is, beside its entries."""
    facts = {"format_version": WRITTEN_VERSION, **_session_facts(session)}
    return _encode_custom_entry(
        _ROOT, None, format_timestamp(session.started), "ctxkit.session", facts
    )


def encode_tree_state(session: Session) -> bytes:
    """Return the line of how the tree stands: its leaf and, where it branches, its parents."""
    last = len(session.log) - 1
    stands: dict[str, Any] = {"entries": len(session.log), "leaf": session.leaf}
    if session.parents:
        stands["parents"] = session.parents
    at = session.leaf if 0 <= session.leaf <= last else last
    parent = EntryTree.id(at) if at >= 0 else _ROOT
    return _encode_custom_entry(
        "ffffffff", parent, format_timestamp(session.started), "ctxkit.end", stands
    )


def encode_entry_lines(tree: EntryTree, i: int, entry: Message | Edit) -> Iterator[bytes]:
    """Yield an entry's mark, which holds what Pi cannot, and its form in Pi where there is one."""
    when, before = format_timestamp(entry.time), tree.before(i)
    parent = _ROOT if before < 0 else tree.id(before)
    if isinstance(entry, Edit):
        told = encode_compaction(entry, tree.first_kept(i, entry))
        mark: dict[str, Any] = {"edit": msgspec.to_builtins(entry)}
    else:
        said = encode_message(entry)
        told = None if said is None else {"type": "message", "message": said}
        mark = {"message": _message_fields(entry, alone=said is None)}
    own = tree.id(i) if told is None else tree.mark(i)
    yield _encode_custom_entry(own, parent, when, "ctxkit.entry", mark)
    if told is not None:
        yield encode_entry(told, tree.id(i), own, when)


def session_to_dict(session: Session) -> dict[str, Any]:
    """Return a session as plain values, with its log and its children."""
    return {
        "session": _session_facts(session),
        "log": [
            {"edit" if isinstance(e, Edit) else "message": msgspec.to_builtins(e)}
            for e in session.log
        ],
        "parents": list(session.parents),
        "leaf": session.leaf,
        "children": [session_to_dict(c) for c in session.children],
    }


def _session_facts(session: Session) -> dict[str, Any]:
    fields = {
        f: getattr(session, f) for f in session.__struct_fields__ if f not in _STRUCTURAL_FIELDS
    }
    return {k: msgspec.to_builtins(v) for k, v in fields.items() if v is not None}


def _message_fields(m: Message, *, alone: bool) -> dict[str, Any]:
    if alone:
        return {**msgspec.to_builtins(m), "parts": msgspec.to_builtins(m.parts)}
    rest: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(m, parts=()))
    more = {str(i): x for i, p in enumerate(m.parts) if (x := _part_extras(p)) is not None}
    return {**rest, "more": more} if more else rest


def _part_extras(p: Any) -> Any:
    """Return what Pi's form of a part lacks (a thought's hidden size, the whole part), or None."""
    if isinstance(p, Thinking):
        if p.signature == "":
            return msgspec.to_builtins(p)
        return p.hidden or None
    strange = isinstance(p, SizeOnly) or (isinstance(p, ToolCall) and p.raw is not None)
    strange = strange or (
        isinstance(p, Image)
        and (p.kind != "image" or not p.data or not p.media_type or p.url is not None)
    )
    return msgspec.to_builtins(p) if strange else None


def _encode_custom_entry(own: str, parent: str | None, when: str, kind: str, data: Any) -> bytes:
    return encode_entry({"type": "custom", "customType": kind, "data": data}, own, parent, when)
