"""What the output of every widget stores: a still picture that names the model of its live view."""

from __future__ import annotations

import gzip
import sys
from collections import deque
from types import ModuleType, SimpleNamespace

import pytest

import ctxkit as ck
from ctxkit._internal import NO_MATHJAX, read_plotly_javascript
from ctxkit.widgets import interactive_view_of_still_chart
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
    assert bundle["text/plain"].strip()
    assert "<div" not in bundle["text/plain"]
    assert f'class="ctxkit-slot ctxkit-model-{widget.model_id}"' in bundle["text/html"]
    assert STATIC_PICTURE_NOTE in bundle["text/html"]
    assert bundle["text/html"].count("<svg") + bundle["text/html"].count("<table") > 0
    assert (
        f'class="ctxkit-still {NO_MATHJAX}"' in bundle["text/html"]
    )  # two dollar signs are no formula


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
    shell = SimpleNamespace(kernel=object(), user_ns={"__vsc_ipynb_file__": "a.ipynb"})
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


CHART = ck.plots.growth(SAMPLE)
PLOTLY_MIME = "application/vnd.plotly.v1+json"


@pytest.fixture
def kernel(monkeypatch):
    shell = SimpleNamespace(kernel=object(), user_ns={})
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr(interactive_view_of_still_chart, "_live_charts", deque())
    yield
    for chart in interactive_view_of_still_chart._live_charts:
        chart.close()


def test_a_chart_of_a_kernel_stores_sentence_picture_and_table_but_no_figure(kernel):
    LiveViewMounter.ensure().close()
    bundle = CHART._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert LiveViewMounter.current.comm is not None  # it puts the live view into its place
    html = bundle["text/html"]
    live = interactive_view_of_still_chart._live_charts[-1]
    assert f'class="ctxkit-slot ctxkit-model-{live.model_id}"' in html
    assert live.figure["data"]
    assert "title" not in live.figure["layout"]  # it stands above the picture
    assert html.index(CHART.caption[:40]) < html.index("ctxkit-slot") < html.index("<svg")
    assert html.index("<svg") < html.index(STATIC_PICTURE_NOTE) < html.index("<table")
    assert len(html) < len(CHART.to_html()) + 400


@pytest.mark.parametrize("there", [in_colab, in_databricks, in_vscode])
def test_front_ends_that_keep_outputs_apart_get_the_figure_beside_the_picture(
    there, kernel, monkeypatch
):
    there(monkeypatch)
    bundle = CHART._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", PLOTLY_MIME}
    assert "ctxkit-slot" not in bundle["text/html"]


def test_without_a_kernel_a_chart_has_the_figure_beside_the_picture():
    assert PLOTLY_MIME in CHART._repr_mimebundle_()


def test_the_oldest_charts_of_a_kernel_give_their_place_back_to_the_picture(kernel, monkeypatch):
    monkeypatch.setattr(interactive_view_of_still_chart, "MAX_LIVE_CHARTS", 2)
    CHART._repr_mimebundle_()
    oldest = interactive_view_of_still_chart._live_charts[0]
    CHART._repr_mimebundle_()
    assert oldest.comm is not None
    CHART._repr_mimebundle_()
    assert oldest.comm is None
    assert [chart.comm is not None for chart in interactive_view_of_still_chart._live_charts] == [
        True,
        True,
    ]


def test_a_chart_answers_the_question_for_plotly_alone(kernel, monkeypatch):
    CHART._repr_mimebundle_()
    live = interactive_view_of_still_chart._live_charts[-1]
    sent = []
    monkeypatch.setattr(live, "send", lambda content, buffers: sent.append((content, buffers)))
    live._handle_custom_msg({"kind": "other"}, [])
    live._handle_custom_msg({"kind": "plotly"}, [])
    assert [content for content, _ in sent] == [{"kind": "plotly"}]
    assert gzip.decompress(sent[0][1][0]) == read_plotly_javascript()
