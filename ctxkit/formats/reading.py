"""Reading sessions from files, folders, globs and lists of messages."""

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
from ctxkit._internal.lazy_exports_and_late_bound_calls import call_hook, make_dunder_dir
from ctxkit.errors import BadArguments, ReadError, UnknownFormat
from ctxkit.formats.impossible_size_removal import drop_impossible_sizes
from ctxkit.formats.log_file_content import Source
from ctxkit.formats.registry import (
    READER_MODULES,
    Reader,
    all_readers,
    detect_reader,
    format_names,
    get_reader,
    is_reader_of,
)
from ctxkit.formats.transcript_and_raw_body_join import join_transcripts_with_raw_bodies
from ctxkit.formats.zero_usage_and_lost_start_repairs import repair_session
from ctxkit.session.messages import Edit, Fault, Message
from ctxkit.session.session import Session
from ctxkit.tokens.context_windows import share_window_evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd


__all__ = [
    "READER_MODULES",
    "Reader",
    "all_readers",
    "detect_reader",
    "find_unread_logs",
    "format_names",
    "get_reader",
    "read",
    "read_all",
    "read_source",
]
__dir__ = make_dunder_dir(__all__)


def read(
    path: str | os.PathLike[str] | Sequence[Any],
    format: str | None = None,  # noqa: A002
) -> Session:
    """Read one session from a file, from a folder that holds exactly one, or from messages.

    Args:
        path: the file or folder; or a list of messages, the oldest first: dicts as Chat Completions
            or Anthropic's Messages take them (or the objects of their SDKs), or `ctxkit.Message`s.
        format: name of the format (see `ck.formats.format_names`); None: detected from the content.

    Returns:
        The session; its subagents are its `children`.

    Raises:
        BadArguments: `path` is neither a path nor a list of messages.
        ReadError: the file cannot be read, is no session, or holds several (use `read_all`).
        UnknownFormat: no reader recognizes the content, or no format has that name.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("billing"))
        >>> session.format, len(session.edits)
        ('native', 2)
        >>> ck.read([{"role": "user", "content": "Fix the build."}]).messages[0].text
        'Fix the build.'
    """
    reader = None if format is None else get_reader(format)
    if isinstance(path, (list, tuple)):
        return _read_messages(path, reader)
    location = _check_path(path)
    with pause_gc():
        is_folder = location.is_dir()
        sessions = (
            _read_folder(location, reader) if is_folder else read_source(Source(location), reader)
        )
    if not sessions:
        raise ReadError(
            "the folder holds no session that a reader knows: `ctxkit list` or ctxkit.read_all of"
            " it says why.",
            location,
        )
    if len(sessions) > 1:
        raise ReadError(
            f"expected one session, found {len(sessions)} sessions: ctxkit.read_all reads them"
            " all.",
            location,
        )
    return sessions[0]


def read_all(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    format: str | None = None,  # noqa: A002
    progress: bool = True,
) -> Sessions:
    """Read every session of files, folders (recursively) and globs.

    A file that cannot be read does not stop the others. A file inside a folder that no reader
    recognizes counts as failed only if its name ends like a log's (.json, .jsonl, .traj, ...).
    A file that belongs to another session (a subagent's) is read with that session only.

    Args:
        paths: a file, folder or glob, or a list of those.
        format: name of the format of every file; None: detected from the content.
        progress: False hides the progress bar, which appears only in a terminal or notebook and
            for eight files or more.

    Returns:
        A list of sessions in the order of their files, with `failed` (a DataFrame of the files that
        could not be read: file, line, why) and `passed_over` (paths of files that are no logs).

    Raises:
        UnknownFormat: no format has that name.

    Example:
        >>> import ctxkit as ck
        >>> sessions = ck.read_all(ck.samples.path("chat").parent / "*.jsonl")
        >>> len(sessions), len(sessions.failed)
        (3, 0)
    """
    reader = None if format is None else get_reader(format)
    candidates, sessions = [], Sessions()
    for location in [paths] if isinstance(paths, (str, os.PathLike)) else list(paths):
        candidates += find_unread_logs(location, reader)
    unique = list({candidate.real_path: candidate for candidate in reversed(candidates)}.values())[
        ::-1
    ]
    # In one process: 150 MB of plain messages take 1.0 s to read, and 0.8 s to move to another.
    with pause_gc():
        _collect_sessions(unique, reader, sessions, progress)
    return sessions


