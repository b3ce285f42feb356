"""The course fits three hours, its table says what is measured, and no cell waits long."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COURSE = (ROOT / "docs/course.md").read_text(encoding="utf-8")
LESSONS = sorted((ROOT / "notebooks").glob("0[1-7]*.ipynb"))
LATER = ("08", "09", "10", "11", "a1", "a2", "a3")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("minutes", ROOT / "docs/teaching/minutes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed(number):
    """Return the minutes that the page of the course lists for a notebook."""
    row = next(
        line
        for line in COURSE.splitlines()
        if f"/notebooks/{number}-" in line and line.startswith("|")
    )
    return int(re.search(r"\.ipynb\).*?\| (\d+) \|", row)[1])


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem[:2])
def test_the_table_of_the_course_is_what_is_measured(script, path):
    assert abs(listed(path.stem[:2]) - script.compute_minutes(path)) <= 1


def test_the_lessons_fit_three_hours_with_set_up_and_break(script):
    assert sum(script.compute_minutes(path) for path in LESSONS) <= 174
    rest = sum(map(int, re.findall(r"\| (?:0 \| set-up|\| break) \| (\d+) \|", COURSE)))
    assert rest >= 10
    assert sum(listed(path.stem[:2]) for path in LESSONS) + rest <= 180


@pytest.mark.parametrize("number", LATER)
def test_later_notebooks_have_minutes_too(script, number):
    path = next((ROOT / "notebooks").glob(f"{number}-*.ipynb"))
    assert abs(listed(number) - script.compute_minutes(path)) <= 3


def test_no_cell_waits_longer_than_ten_seconds(script):
    runs = script.read_runs()
    assert {f"{n:02}" for n in range(1, 12)} <= set(runs)
    assert {n: slowest for n, (_, slowest) in runs.items() if slowest > 10} == {}


def test_words_lines_and_exercises_are_counted(script, tmp_path):
    from nbformat import v4, write

    cells = [
        v4.new_markdown_cell("one two [three](somewhere/else.md)"),
        v4.new_code_cell("x = 1\n\nx"), v4.new_code_cell('ck.check("05-a", ...)'),
    ]  # fmt: skip
    write(v4.new_notebook(cells=cells), tmp_path / "zz-x.ipynb")
    counted = script.count_parts(tmp_path / "zz-x.ipynb")
    assert counted == {"words": 3, "lines": 3, "outputs": 1, "exercises": 4.0}


def test_waits_that_cannot_be_kept_or_are_missing_are_a_sentence(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "RUNS", tmp_path / "nowhere" / "runs.csv")
    monkeypatch.setattr(
        script, "run_notebook", lambda path: pytest.fail("it ran, and nothing could be kept")
    )
    with pytest.raises(SystemExit, match="cannot be written"):
        script.main(["01"], run=True)
    with pytest.raises(SystemExit, match="is missing: make it"):
        script.main(["01"], run=False)
    assert list(tmp_path.iterdir()) == []


def test_what_takes_long_shows_progress():
    """A cell that compares, sweeps or advises shows its bar."""
    for path in LESSONS:
        assert "progress=False" not in path.read_text(encoding="utf-8"), path.name
