"""A log that another program is writing: read again whenever it has changed."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ctxkit.errors import CtxkitError
from ctxkit.readers.reader_names import read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ctxkit.session import Session

_SHARE = 5
"""A file that takes long is looked at less often: reading takes a fifth of the time at most."""


class FollowedLog:
    """A session that grows in a file. While a line is half written, it stands as it stood.

    Args:
        path: the file.
        every: seconds between two looks.

    Raises:
        ReadError: it cannot be read at the beginning.
    """

    def __init__(self, path: Path, every: float) -> None:
        self.path, self.every, self.failed = path, every, ""
        """Why the last look could not read it; empty where it could."""
        self._stamp = self._now()
        self.session: Session = read(path)
        self._changed: list[Callable[[], None]] = []
        self._ended = threading.Event()
        self._took = 0.0

    def listen(self, changed: Callable[[], None]) -> None:
        """Call a function, in a thread of its own, whenever there is more; begin to look."""
        self._changed.append(changed)
        if len(self._changed) == 1:
            threading.Thread(target=self._follow, daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()

    def look(self) -> bool:
        """Read the file where it has changed; say whether anything is new."""
        now = self._now()
        if now == self._stamp:
            return False
        was, began = (len(self.session.log), self.failed), time.monotonic()
        try:
            self.session, self.failed = read(self.path), ""
        except (CtxkitError, OSError) as error:
            self.failed = str(error)
        else:
            self._stamp = now
        self._took = time.monotonic() - began
        return was != (len(self.session.log), self.failed)

    def _follow(self) -> None:
        while not self._ended.wait(max(self.every, _SHARE * self._took)):
            if self.look():
                for changed in self._changed:
                    changed()

    def _now(self) -> tuple[int, int] | None:
        try:
            told = self.path.stat()
        except OSError:
            return None
        return told.st_mtime_ns, told.st_size