def find_unread_logs(
    location: str | os.PathLike[str], reader: Reader | None = None
) -> list[LogCandidate]:
    """Return the files and session folders that may be sessions, without reading them.

    Args:
        location: a file, folder or glob.
        reader: the reader that looks for session folders; None: all readers.

    Raises:
        BadArguments: the location is no path.
        ReadError: it is an empty text, or has a null character.
    """
    return find_log_files(
        _check_path(location),
        # the readers are imported for a folder only
        lambda folder: _find_folder_reader(folder, _readers_of_folders(reader)),
    )


def _read_messages(messages: Sequence[Any], reader: Reader | None) -> Session:
    """Read a list of messages as if it were the content of a file."""
    n_ours = sum(isinstance(m, (Message, Edit)) for m in messages)
    if n_ours and n_ours == len(messages):
        return Session(id="messages", log=tuple(messages))
    if n_ours:
        raise BadArguments("expected dicts or ctxkit.Message objects, found both in one list.")
    try:
        data = msgspec.json.encode(messages, enc_hook=_encode_sdk_object)
    except (TypeError, ValueError, RecursionError) as e:
        raise BadArguments(f"expected messages as dicts or ctxkit.Message objects: {e}.") from None
    try:
        sessions = read_source(Source("messages", data), reader)
    except ReadError as e:
        problem = "expected a list of messages with a role and content" if reader is None else e.why
        raise type(e)(f"{problem.rstrip('.')}.") from None
    if len(sessions) > 1:
        raise BadArguments(
            f"expected one conversation, found {len(sessions)}: give them one by one."
        )
    return msgspec.structs.replace(sessions[0], path_=None)


def _encode_sdk_object(message: Any) -> Any:
    """Return a pydantic object of an SDK as the dict that was received."""
    if not hasattr(message, "model_dump"):
        raise TypeError(f"found {type(message).__name__} among them")
    return message.model_dump(exclude_none=True)


def _collect_sessions(
    candidates: list[LogCandidate], reader: Reader | None, sessions: Sessions, progress: bool
) -> None:
    # A parent's file lies higher in the tree than those of its subagents. Reading from the top down
    # thus finds each parent first, and the files that it read as its children are skipped.
    order = sorted(range(len(candidates)), key=lambda i: (len(candidates[i].path.parts), i))
    sessions_by_index: dict[int, list[Session]] = {}
    subagent_files: set[str] = set()
    for i in _wrap_in_progress_bar(order, progress):
        candidate = candidates[i]
        if str(candidate.path) in subagent_files:
            continue
        if candidate.why:
            sessions.add_failure(ReadError(candidate.why, candidate.path))
            continue
        try:
            sessions_by_index[i] = (
                candidate.read_folder(candidate.path)
                if candidate.read_folder
                else read_source(Source(candidate.path), reader)
            )
        except UnknownFormat as e:
            if candidate.is_named or candidate.is_log:
                sessions.add_failure(e)
            else:
                sessions.passed_over.append(str(candidate.path))
        except ReadError as e:
            sessions.add_failure(e)
        for session in sessions_by_index.get(i, ()):
            # With another path it is a copy of a session that is read elsewhere.
            if session.path_ == str(candidate.path):
                subagent_files.update(get_subagent_paths(session))
    collected = list[Session]()
    for i in sorted(sessions_by_index):
        # Checked again, because a team's ledger may sort after the files of its agents.
        if str(candidates[i].path) not in subagent_files:
            collected += sessions_by_index[i]
    sessions.extend(share_window_evidence(join_transcripts_with_raw_bodies(collected)))


def get_subagent_paths(session: Session) -> set[str]:
    """Return the files of a session's subagents, where those have files of their own."""
    paths: set[str] = set()
    pending = list(session.children)
    while pending:
        descendant = pending.pop()
        pending.extend(descendant.children)
        if descendant.path_ and descendant.path_ != session.path_:
            paths.add(descendant.path_)
    return paths


