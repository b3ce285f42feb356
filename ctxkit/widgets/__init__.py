"""Widgets: scrub through a session in the notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from ctxkit.session import Session
    from ctxkit.widgets.explorer import Explorer

__all__ = ["explore"]


def explore(session: Session, call: int = -1) -> Explorer:
    """Return a widget to scrub through the calls of a session, see what fills each prompt and read its messages.

    Args:
        session: any session.
        call: the call shown first; negatives count from the end.

    Raises:
        BadArguments: not a session, or it has no such call.
    """
    from ctxkit.session import Session
    from ctxkit.widgets.explorer import Explorer
    from ctxkit.widgets.scenes import Scenes

    if not isinstance(session, Session):
        raise BadArguments(f"Give a session, not {type(session).__name__}; read files with ctxkit.read first.")
    index = session.call(call).index if session.calls else 0
    return Explorer(Scenes(session), index)
