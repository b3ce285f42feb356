"""The notebooks of the course: they store what they show, and every cell runs without error or warning."""

from __future__ import annotations

import base64
import importlib.util
import re
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NOT_STORED: frozenset[str] = frozenset()
"""Notebooks that store no outputs: none."""

RANDOM = {"10-what-enters-a-prompt"}
"""Notebooks whose prompts hold names that chance gives, so that sizes differ by a few tokens."""

every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location(
        "make_notebooks", ROOT / "docs" / "make_notebooks.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@every
def test_a_notebook_stores_what_its_cells_show_in_this_version(path: Path, script):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert notebook.cells[0].source.startswith("# ")
    assert code
    assert "widgets" not in notebook.metadata
    if "ctxkit" in notebook.metadata:
        assert list(script.check_notebook(notebook, path.stat().st_size)) == []
        return
    assert path.stem in NOT_STORED
    for cell in code:
        compared = "nbval-check-output" in cell.metadata.get("tags", [])
        assert bool(cell.outputs) is bool(cell.execution_count) is compared
        assert {o.get("name") for o in cell.outputs} <= {"stdout"}


def store(script, *outputs, source: str = "1"):
    """A notebook of one cell whose outputs are said to be its own."""
    notebook = new_notebook(cells=[new_code_cell(source, outputs=list(outputs))])
    notebook.metadata["ctxkit"] = script.describe_source(notebook)
    return notebook


def test_outputs_of_other_cells_or_of_another_version_are_found(script):
    notebook = store(script)
    assert list(script.check_notebook(notebook, 100)) == []
    notebook.cells[0].source = "2"
    assert "of other cells" in next(script.check_notebook(notebook, 100))
    notebook = store(script)
    notebook.metadata["ctxkit"]["version"] = "0.0.1"
    assert "another version" in next(script.check_notebook(notebook, 100))
    assert "bytes" in next(script.check_notebook(store(script), 700_000))
    assert "stores no outputs" in next(script.check_notebook(new_notebook(), 100))


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (new_output("stream", name="stderr", text="warning"), "a warning"),
        (new_output("display_data", data={"application/javascript": "1"}), "javascript"),
        (new_output("display_data", data={"text/html": "<script>1</script>"}), "a script"),
        (new_output("display_data", data={"text/html": "<svg></svg>"}), "untrusted"),
        (new_output("stream", text=f"{ROOT}/x"), "a path of this machine"),
    ],
)
def test_what_must_not_be_stored_is_found(script, output, problem):
    assert problem in next(script.check_notebook(store(script, output), 100))


def test_a_stored_output_is_text_and_pictures(script):
    html = (
        '<div class="ctxkit-slot ctxkit-model-0a1b"><script>1</script><svg viewBox="0 0 9 9"'
        ' style="width:100%"><title>hover</title><path d="M0 0"/></svg></div>'
    )
    data = {
        "text/html": html,
        "text/plain": "a",
        "application/vnd.plotly.v1+json": {},
    }
    [stored] = script.clean_outputs([new_output("display_data", data=data)], {})
    assert set(stored.data) == {"text/html", "text/plain"}
    assert "script" not in stored.data["text/html"]
    assert "0a1b" not in stored.data["text/html"]  # another one each time
    [coded] = re.findall(r'<img alt="" style="width:100%" src="data:image/svg\+xml;base64,(.*?)">',
                         stored.data["text/html"])  # fmt: skip
    picture = base64.b64decode(coded).decode()
    assert '<path d="M0 0"/>' in picture
    assert "hover" not in picture
    assert "prefers-color-scheme:dark" in picture


def test_a_plotly_figure_without_a_picture_gets_one(script):
    figure = {"data": [{"x": [1, 2], "y": [3, 4]}], "layout": {}}
    data = {"application/vnd.plotly.v1+json": figure, "text/plain": "Figure()"}
    [stored] = script.clean_outputs([new_output("display_data", data=data)], {})
    assert "data:image/svg+xml" in stored.data["text/html"]


def test_paths_and_progress_bars_are_not_stored(script):
    streams = [
        new_output("stream", text="read  10%|#   | 1/10\rread 100%|####| 10/10\n"),
        new_output("stream", text="in /home/x/work/a.json, "),
        new_output("stream", text="<C object at 0x7f01a2b3c4d5>\n"),
    ]
    [stored] = script.clean_outputs(streams, {"/home/x/work": ""})
    assert stored.text == "in a.json, <C object >\n"


def test_a_line_whose_end_comes_in_a_message_of_its_own_is_stored_whole(script):
    streams = [new_output("stream", text="45%"), new_output("stream", text="\n")]
    assert [o.text for o in script.clean_outputs(streams, {})] == ["45%\n"]


@every
def test_a_notebook_says_where_it_goes_in_few_words(path: Path):
    cells = nbformat.read(path, as_version=4).cells
    texts = (re.sub(r"(?m)^\|.*", "", c.source) for c in cells if c.cell_type == "markdown")
    assert max(len(text.split()) for text in texts) < 120  # tables are looked up
    assert max(c.source.count("\n") for c in cells if c.cell_type == "code") < 15


@every
@pytest.mark.long
@pytest.mark.skipif(not find_spec("ipykernel"), reason="ipykernel is not installed")
def test_a_notebook_runs_with_warnings_as_errors_and_shows_what_it_stores(
    path: Path, script, monkeypatch
):
    monkeypatch.setenv(
        "PYTHONWARNINGS", "error::UserWarning,error::FutureWarning,error::RuntimeWarning"
    )
    notebook = script.run_notebook(path)
    # a UsageError leaves no error output, only a line in stderr
    assert list(script.check_notebook(notebook, 0)) == []
    stored = nbformat.read(path, as_version=4)
    if "ctxkit" in stored.metadata:
        fresh, kept = read_texts(notebook), read_texts(stored)
        if path.stem in RANDOM:
            fresh, kept = ([[bool(text) for text in cell] for cell in of] for of in (fresh, kept))
        assert fresh == kept


def read_texts(notebook) -> list[list[str]]:
    """What each cell shows as text, without ids of sessions that ran and the end of a progress bar."""
    return [
        [SESSION_ID.sub("ID", text_of(output)).strip() for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


SESSION_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{1,4})?\b")


def text_of(output) -> str:
    return output.get("text") or output.get("data", {}).get("text/plain", "")
