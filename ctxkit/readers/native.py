"""Our own format: Pi's entries, and what Pi cannot hold in `custom` ones; a session comes back as
it was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, TypeVar

import msgspec

from ctxkit.messages import Edit, Fault, Message, Part, Source, Thinking, ToolSchema
from ctxkit.readers.bounded_numbers import bounded, bounded_each
from ctxkit.readers.fields import MOST_COUNT, demand, items, mapping, number, seconds_since_1970
from ctxkit.readers.pi_entries import Entries
from ctxkit.readers.pi_messages import to_parts
from ctxkit.session import Session

if TYPE_CHECKING:
    from ctxkit.readers import source as sources

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
    "output_source": Source,
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
    return [_Marked(source).whole()]


class _Marked(Entries):
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
            self._mark(marked, demand(record, "data", dict), record)
            return
        parent = record.get("parentId")
        mark = self.marks.pop(parent, None) if type(parent) is str else None
        if mark is None:
            super().take(line, kind, record)
        elif kind == "compaction":
            self._edit(demand(mark, "edit", dict))
        else:
            content = demand(record, "message", dict).get("content")
            self._message(demand(mark, "message", dict), to_parts(content))

    def _mark(self, kind: str, data: dict[str, Any], record: dict[str, Any]) -> None:
        if kind == "ctxkit.session":
            if (number(data.get("format_version")) or 0) > VERSION:
                raise ValueError("expected a file of this version of ctxkit or an older one")
            self.facts = data
        elif kind == "ctxkit.child":
            self.children.append(_whole(data, 0))
        elif kind == "ctxkit.origin":
            self.origin = _whole(data, 0)
        elif kind == "ctxkit.end":
            self.stands = data
        elif type(data.get("edit")) is dict and not _is_told(data["edit"]):
            self._edit(data["edit"])
        elif "parts" in mapping(data.get("message")):
            self._message(data["message"], None)
        else:
            self.marks[demand(record, "id", str)] = data

    def _edit(self, data: dict[str, Any]) -> None:
        edit = _sound(msgspec.convert(data, Edit))
        self.log.take_id(edit.id)
        for m in edit.inserted:
            self.log.take_id(m.id)
        self.log.add(edit)
        self.floor = len(self.log.entries)

    def _message(self, data: dict[str, Any], parts: tuple[Part, ...] | None) -> None:
        if parts is not None:
            data = {**data}
            more = mapping(data.pop("more", None))
            m = msgspec.convert(data, Message)
            m = msgspec.structs.replace(
                m, parts=tuple(_part(p, more.get(str(i))) for i, p in enumerate(parts))
            )
        else:
            m = msgspec.convert(data, Message)
        self.log.take_id(m.id)
        self.log.add(_sound(m))

    def whole(self) -> Session:
        """Return the session: as written if the file ends so, else with what came after."""
        read = self.session(NAME)
        facts, wrong = _facts(self.facts)
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


def _is_told(edit: dict[str, Any]) -> bool:
    """Say whether Pi holds an edit too, as a compaction entry that follows the mark."""
    return edit.get("kind") == "summarised" and bool(edit.get("inserted"))


def _part(part: Part, more: Any) -> Part:
    if type(more) is dict:
        whole: Part = msgspec.convert(more, Part)
        return whole
    if isinstance(part, Thinking):
        return Thinking(part.text, part.signature, more if type(more) is int else 0, part.redacted)
    return part


def _sound(entry: E) -> E:
    """Return an entry without details of another kind, and without numbers that none can be."""
    odd = _odd(entry.details)
    if odd:
        details = {k: v for k, v in entry.details.items() if k not in odd}
        entry = msgspec.structs.replace(entry, details=details)
    return bounded(entry)


def _odd(details: dict[str, Any]) -> list[str]:
    """Return the names of details that are of another kind than figures take them for."""
    return [k for k in _DETAILS.keys() & details.keys() if not _is(details[k], _DETAILS[k])]


def _is(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _facts(data: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return what is told of the session, and what of it is of another kind."""
    out, wrong = dict[str, Any](), list[Fault]()
    for name in sorted(_FIELDS & data.keys()):
        try:
            out[name] = msgspec.convert(data[name], _TYPES.get(name, str))
        except msgspec.ValidationError:
            wrong.append(Fault(0, f"its {name} is of another kind"))
    for name in _odd(out.get("details", {})):
        del out["details"][name]
        wrong.append(Fault(0, f"its {name} is of another kind"))
    out["tools"] = bounded_each(out.get("tools", ()))
    out["started"] = seconds_since_1970(out.get("started"))
    return out, wrong


def _indices(value: Any, n: int) -> tuple[int, ...]:
    out = tuple(i for i in items(value) if type(i) is int and -1 <= i < n)
    return out if len(out) == n else ()


def _whole(data: dict[str, Any], depth: int) -> Session:
    if depth > _DEPTH:
        raise ValueError("expected fewer levels of subagents")
    log: list[Message | Edit] = []
    for raw in items(data.get("log")):
        fields = mapping(raw)
        log.append(
            _sound(msgspec.convert(fields["edit"], Edit))
            if "edit" in fields
            else _sound(msgspec.convert(fields["message"], Message))
        )
    leaf = data.get("leaf")
    facts, wrong = _facts(mapping(data.get("session")))
    return Session(
        **{**facts, "faults": (*facts.get("faults", ()), *wrong)},
        log=tuple(log),
        parents=_indices(data.get("parents"), len(log)),
        leaf=leaf if type(leaf) is int and -1 <= leaf < len(log) else -1,
        children=tuple(_whole(mapping(c), depth + 1) for c in items(data.get("children"))),
    )
