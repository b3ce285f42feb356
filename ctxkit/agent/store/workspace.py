"""The .ctxkit folder of a project: paths of its files, and which sessions the user trusts.

A folder may come from anybody, so nothing in `.ctxkit/` is reached through a link, nothing is added
to a file that has other names (hard links), and a session that this user did not begin waits for a
word.

A mark is a keyed hash (HMAC-SHA256) of where the session lies and whose file it is. The key is made
once and stays in the user's own state folder; it also seals how a session is led (`agent.resume`).
See docs/decisions/007.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit._internal.safe_fs import SafeFolder
from ctxkit.errors import BadArguments, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session.session import Session


WORKSPACE_FOLDER = ".ctxkit"
_SESSION_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9_-])?")
_WINDOWS_DEVICE = re.compile(r"(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
"""Names that stand for devices on Windows, whatever follows after a point."""


def check_session_name(name: str) -> str:
    """Return the name of a session, which is a part of paths.

    Raises:
        BadArguments: it is none.
    """
    if not _SESSION_NAME.fullmatch(name) or _WINDOWS_DEVICE.fullmatch(name):
        raise BadArguments(
            f"{name[:80]!r} is no name for a session: use letters, digits, '_', '-' and '.', at "
            "most 64, that begin with no sign, end with no point and are no device of Windows."
        )
    return name


class Workspace:
    """The `.ctxkit` folder of a project. Nothing is made before something is kept.

    Args:
        folder: the working folder; None: the current one.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._base = Path(folder or Path.cwd())
        self.folder = self._base / WORKSPACE_FOLDER

    # -- places -----------------------------------------------------------------------------------

    @property
    def sessions(self) -> Path:
        """Session logs, a file a session."""
        return self.folder / "sessions"

    def names(self) -> list[str]:
        """Return the names of the sessions that are kept here, the newest first."""
        paths: list[Path] = []
        with suppress(OSError):  # a folder that cannot be entered
            paths += self.sessions.glob("*.jsonl")
        by_age: list[tuple[float, str]] = []
        for path in paths:
            if not path.name.startswith((".", "ctx_", "events_")):
                with suppress(OSError):  # a session that has just gone
                    by_age.append((-path.lstat().st_mtime, path.stem))
        return [name for _, name in sorted(by_age)]

    def scratch(self, session: str) -> Path:
        """Return the folder in which a session's tools work unless the user names one."""
        return self.folder / "scratch" / session

    def snapshots(self, session: str) -> Path:
        """Return the snapshot log of a session, fuseraft's name for it."""
        return self.folder / "logs" / f"ctx_snapshots_{session}.jsonl"

    def events(self, session: str) -> Path:
        """Return the events log of a session."""
        return self.folder / "logs" / f"events_{session}.jsonl"

    def chart(self, session: str) -> Path:
        """Return the growth chart, written at the end of each turn (fuseraft's name)."""
        return self.folder / "logs" / f"ctx_viz_{session}.html"

    def state(self, session: str) -> Path:
        """Return the folder of the files of a session's work: changes, intents, evidence."""
        return self.folder / "state" / session

    def results(self, session: str) -> Path:
        """Return the folder of a session's artifacts, as fuseraft stores them."""
        return self.folder / "artifacts" / "sessions" / session / "tool-results"

    def crash(self, session: str) -> Path:
        """Return the file that says what happened when the kit itself failed."""
        return self.folder / "logs" / f"crash_{session}.txt"

    def new_id(self, session: str, seed: str = "") -> str:
        """Return an id for a new session: eight hexadecimal digits, as fuseraft's.

        Args:
            session: its name.
            seed: what the id follows from, with the name and the ids that are taken here; empty: by
                chance.
        """
        if not seed:
            return secrets.token_hex(4)
        digests = (sha256(f"{seed}\0{session}\0{n}".encode()) for n in count())
        return next(x for d in digests if not self.events(x := d.hexdigest()[:8]).exists())

    # -- files in them ----------------------------------------------------------------------------

    def make(self) -> None:
        """Make the folders, for the owner only.

        Raises:
            StoreError: they cannot be made, or one of them is a link.
        """
        with suppress(OSError):  # what is wrong with it is said below
            self._base.mkdir(parents=True, exist_ok=True)
        for folder in (self.sessions, self.folder / "logs", self.folder / "scratch"):
            with self.reach(folder, make=0o700):
                pass
        with self.reach(self.folder) as here:
            if here.stat(".gitignore") is None:
                here.write(".gitignore", (b"*\n",), 0o644)

    @contextmanager
    def reach(self, folder: Path, make: int | None = None) -> Iterator[SafeFolder]:
        """Yield a folder of the workspace, held open; errors in it become sentences.

        Raises:
            StoreError: it is a link, cannot be entered or made.
        """
        try:
            parts = folder.relative_to(self._base).parts
            with SafeFolder(self._base.resolve()).below(parts, make=make) as here:
                yield here
        except OSError as e:
            why = f"{e.strerror or type(e).__name__}; links are not followed there"
            message = f"{e.filename or folder.name!s} in {folder} cannot be used ({why})."
            raise StoreError(message) from None

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """Return a handle that writes at the end of a file of the workspace.

        Raises:
            StoreError: it is a link, no regular file, or has other names.
        """
        with self.reach(path.parent) as here:
            return here.open_own(path.name, flags, mode)

    def write(self, path: Path, text: str) -> None:
        """Write a file of the workspace, whole or not at all, for the owner only.

        Raises:
            StoreError: it cannot be written.
        """
        with self.reach(path.parent) as here:
            here.write(path.name, (text.encode("utf-8", "replace"),))

    def keep(self, folder: Path, name: str, text: str) -> None:
        """Write a file into a folder of the workspace, which is made where it is missing; see
        `write`.

        Raises:
            StoreError: it cannot be written.
        """
        with self.reach(folder, make=0o700) as here:
            here.write(name, (text.encode("utf-8", "replace"),))

    def held(self, folder: Path, name: str, max_bytes: int = 1_000_000) -> str:
        """Return a text of the workspace, at most so many bytes; empty where unreadable."""
        try:
            with self.reach(folder) as here, os.fdopen(here.open(name, os.O_RDONLY), "rb") as file:
                return file.read(max_bytes).decode("utf-8", "replace")
        except StoreError:
            return ""

    # -- whose sessions they are ------------------------------------------------------------------

    def session(self, name: str) -> Session | None:
        """Return a session that is kept here, or None.

        Raises:
            BadArguments: it was begun elsewhere or by somebody else, and nobody vouched for it.
            ReadError: it cannot be read.
        """
        from ctxkit.formats.reading import read

        path = self.sessions / f"{check_session_name(name)}.jsonl"
        if not self.begun(name):
            return None
        self.check(name)
        return read(path, format="native")

    def begun(self, name: str) -> bool:
        """Return True where there is a session of that name.

        Raises:
            StoreError: there is something else of that name.
        """
        if not os.path.lexists(self.sessions):
            return False
        with self.reach(self.sessions) as here:
            return here.stat(f"{check_session_name(name)}.jsonl") is not None

    def check(self, name: str) -> None:
        """Let a session pass that this user began here, or vouched for.

        Raises:
            BadArguments: it is another's; the sentence says the word that lets it pass.
        """
        if not self.begun(name) or self._is_trusted(name):
            return
        raise BadArguments(
            f"Session {name!r} lies in {self.sessions} but was not begun there by you: it may have "
            f"come with the folder. If you know who wrote it, `%%agent --session {name} --trust` "
            "goes on with it; otherwise choose another name."
        )

    def vouch(self, name: str) -> None:
        """Note that a session may be gone on with: this user began it, or gave the word.

        Raises:
            StoreError: that cannot be noted.
        """
        with self.reach(self.sessions) as here:
            status = here.stat(f"{check_session_name(name)}.jsonl")
            if status is not None:
                here.write(f".{name}.mine", (self._trust_mark(name, status),))

    def _is_trusted(self, name: str) -> bool:
        with self.reach(self.sessions) as here:
            status = here.stat(f"{name}.jsonl")
            if status is None or here.stat(f".{name}.mine") is None:
                return False
            with os.fdopen(here.open(f".{name}.mine", os.O_RDONLY), "rb") as file:
                return secrets.compare_digest(file.read(100), self._trust_mark(name, status))

    def _trust_mark(self, name: str, status: os.stat_result) -> bytes:
        folder = self._base.resolve() / self.sessions.relative_to(self._base)
        return make_trust_mark(folder / f"{name}.jsonl", status.st_uid)


