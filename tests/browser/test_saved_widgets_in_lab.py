"""Every widget in a real lab: live, after the kernel is gone, and reopened without it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import ctxkit as ck
from browser.jupyterlab_driver import IDLE, REOPEN, browser_page, jupyter_in, settle, written
from ctxkit.widgets.base_widget import STATIC_PICTURE_NOTE

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
        assert STATIC_PICTURE_NOTE in one["text"], name
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
