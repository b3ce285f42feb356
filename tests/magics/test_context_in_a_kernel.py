"""`%context` in a real kernel: what a notebook and its tests receive."""

from __future__ import annotations

from importlib.util import find_spec

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

import ctxkit as ck

pytestmark = pytest.mark.skipif(not find_spec("ipykernel"), reason="ipykernel is not installed")

CELLS = (
    "%load_ext ctxkit",
    f"%context use '{ck.samples.path()}' --name sample;",
    "%context",
    "r = %context turns;\nlen(r)",
    "%context turns;",
    "%context nonsense",
    "%context use missing.jsonl",
    "%context use",
    "print('still here')\n%context list --call 0 ;",
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> list[list]:
    from nbclient import NotebookClient

    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    where = {"metadata": {"path": str(tmp_path_factory.mktemp("kernel"))}}
    NotebookClient(
        notebook, timeout=60, allow_errors=True, resources=where, kernel_name="python3"
    ).execute()
    nbformat.validate(notebook)
    return [cell.outputs for cell in notebook.cells]


def test_a_value_has_a_text_and_an_html_twin(outputs):
    [shown] = outputs[2]
    assert shown["data"]["text/plain"].startswith("Context: 20k/48k (41 %) · Compactions: 2\n")
    assert "<table>" in shown["data"]["text/html"]


@pytest.mark.parametrize("cell", [0, 1, 4])
def test_what_is_silenced_shows_nothing(outputs, cell: int):
    assert outputs[cell] == []


def test_a_silenced_assignment_keeps_its_value(outputs):
    assert [o["data"]["text/plain"] for o in outputs[3]] == ["19"]


@pytest.mark.parametrize(
    ("cell", "name"), [(5, "BadArguments"), (6, "ReadError"), (7, "BadArguments")]
)
def test_an_error_is_one_line_and_a_real_error_output(outputs, cell: int, name: str):
    [error] = outputs[cell]
    assert (error["output_type"], error["ename"]) == ("error", name)
    assert error["evalue"]
    assert len("\n".join(error["traceback"]).splitlines()) == 1


def test_other_output_of_the_cell_is_kept(outputs):
    assert [o.get("text") for o in outputs[8]] == ["still here\n"]
