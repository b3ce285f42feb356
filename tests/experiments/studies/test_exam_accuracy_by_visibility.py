"""Published answers after real compactions: what is marked as shown is answered, the rest is not."""

from __future__ import annotations

from pathlib import Path

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
