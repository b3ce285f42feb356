"""The name of a limit stands where no line runs."""

from __future__ import annotations

import pytest

from ctxkit.plots.xy_figure import LimitLine, Trace, VerticalMark, XyDrawing

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
