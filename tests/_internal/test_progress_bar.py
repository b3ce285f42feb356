"""Progress bars in a notebook: seen while the work runs, and no widget in what is stored."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

WORK = """import time
from ctxkit._internal.progress_bar import make_progress_bar
for n in make_progress_bar(range(4), desc="work", delay=0):
    time.sleep(0.15)
    if n == {stop}:
        raise ValueError("stopped")
"""


@pytest.fixture
def run_cell(tmp_path):
    def run(code: str):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
        client = NotebookClient(notebook, allow_errors=True, timeout=120)
        displayed = []
        shown = client.process_message

        def note(message, cell, cell_index):
            displayed.append((message["header"]["msg_type"], message["content"].get("data", {})))
            return shown(message, cell, cell_index)

        client.process_message = note
        client.execute(cwd=str(tmp_path))
        return notebook.cells[0].outputs, displayed

    return run


WIDGET = "application/vnd.jupyter.widget-view+json"


def test_a_bar_is_seen_and_leaves_nothing_when_the_work_is_done(run_cell):
    outputs, displayed = run_cell(WORK.format(stop=-1))
    assert any(WIDGET in data for _, data in displayed)
    assert [output["data"] for output in outputs] == [{"text/html": ""}]


def test_a_bar_of_work_that_failed_leaves_its_words(run_cell):
    outputs, _ = run_cell(WORK.format(stop=2))
    bar, error = outputs
    assert error["ename"] == "ValueError"
    assert list(bar["data"]) == ["text/plain"]
    assert "2/4" in bar["data"]["text/plain"]
