"""Where a project's sessions lie: `.ctxkit/` of the working folder, with a file of each kind for a session."""

from __future__ import annotations

import secrets
from pathlib import Path

from ctxkit.errors import StoreError

FOLDER = ".ctxkit"


class Workspace:
    """The `.ctxkit` folder of a project. Nothing is made before something is kept.

    Args:
        folder: the working folder; None: the current one.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder or Path.cwd()) / FOLDER

    @property
    def sessions(self) -> Path:
        """Session logs, a file a session."""
        return self.folder / "sessions"

    def names(self) -> list[str]:
        """Return the names of the sessions that are kept here, the newest first."""
        try:
            found = [p for p in self.sessions.glob("*.jsonl") if not p.name.startswith((".", "ctx_", "events_"))]
            return [p.stem for p in sorted(found, key=lambda p: -p.stat().st_mtime)]
        except OSError:
            return []

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
        """Return the growth chart of a session, written at the end of each turn (fuseraft's name)."""
        return self.folder / "logs" / f"ctx_viz_{session}.html"

    def crash(self, session: str) -> Path:
        """Return the file that says what happened when the kit itself failed."""
        return self.folder / "logs" / f"crash_{session}.txt"

    def make(self) -> None:
        """Make the folders, for the owner only.

        Raises:
            StoreError: they cannot be made.
        """
        try:
            for folder in (self.folder, self.sessions, self.folder / "logs", self.folder / "scratch"):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            ignore = self.folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
        except OSError as e:
            raise StoreError(f"The folder {self.folder} cannot be made ({e.strerror}).") from None


def new_id() -> str:
    """Return an id for a new session: eight hexadecimal digits, as fuseraft's."""
    return secrets.token_hex(4)
