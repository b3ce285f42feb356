"""Data sources of widgets: sessions, frames, snapshots, a live session, or a growing log."""

from __future__ import annotations

import threading
import time
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.errors import BadArguments, CtxkitError, ReadError, did_you_mean
from ctxkit.formats.reading import read
from ctxkit.formats.sessions_from_arguments import as_session, as_sessions
from ctxkit.session.session import Session, with_unique_ids
from ctxkit.session.titles import get_title, make_unique_titles

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from ctxkit.agent.live_session import LiveSession


class WidgetDataSource(NamedTuple):
    """The sessions, frame or live session that a widget draws."""

    sessions: Callable[[], list[Session]]
    """The sessions as they stand; none where a frame was given."""
    frame: pd.DataFrame | None = None
    """A turn frame, or one of snapshots with their markers."""
    live: Any = None
    """The live session that is followed."""

    @property
    def titles(self) -> dict[str, str]:
        """Title of each session, by its id."""
        sessions = self.sessions()
        return dict(zip((s.id for s in sessions), make_unique_titles(sessions), strict=True))


def resolve_source(source: Any) -> WidgetDataSource:
    """Return the data that a widget draws.

    Args:
        source: a session or several, the path of a log or a folder, a turn frame, snapshots (their
            frame, file or folder), a live session or its name; None: the one that the magics speak
            of. A comparison is its settings.

    Returns:
        The source; sessions of a live one are read again at each look.

    Raises:
        BadArguments: it is none of these.
        ReadError: a file cannot be read.
    """
    import pandas as pd

    from ctxkit.agent.live_session import LiveSession

    # The order of the tests matters: a comparison is a DataFrame with `replays`, and a string is
    # the name of a session only where no file has that name.
    if isinstance(source, pd.DataFrame) and not hasattr(source, "replays"):
        return WidgetDataSource(list, source)
    if isinstance(source, LiveSession) or source is None or _is_name(source):
        return _live_source(source)
    log = _snapshots_of_path(source)
    if log is not None:
        return WidgetDataSource(list, log)
    sessions = _sessions_of_mapping(getattr(source, "replays", source))
    return WidgetDataSource(lambda: sessions)


def _is_name(source: Any) -> bool:
    from pathlib import Path

    # A name has no separator, wildcard or dot.
    plain = isinstance(source, str) and not any(mark in source for mark in "/\\*?.")
    return plain and not Path(source).exists()


def _live_source(source: Any) -> WidgetDataSource:

    _, session, live = find_session_source(source)
    return WidgetDataSource(lambda: [session()], live=live())


def _snapshots_of_path(source: Any) -> pd.DataFrame | None:
    """Return the snapshots that a path names, a file or a folder; None for anything else."""
    if not isinstance(source, (str, PathLike)):
        return None
    from pathlib import Path

    from ctxkit.formats.snapshots.incremental_reading_and_following import (
        find_snapshot_logs,
        to_absolute_paths,
    )
    from ctxkit.formats.snapshots.log_reader_with_cache import read_snapshots

    try:
        files = find_snapshot_logs(to_absolute_paths(Path(source)))
    except (ReadError, BadArguments):
        return None
    # Only files that are named as snapshots are taken for them; others are logs of sessions.
    if not files or not all("ctx_snapshots" in file.rpartition("/")[2] for file in files):
        return None
    return read_snapshots(Path(source))


def _sessions_of_mapping(source: Any) -> list[Session]:
    from collections.abc import Mapping

    from msgspec.structs import replace

    if isinstance(source, Mapping) and "role" not in source:
        each = ((str(name), one) for name, some in source.items() for one in as_sessions(some))
        return with_unique_ids(
            [replace(one, id=n, title=n).set_prompt_source(one.prompt_source) for n, one in each]
        )
    return with_unique_ids(as_sessions(source))


SessionSource = tuple[str, "Callable[[], Session]", "Callable[[], LiveSession | None]"]
"""The name, a function that returns the current session, and one that returns the live session or
None.
"""


