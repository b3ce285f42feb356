"""docs/trust.md is what its command writes from the sessions at hand."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import make_trust
import pytest
import trust_cache
import trust_developers
from msgspec.structs import replace

from ctxkit.engine import load_training_counts

ROOT = Path(__file__).parents[1]


@pytest.mark.long
def test_the_page_is_not_behind(real):
    written = (ROOT / "docs/trust.md").read_text(encoding="utf-8")
    assert make_trust.format_page(real) == written


def test_the_table_of_what_was_taught_is_the_one_that_ships():
    assert trust_cache.TABLE.is_file()


def test_the_page_opens_with_what_may_be_believed_in_ten_lines():
    written = (ROOT / "docs/trust.md").read_text(encoding="utf-8")
    opening, _, rest = written.partition("## The prompt cache, predicted")
    claims = opening.partition("## What you may believe")[2]
    assert [*re.findall(r"^(\d+)\. ", claims, re.MULTILINE)] == [str(n) for n in range(1, 11)]
    assert "Each developer of 10 sessions or more" in rest
    assert "floor: chance alone" in rest


def test_few_developers_establish_nothing():
    rows = load_training_counts()
    few = {row.owner for row in rows if row.tool == "codex" and row.past}
    page = trust_developers.format_section(
        [row for row in rows if row.owner in few and row.tool == "codex"]
    )
    assert len(few) < 10 < len({row.owner for row in rows if row.tool == "claude-code"})
    pi = [row for row in rows if row.tool == "pi"]
    judged = {row.owner for row in pi if row.past}
    assert 0 < len(judged) < 10
    line = next(
        n for n in trust_developers.format_section(pi).splitlines() if n.startswith("| Pi |")
    )
    assert line.endswith(f"| **not established**: {len(judged)} developers |")
    assert "not established" in page


def test_a_developers_own_errors_calibrate_no_interval_of_theirs():
    """All but one session of a developer are spoilt: of that one the interval stays as it is."""
    rows = [
        row for row in load_training_counts() if row.tool == "codex"
    ]  # all take ten times as long
    owner = Counter(row.owner for row in rows if row.past).most_common(1)[0][0]
    one = next(row.session for row in rows if row.past and row.owner == owner)

    def worse(past):
        return replace(past, folder=replace(past.folder, below=past.folder.below / 10))

    spoilt = [
        replace(row, past=worse(row.past))
        if row.past and row.owner == owner and row.session != one
        else row
        for row in rows
    ]
    pairs = [
        *zip(*(trust_developers.judge_sessions(r, "folder") for r in (rows, spoilt)), strict=True)
    ]
    before, after = next(pair for pair in pairs if pair[0].row.session == one)
    assert before.low is not None
    assert (before.low, before.high) == (after.low, after.high)
    others = [(a, b) for a, b in pairs if a.row.owner != owner]
    assert any((a.low, a.high) != (b.low, b.high) for a, b in others)
