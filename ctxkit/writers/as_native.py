"""Our own format: Pi's, version 3, and `custom` entries for what Pi lacks; nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.messages import Edit, Image, Message, Sized, Thinking, ToolCall
from ctxkit.writers.entries import Tree, compaction, header, iso, message, to_entry, to_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session import Session

VERSION = 1
_ROOT = "00000000"
_PLAIN = {"log", "children", "parents", "leaf", "origin"}


def lines(session: Session) -> Iterator[bytes]:
    """Yield the lines: header, session, entries after their marks, children, the tree's state."""
    when = iso(session.started)
    yield to_line(header(session))
    yield begin(session)
    tree = Tree(session)
    for i, entry in enumerate(session.log):
        yield from entry_lines(tree, i, entry)
    last = tree.id(len(session.log) - 1) if session.log else _ROOT
    for i, child in enumerate(session.children):
        yield _custom(f"{0xC0000000 + i:08x}", last, when, "ctxkit.child", whole(child))
    if session.origin is not None:
        yield _custom("e0000000", last, when, "ctxkit.origin", whole(session.origin))
    yield stand(session)


def begin(session: Session) -> bytes:
    """Return the line that holds what a session is, beside its entries."""
    facts = {"format_version": VERSION, **_facts(session)}
    return _custom(_ROOT, None, iso(session.started), "ctxkit.session", facts)


def stand(session: Session) -> bytes:
    """Return the line of how the tree stands: its leaf and, where it branches, its parents."""
    last = len(session.log) - 1
    stands: dict[str, Any] = {"entries": len(session.log), "leaf": session.leaf}
    if session.parents:
        stands["parents"] = session.parents
    at = session.leaf if 0 <= session.leaf <= last else last
    parent = Tree.id(at) if at >= 0 else _ROOT
    return _custom("ffffffff", parent, iso(session.started), "ctxkit.end", stands)


def entry_lines(tree: Tree, i: int, entry: Message | Edit) -> Iterator[bytes]:
    """Yield an entry's mark, which holds what Pi cannot, and its form in Pi where there is one."""
    when, before = iso(entry.time), tree.before(i)
    parent = _ROOT if before < 0 else tree.id(before)
    if isinstance(entry, Edit):
        told = compaction(entry, tree.first_kept(i, entry))
        mark: dict[str, Any] = {"edit": msgspec.to_builtins(entry)}
    else:
        said = message(entry)
        told = None if said is None else {"type": "message", "message": said}
        mark = {"message": _rest(entry, alone=said is None)}
    own = tree.id(i) if told is None else tree.mark(i)
    yield _custom(own, parent, when, "ctxkit.entry", mark)
    if told is not None:
        yield to_entry(told, tree.id(i), own, when)


def whole(session: Session) -> dict[str, Any]:
    """Return a session as plain values, with its log and its children."""
    return {
        "session": _facts(session),
        "log": [
            {"edit" if isinstance(e, Edit) else "message": msgspec.to_builtins(e)}
            for e in session.log
        ],
        "parents": list(session.parents),
        "leaf": session.leaf,
        "children": [whole(c) for c in session.children],
    }


def _facts(session: Session) -> dict[str, Any]:
    fields = {f: getattr(session, f) for f in session.__struct_fields__ if f not in _PLAIN}
    return {k: msgspec.to_builtins(v) for k, v in fields.items() if v is not None}


def _rest(m: Message, *, alone: bool) -> dict[str, Any]:
    if alone:
        return {**msgspec.to_builtins(m), "parts": msgspec.to_builtins(m.parts)}
    rest: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(m, parts=()))
    more = {str(i): x for i, p in enumerate(m.parts) if (x := _more(p)) is not None}
    return {**rest, "more": more} if more else rest


def _more(p: Any) -> Any:
    """Return what Pi's form of a part lacks (a thought's hidden size, the whole part), or None."""
    if isinstance(p, Thinking):
        if p.signature == "":
            return msgspec.to_builtins(p)
        return p.hidden or None
    strange = isinstance(p, Sized) or (isinstance(p, ToolCall) and p.raw is not None)
    strange = strange or (
        isinstance(p, Image)
        and (p.kind != "image" or not p.data or not p.media_type or p.url is not None)
    )
    return msgspec.to_builtins(p) if strange else None


def _custom(own: str, parent: str | None, when: str, kind: str, data: Any) -> bytes:
    return to_entry({"type": "custom", "customType": kind, "data": data}, own, parent, when)
