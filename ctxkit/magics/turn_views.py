"""Where a running turn is shown: in its cell, in the handle of a turn beside the notebook, or
printed at its end.

A cell's live view is emptied again at its end, and what stays is displayed anew, once: a tool that
runs notebooks again and drops updates of displays (nbval) then sees the same as one that follows
them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from ctxkit.display.markup import TextAndHtml, escape
from ctxkit.magics.turn_display import TurnDisplay
from ctxkit.plots.axes import Axes

if TYPE_CHECKING:
    from ctxkit.agent.events import LiveEvent
    from ctxkit.agent.live import LiveSession

_PAUSE, _CHART_PAUSE = 0.15, 1.5
"""Seconds between two updates of the words, and of the chart."""
_AT_ONCE = ("tool_call", "model_wait")
"""What is always shown at once, as it may take long: a tool that is called, a rate limit that is
waited for.
"""
_POINTS, _CIRCLES = 100, 24
"""Points of the line and of the compactions below a turn, so that it does not grow with the
session.
"""


class TurnView(Protocol):
    """Where a turn is shown."""

    def show(self, shown: TextAndHtml) -> None:
        """Show it as it stands."""

    def end(self, shown: TextAndHtml) -> None:
        """Show what stays of it."""


class CellView:
    """The output of the cell that runs."""

    def __init__(self) -> None:
        from IPython.display import display

        self._display: Any = display
        self._live = display(TextAndHtml(), display_id=True)  # type: ignore[no-untyped-call]

    def show(self, shown: TextAndHtml) -> None:
        """Show it as it stands, in place."""
        self._live.update(shown)

    def end(self, shown: TextAndHtml) -> None:
        """Empty the live view; display what stays."""
        self._live.update(TextAndHtml())
        self._display(shown)


class Printed:
    """A terminal: nothing before the end, as it cannot update what it has printed."""

    def show(self, shown: TextAndHtml) -> None:
        """Show nothing yet."""

    def end(self, shown: TextAndHtml) -> None:
        """Print it."""
        print(shown)  # noqa: T201  a terminal has nothing else


class Screen:
    """Shows a turn while it runs.

    Args:
        live: the session.
        view: where.
        raises: see `TurnDisplay`.
    """

    def __init__(self, live: LiveSession, view: TurnView, *, raises: bool = False) -> None:
        self.turn, self._live, self._view = TurnDisplay(live, raises=raises), live, view
        self.shown = TextAndHtml()
        """What stays of the turn; empty before its end."""
        self._chart = ""
        self._last = self._charted = 0.0

    def __enter__(self) -> Self:
        self._live.listen(self.hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.unlisten(self.hear)
        html = self.turn.html(kept=True) + picture(self._live)
        self.shown = TextAndHtml(self.turn.plain(kept=True), html)
        whole = (
            TextAndHtml(self.turn.plain(), html) if isinstance(self._view, Printed) else self.shown
        )
        self._view.end(whole)

    def hear(self, event: LiveEvent) -> None:
        """Take an event, and show it where the last update is long enough ago."""
        self.turn.hear(event)
        now = time.monotonic()
        if isinstance(self._view, Printed):
            return
        if event.kind == "model_response" and now - self._charted > _CHART_PAUSE:
            self._chart = picture(self._live)
            self._charted = time.monotonic()
        elif event.kind not in _AT_ONCE and now - self._last <= _PAUSE:
            return
        self._view.show(TextAndHtml(self.turn.plain(), self.turn.html() + self._chart))
        self._last = time.monotonic()  # however long it took, the turn goes on for a while


def picture(live: LiveSession) -> str:
    """Return how the context grew as a picture of bounded size; empty before the first call."""
    from ctxkit.plots import growth

    if not live.session.calls:
        return ""
    chart = growth({live.name: live.session})
    drawing = chart.drawing
    if isinstance(
        drawing, Axes
    ):  # a line for each compaction would grow, too; their points are thinned
        drawing = replace(drawing, marks=(), points=_POINTS, circles=_CIRCLES)
    return f'<div role="img" aria-label="{escape(chart.caption, 300)}">{drawing.svg()}</div>'
