"""A live session as a person uses it: the chart at a turn's end, the watcher beside it, the tuner and its copies, Stop."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from browser.lab import CHROMIUM, run_notebook
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import ctxkit as ck

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}"),
    pytest.mark.skipif(not find_spec("jupyterlab"), reason="JupyterLab is not installed"),
    pytest.mark.skipif(not find_spec("playwright"), reason="playwright is not installed"),
]

TUNE = """\
def rules(trigger=20_000, keep=6_000):
    policy, trigger = f"summary:keep_tokens={keep}", ck.policies.triggers.Above(trigger)
    return ck.policies.Rules(policy=policy, trigger=trigger)

ck.tune(ck.read(ck.samples.path()), rules)"""
COPY = 'ck.tune(ck.read(ck.samples.path()), "pi")'
CELLS = (
    "%load_ext ctxkit",
    "%%agent\nWrite it",
    'import ctxkit as ck\nck.watch("main")',
    "%%agent --model scripted/audit\nGo",
    TUNE,
    COPY,
    "import time\ndef write_file(path, content):\n    'Write.'\n    time.sleep(60)",
    "%%agent --background --tools write_file --out turn\nGo on",
)
POINTS = """() => [...document.querySelectorAll('div[role=img] > svg')].map(
    p => p.querySelector('path').getAttribute('d').match(/[ML]/g).length)"""


def test_a_session_is_run_watched_stopped_and_tuned(tmp_path: Path):
    from playwright.sync_api import sync_playwright

    folder = tmp_path / "live"
    folder.mkdir()
    cells = [new_markdown_cell("# Live"), *map(new_code_cell, CELLS)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(
        new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / "live.ipynb"
    )
    seen_points: list[int] = []
    copied: list[str] = []

    def use(page, _) -> None:
        page.set_default_timeout(20_000)
        seen_points.extend(page.evaluate(POINTS))
        page.locator("button:has-text('Stop')").click()
        page.wait_for_selector("text=The turn of session 'main' is over")
        page.wait_for_selector("text=at rest")
        page.locator(".widget-slider .noUi-handle").first.focus()
        for _key in range(3):
            page.keyboard.press("ArrowRight")
        page.wait_for_selector("text=Each summary is taken to have")
        page.locator("button:has-text('exact, with loss')").first.click()
        page.wait_for_selector("text=needed, lost")
        page.context.grant_permissions(["clipboard-read"])
        page.locator('button:has-text("Copy as pi\'s config")').click()
        page.wait_for_selector("text=copied")
        copied.append(page.evaluate("() => navigator.clipboard.readText()"))

    shots = Path(os.environ.get("CTXKIT_SHOTS") or tmp_path / "shots")
    with sync_playwright() as playwright:
        seen = run_notebook(playwright, folder / "live.ipynb", tmp_path, shots, act=use)
    assert seen.problems == []
    assert seen_points[:2] == [
        4,
        10,
    ]  # the turns; then the watcher, both tuners, the turn beside it
    assert copied == [ck.presets.pi().to_config()]
