"""The page of statements is current, and each statement names tests that exist or a reason."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAD = "statement,words,tests,rest\n"


@pytest.fixture(scope="module")
def make_mission():
    spec = importlib.util.spec_from_file_location("make_mission", ROOT / "docs/make_mission.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tests(tmp_path):
    """Return a folder of tests: one that names statements, and two of the same name."""
    folder = tmp_path / "tests"
    for package in ("a", "teams"):
        (folder / package).mkdir(parents=True)
        (folder / package / "test_it.py").write_text("def test_twice():\n    pass\n")
    (folder / "test_a.py").write_text(
        'def test_x():\n    """F4, T12: Both\n    hold."""\n\n'
        'async def test_y():\n    """Holds F4: no."""\n\ndef helper():\n    """F5: no test."""\n'
    )
    return folder


def write_statements(tests, rows):
    path = tests.parent / "statements.csv"
    path.write_text(HEAD + rows)
    return path, tests


def test_the_page_is_up_to_date(make_mission):
    assert (ROOT / "docs/mission.md").read_text() == make_mission.format_page(), (
        "python docs/make_mission.py"
    )


def test_every_statement_has_a_row(make_mission):
    names = [s.name for s in make_mission.read_statements()]
    most = {"F": 132, "T": 33, "A": 48, "P": 27, "D": 36}
    assert names == [f"{letter}{n}" for letter in most for n in range(1, most[letter] + 1)]


def test_tags_are_read_and_other_docstrings_are_not(make_mission, tests):
    statements = list(make_mission.iter_tagged_statements(tests))
    assert [(s.statement, s.words) for s in statements] == [
        ("F4", "Both hold."),
        ("T12", "Both hold."),
    ]
    assert statements[0].test == "tests/test_a.py::test_x"


def test_a_statement_names_its_tests_or_the_reason_for_having_none(make_mission, tests):
    rows = "F4,A,,\nF5,B,teams/test_twice,\nF6,C,test_y,partly: half\nT12,D,,missing: all\n"
    with pytest.raises(ValueError, match="T12: name the tests"):  # a test names it
        make_mission.read_statements(*write_statements(tests, rows))
    statements = make_mission.read_statements(
        *write_statements(tests, rows.replace("missing: all", "partly: all"))
    )
    assert [s.state for s in statements] == ["built", "built in a team", "partly", "partly"]
    assert statements[1].tests == ("tests/teams/test_it.py::test_twice",)
    assert "| F6 | C | partly | half<br>`tests/test_a.py::test_y` |" in make_mission.format_page(*write_statements(
        tests, rows.replace("missing: all", "partly: all")))  # fmt: skip


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("F4,A,test_gone,", "F4: test_gone is not among the tests"),
        ("F4,A,test_twice,", "F4: test_twice is twice among the tests"),
        ("F5,A,,", "F5: name the tests"),
        ("F4,A,,perhaps: so", "F4: name the tests"),
        ("F9,A,test_x,", "tests name unknown statements: F4, T12"),
    ],
)
def test_an_inconsistent_row_is_an_error(make_mission, tests, row, message):
    with pytest.raises(ValueError, match=message):
        make_mission.read_statements(*write_statements(tests, f"{row}\n"))
