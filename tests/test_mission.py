"""The page of statements is as its command writes it, and names only tests that are there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAD = "statement,words,tests,rest\n"


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("make_mission", ROOT / "docs/make_mission.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tests(tmp_path):
    """Return a folder of tests: one that says what it holds, and one of a name that is there twice."""
    folder = tmp_path / "tests"
    for room in ("a", "teams"):
        (folder / room).mkdir(parents=True)
        (folder / room / "test_it.py").write_text("def test_twice():\n    pass\n")
    (folder / "test_a.py").write_text(
        'def test_x():\n    """F4, T12: Both\n    hold."""\n\n'
        'async def test_y():\n    """Holds F4: no."""\n\ndef helper():\n    """F5: no test."""\n'
    )
    return folder


def said(tests, rows):
    path = tests.parent / "statements.csv"
    path.write_text(HEAD + rows)
    return path, tests


def test_the_page_is_up_to_date(made):
    assert (ROOT / "docs/mission.md").read_text() == made.page(), "python docs/make_mission.py"


def test_every_statement_has_a_row(made):
    names = [s.name for s in made.statements()]
    most = {"F": 132, "T": 33, "A": 48, "P": 27, "D": 36}
    assert names == [f"{letter}{n}" for letter in most for n in range(1, most[letter] + 1)]


def test_tags_are_read_and_other_docstrings_are_not(made, tests):
    found = list(made.held(tests))
    assert [(h.statement, h.words) for h in found] == [("F4", "Both hold."), ("T12", "Both hold.")]
    assert found[0].test == "tests/test_a.py::test_x"


def test_a_statement_is_held_by_tests_or_says_why_it_is_not(made, tests):
    rows = "F4,A,,\nF5,B,teams/test_twice,\nF6,C,test_y,partly: half\nT12,D,,missing: all\n"
    with pytest.raises(ValueError, match="T12: say what holds it"):  # a test says that it holds it
        made.statements(*said(tests, rows))
    found = made.statements(*said(tests, rows.replace("missing: all", "partly: all")))
    assert [s.state for s in found] == ["built", "built in a team", "partly", "partly"]
    assert found[1].tests == ("tests/teams/test_it.py::test_twice",)
    assert "| F6 | C | partly | half<br>`tests/test_a.py::test_y` |" in made.page(*said(
        tests, rows.replace("missing: all", "partly: all")))  # fmt: skip


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("F4,A,test_gone,", "F4: test_gone is not among the tests"),
        ("F4,A,test_twice,", "F4: test_twice is twice among the tests"),
        ("F5,A,,", "F5: say what holds it"),
        ("F4,A,,perhaps: so", "F4: say what holds it"),
        ("F9,A,test_x,", "hold what is no statement: F4, T12"),
    ],
)
def test_what_is_not_so_is_an_error(made, tests, row, why):
    with pytest.raises(ValueError, match=why):
        made.statements(*said(tests, f"{row}\n"))
