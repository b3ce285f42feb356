"""The page of statements is as its command writes it, and reads what tests say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("make_mission", ROOT / "docs/make_mission.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(made):
    assert (ROOT / "docs/mission.md").read_text() == made.page(), "python docs/make_mission.py"


def test_tags_are_read_and_other_docstrings_are_not(made, tmp_path):
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_a.py").write_text(
        'def test_x():\n    """F4, T12: Both hold."""\n\ndef test_y():\n    """Holds F4: no."""\n\n'
        'def helper():\n    """F5: no test."""\n'
    )
    found = list(made.held(tests))
    assert [(h.statement, h.words) for h in found] == [("F4", "Both hold."), ("T12", "Both hold.")]
    assert found[0].test == "`tests/test_a.py` test_x"
