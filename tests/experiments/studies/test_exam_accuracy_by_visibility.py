"""Published answers after real compactions: what is marked as shown is answered, the rest is not."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from ctxkit import studies
from ctxkit.errors import BadArguments

PAGE = Path(__file__).parents[3] / "docs" / "exam.md"


@pytest.fixture(scope="module")
def answers():
    try:
        return studies.mask_token_errors_and_visibility_exams.read_exam_answers()
    except BadArguments as error:
        pytest.skip(str(error))


def test_what_is_shown_is_answered_twice_as_often(answers):
    result = studies.mask_token_errors_and_visibility_exams.measure_accuracy_by_visibility(answers)
    assert (result.shown, result.gone, result.histories_n) == (288, 312, 8)
    assert result.ratio >= 2
    assert result.difference_interval[0] > 0.5 > abs(result.shuffled_difference)


def test_marks_that_know_nothing_tell_nothing(answers):
    blind = answers.assign(answer=answers["answer"].sample(frac=1, random_state=1).to_numpy())
    assert (
        studies.mask_token_errors_and_visibility_exams.measure_accuracy_by_visibility(blind).ratio
        < 1.5
    )


def test_the_page_has_what_is_measured(answers):
    import make_answers

    assert make_answers.measure_exam() in PAGE.read_text(encoding="utf-8")


def test_the_ratio_is_that_of_the_shares_of_right_answers():
    accuracy = studies.mask_token_errors_and_visibility_exams.AccuracyByVisibility(
        2, 1, 10, 8, 20, 4, (0.1, 0.9), 0.0
    )
    assert accuracy.ratio == pytest.approx(0.8 / 0.2)
    assert accuracy._replace(right_gone=0).ratio == float("inf")


def test_answers_are_counted_by_their_marks_and_histories():
    rows = [("h1", "shown", True), ("h1", "shown", False), ("h1", "gone", False),
            ("h2", "shown", True), ("h2", "gone", True), ("h2", "gone", False),
            ("h2", "gone", False)]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["history", "answer", "right"]).assign(policy="p")
    result = studies.mask_token_errors_and_visibility_exams.measure_accuracy_by_visibility(frame)
    assert result[:6] == (2, 1, 3, 2, 4, 1)
    # drawn are h1 twice (1/2 less 0), h2 twice (1 less 1/3) or both (2/3 less 1/4)
    assert result.difference_interval == pytest.approx((2 / 3 - 1 / 4, 1 - 1 / 3))
    assert abs(result.shuffled_difference) < 0.25
