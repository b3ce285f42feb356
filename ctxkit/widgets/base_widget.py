"""Base class of interactive charts: JavaScript, plotly, static outputs that survive without a
kernel, offline pages.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import sys
import threading
import time
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

import anywidget
import traitlets as t

from ctxkit._internal.chart_style import PLOTLY_TEXT_CSS, read_plotly_javascript
from ctxkit._internal.formatting_and_sanitizing import NO_MATHJAX, TextAndHtml
from ctxkit._internal.tables import MUTED_COLOR_CSS
from ctxkit.errors import CtxkitError
from ctxkit.plots.chart import write_page
from ctxkit.widgets.python_to_javascript import (
    declare_javascript_constants,
    translate_function_to_javascript,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ctxkit.plots.chart import Chart
    from ctxkit.widgets.data_source import WidgetDataSource


class StaticOutputsMixin:
    """Stands before the class of a widget: outputs store what is shown as text and as HTML, and the
    live view moves into the place of the HTML while there is a kernel.
    """

    def to_text(self) -> str:
        """Return what is shown as text."""
        raise NotImplementedError

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        # In the method resolution order the widget's own class comes next.
        widget: Any = super()
        if not needs_widget_output():
            LiveViewMounter.ensure()
            html = render_live_view_slot(widget.model_id, self.to_html())
            return {"text/plain": self.to_text(), "text/html": html}
        twins = {"text/plain": self.to_text(), "text/html": self.to_html()}
        bundle = widget._repr_mimebundle_(**kwargs)
        if isinstance(bundle, tuple):  # with metadata, which Colab needs
            return {**bundle[0], **twins}, bundle[1]
        return {**(bundle or {}), **twins}


_REDRAW_SECONDS = 0.5
"""Seconds between two drawings of a session that runs."""
_DRAWING_EVENTS = ("turn_end", "cancelled", "compaction_end", "moved")
_LIVE_EVENTS = ("model_response",)
_PAGE_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>ctxkit</title>'
    "<style>:root{color-scheme:light dark}body{font-family:system-ui,sans-serif;margin:1em}</style>"
    "</head><body>"
)


def build_javascript_module(
    *files: str, rules: Sequence[Callable[..., Any]] = (), render: str = "render"
) -> str:
    """Return the module of a view.

    Args:
        files: its own scripts, after the stage that all share.
        rules: functions of Python that it calls.
        render: the name of the function that draws it.

    Returns:
        The source of an ES module: constants, translated functions, scripts, then the export of
        `render`.
    """
    scripts = [read_widget_asset(name) for name in ("plotly_loader.js", "stage.js", *files)]
    parts = [
        declare_javascript_constants(),
        *map(translate_function_to_javascript, rules),
        *scripts,
    ]
    return "\n".join([*parts, f"export default {{ render: {render} }};\n"])


@cache
def read_widget_asset(name: str) -> str:
    """Return one of the files beside this one."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def compress_plotly_library() -> bytes:
    """Return plotly.js of plotly's wheel, compressed: it is sent once a page and never saved."""
    # Without a time in the header, equal input gives equal bytes.
    return gzip.compress(read_plotly_javascript(), 6, mtime=0)


def send_plotly_library(widget: anywidget.AnyWidget, request: Any) -> bool:
    """Answer the browser's request for plotly.js; return False where it asks for something else.

    Args:
        widget: the widget whose browser side asks.
        request: the message as it came.
    """
    is_request = isinstance(request, dict) and request.get("kind") == "plotly"
    if is_request:
        widget.send({"kind": "plotly"}, buffers=[compress_plotly_library()])
    return is_request


