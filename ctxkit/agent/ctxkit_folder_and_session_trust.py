"""The .ctxkit folder of a project: paths of its files, and which sessions the user trusts."""

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

from ctxkit._internal.safe_files import SafeFolder
from ctxkit.errors import BadArguments, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.session.session import Session


WORKSPACE_FOLDER = ".ctxkit"
_SESSION_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9_-])?")
_WINDOWS_DEVICE = re.compile(r"(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
"""Names of devices on Windows, with any extension."""


def check_session_name(name: str) -> str:
    """Return a valid name of a session, which becomes part of paths.

    Args:
        name: at most 64 letters, digits, `_`, `-` and `.`; no Windows device name.

    Returns:
        The name as it is.

    Raises:
        BadArguments: the name is not valid.

    Example:
        >>> from ctxkit.agent.ctxkit_folder_and_session_trust import check_session_name
        >>> check_session_name("billing-2")
        'billing-2'
    """
    if not _SESSION_NAME.fullmatch(name) or _WINDOWS_DEVICE.fullmatch(name):
        raise BadArguments(
            f"{name[:80]!r} is no name for a session: use at most 64 letters, digits, '_', '-' and "
            "'.', with no '-' or '.' at the start, no '.' at the end, and no Windows device name."
        )
    return name


# A project folder may come from anybody. So nothing in `.ctxkit/` is reached through a link,
# nothing is appended to a file with other names (hard links), and a session that this user did not
# begin is refused until the user trusts it.
class Workspace:
    """The `.ctxkit` folder of a project; it is created with the first session.

    Args:
        folder: the working folder; None: the current one.

    Example:
        >>> import tempfile
        >>> from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
        >>> Workspace(tempfile.mkdtemp()).sessions.name
        'sessions'
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._base = Path(folder or Path.cwd())
        self.folder = self._base / WORKSPACE_FOLDER

    # -- places -----------------------------------------------------------------------------------

    @property
    def sessions(self) -> Path:
        """Folder of the session logs, one file per session."""
        return self.folder / "sessions"

    def names(self) -> list[str]:
        """Return the names of the sessions stored here, the newest first."""
        paths: list[Path] = []
        with suppress(OSError):  # the folder may not be readable
            paths += self.sessions.glob("*.jsonl")
        by_age: list[tuple[float, str]] = []
        for path in paths:
            if not path.name.startswith((".", "ctx_", "events_")):
                with suppress(OSError):  # a session may just have been removed
                    by_age.append((-path.lstat().st_mtime, path.stem))
        return [name for _, name in sorted(by_age)]

    def scratch(self, session: str) -> Path:
        """Return the folder in which a session's tools work, unless the user names one."""
        return self.folder / "scratch" / session

    def snapshots(self, session: str) -> Path:
        """Return the path of a session's snapshot log (fuseraft's name for it)."""
        return self.folder / "logs" / f"ctx_snapshots_{session}.jsonl"

    def events(self, session: str) -> Path:
        """Return the path of a session's event log."""
        return self.folder / "logs" / f"events_{session}.jsonl"

    def chart(self, session: str) -> Path:
        """Return the path of the growth chart, written after each turn (fuseraft's name)."""
        return self.folder / "logs" / f"ctx_viz_{session}.html"

    def state(self, session: str) -> Path:
        """Return the folder of a session's work records: changes, intents, evidence."""
        return self.folder / "state" / session

    def results(self, session: str) -> Path:
        """Return the folder of a session's artifacts in fuseraft's format."""
        return self.folder / "artifacts" / "sessions" / session / "tool-results"

    def crash(self, session: str) -> Path:
        """Return the path of the report that is written when ctxkit itself fails."""
        return self.folder / "logs" / f"crash_{session}.txt"

    def new_id(self, session: str, seed: str = "") -> str:
        """Return an id for a new session: eight hexadecimal digits, as fuseraft's.

        Args:
            session: name of the session.
            seed: derives the id from this text, the name and the ids taken here; empty: random.
        """
        if not seed:
            return secrets.token_hex(4)
        digests = (sha256(f"{seed}\0{session}\0{n}".encode()) for n in count())
        return next(x for d in digests if not self.events(x := d.hexdigest()[:8]).exists())

    # -- files in them ----------------------------------------------------------------------------

    def make(self) -> None:
        """Create the folders, readable by their owner only.

        Raises:
            StoreError: they cannot be created, or one of them is a link.
        """
        with suppress(OSError):  # the error is reported below
            self._base.mkdir(parents=True, exist_ok=True)
        for folder in (self.sessions, self.folder / "logs", self.folder / "scratch"):
            with self.reach(folder, make=0o700):
                pass
        with self.reach(self.folder) as here:
            if here.stat(".gitignore") is None:
                here.write(".gitignore", (b"*\n",), 0o644)

    @contextmanager
    def reach(self, folder: Path, make: int | None = None) -> Iterator[SafeFolder]:
        """Yield a folder of the workspace, held open; operating-system errors become sentences.

        Args:
            folder: a path below the working folder.
            make: mode of missing folders, which are created; None: a missing folder is an error.

        Raises:
            StoreError: it is a link, or cannot be entered or created.
        """
        try:
            parts = folder.relative_to(self._base).parts
            with SafeFolder(self._base.resolve()).open_subfolder(parts, create_mode=make) as here:
                yield here
        except OSError as e:
            why = f"{e.strerror or type(e).__name__}; links are not followed there"
            message = f"{e.filename or folder.name!s} in {folder} cannot be used ({why})."
            raise StoreError(message) from None

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """Return a descriptor that appends to a file of the workspace.

        Args:
            path: the file.
            flags: flags of `os.open`.
            mode: permissions of a file that is created.

        Raises:
            StoreError: it is a link, no regular file, or has other names.
        """
        with self.reach(path.parent) as here:
            return here.open_for_append(path.name, flags, mode)

    def write(self, path: Path, content: str | Iterable[bytes]) -> None:
        """Write a file of the workspace atomically, readable by its owner only.

        Args:
            path: path of the file.
            content: its new content, a text or encoded pieces.

        Raises:
            StoreError: it cannot be written.
        """
        pieces = (content.encode("utf-8", "replace"),) if isinstance(content, str) else content
        with self.reach(path.parent) as here:
            here.write(path.name, pieces)

    def write_file(self, folder: Path, name: str, text: str) -> None:
        """Write a file into a folder of the workspace as `write` does, creating the folder.

        Args:
            folder: folder of the workspace.
            name: name of the file.
            text: its new content.

        Raises:
            StoreError: it cannot be written.
        """
        with self.reach(folder, make=0o700) as here:
            here.write(name, (text.encode("utf-8", "replace"),))

    def read_file(self, folder: Path, name: str, max_bytes: int = 1_000_000) -> str:
        """Return the text of a file of the workspace, up to `max_bytes`; empty if unreadable.

        Args:
            folder: folder of the workspace.
            name: name of the file.
            max_bytes: bytes that are read at most.
        """
        try:
            with self.reach(folder) as here, os.fdopen(here.open(name, os.O_RDONLY), "rb") as file:
                return file.read(max_bytes).decode("utf-8", "replace")
        except StoreError:
            return ""

    # -- whose sessions they are ------------------------------------------------------------------

    def session(self, name: str) -> Session | None:
        """Return a session that is stored here, or None.

        Raises:
            BadArguments: this user neither began it here nor trusted it.
            ReadError: it cannot be read.
        """
        from ctxkit.formats.reading import read

        path = self.sessions / f"{check_session_name(name)}.jsonl"
        if not self.has_session(name):
            return None
        self.check(name)
        return read(path, format="native")

    def has_session(self, name: str) -> bool:
        """Return True if there is a session of that name.

        Raises:
            StoreError: something else has that name.
        """
        if not os.path.lexists(self.sessions):
            return False
        with self.reach(self.sessions) as here:
            return here.stat(f"{check_session_name(name)}.jsonl") is not None

    def check(self, name: str) -> None:
        """Refuse a session that this user neither began here nor trusted.

        Raises:
            BadArguments: it is not trusted; the sentence says how to trust it.
        """
        if not self.has_session(name) or self._is_trusted(name):
            return
        raise BadArguments(
            f"Session {name!r} lies in {self.sessions} but was not begun there by you: it may have "
            f"come with the folder. If you know who wrote it, `%%agent --session {name} --trust` "
            "goes on with it; otherwise choose another name."
        )

    def trust(self, name: str) -> None:
        """Mark a session as trusted: this user began it, or confirmed it with `--trust`.

        Raises:
            StoreError: the mark cannot be written.
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
        return make_session_trust_mark(folder / f"{name}.jsonl", status.st_uid)


_KEY_BYTES = 32


# Trust marks and seals
#
# A keyed hash (HMAC-SHA256) proves that this user wrote something. The key, 32 random bytes, is
# created once in the user's own state folder and never leaves it.
#   trust mark   over the session file's real path and owner: a copied or foreign file has none
#   seal         over a session's settings (`session_settings_seal_and_changes`): others are ignored
# Comparisons take constant time. See docs/decisions/007.


def make_session_trust_mark(session_file: Path, owner: int) -> bytes:
    """Return the trust mark of a file, made from its real path and the id of its owner.

    Args:
        session_file: real path of the file.
        owner: user id of its owner.

    Raises:
        StoreError: there is no key, and none can be stored.
    """
    return make_seal(f"{owner}\n{session_file}").encode()


def make_seal(text: str) -> str:
    """Return the HMAC-SHA256 of a text by this user's key, in hexadecimal.

    Args:
        text: what is sealed, such as the settings of a session as JSON.

    Returns:
        64 digits; the key lies in the user's state folder and is made at the first seal.

    Raises:
        StoreError: there is no key, and none can be stored.
    """
    return hmac.new(_user_key(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def verify_seal(text: str, seal: str) -> bool:
    """Return whether this user made the seal of a text; False if there is no key.

    Args:
        text: what may have been sealed.
        seal: as it is stored beside the text.

    Returns:
        True only for a seal of `make_seal` by this user; compared in constant time.
    """
    with suppress(StoreError):
        return hmac.compare_digest(make_seal(text).encode(), seal.encode("utf-8", "replace"))
    return False


def get_user_state_folder() -> Path:
    """Return the folder for data of the user rather than of a project (XDG Base Directory).

    Returns:
        `$XDG_STATE_HOME/ctxkit`, else `~/.local/state/ctxkit`; it may not exist yet.
    """
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises where there is no home
    return Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "ctxkit"


def _user_key() -> bytes:
    folder = get_user_state_folder()
    try:
        with SafeFolder.open_or_create(folder) as here:
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
