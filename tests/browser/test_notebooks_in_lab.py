"""Every notebook of the tour in a real JupyterLab: no error, all drawn, and no request leaves the machine."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from browser.lab import CHROMIUM, run_notebook
from conftest import ALL

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}"),
    pytest.mark.skipif(not find_spec("jupyterlab"), reason="JupyterLab is not installed"),
    pytest.mark.skipif(not find_spec("playwright"), reason="playwright is not installed"),
]


@pytest.fixture
def playwright():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        yield started


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    return Path(os.environ.get("CTXKIT_SHOTS") or tmp_path / "shots").resolve()


@pytest.mark.parametrize(
    "dark", [False, True] if ALL else [False], ids=lambda d: "dark" if d else "light"
)
@pytest.mark.parametrize(
    "notebook",
    [NOTEBOOKS[0], *(pytest.param(p, marks=pytest.mark.long) for p in NOTEBOOKS[1:])],
    ids=lambda p: p.stem,
)
def test_a_notebook_runs_and_is_drawn_in_the_browser(
    notebook: Path, dark: bool, playwright, shots: Path, tmp_path: Path
):
    seen = run_notebook(playwright, notebook, tmp_path, shots, dark=dark)
    assert seen.problems == []
    assert seen.plots + seen.widgets > 0
