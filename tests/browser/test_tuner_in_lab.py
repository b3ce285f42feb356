"""The tuner in a real lab: toggles, what is folded, a pin, and the guard of what is tried, dragged."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from browser.lab import CHROMIUM, run_notebook
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}"),
    pytest.mark.skipif(not find_spec("jupyterlab"), reason="JupyterLab is not installed"),
    pytest.mark.skipif(not find_spec("playwright"), reason="playwright is not installed"),
]


@pytest.mark.long
def test_a_mode_is_chosen_pinned_and_judged(tmp_path: Path):
    from playwright.sync_api import sync_playwright

    folder = tmp_path / "tour"
    folder.mkdir()
    code = "import ctxkit as ck\nt = ck.tune(ck.samples.path('billing'), 'fuseraft')\nt"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [new_markdown_cell("# Tune"), new_code_cell(code)]
    nbformat.write(
        new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / "tune.ipynb"
    )
    told: dict = {}

    def use(page, _) -> None:
        page.locator("button:text-is('pin')").click()
        page.wait_for_selector("td:has-text('pinned')")
        page.locator("button:text-is('window')").click()
        page.wait_for_timeout(1500)
        told["rows"] = page.locator("table").first.inner_text()
        page.locator("text=more settings").click()
        page.wait_for_selector("text=/Neither end of their ranges|They change this replay less/")
        page.locator("text='Guard'").click()
        page.wait_for_selector(".ctxkit-hand .main-svg", state="attached")
        page.locator(".ctxkit-hand").first.scroll_into_view_if_needed()
        told["guard"] = page.locator(".ctxkit-hand .said").first.inner_text()

    shots = Path(os.environ.get("CTXKIT_SHOTS") or tmp_path)
    with sync_playwright() as playwright:
        seen = run_notebook(playwright, folder / "tune.ipynb", tmp_path, shots, act=use)
    assert seen.problems == []
    lines = {line.split("\t")[0]: line for line in told["rows"].splitlines()}
    assert lines["pinned"].split("\t")[1:] == lines["as begun"].split("\t")[1:]
    assert lines["now"].split("\t")[1:] != lines["as begun"].split("\t")[1:]
    assert (
        told["guard"] == "Nothing was compacted."
    )  # a window drops at each call and calls it no compaction
