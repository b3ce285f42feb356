"""Registry of the views of a session and the figures that each of them shows.

A view registers the function that it takes its figures from. A name means one thing in all views,
so for any session every view that shows a name must show one value: a test asks all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ctxkit.session.session import Session

    FigureSource = Callable[[Session], Mapping[str, object]]

_SOURCES: dict[str, FigureSource] = {}


def shows_figures(view: str) -> Callable[[FigureSource], FigureSource]:
    """Register a function as the source of a view's figures.

    Args:
        view: the view, as a user calls it, such as ``frame(per="session")``.

    Returns:
        A decorator for a function that takes a session and returns figures by their names; None or
        NA: missing.
    """

    def register(source: FigureSource) -> FigureSource:
        _SOURCES[view] = source
        return source

    return register


def get_figure_sources() -> dict[str, FigureSource]:
    """Return the registered sources by the names of their views."""
    return dict(_SOURCES)
