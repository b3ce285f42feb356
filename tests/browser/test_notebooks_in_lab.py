"""Every notebook of the tour in a real JupyterLab: no error, all drawn, and no request leaves the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ALL

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    "dark", [False, True] if ALL else [False], ids=lambda d: "dark" if d else "light"
)
@pytest.mark.parametrize(
    "notebook",
    [NOTEBOOKS[0], *(pytest.param(p, marks=pytest.mark.long) for p in NOTEBOOKS[1:])],
    ids=lambda p: p.stem,
)
def test_a_notebook_runs_and_is_drawn_in_the_browser(notebook: Path, dark: bool, jupyter):
    seen = jupyter.run(notebook, dark=dark)
    assert seen.problems == []
    assert seen.plots + seen.widgets > 0