def find_session_source(what: Any) -> SessionSource:
    """Return what to watch.

    Args:
        what: a session, a log, the name of a session of `%%agent`, or a live session; None: the
            active one of the magics.

    Returns:
        A title, a function that returns the session, and one that returns the live session or None.

    Raises:
        BadArguments: it is no session, and names none.
        ReadError: the file cannot be read.
    """
    from ctxkit.agent.live_session import LiveSession

    if isinstance(what, LiveSession):
        return what.name, lambda: what.session, lambda: what
    if what is None or (isinstance(what, str) and not Path(what).is_file()):
        return _source_by_name(what)
    resting = as_session(what)
    return get_title(resting), lambda: resting, lambda: None


def get_live_session(what: Any) -> LiveSession | None:
    """Return the live session that is meant; None where it is none, or runs no more.

    Args:
        what: anything that `ck.tune` takes.

    Returns:
        The live session of that name in this kernel, or the one that was given.
    """
    from ctxkit.agent.live_session import LiveSession

    if isinstance(what, LiveSession):
        return what
    kit = _loaded_magics() if isinstance(what, str) else None
    return kit.lives.get(what) if kit is not None and what in kit.lives else None


def _source_by_name(name: str | None) -> SessionSource:
    kit = _loaded_magics()
    if kit is not None:
        session_name = name or kit.sessions.active_name
        if session_name is not None and (session_name in kit.lives or session_name in kit.sessions):
            # Asked again each time: a session is opened again where its rules or its model change.
            return (
                session_name,
                lambda: kit.session(session_name),
                lambda: kit.lives.get(session_name) if session_name in kit.lives else None,
            )
    if name is None:
        raise BadArguments(
            "No session is there to watch: begin one with `%%agent`, or give a session."
        )
    return _source_on_disk(name, list(kit.sessions) if kit is not None else [])


def _source_on_disk(name: str, names: list[str]) -> SessionSource:
    from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace

    place = Workspace()
    if name not in place.names():
        every = [*names, *place.names()]
        raise BadArguments(
            f"No session is called {name!r}; known: {', '.join(every) or 'none yet'}."
            f"{did_you_mean(name, every)}"
        )
    session = place.session(name)
    assert session is not None  # noqa: S101  for the type checker: it is one of the names
    return name, lambda: session, lambda: None


def _loaded_magics() -> Any:
    """Return the magics of this kernel, where they are loaded; widgets know them by what they offer
    only.
    """
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return None if shell is None else shell.magics_manager.registry.get("CtxKit")


_SHARE = 5
"""Files that are slow to read are checked less often: reading takes a fifth of the time at most."""


# Polling, not events of the file system, which network folders do not have. A look costs a `stat`
# while size and time of change are the same, else a whole read; so that a long log takes no more
# than a sixth of one core, the pause is at least `_SHARE` times what the last read took. A read
# that fails leaves the session as it was, and the stamp, so the next look tries again.
class GrowingLogSession:
    """A session that grows in a file. While a line is half written, the session does not change.

    Args:
        path: the file.
        every: seconds between two looks.

    Raises:
        ReadError: it cannot be read at the beginning.
    """

    def __init__(self, path: Path, every: float) -> None:
        self.path, self.every, self.failed = path, every, ""
        """Why the last look could not read it; empty where it could."""
        self._stamp = self._file_state()
        self.session: Session = read(path)
        self._changed: list[Callable[[], None]] = []
        self._ended = threading.Event()
        self._took = 0.0

    def listen(self, changed: Callable[[], None]) -> None:
        """Call a function, in a thread of its own, whenever there is more; begin to look."""
        self._changed.append(changed)
        if len(self._changed) == 1:
            threading.Thread(target=self._poll_until_stopped, daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()

    def look(self) -> bool:
        """Read the file where it has changed; say whether anything is new."""
        now = self._file_state()
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

    def _poll_until_stopped(self) -> None:
        while not self._ended.wait(max(self.every, _SHARE * self._took)):
            if self.look():
                for changed in self._changed:
                    changed()

    def _file_state(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size
