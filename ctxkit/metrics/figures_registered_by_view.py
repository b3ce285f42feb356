"""Registry of the views of a session and of the values that each view shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ctxkit.session.session import Session

    ViewValueSource = Callable[[Session], Mapping[str, object]]

_SOURCES: dict[str, ViewValueSource] = {}


# A view registers the function that returns its values. A name means the same in all views, so all
# views that show a name must show the same value for a session; a test compares them.
def register_view_values(view: str) -> Callable[[ViewValueSource], ViewValueSource]:
    """Register the decorated function as the source of a view's figures.

    Args:
        view: the view, as a user calls it, such as ``frame(per="session")``.

    Returns:
        A decorator for a function that takes a session and returns figures by their names; None or
        NA: missing.
    """

    def register(source: ViewValueSource) -> ViewValueSource:
        _SOURCES[view] = source
        return source

    return register


def get_view_value_sources() -> dict[str, ViewValueSource]:
    """Return the registered sources by the names of their views."""
    return dict(_SOURCES)
