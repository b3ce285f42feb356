"""Every exercise has a solution, and each is right: by itself where it can be, else in its notebook."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from course.notebook_assertions import write_asserts

import ctxkit as ck
from ctxkit.course import load_exercises

ROOT = Path(__file__).parents[2]
OWN = {"04-a", "08-a", "08-b", "10-a", "10-b", "11-a", "11-b", "a1-a", "a1-b", "a2-b", "a3-a"}
"""Those that are about what their notebook made."""
SLOW = {"02-c", "04-b", "07-a", "a3-b"}
"""Those that replay many times."""


@pytest.fixture(scope="module")
def solve():
    spec = importlib.util.spec_from_file_location("solve", ROOT / "docs/teaching/solve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_exercise_has_one(solve):
    asked = {key for key, e in load_exercises().items() if not e.is_guess}
    assert set(solve.read_solutions()) == asked - {"capstone"}  # whose answer is each student's own


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.long)])
def test_each_that_stands_alone_is_right(slow, solve):
    wrong = []
    for key, code in solve.read_solutions().items():
        if key not in OWN and (key in SLOW) is slow:
            names = {"ck": ck}
            exec(code, names)
            mark = ck.check(key, names["answer"])
            wrong += [str(mark)] * (mark.right is not True)
    assert wrong == []


def test_the_dots_are_filled_in(solve):
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = [c.source for c in solve.solve_notebook(path).cells if c.cell_type == "code"]
        assert not re.search(r'ck\.check\("[^"]+", \.\.\.', "\n".join(cells))
        asked = "ck.check(" in path.read_text(encoding="utf-8")
        assert any("answer" in c for c in cells) or not asked


@pytest.mark.long
@pytest.mark.parametrize("number", ["04", "08", "10", "11", "a1", "a2", "a3"])
def test_the_others_are_right_in_their_notebook(number, solve, tmp_path):
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell

    path = next(
        p for p in solve.write_solved_notebooks(tmp_path / "solved") if p.stem.startswith(number)
    )
    notebook = solve.solve_notebook(ROOT / "notebooks" / path.name)
    notebook.cells.append(new_code_cell(write_asserts(number)))
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()
    marks = [
        o["data"]["text/plain"]
        for c in notebook.cells
        for o in c.get("outputs", [])
        if "data" in o and re.match(r"\w\w-([a-c]|guess): ", o["data"].get("text/plain", ""))
    ]
    guesses = [m for m in marks if f"{number}-guess: You said" in m]
    marks = [m for m in marks if m not in guesses]
    assert len(guesses) == 1
    assert len(marks) >= 2
    assert [m for m in marks if ": right." not in m] == []