def read_source(source: Source, reader: Reader | None = None) -> list[Session]:
    """Return the sessions of one source, at least one.

    Args:
        source: the file.
        reader: the reader to use; None: detected.

    Returns:
        The main sessions of the file; subagents are in their `children`.

    Raises:
        ReadError: it cannot be read as a session.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.formats import Source
        >>> [session.format for session in read_source(Source(ck.samples.path("chat")))]
        ['native']
    """
    is_detected = reader is None
    if reader is None:
        try:
            reader, is_recognized = detect_reader(source), True
        except UnknownFormat:
            sessions = _read_pieces(source, all_readers())
            if not sessions:
                raise
            return sessions
    else:
        is_recognized = is_reader_of(reader, source)
        sessions = [] if is_recognized else _read_pieces(source, (reader,))
        if sessions:
            return sessions
    sessions = _run_reader(reader, source.path, partial(reader.read, source))
    if not sessions or not (is_recognized or any(s.log or s.children for s in sessions)):
        raise ReadError(
            f"expected {_with_article(reader.NAME)} session, found {source.description}.",
            source.path,
        )
    if reader.NAME != "native" or not is_detected or not source.on_disk:
        return sessions
    read_native = partial(read_source, reader=reader)
    return [_attach_team_agents(s, source.path, read_native) for s in sessions]


def _read_pieces(source: Source, readers: tuple[Reader, ...]) -> list[Session]:
    """Read a file that wraps several pieces; return no session if none is recognized.

    The pieces are the lines of a log in a JSON list, or documents in a JSON list or one per line.
    """
    lines = source.as_lines()
    reader = next((r for r in readers if lines is not None and is_reader_of(r, lines)), None)
    pieces = [lines] if reader is not None and lines is not None else source.documents()
    sessions: list[Session] = []
    faults = list[Fault]()
    for number, piece in enumerate(pieces, 1):
        reader = reader or next((r for r in readers if is_reader_of(r, piece)), None)
        if reader is None:
            return []
        try:
            piece_sessions = _run_reader(reader, source.path, partial(reader.read, piece))
        except ReadError as e:
            faults.append(Fault(number, e.why))
            continue
        sessions += [msgspec.structs.replace(s, path_=str(source.path)) for s in piece_sessions]
    if sessions:
        sessions[0] = msgspec.structs.replace(sessions[0], faults=(*faults, *sessions[0].faults))
    return sessions


def _with_article(name: str) -> str:
    return f"an {name}" if name[0] in "aeio" else f"a {name}"


def _with_path(session: Session, path: Path) -> Session:
    return session if session.path_ else msgspec.structs.replace(session, path_=str(path))


def _read_folder(folder: Path, reader: Reader | None) -> list[Session]:
    read_session_folder = _find_folder_reader(folder, _readers_of_folders(reader))
    if read_session_folder is not None:
        return read_session_folder(folder)
    return list(read_all(folder, None if reader is None else reader.NAME, progress=False))


def _readers_of_folders(reader: Reader | None) -> tuple[Any, ...]:
    """Return the readers that can read a folder as one session, of all or of the one given."""
    return tuple(r for r in ((reader,) if reader else all_readers()) if hasattr(r, "sniff_folder"))


def _find_folder_reader(
    folder: Path, folder_readers: tuple[Any, ...]
) -> Callable[[Path], list[Session]] | None:
    for reader in folder_readers:
        if _guard_reader(reader.NAME, folder, partial(reader.sniff_folder, folder)):
            return partial(_read_whole_folder, reader)
    return None


def _read_whole_folder(reader: Any, path: Path) -> list[Session]:
    return _run_reader(reader, path, lambda: reader.read_folder(path))


def _run_reader(
    reader: Any, path: Path, read_sessions: Callable[[], list[Session]]
) -> list[Session]:
    """Run a reader; add file paths and repairs (the native format was repaired when written)."""
    read_result: list[Session] = _guard_reader(reader.NAME, path, read_sessions)
    sessions = [
        _guard_reader(reader.NAME, path, partial(drop_impossible_sizes, s)) for s in read_result
    ]
    if reader.NAME == "native":
        return sessions
    blind = getattr(reader, "BLIND", ())
    with_paths = (_with_path(s, path) for s in sessions)
    return [_guard_reader(reader.NAME, path, partial(repair_session, s, blind)) for s in with_paths]


def _guard_reader(name: str, path: Path, action: Callable[[], Any]) -> Any:
    """Run an action of a reader and turn any error into `ReadError`, as files are untrusted."""
    try:
        return action()
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


_MIN_FILES_FOR_PROGRESS = 8


