"""Read one session or all sessions of files, folders and globs."""

from __future__ import annotations

import glob
import os
import stat
import sys
from collections import UserList
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.gc_pause import pause_gc
from ctxkit._internal.hooks import call_hook
from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments, ReadError, UnknownFormat
from ctxkit.formats.registry import (
    READER_MODULES,
    Reader,
    all_readers,
    detect_reader,
    format_names,
    get_reader,
    reader_matches,
)
from ctxkit.formats.repairs import repair_session
from ctxkit.formats.size_claims import without_claims
from ctxkit.formats.source import Source
from ctxkit.session.messages import Edit, Fault, Message
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd


__all__ = [
    "READER_MODULES",
    "Reader",
    "all_readers",
    "detect_reader",
    "find_logs",
    "format_names",
    "get_reader",
    "read",
    "read_all",
    "read_source",
]
__dir__ = public_dir(__all__)


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
    reader = None if format is None else get_reader(format)
    if isinstance(path, (list, tuple)):
        return _read_messages(path, reader)
    place = _check_path(path)
    with pause_gc():
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
    reader = None if format is None else get_reader(format)
    found, out = [], Sessions()
    for p in [paths] if isinstance(paths, (str, os.PathLike)) else list(paths):
        found += find_logs(p, reader)
    unique = list({f.real: f for f in reversed(found)}.values())[::-1]
    with pause_gc():
        _collect(unique, reader, out, progress)
    return out


def find_logs(place: str | os.PathLike[str], reader: Reader | None = None) -> list[LogCandidate]:
    """Return the files and whole folders at a place that may be sessions; none is read."""
    folders = tuple(
        m for m in ((reader,) if reader else all_readers()) if hasattr(m, "sniff_folder")
    )
    return find_log_files(_check_path(place), lambda folder: _folder_reader(folder, folders))


def _read_messages(messages: Sequence[Any], reader: Reader | None) -> Session:
    """Read messages as a file that holds them would be read."""
    ours = sum(isinstance(m, (Message, Edit)) for m in messages)
    if ours and ours == len(messages):
        return Session(id="messages", log=tuple(messages))
    if ours:
        raise BadArguments("expected dicts or ctxkit.Message objects, found both in one list.")
    try:
        data = msgspec.json.encode(messages, enc_hook=_encode_sdk_object)
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


def _encode_sdk_object(message: Any) -> Any:
    """Return an object of an SDK as the dict that was received."""
    if not hasattr(message, "model_dump"):
        raise TypeError(f"found {type(message).__name__} among them")
    return message.model_dump(exclude_none=True)


def _collect(
    found: list[LogCandidate], reader: Reader | None, out: Sessions, progress: bool
) -> None:
    # Parents lie higher than their subagents' files: read from the top, and pass over what came
    # with a parent.
    order = sorted(range(len(found)), key=lambda i: (len(found[i].path.parts), i))
    got: dict[int, list[Session]] = {}
    taken: set[str] = set()
    for i in with_progress(order, progress):
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
                taken.update(subagent_paths(s))
    for i in sorted(got):
        if str(found[i].path) not in taken:  # a team's ledger may come behind its agents' files
            out.extend(got[i])


def subagent_paths(session: Session) -> set[str]:
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
            reader, known = detect_reader(source), True
        except UnknownFormat:
            sessions = _read_pieces(source, all_readers())
            if not sessions:
                raise
            return sessions
    else:
        known = reader_matches(reader, source)
        sessions = [] if known else _read_pieces(source, (reader,))
        if sessions:
            return sessions
    sessions = _run_reader(reader, source.path, partial(reader.read, source))
    if not sessions or not (known or any(s.log or s.children for s in sessions)):
        raise ReadError(
            f"expected {_with_article(reader.NAME)} session, found {source.looks}.", source.path
        )
    if reader.NAME != "native" or not sniffed or not source.on_disk:
        return sessions
    own = partial(read_source, reader=reader)
    return [attach_team_agents(s, source.path, own) for s in sessions]


def _read_pieces(source: Source, readers: tuple[Reader, ...]) -> list[Session]:
    """Read a list of a log's lines or of documents, or documents one a line; empty if none."""
    lines = source.as_lines()
    reader = next((m for m in readers if lines is not None and reader_matches(m, lines)), None)
    pieces = [lines] if reader is not None and lines is not None else source.documents()
    out: list[Session] = []
    faults = list[Fault]()
    for n, piece in enumerate(pieces, 1):
        reader = reader or next((m for m in readers if reader_matches(m, piece)), None)
        if reader is None:
            return []
        try:
            made = _run_reader(reader, source.path, partial(reader.read, piece))
        except ReadError as e:
            faults.append(Fault(n, e.why))
            continue
        out += [msgspec.structs.replace(s, path_=str(source.path)) for s in made]
    if out:
        out[0] = msgspec.structs.replace(out[0], faults=(*faults, *out[0].faults))
    return out


