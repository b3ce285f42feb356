"""The catalogue of readers: which one knows a file by its content; read one session or all."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import BadArguments, ReadError, UnknownFormat
from ctxkit.garbage import without_collection
from ctxkit.messages import Edit, Fault, Message
from ctxkit.readers.claims import without_claims
from ctxkit.readers.log_folders import FoundLog, find
from ctxkit.readers.members import MEMBERS, Reader, knows, members, named, names, sniff
from ctxkit.readers.mends import mended
from ctxkit.readers.session_list import Sessions, shown
from ctxkit.readers.source import Source
from ctxkit.readers.team_members import with_members
from ctxkit.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "MEMBERS",
    "Reader",
    "logs_at",
    "members",
    "named",
    "names",
    "read",
    "read_all",
    "read_source",
    "sniff",
]


def read(
    path: str | os.PathLike[str] | Sequence[Any],
    format: str | None = None,  # noqa: A002
) -> Session:
    """Read one session from a file, from a folder that holds exactly one, or from messages.

    Args:
        path: the file or folder; or a list of messages, the oldest first: dicts as Chat Completions
            or Anthropic's Messages take them (or the objects of their SDKs), or `ctxkit.Message`s.
        format: name of the format, to force it; None: found from the content.

    Raises:
        BadArguments: neither a path nor messages.
        ReadError: the file cannot be read, is no session, or holds several (`read_all` takes
            those).
        UnknownFormat: no reader knows the content, or no format has that name.
    """
    reader = None if format is None else named(format)
    if isinstance(path, (list, tuple)):
        return _of_messages(path, reader)
    place = _place(path)
    with without_collection():
        whole = place.is_dir()
        sessions = _read_folder(place, reader) if whole else read_source(Source(place), reader)
    if not sessions:
        raise ReadError(
            "the folder holds no session that a reader knows; ctxkit.read_all says why, by file.",
            place,
        )
    if len(sessions) > 1:
        raise ReadError(
            f"expected one session, found {len(sessions)} sessions: ctxkit.read_all reads them"
            " all.",
            place,
        )
    return sessions[0]


def read_all(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    format: str | None = None,  # noqa: A002
    progress: bool = True,
) -> Sessions:
    """Read every session of a file, folder (recursive), glob, or a list of those; take what can be
    read.

    Files that fail stand in ``.failed`` (a DataFrame: file, line, why). A file inside a folder that
    no reader knows is a failure only if its name ends like a log (.json, .jsonl, .traj, ...);
    others are in ``.passed_over``. Files that belong to another session (its subagents) are read
    with it and not listed again.

    Args:
        paths: where to look.
        format: name of the format, to force it on every file; None: found from the content.
        progress: False hides the bar; it shows only in a terminal or notebook and for more than a
            few files.

    Raises:
        UnknownFormat: no format has that name.
    """
    reader = None if format is None else named(format)
    found, out = [], Sessions()
    for p in [paths] if isinstance(paths, (str, os.PathLike)) else list(paths):
        found += logs_at(p, reader)
    unique = list({f.real: f for f in reversed(found)}.values())[::-1]
    with without_collection():
        _collect(unique, reader, out, progress)
    return out


def logs_at(place: str | os.PathLike[str], reader: Reader | None = None) -> list[FoundLog]:
    """Return the files and whole folders at a place that may be sessions; none is read."""
    folders = tuple(m for m in ((reader,) if reader else members()) if hasattr(m, "sniff_folder"))
    return find(_place(place), lambda folder: _folder_reader(folder, folders))


def _of_messages(messages: Sequence[Any], reader: Reader | None) -> Session:
    """Read messages as a file that holds them would be read."""
    ours = sum(isinstance(m, (Message, Edit)) for m in messages)
    if ours and ours == len(messages):
        return Session(id="messages", log=tuple(messages))
    if ours:
        raise BadArguments("expected dicts or ctxkit.Message objects, found both in one list.")
    try:
        data = msgspec.json.encode(messages, enc_hook=_plain)
    except (TypeError, ValueError, RecursionError) as e:
        raise BadArguments(f"expected messages as dicts or ctxkit.Message objects: {e}.") from None
    try:
        found = read_source(Source("messages", data), reader)
    except ReadError as e:
        told = "expected a list of messages with a role and content" if reader is None else e.why
        raise type(e)(f"{told.rstrip('.')}.") from None
    if len(found) > 1:
        raise BadArguments(f"expected one conversation, found {len(found)}: give them one by one.")
    return msgspec.structs.replace(found[0], path_=None)


def _plain(message: Any) -> Any:
    """Return an object of an SDK as the dict that was received."""
    if not hasattr(message, "model_dump"):
        raise TypeError(f"found {type(message).__name__} among them")
    return message.model_dump(exclude_none=True)


def _collect(found: list[FoundLog], reader: Reader | None, out: Sessions, progress: bool) -> None:
    # Parents lie higher than their subagents' files: read from the top, and pass over what came
    # with a parent.
    order = sorted(range(len(found)), key=lambda i: (len(found[i].path.parts), i))
    got: dict[int, list[Session]] = {}
    taken: set[str] = set()
    for i in shown(order, progress):
        f = found[i]
        if str(f.path) in taken:
            continue
        if f.why:
            out.add_failure(ReadError(f.why, f.path))
            continue
        try:
            got[i] = f.folder(f.path) if f.folder else read_source(Source(f.path), reader)
        except UnknownFormat as e:
            if f.named or f.is_log:
                out.add_failure(e)
            else:
                out.passed_over.append(str(f.path))
        except ReadError as e:
            out.add_failure(e)
        for s in got.get(i, ()):
            if s.path_ == str(f.path):  # else it is a copy of a session that lies elsewhere
                taken.update(places(s))
    for i in sorted(got):
        if str(found[i].path) not in taken:  # a team's ledger may come behind its agents' files
            out.extend(got[i])


def places(session: Session) -> set[str]:
    """Return the other files that a session was read from: those of its subagents."""
    out: set[str] = set()
    below = list(session.children)
    while below:
        s = below.pop()
        below.extend(s.children)
        if s.path_ and s.path_ != session.path_:
            out.add(s.path_)
    return out


def read_source(source: Source, reader: Reader | None = None) -> list[Session]:
    """Return the sessions of one source; at least one.

    Raises:
        ReadError: it cannot be read as a session.
    """
    sniffed = reader is None
    if reader is None:
        try:
            reader, known = sniff(source), True
        except UnknownFormat:
            sessions = _in_pieces(source, members())
            if not sessions:
                raise
            return sessions
    else:
        known = knows(reader, source)
        sessions = [] if known else _in_pieces(source, (reader,))
        if sessions:
            return sessions
    sessions = _made(reader, source.path, partial(reader.read, source))
    if not sessions or not (known or any(s.log or s.children for s in sessions)):
        raise ReadError(f"expected {_a(reader.NAME)} session, found {source.looks}.", source.path)
    if reader.NAME != "native" or not sniffed or not source.on_disk:
        return sessions
    own = partial(read_source, reader=reader)
    return [with_members(s, source.path, own) for s in sessions]


def _in_pieces(source: Source, readers: tuple[Reader, ...]) -> list[Session]:
    """Read a list of a log's lines or of documents, or documents one a line; empty if none."""
    lines = source.as_lines()
    reader = next((m for m in readers if lines is not None and knows(m, lines)), None)
    pieces = [lines] if reader is not None and lines is not None else source.documents()
    out: list[Session] = []
    faults = list[Fault]()
    for n, piece in enumerate(pieces, 1):
        reader = reader or next((m for m in readers if knows(m, piece)), None)
        if reader is None:
            return []
        try:
            made = _made(reader, source.path, partial(reader.read, piece))
        except ReadError as e:
            faults.append(Fault(n, e.why))
            continue
        out += [msgspec.structs.replace(s, path_=str(source.path)) for s in made]
    if out:
        out[0] = msgspec.structs.replace(out[0], faults=(*faults, *out[0].faults))
    return out


