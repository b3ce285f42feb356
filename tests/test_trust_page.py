"""docs/trust.md is what its command writes from the sessions at hand."""

from __future__ import annotations

from pathlib import Path

import make_trust
import pytest
import trust_cache

ROOT = Path(__file__).parents[1]


@pytest.mark.long
def test_the_page_is_not_behind(real):
    written = (ROOT / "docs/trust.md").read_text(encoding="utf-8")
    assert make_trust.page(real) == written


def test_the_table_of_what_was_taught_is_the_one_that_ships():
    assert trust_cache.TABLE.is_file()


def test_the_page_says_what_was_missed_and_what_was_in_sight():
    written = (ROOT / "docs/trust.md").read_text(encoding="utf-8")
    assert "What was in sight" in written
    assert "are missed there" in written  # by the logs that nobody had looked at
    assert "floor: chance alone" in written
