"""Every widget in a real lab: live, after the kernel is gone, and reopened without it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import ctxkit as ck
from browser.jupyterlab_driver import IDLE, REOPEN, browser_page, jupyter_in, settle, written
from browser.view_pages import SAMPLE, list_views

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser

FIRST = "import ctxkit as ck\nlog = ck.read(ck.samples.path('billing'))"
WIDGETS = {
    "explore": "ck.explore(log)",
    "beside": "ck.explore(log, beside=ck.replay(log, 'pi'))",
    "budget": "ck.budget(log, warn=400_000)",
    "savings": "ck.savings(log)",
    "thrash": "ck.thrash(ck.replay(log, 'pi'), window=2)",
    "break_even": "ck.break_even(log, 5)",
    "tune": "ck.tune(log, 'pi')",
    "watch": "ck.watch(log)",
    "board": "ck.board(ck.samples.path('billing').parent)",
}
"""A call of each widget, by its name."""
LIVE = "() => document.querySelectorAll('.ctxkit-live-view').length"
STILL = """() => [...document.querySelectorAll('.ctxkit-still')].filter(e => e.offsetHeight).map(e => ({
  text: e.innerText, pictures: e.querySelectorAll('svg').length, tables: e.querySelectorAll('table').length }))"""
TEXT = "() => document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden)').innerText"
RESTART = "() => window.notebook.sessionContext.session.kernel.restart()"
GONE = """() => [...document.querySelectorAll('.ctxkit-live-view')].map(e => ({
  said: e.querySelector('[role=status]').innerText, inert: Boolean(e.querySelector('.ctxkit-disabled')?.inert) }))"""
RAN_AGAIN = """() => document.querySelectorAll('.ctxkit-live-view').length === %d
  && !document.querySelector('.ctxkit-disabled')"""


def test_the_registry_of_widgets_is_whole():
    assert set(WIDGETS) == {*ck.widgets.__all__, "beside", "board"}


def wait_for_views(page: Any) -> None:
    page.wait_for_function(RAN_AGAIN % len(WIDGETS))


def assert_still(stills: list[dict[str, Any]]) -> None:
    assert len(stills) == len(WIDGETS)
    for name, one in zip(WIDGETS, stills, strict=True):
        assert "A still picture: run the cell for the interactive view." in one["text"], name
        assert one["pictures"] + one["tables"] > 0, name


def test_pictures_survive_the_end_of_the_kernel(jupyter, chromium, tmp_path: Path):
    told: dict[str, Any] = {}

    def use(page: Any, _: Any) -> None:
        wait_for_views(page)
        told["live"] = page.evaluate(STILL)
        told["slots"] = page.evaluate(TEXT)
        page.evaluate(RESTART)
        page.wait_for_function(
            f"() => document.querySelectorAll('.ctxkit-disabled').length === {len(WIDGETS)}"
        )
        told["gone"] = page.evaluate(GONE)
        page.wait_for_selector(IDLE, state="attached")
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        wait_for_views(page)
        page.evaluate(REOPEN)
        page.wait_for_selector(IDLE, state="attached")
        settle(page, 1500)  # longer than the mounter's own clock
        told["new kernel"] = page.evaluate(STILL), page.evaluate(LIVE), page.evaluate(TEXT)
        told["file"] = page.evaluate("() => window.notebook.context.path")
        page.route("**/api/sessions*", lambda route: route.abort())
        page.evaluate(REOPEN)
        page.wait_for_selector(".jp-Dialog").press("Escape")
        settle(page, 1500)
        told["no kernel"] = page.evaluate(STILL), page.evaluate(LIVE), page.evaluate(TEXT)
        page.unroute("**/api/sessions*")

    cells = [FIRST, *WIDGETS.values()]
    seen = jupyter.run(written(tmp_path / "saved", *cells), act=use)
    assert told["live"] == []  # each picture gave way to its view
    assert {one["inert"] for one in told["gone"]} == {True}
    assert all("kernel that drew this is gone" in one["said"] for one in told["gone"])
    for way in ("new kernel", "no kernel"):
        stills, views, text = told[way]
        assert_still(stills)
        assert views == 0
        assert "Loading widget" not in text
        assert "Error displaying widget" not in text
    assert [p for p in seen.problems if "session" not in p.lower()] == []

    saved = jupyter.root / told["file"]
    assert "application/vnd.jupyter.widget-view+json" not in saved.read_text(encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "nbconvert",
        "--to",
        "html",
        "--output",
        "page.html",
        str(saved),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with browser_page(chromium, seen) as page:
        page.goto((saved.parent / "page.html").as_uri())
        assert_still(page.evaluate(STILL))


CHARTS = [name for name in list_views() if name.startswith("plots.")]
CHART_CELLS = [
    (
        "import sys\nsys.path.insert(0, {tests})\nimport ctxkit as ck\n"
        "from browser.view_pages import SAMPLE, list_views\nlog = ck.read(SAMPLE)"
    ),
    *(f"list_views()[{name!r}](log)" for name in CHARTS),
]
FIGURES = """() => [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .ctxkit-chart')].map(e => ({
  text: e.innerText, tables: e.querySelectorAll('table').length,
  stills: [...e.querySelectorAll('.ctxkit-still')].filter(s => s.offsetHeight).length,
  pictures: [...e.querySelectorAll('.ctxkit-still svg')].filter(s => s.checkVisibility()).length,
  figures: e.querySelectorAll('.js-plotly-plot .main-svg').length, disabled: e.querySelectorAll('.ctxkit-disabled').length }))"""
DRAWN = f"() => document.querySelectorAll('.ctxkit-chart .js-plotly-plot').length === {len(CHARTS)}"
IMAGES = "() => document.querySelectorAll('img.plot-img, .jp-RenderedImage').length"
RESTARTED = "() => window.notebook.sessionContext.session.kernel.restart().then(() => true)"


def test_charts_survive_with_sentence_table_and_the_colours_of_the_page(jupyter, tmp_path: Path):
    log = ck.read(SAMPLE)
    made = [list_views()[name](log) for name in CHARTS]
    told: dict[str, Any] = {}

    def use(page: Any, _: Any) -> None:
        page.wait_for_function(DRAWN)
        told["live"] = page.evaluate(FIGURES)
        page.evaluate(RESTARTED)
        page.wait_for_selector(IDLE, state="attached")
        settle(page, 1500)  # longer than the mounter's own clock
        told["restarted"] = page.evaluate(FIGURES)
        page.route("**/api/sessions*", lambda route: route.abort())
        page.evaluate(REOPEN)
        page.wait_for_selector(".jp-Dialog").press("Escape")
        settle(page, 1500)
        told["reopened"], told["images"] = page.evaluate(FIGURES), page.evaluate(IMAGES)
        told["file"] = page.evaluate("() => window.notebook.context.path")
        page.unroute("**/api/sessions*")

    jupyter.run(written(tmp_path / "charts", *CHART_CELLS), act=use)
    for state in ("live", "restarted", "reopened"):
        assert len(told[state]) == len(CHARTS)
        for name, chart, one in zip(CHARTS, made, told[state], strict=True):
            words = " ".join(one["text"].split())
            assert " ".join(chart.caption[:100].split()) in words, (state, name)
            assert one["tables"] == bool(chart.head), (state, name)
    for name, live, restarted, still in zip(
        CHARTS, told["live"], told["restarted"], told["reopened"], strict=True
    ):
        assert live["figures"] > 0, name
        assert live["stills"] == 0, name
        # A drawn figure needs no kernel.
        assert (restarted["figures"] > 0, restarted["disabled"]) == (True, 0), name
        assert still["figures"] == 0, name
        assert still["pictures"] > 0, name
        assert "A still picture: run the cell for the interactive view." in still["text"], name
    assert told["images"] == 0
    saved = (jupyter.root / told["file"]).read_text(encoding="utf-8")
    assert "application/vnd.plotly.v1+json" not in saved
    assert len(saved) < 25_000 * len(CHARTS)


@pytest.mark.long
def test_without_a_widget_manager_the_pictures_stand(chromium, tmp_path: Path):
    """A front end that has Jupyter's outputs and no manager for widgets."""
    config = tmp_path / "home" / "jupyter_config" / "labconfig"
    config.mkdir(parents=True)
    disabled = {"disabledExtensions": {"@jupyter-widgets/jupyterlab-manager": True}}
    (config / "page_config.json").write_text(json.dumps(disabled))
    told: dict[str, Any] = {}

    def use(page: Any, _: Any) -> None:
        told["stills"], told["views"] = page.evaluate(STILL), page.evaluate(LIVE)

    with jupyter_in(chromium, tmp_path) as running:
        running.run(written(tmp_path / "plain", FIRST, *WIDGETS.values()), act=use)
    assert_still(told["stills"])
    assert told["views"] == 0
