"""A replayed mask predicts what masked runs sent; other windows and other records do not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ctxkit.experiments import studies


@pytest.fixture(scope="module")
def runs():
    return studies.table("masks")


def median(runs, *args) -> float:
    return float(
        np.median(
            np.abs(
                studies.mask_token_errors_and_visibility_exams.measure_mask_prediction_errors(
                    runs, *args
                )
            )
        )
    )


def test_the_bill_is_predicted_within_a_few_per_cent(runs):
    assert len(runs) >= 70
    assert median(runs) < 0.025
    assert (
        median(runs, studies.mask_token_errors_and_visibility_exams.RECORDED_WINDOW, "o200k")
        < 0.015
    )
    assert (
        np.quantile(
            np.abs(
                studies.mask_token_errors_and_visibility_exams.measure_mask_prediction_errors(
                    runs, studies.mask_token_errors_and_visibility_exams.RECORDED_WINDOW, "o200k"
                )
            ),
            0.9,
        )
        < 0.04
    )


@pytest.mark.parametrize("unit", ["chars", "o200k"])
def test_the_window_that_was_used_is_the_best_and_others_fail(runs, unit):
    found = studies.mask_token_errors_and_visibility_exams.summarise_errors_by_window(
        runs, unit
    ).set_index("window")["median"]
    assert found.idxmin() == studies.mask_token_errors_and_visibility_exams.RECORDED_WINDOW
    best = found[studies.mask_token_errors_and_visibility_exams.RECORDED_WINDOW]
    assert min(found[1], found[10]) > 2 * best
    assert found[20] > 5 * best
    assert median(runs, studies.mask_token_errors_and_visibility_exams.NO_MASK, unit) > 10 * best


def test_records_of_other_runs_fail(runs):
    random = np.random.default_rng(3)
    sent = runs["sent"].to_numpy()
    worst = min(
        median(
            runs,
            studies.mask_token_errors_and_visibility_exams.RECORDED_WINDOW,
            "o200k",
            random.permutation(sent),
        )
        for _ in range(20)
    )
    assert worst > 20 * median(
        runs, studies.mask_token_errors_and_visibility_exams.RECORDED_WINDOW, "o200k"
    )


def test_the_run_that_is_judged_has_no_part_in_its_own_constant(runs):
    changed = runs["sent"].to_numpy(dtype=float)
    changed[0] *= 10
    was, now = (
        studies.mask_token_errors_and_visibility_exams.measure_mask_prediction_errors(runs),
        studies.mask_token_errors_and_visibility_exams.measure_mask_prediction_errors(
            runs, sent=changed
        ),
    )
    assert now[0] == pytest.approx((was[0] + 1) / 10 - 1)


def test_what_is_in_proportion_has_no_error():
    sized = np.array([10, 200, 3_000, 44])
    made = pd.DataFrame({"chars_5": sized * 4, "sent": sized})
    assert (
        np.abs(
            studies.mask_token_errors_and_visibility_exams.measure_mask_prediction_errors(made)
        ).max()
        < 1e-12
    )


def test_the_published_runs_are_measured_as_the_table_says(published, runs, tmp_path):
    for name in runs["task"].head(3):
        path = published / "sweagent-masked" / f"{name}.traj"
        (tmp_path / path.name).write_bytes(path.read_bytes())
    again = studies.mask_token_errors_and_visibility_exams.measure_runs_under_masks(tmp_path)
    pd.testing.assert_frame_equal(again, runs.head(3), check_dtype=False, rtol=1e-4)
    assert (again["chars_1"] < again["chars_5"]).all()
    assert (again["chars_5"] < again["chars_0"]).all()
