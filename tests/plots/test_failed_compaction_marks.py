"""A compaction that failed has another mark than one that worked, in every form of the charts."""

from __future__ import annotations

import pytest
from builders import assistant, session, summarised, usage, user

import ctxkit as ck
from ctxkit.session import Message, Text

WORKED, STOOD_IN, FAILED = 1, 2, 3
"""The calls that follow each compaction."""


def attempt(outcome: str) -> Message:
    return Message(
        role="system",
        id=outcome,
        kind="compaction_attempt",
        parts=(Text("no answer from the model"),),
        details={"outcome": outcome, "tokens": 500, "messages": 4},
        visible=False,
    )


def recorded(*, failed: bool = True):
    """A session with a good compaction; with one whose summary failed, a failed and a skipped one."""
    asked = [user("x" * 4000) for _ in range(4)]
    replies = [assistant("a", usage=usage(n)) for n in (1000, 600, 500, 510)]
    error = {"error": "the model was busy"} if failed else {}
    return session(
        *(asked[0], replies[0], summarised([asked[0]], tokens_before=1000, tokens_after=500)),
        *(asked[1], replies[1]),
        summarised([asked[1]], tokens_before=600, tokens_after=400, details=error),
        *(asked[2], replies[2], *([attempt("failed"), attempt("skipped")] if failed else [])),
        *(asked[3], replies[3]),
        title="s",
    )


CHARTS = pytest.mark.parametrize("draw", [ck.plots.growth, ck.plots.composition])


@CHARTS
def test_the_chart_has_another_line_and_mark_for_failed_ones(draw):
    drawn = draw(recorded()).to_plotly()
    (points,) = [t for t in drawn["data"] if t["name"] == "failed compactions"]
    assert points["x"] == [STOOD_IN - 0.5, FAILED - 0.5]
    assert points["marker"]["symbol"] == "x"
    assert points.get("showlegend", True)
    lines = {shape["x0"]: shape["line"]["dash"] for shape in drawn["layout"]["shapes"]}
    assert lines == {WORKED - 0.5: "dot", STOOD_IN - 0.5: "dash", FAILED - 0.5: "dash"}


@CHARTS
def test_text_and_still_picture_name_them(draw):
    chart = draw(recorded())
    assert "2 compactions failed" in chart.to_text()
    assert "2 compactions failed" in chart.to_html()
    assert "failed compactions" in chart.drawing.svg()


@CHARTS
def test_where_none_failed_no_word_is_said(draw):
    chart = draw(recorded(failed=False))
    assert "failed" not in chart.to_text() + chart.drawing.svg()
    assert {shape["line"]["dash"] for shape in chart.to_plotly()["layout"]["shapes"]} == {"dot"}


def test_the_table_of_growth_counts_those_that_stand_and_those_that_failed():
    (row,) = ck.plots.growth(recorded()).rows
    assert row[6] == "2, 2 failed"
    good = next(
        t for t in ck.plots.growth(recorded()).to_plotly()["data"] if t["name"] == "compactions"
    )
    assert good["x"] == [WORKED - 0.5]
    assert "x" not in good["marker"]["symbol"]


def test_the_hover_says_why():
    drawn = ck.plots.growth(recorded()).to_plotly()["data"]
    (points,) = [t for t in drawn if t["name"] == "failed compactions"]
    stood_in, failed = points["hovertext"]
    assert "failed: the model was busy" in stood_in
    assert "compaction failed" in failed
    assert "failed: no answer from the model" in failed


def test_panels_have_the_mark_too():
    drawn = ck.plots.growth({"a": recorded(), "b": recorded(failed=False)}, small=True).to_plotly()
    symbols = {
        t["name"]: t["marker"]["symbol"] for t in drawn["data"] if t.get("mode") == "markers"
    }
    assert symbols == {"compaction": "triangle-down", "failed compaction": "x"}


@pytest.mark.parametrize("draw", [ck.plots.savings, ck.plots.thrash])
def test_a_frame_with_attempts_that_changed_nothing_is_drawn_as_its_session(draw):
    frame = ck.frame(recorded(), per="compaction")
    assert {"failed", "skipped"} <= set(frame["kind"])
    assert draw(frame).rows == draw(recorded()).rows
