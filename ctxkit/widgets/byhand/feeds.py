"""What a chart turned by hand is given: sessions, a frame, snapshots, a live session that grows."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.errors import BadArguments, ReadError
from ctxkit.readers.given import as_sessions
from ctxkit.session import Session, apart
from ctxkit.titles import titles

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd


class Feed(NamedTuple):
    """What is drawn."""

    sessions: Callable[[], list[Session]]
    """The sessions as they stand; none where a frame was given."""
    frame: pd.DataFrame | None = None
    """A turn frame, or one of snapshots with their markers."""
    live: Any = None
    """The live session that is followed."""

    @property
    def titles(self) -> dict[str, str]:
        """What each session is called, by its id."""
        given = self.sessions()
        return dict(zip((s.id for s in given), titles(given), strict=True))


def feed(given: Any) -> Feed:
    """Return what is to be drawn.

    Args:
        given: a session or several, the path of a log or a folder, a turn frame, snapshots (their
            frame, file or folder), a live session or its name; None: the one that the magics speak
            of. A comparison is its settings.

    Raises:
        BadArguments: it is none of these.
        ReadError: a file cannot be read.
    """
    import pandas as pd

    from ctxkit.agent.live import LiveSession

    if isinstance(given, pd.DataFrame) and not hasattr(given, "replays"):
        return Feed(list, given)
    if isinstance(given, LiveSession) or given is None or _is_name(given):
        return _followed(given)
    log = _snapshots(given)
    if log is not None:
        return Feed(list, log)
    found = _named(getattr(given, "replays", given))
    return Feed(lambda: found)


def _is_name(given: Any) -> bool:
    from pathlib import Path

    plain = isinstance(given, str) and not any(mark in given for mark in "/\\*?.")
    return plain and not Path(given).exists()


def _followed(given: Any) -> Feed:
    from ctxkit.widgets.followed import source

    _, session, live = source(given)
    return Feed(lambda: [session()], live=live())


def _snapshots(given: Any) -> pd.DataFrame | None:
    """Return the snapshots that a path or several name; None where it is something else."""
    if not isinstance(given, (str, PathLike)):
        return None
    from pathlib import Path

    from ctxkit.snapshots.read import read_snapshots
    from ctxkit.snapshots.snapshot_files import find, named

    try:
        files = find(named(Path(given)))
    except (ReadError, BadArguments):
        return None
    if not files or not all("ctx_snapshots" in file.rpartition("/")[2] for file in files):
        return None
    return read_snapshots(Path(given))


def _named(given: Any) -> list[Session]:
    from collections.abc import Mapping

    from msgspec.structs import replace

    if isinstance(given, Mapping) and "role" not in given:
        each = ((str(name), one) for name, some in given.items() for one in as_sessions(some))
        return apart([replace(one, id=n, title=n).backed(one.behind) for n, one in each])
    return apart(as_sessions(given))
