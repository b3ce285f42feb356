"""Intervals hold about four in five where the judged developer had no say in any constant."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import pytest
import trust_calibration
import trust_developers
from msgspec.structs import replace

from ctxkit.engine import load_training_counts
from ctxkit.engine.cache_model import (
    input_cost_prediction,
    interval_calibration,
    miss_rate_estimator,
)


@pytest.mark.long
@pytest.mark.parametrize("mode", trust_developers.MODES)
def test_intervals_hold_four_in_five_by_constants_of_other_developers(mode):
    rows = trust_calibration.judge_with_chosen_constants(load_training_counts(), mode)
    held = [fmean(j.is_covered for j in g) for g in trust_developers.group_by_owner(rows)]
    assert 0.75 <= fmean(held) <= 0.85
    assert 0.75 <= fmean(j.is_covered for j in rows) <= (0.86 if mode == "known" else 0.85)


@pytest.mark.long
def test_by_its_shipped_constants_the_choice_gives_the_shipped_intervals():
    choice = trust_calibration.NestedChoice(load_training_counts(), "folder")
    at = trust_calibration.CANDIDATES.index(trust_calibration.SHIPPED)
    for judged in choice.judged[::40]:
        ours = choice._replace_interval(judged, at)
        assert (ours.low, ours.high) == pytest.approx((judged.low, judged.high), abs=2e-3)


@pytest.mark.long
def test_the_shipped_constants_score_about_as_well_as_the_best():
    scores = [
        trust_calibration.NestedChoice(load_training_counts(), mode).measure_scores()
        for mode in trust_developers.MODES
    ]
    relative = sum(score / score.min() for score in scores)
    at = trust_calibration.CANDIDATES.index(trust_calibration.SHIPPED)
    assert relative[at] <= 1.01 * relative.min()


@pytest.mark.long
def test_a_developers_own_errors_have_no_say_in_the_choice():
    """All errors of one developer are made huge: without them the scores are the same."""
    rows = load_training_counts()
    owner = Counter(row.owner for row in rows if row.past).most_common(1)[0][0]

    def spoil(row):
        if row.owner != owner or row.past is None:
            return row
        return replace(row, past=replace(row.past, alone=replace(row.past.alone, error=9.0)))

    true, spoilt = (
        trust_calibration.NestedChoice(table, "alone") for table in (rows, [*map(spoil, rows)])
    )
    assert (true.measure_scores(owner) == spoilt.measure_scores(owner)).all()
    assert (true.measure_scores() != spoilt.measure_scores()).any()


@pytest.mark.parametrize(
    "module", [input_cost_prediction, interval_calibration, miss_rate_estimator]
)
def test_each_constant_is_on_the_page_with_its_origin(module):
    named = {name for of, name, _, _ in trust_calibration.CONSTANTS if of is module}
    others = {"_SEED"}
    if module is input_cost_prediction:
        others |= {"MIN_CALLS", "MIN_DEVELOPERS", "HOUR"}  # imported
    numbers = {
        name
        for name, value in vars(module).items()
        if name.lstrip("_").isupper() and isinstance(value, int | float)
    }
    assert numbers - others - {"TYPE_CHECKING"} <= named
    assert named <= vars(module).keys()
