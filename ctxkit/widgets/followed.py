"""What a watcher follows: a live session, a session of the magics by name, one kept on disk, or one
that is at rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.readers.given import as_session
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.live import LiveSession
    from ctxkit.session import Session

Source = tuple[str, "Callable[[], Session]", "Callable[[], LiveSession | None]"]
"""The name, what returns the session as it stands, and what returns the live session, if there is
one.
"""


def source(what: Any) -> Source:
    """Return what to watch.

    Raises:
        BadArguments: it is no session, and names none.
        ReadError: the file cannot be read.
    """
    from ctxkit.agent.live import LiveSession

    if isinstance(what, LiveSession):
        return what.name, lambda: what.session, lambda: what
    if what is None or (isinstance(what, str) and not Path(what).is_file()):
        return _named(what)
    resting = as_session(what)
    return title_of(resting), lambda: resting, lambda: None


def live_of(what: Any) -> LiveSession | None:
    """Return the live session that is meant; None where it is none, or runs no more."""
    from ctxkit.agent.live import LiveSession

    if isinstance(what, LiveSession):
        return what
    kit = _kit() if isinstance(what, str) else None
    return kit.lives.get(what) if kit is not None and what in kit.lives else None


def _named(name: str | None) -> Source:
    kit = _kit()
    if kit is not None:
        wanted = name or kit.sessions.active_name
        if wanted is not None and (wanted in kit.lives or wanted in kit.sessions):
            # Asked anew each time: a session is opened again where its rules or its model change.
            return (
                wanted,
                lambda: kit.session(wanted),
                lambda: kit.lives.get(wanted) if wanted in kit.lives else None,
            )
    if name is None:
        raise BadArguments(
            "No session is there to watch: begin one with `%%agent`, or give a session."
        )
    return _kept(name, list(kit.sessions) if kit is not None else [])


def _kept(name: str, known: list[str]) -> Source:
    from ctxkit.store.workspace import Workspace

    place = Workspace()
    if name not in place.names():
        every = [*known, *place.names()]
        raise BadArguments(
            f"No session is called {name!r}; known: {', '.join(every) or 'none yet'}."
            f"{did_you_mean(name, every)}"
        )
    session = place.session(name)
    assert session is not None  # noqa: S101  for the type checker: it is one of the names
    return name, lambda: session, lambda: None


def _kit() -> Any:
    """Return the magics of this kernel, where they are loaded; widgets know them by what they offer
    only.
    """
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return None if shell is None else shell.magics_manager.registry.get("CtxKit")
