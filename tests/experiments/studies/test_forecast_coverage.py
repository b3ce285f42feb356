"""The intervals of forecasts hold as often as they say, on sessions that were held back."""

from __future__ import annotations

from pathlib import Path

from ctxkit.experiments.studies.forecast_coverage import count_prompt_tokens, measure_coverage

PAGE = Path(__file__).parents[3] / "docs" / "forecasts.md"


def test_four_of_five_later_sessions_lie_in_the_interval():
    for figure in (lambda row: float(row.calls), count_prompt_tokens):
        result = measure_coverage(figure)
        assert result.developers_n >= 10
        assert 0.7 <= result.share <= 0.9


def test_figures_that_drift_fall_out_of_it():
    seen: dict[str, int] = {}

    def drifting(row):
        seen[row.developer] = seen.get(row.developer, 0) + 1
        return 2.0 ** seen[row.developer]

    assert measure_coverage(drifting).share < 0.5


def test_the_page_has_what_is_measured():
    import make_answers

    assert make_answers.measure_forecasts() in PAGE.read_text(encoding="utf-8")