_KEY_BYTES = 32


def make_trust_mark(path: Path, owner: int) -> bytes:
    """Return the mark of a file: of its real path and the number of its owner.

    Raises:
        StoreError: there is no key and none can be kept.
    """
    return make_seal(f"{owner}\n{path}").encode()


def make_seal(text: str) -> str:
    """Return what only this user can make of a text.

    Raises:
        StoreError: there is no key and none can be kept.
    """
    return hmac.new(_user_key(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def verify_seal(text: str, by: str) -> bool:
    """Say whether this user made a seal of a text; False where there is no key."""
    with suppress(StoreError):
        return hmac.compare_digest(make_seal(text).encode(), by.encode("utf-8", "replace"))
    return False


def user_state_folder() -> Path:
    """Return the folder of what belongs to the user, not to a project (XDG Base Directory)."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises where there is no home
    return Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "ctxkit"


def _user_key() -> bytes:
    folder = user_state_folder()
    try:
        with SafeFolder.own(folder) as here:
            with suppress(FileExistsError):
                new_file = here.open("key", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                os.write(new_file, secrets.token_bytes(_KEY_BYTES))
                os.close(new_file)
            handle = here.open("key", os.O_RDONLY)
            with os.fdopen(handle, "rb") as file:
                key = file.read(_KEY_BYTES + 1)
    except OSError as e:
        raise StoreError(
            f"{folder} cannot keep the kit's key ({e.strerror}): name another place by "
            "XDG_STATE_HOME."
        ) from None
    if len(key) != _KEY_BYTES:
        raise StoreError(f"{folder / 'key'} is not the kit's key: remove it; a new one is made.")
    return key
