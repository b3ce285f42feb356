"""Outputs of widgets that survive: a still picture as HTML, into whose place a live view moves."""

from __future__ import annotations

import os
import sys
from importlib.resources import files
from typing import ClassVar

import anywidget

STILL_NOTE = "A still picture: run the cell for the interactive view."


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


def colour_plotly_text_by_theme() -> None:
    """Let the page of a kernel give the words of plotly's figures the colour of its theme."""
    LiveViewMounter.ensure()


def needs_widget_output() -> bool:
    """Say whether the front end draws a widget only where the output has its MIME type.

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


def render_slot(model_id: str, html: str) -> str:
    """Return a still picture with the place for the live view of a model.

    The id stands in a class, as notebooks that are not trusted keep no other attribute.
    """
    note = f'<p style="margin:4px 0"><em>{STILL_NOTE}</em></p>'
    return (
        f'<div class="ctxkit-slot ctxkit-model-{model_id}">'
        f'<div class="ctxkit-still">{html}{note}</div></div>'
    )