def _with_article(name: str) -> str:
    return f"an {name}" if name[0] in "aeio" else f"a {name}"


def _with_path(session: Session, path: Path) -> Session:
    return session if session.path_ else msgspec.structs.replace(session, path_=str(path))


def _read_folder(place: Path, reader: Reader | None) -> list[Session]:
    folders = tuple(
        m for m in ((reader,) if reader else all_readers()) if hasattr(m, "sniff_folder")
    )
    whole = _folder_reader(place, folders)
    if whole is not None:
        return whole(place)
    return list(read_all(place, None if reader is None else reader.NAME, progress=False))


def _folder_reader(place: Path, folders: tuple[Any, ...]) -> Callable[[Path], list[Session]] | None:
    for m in folders:
        if _guard(m.NAME, place, partial(m.sniff_folder, place)):
            return partial(_read_whole_folder, m)
    return None


def _read_whole_folder(reader: Any, path: Path) -> list[Session]:
    return _run_reader(reader, path, lambda: reader.read_folder(path))


def _run_reader(reader: Any, path: Path, do: Callable[[], list[Session]]) -> list[Session]:
    """Return a reader's sessions, placed and mended; our own format's were mended before."""
    read: list[Session] = _guard(reader.NAME, path, do)
    sessions = [_guard(reader.NAME, path, partial(without_claims, s)) for s in read]
    if reader.NAME == "native":
        return sessions
    blind = getattr(reader, "BLIND", ())
    placed = (_with_path(s, path) for s in sessions)
    return [_guard(reader.NAME, path, partial(repair_session, s, blind)) for s in placed]


def _guard(name: str, path: Path, do: Callable[[], Any]) -> Any:
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


def _check_path(path: object) -> Path:
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


_MIN_FOR_PROGRESS = 8


class Sessions(UserList[Session]):
    """Sessions in the order of their files: a list, and for what reads Arrow a table, a row a
    session.

    It does not inherit from `list`, as DuckDB takes such for values and never asks for the table.

    `failed` is a DataFrame (file, line, why), `failures` the same as plain tuples, `passed_over`
    the files of a folder that are plainly no logs.
    """

    def __init__(self, sessions: Iterable[Session] = ()) -> None:
        super().__init__(sessions)
        self.failures: list[tuple[str, int | None, str]] = []
        self.passed_over: list[str] = []

    def add_failure(self, error: ReadError) -> None:
        """Note a file that could not be read."""
        self.failures.append((error.path or "", error.line, error.why))

    @property
    def failed(self) -> pd.DataFrame:
        """The files that could not be read: file, line (missing: the whole file), why."""
        import pandas as pd

        frame = pd.DataFrame(self.failures, columns=["file", "line", "why"])
        return frame.astype({"file": "str", "line": "Int64", "why": "str"})

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a row a session as Arrow's C stream (`ctxkit.arrow` streams the other tables)."""
        return call_hook("sessions.arrow", self, "session").__arrow_c_stream__(requested_schema)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        bundle: dict[str, str] = call_hook("sessions.display", self)
        return bundle

    def __repr__(self) -> str:
        n, bad = len(self), len(self.failures)
        return (
            f"<{n} session{'' if n == 1 else 's'}{f', {bad} failed: see .failed' if bad else ''}>"
        )


def with_progress(work: Sequence[int], progress: bool) -> Iterable[int]:
    """Return the work with a progress bar around it, where it can be seen and is worth it."""
    seen = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if not progress or len(work) < _MIN_FOR_PROGRESS or not seen:
        return work
    from tqdm.auto import tqdm

    return tqdm(work, desc="reading", unit="file", leave=False)


LOG_SUFFIXES = {".json", ".jsonl", ".ndjson", ".traj", ".eval", ".log"}
_COMPRESSED_SUFFIXES = {".gz", ".zst", ".zip"}
_BINARY_MAGICS = (
    b"PK\3\4",
    b"\xff\xfe",
    b"\xfe\xff",
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
    b"SQLite format 3\0",
)
"""How archives, packed files, UTF-16 and databases begin."""
_SKIPPED_FOLDERS = {".git", "node_modules", "__pycache__", ".venv", ".ipynb_checkpoints"}
_PEEK = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCandidate:
    """A file or whole folder to be read."""

    path: Path
    named: bool = False
    """The user named it, so it must be a session."""
    folder: Callable[[Path], Any] | None = None
    """Reads the folder, where a folder is one session."""
    why: str = ""
    """Why there is nothing to read, where that is known already."""
    folder_real: str = ""
    """The real path of the folder it was found in, where that is known."""

    @property
    def real(self) -> str:
        """Its real path; of a file that is no link its folder's and its name."""
        if self.folder_real and not os.path.islink(self.path):  # noqa: PTH114  a third of the time
            return os.path.join(self.folder_real, self.path.name)  # noqa: PTH118  a text
        return os.path.realpath(self.path)

    @property
    def is_log(self) -> bool:
        """True where the name ends like a log's: a file worth telling of if no reader knows it."""
        path = self.path
        packed = (
            path.suffix.lower() in _COMPRESSED_SUFFIXES
            and path.with_suffix("").suffix in LOG_SUFFIXES
        )
        return path.suffix.lower() in LOG_SUFFIXES or packed