def _a(name: str) -> str:
    return f"an {name}" if name[0] in "aeio" else f"a {name}"


def _placed(session: Session, path: Path) -> Session:
    return session if session.path_ else msgspec.structs.replace(session, path_=str(path))


def _read_folder(place: Path, reader: Reader | None) -> list[Session]:
    folders = tuple(m for m in ((reader,) if reader else members()) if hasattr(m, "sniff_folder"))
    whole = _folder_reader(place, folders)
    if whole is not None:
        return whole(place)
    return list(read_all(place, None if reader is None else reader.NAME, progress=False))


def _folder_reader(place: Path, folders: tuple[Any, ...]) -> Callable[[Path], list[Session]] | None:
    for m in folders:
        if _guarded(m.NAME, place, partial(m.sniff_folder, place)):
            return partial(_whole, m)
    return None


def _whole(reader: Any, path: Path) -> list[Session]:
    return _made(reader, path, lambda: reader.read_folder(path))


def _made(reader: Any, path: Path, do: Callable[[], list[Session]]) -> list[Session]:
    """Return a reader's sessions, placed and mended; our own format's were mended before."""
    read: list[Session] = _guarded(reader.NAME, path, do)
    sessions = [_guarded(reader.NAME, path, partial(without_claims, s)) for s in read]
    if reader.NAME == "native":
        return sessions
    blind = getattr(reader, "BLIND", ())
    placed = (_placed(s, path) for s in sessions)
    return [_guarded(reader.NAME, path, partial(mended, s, blind)) for s in placed]


def _guarded(name: str, path: Path, do: Callable[[], Any]) -> Any:
    """Let nothing but `ReadError` out of a member: files are untrusted, members may be others'."""
    try:
        return do()
    except ReadError as e:
        if e.path is None:
            raise type(e)(e.why, path, e.line) from None
        raise
    except Exception as e:
        raise ReadError(
            f"damaged {name} session: a record could not be read ({type(e).__name__}).", path
        ) from e


def _place(path: object) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise BadArguments(
            f"expected a path, found {type(path).__name__}: give a file, a folder or a glob "
            "(ctxkit.read takes a list of messages, too)."
        )
    text = os.fspath(path)
    if not isinstance(text, str) or "\0" in text:
        raise ReadError("expected a path as text without null characters.")
    if not text.strip():
        raise ReadError(
            "expected the path of a file or folder, found an empty text; the folder here is '.'."
        )
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
