"""Every exercise in a fresh kernel: its solution and wrong answers of four kinds, in its place and after Run All.

The notebook is run from a download: alone, in an empty folder, by a user whose home cannot be written.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from ctxkit.course import load_exercises

ROOT = Path(__file__).parents[2]
NUMBERS = sorted(p.stem[:2] for p in (ROOT / "notebooks").glob("*.ipynb"))
WRONG = ("'no such word'", "-12345.678", "object()", "[]")


@pytest.fixture(scope="module")
def solutions():
    text = (ROOT / "docs/teaching/solutions.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^### (\S+)\n```py\n(.*?)```$", text, re.DOTALL | re.MULTILINE))


def asking(source, solutions, place):
    """Return code that answers the exercise of a cell rightly and wrongly, and prints the marks."""
    key, rest = re.search(
        r'^ck\.check\("([^"]+)", \.\.\.((?:[^()\n]|\([^()]*\))*)\)', source, re.MULTILINE
    ).groups()
    lines = [solutions[key]]
    for kind, answer in (*((w, w) for w in WRONG), ("right", "answer")):
        lines.append(f"_m = ck.check({key!r}, {answer}{rest})")
        lines.append(f"_keep_mark([{key!r}, {place!r}, {kind!r}, _m.right, str(_m)])")
    return new_code_cell("\n".join(lines))


# A file, since what is printed comes in pieces, between which a waiting line may be drawn.
BEGIN = """
import ctxkit as ck
{student!r} and ck.course.begin({student!r})

def _keep_mark(mark):
    import json
    with open({marks!r}, "a") as file:
        file.write(json.dumps(mark) + "\\n")
"""


@pytest.mark.long
@pytest.mark.parametrize("student", ["", "Ada Lovelace"])
@pytest.mark.parametrize("number", NUMBERS)
def test_solutions_and_wrong_answers_in_a_fresh_kernel(
    number, student, solutions, tmp_path, monkeypatch
):
    path = next((ROOT / "notebooks").glob(f"{number}-*.ipynb"))
    notebook = nbformat.read(path, as_version=4)
    begin = BEGIN.format(student=student, marks=str(tmp_path / "marks.jsonl"))
    cells, later = [new_code_cell(begin)], []
    for cell in notebook.cells:
        cells.append(cell)
        if cell.cell_type == "code" and re.search(
            r'^ck\.check\("[^"]+", \.\.\.', cell.source, re.MULTILINE
        ):
            cells.append(asking(cell.source, solutions, "here"))
            later.append(asking(cell.source, solutions, "after Run All"))
    notebook.cells = [*cells, *later]
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))))
    work = tmp_path / "download"
    work.mkdir()
    where = {"metadata": {"path": str(work)}}
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where)
    client.execute(env=os.environ | {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")})
    lines = (tmp_path / "marks.jsonl").read_text(encoding="utf-8").splitlines()
    marks = [json.loads(line) for line in lines]
    exercises = [
        k for k, e in load_exercises().items() if k.startswith(f"{number}-") and not e.is_guess
    ]
    assert len(marks) == len(exercises) * 2 * (len(WRONG) + 1)
    assert [m for m in marks if m[3] is not (m[2] == "right")] == []
    assert {each.name for each in work.iterdir()} <= {".ctxkit"}, (
        "files are left beside the notebook"
    )