def find_log_files(
    place: Path, whole: Callable[[Path], Callable[[Path], Any] | None]
) -> list[LogCandidate]:
    """Return what lies at a place, by name; `whole` says how to read a folder of one session."""
    if place.is_dir():
        return list(_walk_folder(place, whole))
    if place.exists() or place.is_symlink() or not glob.has_magic(str(place)):
        return [LogCandidate(path=place, named=True)]
    out: list[LogCandidate] = []
    for name in sorted(glob.iglob(str(place), recursive=True)):  # noqa: PTH207  Path.glob refuses absolute patterns
        path = type(place)(name)
        if path.is_dir():
            out += [] if "**" in str(place) else _walk_folder(path, whole)
        else:
            out.append(LogCandidate(path=path))
    return out or [LogCandidate(path=place, named=True, why="no file matches.")]


def _walk_folder(
    top: Path, whole: Callable[[Path], Callable[[Path], Any] | None]
) -> Iterator[LogCandidate]:
    seen: set[str] = set()
    for folder, below, files in os.walk(top, followlinks=True):
        real = os.path.realpath(folder)
        path = type(top)(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        reads = whole(path)
        if reads is not None:
            below.clear()
            yield LogCandidate(path=path, folder=reads)
            continue
        below[:] = sorted(d for d in below if d not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            found = LogCandidate(path=path / name, folder_real=real)
            known = os.path.splitext(name)[1].lower() in LOG_SUFFIXES  # noqa: PTH122  ten times as quick
            if known or found.is_log or _may_be_text(found.path):
                yield found


def _may_be_text(path: Path) -> bool:
    """Say whether a file of another ending may be a log: text, packed, a database; no device."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as f:
            start = f.read(_PEEK)
    except OSError:
        return False
    return b"\0" not in start or start.startswith(_BINARY_MAGICS)


_NAME_PREFIX_CHARS = 30
"""Characters of a team's name that the names of its agents' files begin with."""
_MAX_AGENT_FILES = 400
"""Files beside a ledger that are read: a team has at most 200 agents, each of which may ask one."""
_TEAM_KEY = "team"
"""In the details of a ledger: the names of its agents."""
_replace = msgspec.structs.replace


def attach_team_agents(
    session: Session, path: Path, read: Callable[[Source], list[Session]]
) -> Session:
    """Return a team's ledger with its agents' sessions as children; any other session as it is.

    They are the files `TEAM.AGENT.jsonl` in the same folder that name the ledger as their parent;
    links are not followed.

    Args:
        session: what was read.
        path: its file.
        read: reads a session of our own format; ReadError where it is none.
    """
    names = session.details.get(_TEAM_KEY)
    if not isinstance(names, list) or session.children:
        return session
    beside, faults = _read_neighbours(path, read)
    order = {str(name): n for n, name in enumerate(names)}
    mine = sorted((s for s in beside if s.parent == session.id),
                  key=lambda s: order.get(s.agent, len(order)))  # fmt: skip
    children = [_replace(s, children=tuple(x for x in beside if x.parent == s.id)) for s in mine]
    return _replace(session, children=tuple(children), faults=(*session.faults, *faults),
                    path_=str(path))  # fmt: skip


def _read_neighbours(
    path: Path, read: Callable[[Source], list[Session]]
) -> tuple[list[Session], list[Fault]]:
    found: list[Session] = []
    faults: list[Fault] = []
    start = f"{path.stem[:_NAME_PREFIX_CHARS]}."
    files = (f for f in path.parent.iterdir() if f.name.startswith(start) and f.suffix == ".jsonl")
    for file in sorted(f for f in files if f != path)[:_MAX_AGENT_FILES]:
        try:
            if stat.S_ISREG(file.lstat().st_mode):
                own = [s for s in read(Source(file)) if _TEAM_KEY not in s.details]
                found += [_replace(s, path_=str(file)) for s in own]
        except (ReadError, OSError) as e:
            faults.append(Fault(0, f"agent's session {file.name}: {e}"))
    return found, faults
