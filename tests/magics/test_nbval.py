"""A notebook of agent cells shows the same when it runs again: strict nbval, which drops updates of displays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.skipif(not find_spec("nbval"), reason="nbval is not installed")
TOUR = Path(__file__).parents[2] / "notebooks/04-a-live-session.ipynb"


WIDGET_IDS = "[widgets]\nregex: ctxkit-model-[0-9a-f]{32}\nreplace: ctxkit-model\n"
"""A widget's output names its model, whose id ipywidgets draws anew in every run."""


def saved(notebook, folder: Path) -> Path:
    """Run a notebook and save it with its outputs, as a notebook that follows updates does."""
    from nbclient import NotebookClient

    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )  # fmt: skip
    client.execute()
    path = folder / "saved.ipynb"
    nbformat.write(notebook, path)
    return path


def strict(path: Path) -> subprocess.CompletedProcess[str]:
    """Run strict nbval on a saved notebook, in a folder without the sessions of its first run."""
    shutil.rmtree(path.parent / ".ctxkit", ignore_errors=True)
    (path.parent / "sanitize.cfg").write_text(WIDGET_IDS)
    told = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", "-x"]
    return subprocess.run(
        [*told, "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(path.parent),
         "--nbval-sanitize-with", str(path.parent / "sanitize.cfg"), str(path)],
        capture_output=True, text=True, cwd=path.parent, timeout=400, check=False,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
    )  # fmt: skip


def notebook_of(*cells: str):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])


AGENT = (
    "%load_ext ctxkit\n%config CtxKit.model = 'scripted/audit'\n%config CtxKit.seed = 'a'",
    "%%agent\nAudit the ledgers.",
    "%agent",
    "%%agent --max-calls 2\nGo on.",
    "%compact --keep 1",
    "%%agent --background --out turn\nGo on.",
    "turn.result(60)",
    "%context branch 0 other",
    "%context reset --session main",
    "%%agent --session main\nAgain.",
    "%agent",
    "%context",
)


@pytest.mark.long
def test_a_notebook_of_agent_cells_shows_the_same_again(tmp_path):
    path = saved(notebook_of(*AGENT), tmp_path)
    done = strict(path)
    assert done.returncode == 0, done.stdout[-4000:]
    assert f"{len(AGENT)} passed" in done.stdout


@pytest.mark.long
def test_without_a_seed_it_does_not(tmp_path):
    cells = [c.replace("\n%config CtxKit.seed = 'a'", "") for c in AGENT[:3]]
    done = strict(saved(notebook_of(*cells), tmp_path))
    assert "1 failed" in done.stdout  # the turn already names the session's files


NO_NOTICE = """
import tqdm.auto
from ctxkit.widgets import progress_notice

class LateBar(tqdm.auto.tqdm):
    def __init__(self, *args, **options):
        super().__init__(*args, **options | {"delay": 600})

tqdm.auto.tqdm = LateBar
progress_notice._WAIT_SECONDS = 600
"""
"""Without bars and lines of cells that wait: they come and go with the load of the machine."""


@pytest.mark.long
def test_the_tour_of_a_live_session_shows_the_same_again(tmp_path):
    notebook = nbformat.read(TOUR, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(NO_NOTICE))
    path = saved(notebook, tmp_path)
    done = strict(path)
    assert done.returncode == 0, done.stdout[-6000:]
