"""The range of a chart takes in all its points, in whatever order a trace has them."""

from __future__ import annotations

import html
import re

import pytest

import ctxkit as ck
from ctxkit.plots import LimitLine, Trace, VerticalMark, XyDrawing


@pytest.mark.parametrize("x", [[1, 9, 0, 5], [5, 0, 9, 1]])
def test_points_in_any_order_are_within_the_range(x):
    axes = XyDrawing(x="call", y="tokens", traces=(Trace(name="a", x=x, y=[1.0, 2.0, 3.0, 4.0]),))
    low, high = axes.plotly()["layout"]["xaxis"]["range"]
    assert low < 0 < 9 < high


def test_every_rule_of_the_user_has_a_line_in_the_picture():
    chart = ck.plots.user_rules(ck.samples.path("billing"))
    path = re.search(r'<path d="(M[^"]+)" fill="none" stroke="#0072b2"', chart.drawing.svg())
    lines = [part for part in path[1].split("M") if "L" in part]
    assert len(lines) == len(chart.rows) == 5
    axis = chart.to_plotly()["layout"]["yaxis"]
    assert axis["range"] == [5.5, 0.5], "rule 1 is on top, and no rule lies on the frame"
    assert axis["tickvals"] == [1, 2, 3, 4, 5]
    for row, tick in zip(chart.rows, axis["ticktext"], strict=True):
        assert f"{row[0]} {row[1]}".startswith(html.unescape(tick).rstrip("…"))
    assert "against it" not in chart.head, "a column without a value"


def test_names_along_the_axis_are_cut_at_24_characters():
    trace = Trace(name="a", x=[0, 1, 2], y=[1.0, 2.0, 3.0])
    axes = XyDrawing(x="policy", y="n", traces=(trace,), ticks=("n" * 30, "m" * 24, "<" * 24))
    axis = axes.plotly()["layout"]["xaxis"]
    assert axis["tickvals"] == [0, 1, 2]
    assert axis["ticktext"] == ["n" * 23 + "…", "m" * 24, "&lt;" * 24]


@pytest.mark.parametrize(("end", "step"), [(9, 1), (337, None)])
def test_a_whole_axis_has_a_tick_at_each_step_only_where_it_is_short(end, step):
    """Else plotly chooses round numbers: 50, 100, not 28, 56, 84."""
    trace = Trace(name="a", x=[1, end], y=[1.0, 2.0])
    axis = XyDrawing(x="error", y="n", traces=(trace,), whole=True).plotly()["layout"]["xaxis"]
    assert (axis["tickformat"], axis.get("dtick")) == ("d", step)


@pytest.mark.parametrize(("rows", "height"), [(5, 380), (12, 380), (13, 390), (40, 930)])
def test_a_chart_of_rows_has_20_pixels_for_each_and_room_for_its_axis(rows, height):
    names = tuple(f"rule {n}" for n in range(rows))
    trace = Trace(name="a", x=[0, 1], y=[1.0, float(rows)])
    drawing = XyDrawing(x="call", y="rule", traces=(trace,), y_ticks=names)
    assert drawing.plotly()["layout"]["height"] == height


# -- The name of a limit stands where no line runs.


LIMIT = LimitLine(y=100, label="limit 100", colour="#888888")


def axes(y: list[float], *marks: float) -> XyDrawing:
    trace = Trace(name="line", x=range(len(y)), y=y)
    return XyDrawing(
        x="call",
        y="tokens",
        traces=(trace,),
        limits=(LIMIT,),
        marks=tuple(VerticalMark(x=m) for m in marks),
    )


@pytest.mark.parametrize(
    ("y", "marks", "free"),
    [
        ([0, 10, 20, 30, 40, 50], (), "right"),
        ([0, 10, 20, 30, 95, 100], (), "left"),
        ([0, 10, 20, 30, 0, 300], (), "left"),  # through it, with no point near it
        ([300, 0, 20, 30, 0, 300], (), ""),
        ([0, 10, 20, 30, 40, 50], (4.5,), "left"),
        ([0, 10, 20, 30, 40, 50], (0.5, 4.5), ""),
    ],
)
def test_the_name_of_a_limit_stands_at_its_free_end_or_in_the_legend_alone(y, marks, free):
    made = axes(y, *marks)
    assert made.free_end(LIMIT) == free
    drawn = made.plotly()["data"][-1]
    assert [bool(t) for t in drawn["text"]] == [free == "left", free == "right"]
    assert drawn["name"] == "limit 100"


@pytest.mark.parametrize(
    "trace",
    [
        Trace(name="bars", x=[0, 1, 2], y=[90.0, 95.0, 100.0], kind="bar"),
        Trace(name="one point", x=[2], y=[100.0]),
    ],
)
def test_without_a_line_over_numbers_the_name_of_a_limit_stands_at_the_right(trace):
    drawing = XyDrawing(x="call", y="tokens", traces=(trace,), limits=(LIMIT,))
    assert drawing.free_end(LIMIT) == "right"
    drawn = drawing.plotly()["data"][-1]
    assert drawn["text"] == ["", "limit 100<br> "]
    assert drawn["textposition"] == "top left"
