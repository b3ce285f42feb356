"""The range of a chart takes in all its points, in whatever order a trace has them."""

from __future__ import annotations

import re

import pytest

import ctxkit as ck
from ctxkit.plots.xy_figure import Trace, XyDrawing


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