class Sessions(UserList[Session]):
    """A list of sessions in the order of their files, and an Arrow table with one row per session.

    It does not inherit from `list`, because DuckDB takes lists for values and ignores their Arrow
    interface.

    Attributes:
        failed: a DataFrame of the files that could not be read (file, line, why).
        failures: the same as tuples.
        passed_over: paths of the files in a folder that are plainly no logs.

    Args:
        sessions: the sessions that were read; files that failed are added by `add_failure`.

    Example:
        >>> import ctxkit as ck
        >>> ck.read_all(ck.samples.path("chat"))
        <1 session>
    """

    def __init__(self, sessions: Iterable[Session] = ()) -> None:
        super().__init__(sessions)
        self.failures: list[tuple[str, int | None, str]] = []
        self.passed_over: list[str] = []

    def add_failure(self, error: ReadError) -> None:
        """Record a file that could not be read."""
        self.failures.append((error.path or "", error.line, error.why))

    @property
    def failed(self) -> pd.DataFrame:
        """The files that could not be read: file, line (missing if the whole file), why."""
        import pandas as pd

        frame = pd.DataFrame(self.failures, columns=["file", "line", "why"])
        return frame.astype({"file": "str", "line": "Int64", "why": "str"})

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return one row per session as an Arrow C stream (`ctxkit.arrow` has other tables)."""
        return call_hook("sessions.arrow", self, "session").__arrow_c_stream__(requested_schema)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        bundle: dict[str, str] = call_hook("sessions.display", self)
        return bundle

    def __repr__(self) -> str:
        count, failures = len(self), len(self.failures)
        hint = f", {failures} failed: see .failed" if failures else ""
        return f"<{count} session{'s' * (count != 1)}{hint}>"


def _wrap_in_progress_bar(work: Sequence[int], progress: bool) -> Iterable[int]:
    """Wrap the items in a progress bar if it can be seen and there are enough of them."""
    is_visible = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if not progress or len(work) < _MIN_FILES_FOR_PROGRESS or not is_visible:
        return work
    from ctxkit._internal.progress_bar import make_progress_bar

    bar: Iterable[int] = make_progress_bar(work, desc="reading", unit="file", leave=False)
    return bar


LOG_SUFFIXES = {".json", ".jsonl", ".ndjson", ".traj", ".eval", ".log"}
_METADATA_SUFFIX = ".meta.json"
"""End of the name of a file beside a subagent's transcript that says only which kind it is."""
_COMPRESSED_SUFFIXES = {".gz", ".zst", ".zip"}
_BINARY_MAGICS = (
    b"PK\3\4",
    b"\xff\xfe",
    b"\xfe\xff",
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
    b"SQLite format 3\0",
)
"""First bytes of archives, packed files, UTF-16 and databases."""
_SKIPPED_FOLDERS = {".git", "node_modules", "__pycache__", ".venv", ".ipynb_checkpoints"}
_PEEK_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCandidate:
    """A file, or a folder that is one session, that may be read."""

    path: Path
    is_named: bool = False
    """True if the user named it, so that it is an error if it is no session."""
    read_folder: Callable[[Path], Any] | None = None
    """Reads the sessions of a folder that is one session; None for a file."""
    why: str = ""
    """Why it cannot be read, if that is known already."""
    real_folder: str = ""
    """The real path of the folder it was listed in, if known."""

    @property
    def real_path(self) -> str:
        """The path with links resolved (with fewer system calls for a listed file)."""
        if self.real_folder and not os.path.islink(self.path):  # noqa: PTH114  a third of the time
            return os.path.join(self.real_folder, self.path.name)  # noqa: PTH118  a text
        return os.path.realpath(self.path)

    @property
    def is_log(self) -> bool:
        """True if the name ends like a log's, so that an unrecognized content is a failure."""
        path = self.path
        if path.name.endswith(_METADATA_SUFFIX):
            return False
        is_packed_log = (
            path.suffix.lower() in _COMPRESSED_SUFFIXES
            and path.with_suffix("").suffix in LOG_SUFFIXES
        )
        return path.suffix.lower() in LOG_SUFFIXES or is_packed_log


