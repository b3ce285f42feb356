"""A number that defines a figure is one constant: columns, docstrings and pages say the same number."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from ctxkit._internal import format_percent
from ctxkit.experiments import SCORE_COLUMNS
from ctxkit.metrics import (
    compaction_outcomes,
    compaction_savings_and_payback,
    item_index_and_rule_matching,
    run_elongation_from_studies,
)

MEANINGS = {column.name: column.meaning for column in SCORE_COLUMNS}
DOCS = Path(__file__).parents[2] / "docs"
NUMBERS = {
    "no_progress_streak": f"less than {format_percent(compaction_savings_and_payback.MIN_PROGRESS)}",
    "rebound_calls": f"at {format_percent(compaction_savings_and_payback.REFILLED_SHARE)} of its size",
    "reread_rate": f"{compaction_outcomes.REREAD_WINDOW} tool calls",
    "weighted_loss": f"weighs {item_index_and_rule_matching.USER_WEIGHT:g}",
}


@pytest.mark.parametrize("column", NUMBERS)
def test_the_column_states_the_number_of_the_constant(column):
    assert NUMBERS[column] in MEANINGS[column]


@pytest.mark.parametrize("column", ["no_progress_streak", "rebound_calls", "reread_rate"])
def test_the_attribute_of_a_thrash_summary_states_it_too(column):
    assert NUMBERS[column] in " ".join(
        inspect.getsource(compaction_outcomes.CompactionOutcomeSummary).split()
    )


def test_the_pages_state_the_noise_floor():
    for page in ("scores.md", "frames.md", "trust.md"):
        text = (DOCS / page).read_text("utf-8")
        assert (
            f"{run_elongation_from_studies.NOISE_FLOOR:.0%}" in text
            or format_percent(run_elongation_from_studies.NOISE_FLOOR) in text
        ), page
