"""The notebooks of the course: outputs are stored where they are compared, every cell runs without error or warning."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))

every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


@every
def test_a_notebook_is_valid_and_stores_only_text_that_is_compared(path: Path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert notebook.cells[0].source.startswith("# ")
    assert code
    for cell in code:
        compared = "nbval-check-output" in cell.metadata.get("tags", [])
        assert bool(cell.outputs) is bool(cell.execution_count) is compared
        assert {o.get("name") for o in cell.outputs} <= {"stdout"}
    assert "widgets" not in notebook.metadata


@every
def test_a_notebook_says_where_it_goes_in_few_words(path: Path):
    cells = nbformat.read(path, as_version=4).cells
    assert max(len(c.source.split()) for c in cells if c.cell_type == "markdown") < 120
    assert max(c.source.count("\n") for c in cells if c.cell_type == "code") < 15


@every
@pytest.mark.long
@pytest.mark.skipif(not find_spec("ipykernel"), reason="ipykernel is not installed")
def test_a_notebook_runs_with_warnings_as_errors(path: Path, tmp_path: Path, monkeypatch):
    from nbclient import NotebookClient

    shutil.copytree(path.parent, tmp_path / "notebooks")
    monkeypatch.setenv(
        "PYTHONWARNINGS", "error::UserWarning,error::FutureWarning,error::RuntimeWarning"
    )
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", store_widget_state=False,
        resources={"metadata": {"path": str(tmp_path / "notebooks")}},
    )  # fmt: skip
    client.execute()
    words = [
        o.text for c in notebook.cells for o in c.get("outputs", []) if o.get("name") == "stderr"
    ]
    assert words == []  # a UsageError leaves no error output, only a line here