def find_log_files(
    location: Path, find_folder_reader: Callable[[Path], Callable[[Path], Any] | None]
) -> list[LogCandidate]:
    """List the files at a location, sorted by name.

    Args:
        location: a file, folder or glob.
        find_folder_reader: returns the function that reads a folder as one session, or None.
    """
    if location.is_dir():
        return list(_walk_folder(location, find_folder_reader))
    if location.exists() or location.is_symlink() or not glob.has_magic(str(location)):
        return [LogCandidate(path=location, is_named=True)]
    candidates: list[LogCandidate] = []
    for name in sorted(glob.iglob(str(location), recursive=True)):  # noqa: PTH207  Path.glob refuses absolute patterns
        path = type(location)(name)
        if path.is_dir():
            candidates += [] if "**" in str(location) else _walk_folder(path, find_folder_reader)
        else:
            candidates.append(LogCandidate(path=path))
    return candidates or [LogCandidate(path=location, is_named=True, why="no file matches.")]


def _walk_folder(
    top: Path, find_folder_reader: Callable[[Path], Callable[[Path], Any] | None]
) -> Iterator[LogCandidate]:
    visited: set[str] = set()
    for folder, subfolders, files in os.walk(top, followlinks=True):
        real = os.path.realpath(folder)
        path = type(top)(folder)
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        read_folder = find_folder_reader(path)
        if read_folder is not None:
            subfolders.clear()
            yield LogCandidate(path=path, read_folder=read_folder)
            continue
        subfolders[:] = sorted(d for d in subfolders if d not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            candidate = LogCandidate(path=path / name, real_folder=real)
            has_log_suffix = os.path.splitext(name)[1].lower() in LOG_SUFFIXES  # noqa: PTH122  ten times as quick
            if has_log_suffix or candidate.is_log or _may_be_text(candidate.path):
                yield candidate


def _may_be_text(path: Path) -> bool:
    """Return True if a file with another suffix may be a log: text, packed or a database."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            start = file.read(_PEEK_BYTES)
    except OSError:
        return False
    return b"\0" not in start or start.startswith(_BINARY_MAGICS)


_NAME_PREFIX_CHARS = 30
"""Length of the prefix that the file of a team shares with the files of its agents."""
_MAX_AGENT_FILES = 400
"""Files read beside a ledger: a team has at most 200 agents, each with at most one helper."""
_TEAM_KEY = "team"
"""Key in the details of a ledger for the names of its agents."""
_replace_fields = msgspec.structs.replace


def _attach_team_agents(
    session: Session, path: Path, read_native: Callable[[Source], list[Session]]
) -> Session:
    """Return a team's ledger with its agents' sessions as children; other sessions unchanged.

    The agents' files are named `TEAM.AGENT.jsonl`, are in the same folder and name the ledger as
    their parent; links are not followed.

    Args:
        session: the session read from the file.
        path: its file.
        read_native: reads the sessions of a native file, or raises ReadError.
    """
    agent_names = session.details.get(_TEAM_KEY)
    if not isinstance(agent_names, list) or session.children:
        return session
    neighbours, faults = _read_neighbours(path, read_native)
    order = {str(name): position for position, name in enumerate(agent_names)}
    agents = sorted((agent for agent in neighbours if agent.parent == session.id),
                  key=lambda agent: order.get(agent.agent, len(order)))  # fmt: skip
    children = [
        _replace_fields(
            agent, children=tuple(helper for helper in neighbours if helper.parent == agent.id)
        )
        for agent in agents
    ]
    return _replace_fields(session, children=tuple(children), faults=(*session.faults, *faults),
                    path_=str(path))  # fmt: skip


def _read_neighbours(
    path: Path, read_native: Callable[[Source], list[Session]]
) -> tuple[list[Session], list[Fault]]:
    sessions: list[Session] = []
    faults: list[Fault] = []
    name_prefix = f"{path.stem[:_NAME_PREFIX_CHARS]}."
    files = (
        f for f in path.parent.iterdir() if f.name.startswith(name_prefix) and f.suffix == ".jsonl"
    )
    for file in sorted(f for f in files if f != path)[:_MAX_AGENT_FILES]:
        try:
            if stat.S_ISREG(file.lstat().st_mode):
                agent_sessions = [
                    s for s in read_native(Source(file)) if _TEAM_KEY not in s.details
                ]
                sessions += [_replace_fields(s, path_=str(file)) for s in agent_sessions]
        except (ReadError, OSError) as e:
            faults.append(Fault(0, f"agent's session {file.name}: {e}"))
    return sessions, faults
