"""The live view of a chart in a notebook: plotly draws it in the place of its still picture."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets as t

from ctxkit.widgets.base_widget import (
    LiveViewMounter,
    needs_widget_output,
    read_widget_asset,
    render_live_view_slot,
    send_plotly_library,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LIVE_CHARTS = 100
"""Charts of a kernel that are live. In the place of older ones their still pictures stand again."""


class InteractivePlotlyView(anywidget.AnyWidget):  # type: ignore[misc]
    """A plotly figure that is never stored: only a slot of a cell's output names its model."""

    _esm = read_widget_asset("plotly_loader.js") + read_widget_asset(
        "interactive_view_of_still_chart.js"
    )
    figure = t.Dict().tag(sync=True)
    """`data` and `layout` as plain JSON."""
    title = t.Unicode().tag(sync=True)
    """Its name for screen readers and for a saved picture."""
    needs_kernel = t.Bool(default_value=False).tag(sync=True)
    """False: it answers the pointer also when its kernel is gone."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(lambda _, request, __: send_plotly_library(self, request))


_live_charts: deque[InteractivePlotlyView] = deque()


def render_live_chart_slot(figure: Mapping[str, Any], title: str, picture: str) -> str | None:
    """Return a still picture with the place of its live view.

    Args:
        figure: figure of the live view, as plain JSON.
        title: name of the chart; untrusted.
        picture: the still picture, as trusted HTML.

    Returns:
        HTML; None where the front end draws nothing into the outputs of other cells, but has a
        renderer for plotly's MIME type.
    """
    LiveViewMounter.ensure()  # it also gives plotly's words the colour of the page
    if needs_widget_output():
        return None
    chart = InteractivePlotlyView(figure=dict(figure), title=title)
    _live_charts.append(chart)
    if len(_live_charts) > MAX_LIVE_CHARTS:
        _live_charts.popleft().close()
    return render_live_view_slot(chart.model_id, picture)
