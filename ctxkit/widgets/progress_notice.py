"""A notice in the notebook on work that takes longer than a second."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session.session import Session

__all__ = ["render_session_with_notice", "show_waiting"]

_WAIT_SECONDS = 1.0
"""Time after which work is announced."""


@contextmanager
def show_waiting(text: str) -> Iterator[None]:
    """Show a line in the notebook while work takes longer than a second, and take it away after.

    Outside a notebook nothing is shown.

    Args:
        text: description of the work.
    """
    from IPython.core.getipython import get_ipython

    if not hasattr(get_ipython(), "kernel"):
        yield
        return
    handles: list[Any] = []
    timer = Timer(_WAIT_SECONDS, lambda: handles.append(_show_html(text)))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for handle in handles:
            handle.update(_as_html(""))


def render_session_with_notice(session: Session) -> dict[str, str]:
    """Return the display of a session; the first one of a kernel says that it takes a while."""
    # the import takes most of that time, so it stands behind the notice
    with show_waiting("adding up this session ..."):
        from ctxkit.widgets.reports.session_summary import render_session_summary

        return render_session_summary(session)


def _show_html(text: str) -> Any:
    from IPython.display import display

    return display(_as_html(f"<em>{text}</em>"), display_id=True)  # type: ignore[no-untyped-call]


def _as_html(html: str) -> Any:
    from IPython.display import HTML

    return HTML(html)  # type: ignore[no-untyped-call]
