"""The explorer as a person uses it: the arrow keys move through the calls, and choose a message to read."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import nbformat
import pytest
from browser.lab import CHROMIUM, run_notebook
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}"),
    pytest.mark.skipif(not find_spec("jupyterlab"), reason="JupyterLab is not installed"),
    pytest.mark.skipif(not find_spec("playwright"), reason="playwright is not installed"),
]

CODE = "import ctxkit as ck\nck.explore(ck.read(ck.samples.path()), call=10)"


def test_the_keyboard_moves_and_reads(tmp_path: Path):
    from playwright.sync_api import sync_playwright

    folder = tmp_path / "tour"
    folder.mkdir()
    cells = [new_markdown_cell("# Explore"), new_code_cell(CODE)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(
        new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / "explore.ipynb"
    )
    said: list[str] = []

    def use(page, _) -> None:
        page.locator(".widget-slider .noUi-handle").first.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("text=Call 11 (of 0 to 342)")
        page.locator("button:has-text('as sent')").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector(".jp-OutputArea pre:has-text('You are a coding agent')")
        page.locator(".widget-slider .noUi-handle").last.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".jp-OutputArea pre:has-text('Ticket BILL-4127')")
        said.append(page.locator(".jp-OutputArea pre").last.inner_text())

    with sync_playwright() as playwright:
        seen = run_notebook(
            playwright, folder / "explore.ipynb", tmp_path, tmp_path / "shots", act=use
        )
    assert seen.problems == []
    assert said[0].startswith("Ticket BILL-4127")
