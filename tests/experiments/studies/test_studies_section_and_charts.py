"""The section on the studies is what the tables and a closed loop say, and the charts draw them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from trust_studies import format_chapter

from ctxkit.experiments import studies

PAGE = Path(__file__).parents[3] / "docs" / "trust.md"


@pytest.mark.long  # a closed loop of eighteen seconds
def test_the_chapter_is_not_behind():
    assert format_chapter() in PAGE.read_text(encoding="utf-8"), "run: python docs/make_trust.py"


@pytest.mark.parametrize("figure", ["turns", "usd"])
def test_the_chart_of_behaviour_has_every_main_run(figure):
    ratios = studies.table("ratios")
    chart = studies.charts.chart_policy_ratios(ratios, figure)
    assert len(chart.rows) == 13
    drawn = chart.to_plotly()
    assert sum(len(t["x"]) for t in drawn["data"] if t.get("mode") == "markers") == 13
    assert drawn["layout"]["yaxis"]["tickformat"] == "~f"
    picture = chart.drawing.svg()
    assert [picture.count(f">{n}<") for n in chart.drawing.ticks] == [
        chart.drawing.ticks.count(n) for n in chart.drawing.ticks
    ]


def test_the_chart_of_windows_has_every_window():
    chart = studies.charts.chart_mask_errors(studies.table("masks"))
    assert [r[0] for r in chart.rows] == [
        str(n) for n in studies.mask_token_errors_and_visibility_exams.MASK_WINDOWS
    ]
    assert len(chart.to_plotly()["data"]) == 4


def test_long_tables_show_their_first_rows():
    ratios = pd.concat([studies.table("ratios")] * 3)
    figures = [f"usd_{what}" for what in ("predicted", "real")]
    loop = pd.DataFrame(1.0, index=[f"rules {i}" for i in range(30)], columns=figures)
    assert "... and 19 more" in studies.charts.chart_policy_ratios(ratios).to_text()  # of 39
    text = studies.charts.chart_predicted_and_real_outcomes(loop).to_text()
    assert "... and 6 more" in text
    assert "rules 23 " in text
    assert "rules 24 " not in text
