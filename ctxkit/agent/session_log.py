"""The append-only log of a session: locked, repaired if its end is torn, with checkpoints."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec
from filelock import lock_descriptor

from ctxkit._internal.safe_files import SafeFolder
from ctxkit.agent.ctxkit_folder_and_session_trust import check_session_name
from ctxkit.errors import BadArguments, ReadError, StoreError
from ctxkit.formats.native import (
    encode_end_line,
    encode_entry_lines,
    encode_session_fields_line,
    encode_session_lines,
)
from ctxkit.formats.pi_message_parsing_and_encoding import (
    WrittenEntryIdsAndParents,
    encode_header,
    encode_line,
)
from ctxkit.formats.reading import read
from ctxkit.session.messages import Edit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ctxkit.session.session import LogEntry, Session


LOCKS_THE_LOG = os.name == "posix"
"""True if a lock on the log does not block readers; Windows locks a file beside it."""
ORPHANED_LOCK_SECONDS = 2.0
"""Time to wait for a lock whose holder has ended."""


def _ignore_name(_: str) -> None:
    """Ignore a name."""


# Durability
#
# * An entry is acknowledged when `append` returns: the bytes have left this process, so a killed
#   kernel cannot lose them. A write that fails halfway is truncated away.
# * Each entry is one line of JSON. Only the last line can be torn. On opening, a complete object
#   without its newline gets one; any other rest is moved to `NAME.torn`.
# * Before each write the file must be the one that was opened (same inode, same size). If it was
#   replaced, removed or changed, the log stops, and the whole session is written to a new file
#   `NAME.rescued` beside it. Nothing is overwritten.
# * One writer: an advisory lock on the log itself (POSIX) or on a file beside it (Windows, where a
#   lock would keep others from reading). A holder file says who has it, for the error message.


class SessionLog:
    """The file of one live session, and the exclusive right to write it.

    Args:
        folder: folder of the sessions, usually `.ctxkit/sessions`; it must not be a link.
        name: name of the session: letters, digits, `_`, `-` and `.`.
        new_session: the session to start with (id, model, tools, ...) if the file does not exist.
        on_create: called with the name of each session whose file is created here.

    Raises:
        BadArguments: the name is not valid.
        StoreError: another process holds the session (the sentence names it), or the file cannot be
            opened.

    Example:
        >>> import tempfile
        >>> import ctxkit as ck
        >>> from ctxkit.agent import SessionLog
        >>> from ctxkit.session import Message, Text
        >>> log = SessionLog(tempfile.mkdtemp(), "notes", ck.Session(id="notes"))
        >>> len(log.append(Message(role="user", parts=(Text("Hello."),))).messages)
        1
        >>> log.close()
        >>> len(ck.read(log.path).messages)
        1
    """

    def __init__(
        self,
        folder: str | Path,
        name: str,
        new_session: Session,
        on_create: Callable[[str], None] = _ignore_name,
    ) -> None:
        self.folder, self.name = Path(folder), check_session_name(name)
        self.path = self.folder / f"{name}.jsonl"
        self.recovered: str | None = None
        """Sentence on what was set aside when the file was opened; None: it was intact."""
        self.stopped: str | None = None
        """Sentence on why nothing more can be written; None: writing is possible."""
        self._on_create = on_create
        self._handle, self._lock_handle, self._size = -1, -1, 0
        self._safe_folder = self._make_folder()
        try:
            self._acquire_lock()
            self.session = self._load_or_create(new_session)
        except BaseException:
            self._release()
            raise

    # -- writing ----------------------------------------------------------------------------------

    def append(self, *entries: LogEntry) -> Session:
        """Append entries at the leaf, in one piece; return the session with them.

        Raises:
            StoreError: the log is closed or stopped, or the disk refused: the session is unchanged.
                Or the file is no longer the one that was opened: the session, now with these
                entries, is in a file beside it.
        """
        grown = self.session.append(*entries)
        tree, first = WrittenEntryIdsAndParents(grown), len(self.session.log)
        new = range(first, len(grown.log))
        self._write(
            b"".join(x for i in new for x in encode_entry_lines(tree, i, grown.log[i])), grown
        )
        self.session = grown
        return grown

    def move(self, entry: str | int) -> Session:
        """Move the leaf to an earlier entry; all entries stay, and the next one starts a branch.

        Args:
            entry: id or index of the entry that becomes the leaf.

        Returns:
            The session with the new leaf.

        Raises:
            StoreError: as for `append`.
        """
        moved = self.session.branch(entry)
        self._write(encode_end_line(moved), moved)
        self.session = moved
        return moved

    def revise(self, session: Session) -> Session:
        """Write the session's metadata (model, tools, settings) again; entries stay as they are.

        Args:
            session: the session with its new metadata and the same entries.

        Returns:
            The session as given.

        Raises:
            StoreError: as for `append`.
        """
        self._write(encode_session_fields_line(session), session)
        self.session = session
        return session

    def close(self) -> None:
        """Release the session for another writer.

        Raises:
            StoreError: the file was replaced or truncated; the session is in a file beside it.
        """
        if self._handle < 0:
            return
        try:
            if self.stopped is None and self._is_truncated():
                self._stop_writing("it was replaced or cut by another program", self.session)
        finally:
            if self.stopped is None:
                self._safe_folder.remove(self._holder_file)
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, data: bytes, session: Session) -> None:
        """Write at the end of the opened file; if it was changed, write `session` beside it.

        Raises:
            StoreError: it was closed or changed, or could not be written.
        """
        if self.stopped is not None:
            raise StoreError(self.stopped)
        if self._handle < 0:
            raise StoreError(f"Session {self.name!r} is closed; open it again to go on.")
        changed = self._describe_change()
        if changed:
            self._stop_writing(changed, session)  # raises
        try:
            written = os.write(self._handle, data)
            while written < len(data):
                written += os.write(self._handle, data[written:])
        except OSError as e:
            os.ftruncate(self._handle, self._size)  # leave no torn line
            message = (
                f"Session {self.name!r} could not be written ({e.strerror}); nothing was lost."
            )
            raise StoreError(message) from None
        self._size += len(data)

    # -- the file is the one that was opened ------------------------------------------------------

    def _describe_change(self) -> str:
        """Return how the file changed since the last write; empty if it did not."""
        try:
            on_disk, opened = self._safe_folder.stat(self.path.name), os.fstat(self._handle)
        except OSError as e:
            return f"it cannot be reached ({e.strerror})"
        if on_disk is None:
            return "it was removed"
        if not os.path.samestat(on_disk, opened):
            return "another file took its place"
        return "" if opened.st_size == self._size else "another program changed it"

    def _is_truncated(self) -> bool:
        """Return True if the file was replaced or is shorter than what was written."""
        with suppress(OSError):
            on_disk = self._safe_folder.stat(self.path.name)
            if on_disk is not None:
                same = os.path.samestat(on_disk, os.fstat(self._handle))
                return not same or on_disk.st_size < self._size
        return False

    def _stop_writing(self, why: str, session: Session) -> None:
        """Write a session beside the file and refuse further writes.

        Raises:
            StoreError: always; it says why, and where the session is.
        """
        self.session = session
        message = f"The file of session {self.name!r} is not the one that was opened: {why}. "
        try:
            name = self._write_rescue(session)
            message += (
                f"Nothing is lost: what the session holds is in {self.folder / name}.jsonl; "
                f"`%%agent --session {name}` goes on there."
            )
        except OSError as e:
            message += (
                f"What the session holds could not be written beside it ({e.strerror}): "
                "keep it by `ck.write(session, PATH)`."
            )
        self.stopped = message
        raise StoreError(message)

    def _write_rescue(self, session: Session) -> str:
        """Write a session to a new file, recreating the folder if needed; return its name."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with SafeFolder(self.folder) as folder:
            name = start = f"{self.name[:48]}.rescued"
            number = 1
            while folder.stat(f"{name}.jsonl") is not None:
                number += 1
                name = f"{start}-{number}"
            folder.write(f"{name}.jsonl", encode_session_lines(session))
        self._on_create(name)
        return name

    # -- opening ----------------------------------------------------------------------------------

    @property
    def _holder_file(self) -> str:
        return f".{self.name}.holder"

    def _make_folder(self) -> SafeFolder:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return SafeFolder(self.folder)
        except (OSError, ValueError) as e:
            why = (e.strerror if isinstance(e, OSError) else None) or type(e).__name__
            message = f"The folder {str(self.folder)!r} cannot be made or is a link ({why})."
            raise StoreError(message) from None

    def _acquire_lock(self) -> None:
        """Open and lock the file, and write who holds it."""
        try:
            self._handle = self._safe_folder.open_for_append(self.path.name, os.O_RDWR | os.O_CREAT)
        except OSError as e:
            message = (
                f"{self.path} cannot be opened for writing ({e.strerror}); links are not followed."
            )
            raise StoreError(message) from None
        try:
            if not LOCKS_THE_LOG:
                self._lock_handle = self._safe_folder.open(
                    f".{self.name}.lock", os.O_RDWR | os.O_CREAT
                )
            file = self._handle if LOCKS_THE_LOG else self._lock_handle
            is_free = lock_descriptor(file, blocking=False)
            # A program that the holder was starting when it was killed shares the lock until it
            # runs.
            deadline = time.monotonic() + ORPHANED_LOCK_SECONDS
            while not is_free and self._has_holder_ended() and time.monotonic() < deadline:
                time.sleep(0.02)
                is_free = lock_descriptor(file, blocking=False)
        except OSError as e:
            raise StoreError(
                f"Files in {self.folder} cannot be locked ({e.strerror}): keep the session in a"
                " folder of this machine."
            ) from None
        if not is_free:
            raise StoreError(
                f"Session {self.name!r} is being written by {self._describe_holder()}: stop it"
                " there, or choose another name."
            )
        holder = {"pid": os.getpid(), "host": socket.gethostname()}
        try:
            self._safe_folder.remove(self._holder_file)
            self._safe_folder.write(self._holder_file, (json.dumps(holder).encode(),))
        except OSError as e:
            raise StoreError(f"{self.folder} cannot be written ({e.strerror}).") from None

    def _read_holder(self) -> tuple[int, str] | None:
        """Return process and host of the holder; None: they cannot be read."""
        try:
            with os.fdopen(self._safe_folder.open(self._holder_file, os.O_RDONLY), "rb") as file:
                holder = json.loads(file.read(1000))
            return int(holder["pid"]), str(holder["host"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _describe_holder(self) -> str:
        holder = self._read_holder()
        return "another process" if holder is None else f"process {holder[0]} on {holder[1][:60]}"

    def _has_holder_ended(self) -> bool:
        """Return True if the holder was a process of this host that no longer exists."""
        pid, host = self._read_holder() or (0, "")
        if os.name != "posix" or host != socket.gethostname():
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            pass  # a process of another user, or no number of a process
        return False

    def _load_or_create(self, new_session: Session) -> Session:
        self._size = os.fstat(self._handle).st_size
        if not self._size:
            self._on_create(self.name)
            self._write(
                encode_line(encode_header(new_session)) + encode_session_fields_line(new_session),
                new_session,
            )
            return new_session
        session = self._read_session()  # first, so that a file of another program is not changed
        return self._read_session() if self._repair_last_line() else session

    def _read_session(self) -> Session:
        try:
            session = read(self.path, format="native")
        except ReadError as e:
            raise StoreError(f"{self.path} is not a ctxkit session: {e.why}") from None
        changed = self._describe_change()
        if changed:
            raise StoreError(f"{self.path} cannot be opened: {changed}.")
        return session

    def _repair_last_line(self) -> bool:
        """Repair the end of the file; return True if the log changed."""
        torn = read_unterminated_line(self._handle, self._size)
        if not torn:
            return False
        if is_complete_json_object(torn):  # an editor may have removed the last newline
            os.write(self._handle, b"\n")
            self._size += 1
            return True
        aside = self.path.with_suffix(".torn")
        self._set_aside(aside.name, torn)
        self._size -= len(torn)
        os.ftruncate(self._handle, self._size)
        self.recovered = (
            f"The last line was torn ({len(torn)} bytes); it was set aside in {aside.name}."
        )
        return True

    def _set_aside(self, name: str, torn: bytes) -> None:
        """Append a torn line to the file of torn lines.

        Raises:
            StoreError: it cannot be written; the session's file is unchanged.
        """
        try:
            self._safe_folder.append(name, torn + b"\n")
        except OSError as e:
            message = f"{self.folder / name} cannot take a torn line ({e.strerror}): move it away."
            raise StoreError(message) from None

    def _release(self) -> None:
        """Close the files, which releases the lock, and the folder."""
        for handle in (self._handle, self._lock_handle):
            if handle >= 0:
                os.close(handle)
        self._handle = self._lock_handle = -1
        self._safe_folder.close()


MAX_CHECKPOINTS = 25
"""Checkpoints that are offered, the newest ones (Fased keeps 25)."""


class CompactionCheckpoint(msgspec.Struct, frozen=True):
    """A point to which a session can be restored: the entry before a compaction."""

    number: int
    """Number of the compaction, from 0; the oldest checkpoint offered may have a higher one."""
    entry: int
    """Index in the session's log of the last entry before the compaction; -1: before anything."""
    trigger: str | None
    time: float | None
    tokens: int | None
    """Size of the context there, in tokens."""
    stands: bool
    """True if the compaction is in force on the current path."""


def list_checkpoints(session: Session) -> tuple[CompactionCheckpoint, ...]:
    """List the points to which a session can be restored: the entry before each compaction.

    Args:
        session: a session of `.ctxkit/sessions`, or any other.

    Returns:
        The newest 25 of all branches, the oldest first; `stands` is True where the compaction is in
        force on the current branch.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.agent import list_checkpoints
        >>> session = ck.read(ck.samples.path("billing"))
        >>> [(point.number, point.tokens) for point in list_checkpoints(session)]
        [(0, 40471), (1, 40224)]
    """
    parents = session.parents or tuple(range(-1, len(session.log) - 1))
    on_path = set(session.indices)
    checkpoints = [
        CompactionCheckpoint(
            n, parents[i], edit.trigger, edit.time, edit.tokens_before, i in on_path
        )
        for n, (i, edit) in enumerate(
            (i, e) for i, e in enumerate(session.log) if isinstance(e, Edit)
        )
    ]
    return tuple(checkpoints[-MAX_CHECKPOINTS:])


def get_checkpoint(session: Session, number: int) -> CompactionCheckpoint:
    """Return a checkpoint by its number; negative numbers count from the end.

    Args:
        session: the session with the checkpoints.
        number: as `list_checkpoints` numbers them, or -1 for the newest, -2 for the one before.

    Returns:
        The checkpoint.

    Raises:
        BadArguments: there is no such checkpoint.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.agent.session_log import get_checkpoint
        >>> get_checkpoint(ck.read(ck.samples.path("billing")), -1).tokens
        40224
    """
    checkpoints = list_checkpoints(session)
    for c in checkpoints:
        if number in (c.number, c.number - (checkpoints[-1].number + 1)):
            return c
    choices = (
        f"there are {checkpoints[0].number} to {checkpoints[-1].number}"
        if checkpoints
        else "none was made yet"
    )
    raise BadArguments(f"There is no checkpoint {number}: {choices}.")


def read_unterminated_line(handle: int, size: int) -> bytes:
    """Return the bytes after the last newline of a file of `size` bytes.

    Args:
        handle: file descriptor; its position is changed.
        size: bytes of the file.
    """
    at, pieces = size, [b""]
    while at and b"\n" not in pieces[0]:
        at, end = max(at - (1 << 16), 0), at
        os.lseek(handle, at, os.SEEK_SET)
        pieces.insert(0, os.read(handle, end - at))
    return b"".join(pieces).rpartition(b"\n")[2]


def is_complete_json_object(line: bytes) -> bool:
    """Return True for a complete JSON object; no proper prefix of an object is one."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
