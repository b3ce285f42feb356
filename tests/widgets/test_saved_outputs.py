"""What the output of every widget stores: a still picture that names the model of its live view."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

import ctxkit as ck
from ctxkit.widgets.base_widget import (
    STATIC_PICTURE_NOTE,
    ChartWidget,
    LiveViewMounter,
    StaticOutputsMixin,
)

WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
SAMPLE = ck.samples.path("billing")
WIDGETS = {
    "explore": lambda: ck.explore(SAMPLE),
    "beside": lambda: ck.explore(SAMPLE, beside=ck.replay(SAMPLE, "pi")),
    "budget": lambda: ck.budget(SAMPLE, warn=400_000),
    "savings": lambda: ck.savings(SAMPLE),
    "thrash": lambda: ck.thrash(ck.replay(SAMPLE, "pi"), window=2),
    "break_even": lambda: ck.break_even(SAMPLE, 5),
    "tune": lambda: ck.tune(SAMPLE, "pi"),
    "watch": lambda: ck.watch(ck.read(SAMPLE)),
    "board": lambda: ck.board(SAMPLE.parent).view(),
}
"""Every widget of the kit, by its name."""


def list_widget_classes(base: type) -> set[type]:
    """All classes of the kit below one."""
    below = {one for one in base.__subclasses__() if one.__module__.startswith("ctxkit.")}
    return below.union(*map(list_widget_classes, below))


@pytest.fixture(scope="module")
def made():
    return {name: make() for name, make in WIDGETS.items()}


def test_the_registry_holds_every_class_of_widgets(made):
    names = {one.__name__ for one in list_widget_classes(StaticOutputsMixin)} - {
        ChartWidget.__name__
    }
    assert {type(widget).__name__ for widget in made.values()} == names


@pytest.mark.parametrize("name", WIDGETS)
def test_an_output_is_text_and_a_picture_that_names_its_model(made, name):
    widget = made[name]
    bundle = widget._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert f'class="ctxkit-slot ctxkit-model-{widget.model_id}"' in bundle["text/html"]
    assert STATIC_PICTURE_NOTE in bundle["text/html"]
    assert bundle["text/html"].count("<svg") + bundle["text/html"].count("<table") > 0


def test_one_mounter_serves_a_kernel_and_is_made_again_when_it_was_closed(made):
    first = LiveViewMounter.ensure()
    assert LiveViewMounter.ensure() is first
    first.close()
    made["budget"]._repr_mimebundle_()
    assert LiveViewMounter.current is not first
    assert LiveViewMounter.current.comm is not None


def in_colab(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))


def in_databricks(monkeypatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "15.4")


def in_vscode(monkeypatch) -> None:
    shell = SimpleNamespace(user_ns={"__vsc_ipynb_file__": "a.ipynb"})
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)


@pytest.mark.parametrize("there", [in_colab, in_databricks, in_vscode])
@pytest.mark.parametrize("name", ["budget", "tune"])  # an anywidget and a box of widgets
def test_front_ends_that_keep_outputs_apart_get_the_widget_beside_the_picture(
    made, name, there, monkeypatch
):
    there(monkeypatch)
    answer = made[name]._repr_mimebundle_()
    bundle = answer[0] if isinstance(answer, tuple) else answer
    assert bundle[WIDGET_MIME]["model_id"] == made[name].model_id
    assert "<svg" in bundle["text/html"]