# What browser and kernel say to each other. Synchronised traits hold the settings (what a hand can
# turn) and `data` (what is drawn). What takes long, or is large, is asked for by a message
# `{kind, at, key, ...}` and answered by one with the same `kind` and `key`; a widget answers the
# kinds that it knows and is silent on others, and an error is an answer with the word `error`.
# A page without a kernel holds the traits and the answers to `_exported_requests`, by their key.
# Two kinds belong to all: plotly.js is sent once a page, never saved, and a session that runs
# calls from its own thread, so `data` is built under a lock, at most twice a second.
class ChartWidget(StaticOutputsMixin, anywidget.AnyWidget):  # type: ignore[misc]
    """An interactive chart; its state can be read and set from Python.

    Args:
        feed: the sessions or the frame to draw; a live session is followed until `stop`.
        settings: the values of its traits.
    """

    _css = read_widget_asset("byhand.css") + PLOTLY_TEXT_CSS
    data = t.Dict().tag(sync=True)
    """The drawn data as plain lists."""
    shared: ClassVar[tuple[str, ...]] = ("data",)
    """The traits that the browser reads."""

    def __init__(self, feed: WidgetDataSource, **settings: Any) -> None:
        self.feed, self._drawn, self._lock = feed, 0.0, threading.RLock()
        super().__init__(data=self._build_data(), **settings)
        self.on_msg(self._on_browser_request)
        if feed.live is not None:
            feed.live.listen(self.hear)

    # -- what each of them says ----------------------------------------

    def _build_data(self) -> dict[str, Any]:
        raise NotImplementedError

    def _build_chart(self) -> Chart:
        raise NotImplementedError

    def _answer_request(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a request of the browser; None if the request is unknown."""

    def _exported_requests(self) -> list[dict[str, Any]]:
        """Return the questions whose answers a page without a kernel holds."""
        return []

    # -- following -----------------------------------------------------

    def hear(self, event: Any) -> None:
        """Process an event of the followed live session."""
        late = event.kind in _LIVE_EVENTS and time.monotonic() - self._drawn > _REDRAW_SECONDS
        if event.kind in _DRAWING_EVENTS or late:
            self.refresh()

    def refresh(self) -> None:
        """Draw the current state of the data again."""
        with self._lock:
            self._drawn = time.monotonic()
            self.data = self._build_data()

    def stop(self) -> None:
        """Stop following the session; the display stays."""
        if self.feed.live is not None:
            self.feed.live.unlisten(self.hear)

    # -- what the browser asks -----------------------------------------

    def _on_browser_request(self, _: Any, request: Any, __: Any) -> None:
        if not isinstance(request, dict):
            return
        if send_plotly_library(self, request):
            return
        answer = self._answer_or_error(request)
        if answer is not None:
            self.send(answer)

    def _answer_or_error(self, request: dict[str, Any]) -> dict[str, Any] | None:
        try:
            with self._lock:
                answer = self._answer_request(request)
        except CtxkitError as error:
            answer = {"kind": request.get("kind"), "error": str(error)}
        return None if answer is None else {**answer, "key": request.get("key")}

    # -- twins ---------------------------------------------------------

    @property
    def chart(self) -> Chart:
        """The static chart of what is shown as it is set."""
        return self._build_chart()

    def figure(self) -> Any:
        """Return the plotly figure of what is shown as it is set."""
        return self.chart.figure()

    def to_text(self) -> str:
        """Return what is shown as text."""
        return self.chart.to_text()

    def to_html(self) -> str:
        """Return what is shown as HTML that needs neither kernel nor script."""
        return self.chart.to_html()

    def page(self, *, plotly: bool = True) -> TextAndHtml:
        """Return the same as HTML that can still be turned, without a kernel and offline.

        As the last value of a cell it lives in the lab, after save and reload, and in nbconvert's
        HTML.

        Args:
            plotly: with plotly.js (2 MB); without it the page takes that of another one above, else
                a plain drawing.
        """
        answers = {
            _answer_key(request): self._answer_or_error(request)
            for request in self._exported_requests()
        }
        state = {name: getattr(self, name) for name in self.shared}
        state_json = json.dumps(
            {"state": state, "answers": answers}, separators=(",", ":"), allow_nan=False
        )
        view = self._esm if isinstance(self._esm, str) else str(self._esm)
        library = ""
        if plotly:
            packed = base64.b64encode(compress_plotly_library()).decode()
            library = f'<script type="text/plain" data-ctxkit-plotly>{packed}</script>'
        return TextAndHtml(
            self.to_text(),
            f"<div class='ctxkit-live'><style>{self._css}</style>{library}"
            # a title with </script> in it must not end the script
            f"<script type='application/json'>{state_json.replace('<', chr(92) + 'u003c')}</script>"
            f"<div data-live>{self.to_html()}</div>"
            # no module: it has no currentScript
            "<script>(() => { const here = document.currentScript.parentElement;\n"
            f"{view.replace('export default', 'const widget =')}{read_widget_asset('mount.js')}"
            "})();</script></div>",
        )

    def write_html(self, path: str | Path) -> Path:
        """Write a page that can be turned offline (2 MB and the data), and return its path.

        Raises:
            BadArguments: the page cannot be written there.
        """
        return write_page(path, f"{_PAGE_HEAD}{self.page().html}</body></html>\n")


def _answer_key(request: dict[str, Any]) -> str:
    return f"{request['kind']}/{request.get('session', '')}/{request['at']}"


TEXT_COLOUR = "var(--jp-content-font-color1,var(--vscode-foreground,inherit))"
SOFT_COLOUR = MUTED_COLOR_CSS.removeprefix("color:")


def wrap_in_scroll_box(html: str) -> str:
    """Return HTML with a smaller line height than widgets have.

    Args:
        html: trusted; it is not escaped.

    Returns:
        A block that scrolls where it is wider than its output.
    """
    return f'<div style="line-height:1.5;overflow-x:auto">{html}</div>'


STATIC_PICTURE_NOTE = "A still picture: run the cell for the interactive view."


class LiveViewMounter(anywidget.AnyWidget):  # type: ignore[misc]
    """Puts the live views of all other widgets of this kernel into their slots.

    It is never displayed: front ends run the `initialize` of a model when its comm opens. It also
    gives the words of plotly's figures the colour of the page.
    """

    _esm = files(__package__).joinpath("live_view.js").read_text(encoding="utf-8")
    current: ClassVar[LiveViewMounter | None] = None
    """The one of this kernel."""

    @classmethod
    def ensure(cls) -> LiveViewMounter:
        """Return the one of this kernel; it is made where there is none, or it was closed."""
        if cls.current is None or cls.current.comm is None:
            cls.current = cls()
        return cls.current


def needs_widget_output() -> bool:
    """Return whether the front end draws a widget only where the output has its MIME type.

    Colab and Databricks keep each output in a frame of its own, and VS Code loads its widget
    manager when it sees such an output: there no script reaches the slots of other outputs.
    """
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    variables = getattr(get_ipython(), "user_ns", {})
    return (
        "google.colab" in sys.modules
        or "__vsc_ipynb_file__" in variables
        or "DATABRICKS_RUNTIME_VERSION" in os.environ
    )


def render_live_view_slot(model_id: str, html: str) -> str:
    """Return a still picture with the place for the live view of a model.

    The id stands in a class, as notebooks that are not trusted keep no other attribute.

    Args:
        model_id: id of the widget's model.
        html: the still picture.
    """
    note = f'<p style="margin:4px 0"><em>{STATIC_PICTURE_NOTE}</em></p>'
    return (
        f'<div class="ctxkit-slot ctxkit-model-{model_id}">'
        f'<div class="ctxkit-still {NO_MATHJAX}">{html}{note}</div></div>'
    )
