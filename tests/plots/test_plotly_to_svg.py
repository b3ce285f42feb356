"""The static renderer: any plotly figure becomes a small picture of which nothing is markup."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
import pytest
from builders import assistant, session, usage, user
from conftest import ALL
from plots.test_chart import EVIL, SAFE_TAGS, Tags, contrast
from plots.test_plots_of_long_sessions import GIVEN, SETTINGS, long_record

import ctxkit as ck
from ctxkit.plots import (
    BlockRow,
    BlockRowsDrawing,
    BlockSpan,
    Chart,
    escape_plotly_label,
    render_svg_html,
)
from ctxkit.plots.cumulative_agent_input_and_threshold_charts import (
    CumulativeAgentTokens,
    CumulativeInputAndThresholds,
    HandoffMark,
    draw_cumulative_input_chart,
)
from ctxkit.plots.plotly_axes_and_traces_as_numbers import (
    SEQUENTIAL_COLOURS,
    convert_treemap_to_bars,
    interpolate_colours,
    to_floats,
)
from ctxkit.plots.sweep_charts import HeatmapDrawing

TABLE = pd.DataFrame({"x": [1, 2, 3, 4], "y": [4.0, 1.0, 3.0, 2.0], "name": [EVIL, "b", "b", "c"]})
FIGURES = {
    "line": lambda: px.line(TABLE, x="x", y="y", color="name", markers=True),
    "dates": lambda: px.line(TABLE.assign(x=pd.date_range("2024-01-01", periods=4)), x="x", y="y"),
    "log": lambda: px.scatter(TABLE, x="x", y="y", log_x=True, text="name", title=EVIL),
    "bars": lambda: px.bar(TABLE, x="name", y="y", color="name"),
    "groups": lambda: px.bar(TABLE, x="x", y="y", color="name", barmode="group"),
    "area": lambda: px.area(TABLE, x="x", y="y", color="name"),
    "histogram": lambda: px.histogram(TABLE, x="y"),
    "cells": lambda: px.imshow(np.arange(12.0).reshape(3, 4), text_auto=True),
    "pie": lambda: px.pie(TABLE, names="name", values="y"),
    "tiles": lambda: px.treemap(TABLE, path=["name", "x"], values="y"),
    "facets": lambda: px.scatter(TABLE, x="x", y="y", facet_col="name"),
    "empty": go.Figure,
    "evil": lambda: go.Figure(
        go.Scatter(x=[1, 2], y=[1, 2], text=[EVIL, EVIL], mode="markers+text",
                   name=escape_plotly_label(EVIL)),
        layout={"xaxis": {"title": {"text": EVIL}}, "annotations": [{"text": EVIL, "x": 1, "y": 1}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_of_a_user_becomes_a_safe_picture(name):
    picture = render_svg_html(FIGURES[name]())
    tags = Tags()
    tags.feed(picture)
    assert tags.seen <= SAFE_TAGS
    assert not [a for a in tags.attributes if a.startswith("on") or a in ("href", "src")]
    if name != "empty":
        assert "<path" in picture or "<rect" in picture
    assert "not drawn" not in picture


@pytest.mark.parametrize("name", ck.plots.__all__)
def test_the_picture_of_every_chart_needs_nothing_but_its_figure(name):
    """A figure that plotly has packed and checked gives the names that the chart's own gives."""
    of = GIVEN.get(name, long_record)()
    chart = getattr(ck.plots, name)(of, *SETTINGS.get(name, ()))
    again = render_svg_html(chart.figure(), height=240)
    spans = re.compile(r"</svg> ([^<]*)</span>")
    assert spans.findall(again) == spans.findall(chart.drawing.svg())
    assert len(again) < 100_000


def test_a_figure_that_a_user_has_changed_is_a_chart_with_a_still_picture():
    figure = ck.plots.growth(long_record()).figure()
    figure.add_scatter(x=[1, 2], y=[3, 4], name="my own")
    chart = Chart.from_figure(figure, caption="Mine")
    assert "my own" in chart.drawing.svg()
    assert chart.title.startswith("Context of Fix it all.")
    assert len(chart.figure().data) == len(figure.data)


def test_a_colour_that_is_none_is_not_written():
    hostile = {"color": 'red"/><script>alert(1)</script>'}
    data = [
        {"x": [1, 2], "y": [1, 2], "line": hostile, "marker": hostile, "fill": "tozeroy"},
        {"type": "bar", "x": [1], "y": [1], "marker": {"color": [hostile["color"]]}},
        {"type": "heatmap", "z": [[1]], "colorscale": [[0, hostile["color"]], [1, "#ffffff"]]},
    ]
    shape = {"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "line": hostile}
    assert "script" not in render_svg_html({"data": data, "layout": {"shapes": [shape]}})


MANY = 1_000_000 if ALL else 20_000
TILES = 9_000 if ALL else 5_000
LONG = {
    "line": lambda random: go.Scatter(y=random.normal(size=MANY)),
    "points": lambda random: go.Scatter(y=random.normal(size=MANY), mode="markers"),
    "area": lambda random: go.Scatter(y=random.random(size=MANY), stackgroup="one"),
    "bars": lambda random: go.Bar(y=random.normal(size=100_000 if ALL else 20_000)),
    "cells": lambda random: go.Heatmap(
        z=random.normal(size=(400 if ALL else 200, 400)), texttemplate="%{text}"
    ),
    "tiles": lambda _: go.Treemap(labels=[str(i) for i in range(TILES)], parents=[""] * TILES),
}


@pytest.mark.parametrize("name", LONG)
def test_a_picture_stays_small(name):
    trace = LONG[name](np.random.default_rng(0))
    # a line has at most 600 points; rectangles, however many, are bounded for all of a picture
    assert len(render_svg_html(go.Figure(trace))) < (20_000 if trace.type == "scatter" else 350_000)
    assert len(render_svg_html(go.Figure([trace] * 30))) < 700_000


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        ({}, ["0", "1", "2", "3", "4"]),
        ({"tickvals": [0, 3]}, ["0", "3"]),
        ({"tickvals": [0, 3], "ticktext": ["none", "all"]}, ["none", "all"]),
        ({"ticktext": ["none", "all"]}, ["0", "1", "2", "3", "4"]),
        ({"tickvals": [0, 3, 9], "ticktext": ["none", "all", "more"]}, ["none", "all"]),
    ],
)
def test_ticks_stand_where_the_axis_says_and_are_called_so(axis, ticks):
    figure = {"data": [{"x": ["a", "b", "c", "d"], "y": [0, 3, 2, 4]}], "layout": {"yaxis": axis}}
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", render_svg_html(figure))
    assert [text for text in texts if text not in {"a", "b", "c", "d"}] == ticks


@pytest.mark.parametrize(("lines", "points"), [(1, 600), (40, 300), (400, 60)])
def test_lines_share_the_points_of_a_picture(lines, points):
    values = np.random.default_rng(0).normal(size=2_000)
    picture = render_svg_html(go.Figure([go.Scatter(y=values)] * lines))
    path = re.search(r'<path d="([^"]*)" fill="none"', picture)
    assert 0.8 * points < path[1].count("L") + 1 <= points


def test_a_picture_of_many_lines_stays_small():
    values = np.random.default_rng(0).normal(size=2_000)
    assert len(render_svg_html(go.Figure([go.Scatter(y=values)] * 400))) < 500_000


def test_what_cannot_be_drawn_is_counted():
    picture = render_svg_html(go.Figure([go.Box(y=[1, 2]), go.Scatter(y=[1, 2], name="line")]))
    assert "1 more traces are not drawn" in picture
    assert "> line</span>" in picture


def test_what_is_unknown_is_a_gap_in_the_line():
    picture = render_svg_html({"data": [{"x": [0, 1, 2, 3, 4], "y": [1, 2, None, 2, 1]}]})
    path = re.search(r'<path d="([^"]*)" fill="none"', picture)
    assert path is not None
    assert path[1].count("M") == 2


def test_bars_stack_and_lie_where_the_figure_says():
    two = [{"type": "bar", "x": [1], "y": [n]} for n in (30, 70)]
    stacked = re.findall(
        r"v([\d.]+)h-", render_svg_html({"data": two, "layout": {"barmode": "stack"}})
    )
    low, high = map(float, stacked)
    assert high / low == pytest.approx(70 / 30, rel=0.01)
    lying = {"type": "bar", "orientation": "h", "y": ["a", "b"], "x": [1, 2], "base": [0, 1]}
    found = re.findall(r"M([\d.]+) [\d.]+h([\d.]+)", render_svg_html({"data": [lying]}))
    first, second = [(float(x), float(wide)) for x, wide in found]
    assert sum(first) == pytest.approx(second[0], abs=0.2)
    assert second[1] == pytest.approx(2 * first[1], abs=0.2)


@pytest.mark.parametrize(
    ("trace", "bars"),
    [
        # names that stand twice are one bar; a part without a size has none
        (
            {"labels": ["a", "b", "a", "c"], "values": [0.5, 9, 2, 0]},
            [("a", 2.5, "2.5"), ("b", 9, "9")],
        ),
        # the parts of a single root stand for it, by id or by label
        (
            {"labels": ["all", "b", "c", "d"], "parents": ["", "0", "0", "1"],
             "ids": ["0", "1", "2", "3"], "values": [7, 4, 3, 4]},
            [("c", 3, "3"), ("b", 4, "4")],
        ),
        (
            {"labels": ["all", "b", "c"], "parents": ["", "all", "all"], "values": [7, 4, 0.25]},
            [("c", 0.25, "0.25"), ("b", 4, "4")],
        ),
        ({"labels": ["all"], "parents": [""], "values": [7]}, [("all", 7, "7")]),
        ({"labels": ["a", "b"]}, [("a", 1, "1"), ("b", 1, "1")]),
        (
            {"labels": [f"p{n}" for n in range(30)], "values": [1_000 + n for n in range(30)]},
            [(f"p{n}", 1_000 + n, f"{1_000 + n:,}") for n in range(6, 30)],  # the 24 largest
        ),
    ],
)  # fmt: skip
def test_a_pie_or_treemap_becomes_bars_of_its_outermost_parts(trace, bars):
    made = convert_treemap_to_bars(trace)
    assert list(zip(made["y"], made["x"], made["text"], strict=True)) == bars
    assert (made["type"], made["orientation"]) == ("bar", "h")
    colours = ["#010203", "url(x)", "#040506", "#070809"] * 8
    inks = convert_treemap_to_bars(trace | {"marker": {"colors": colours}})["marker"]["color"]
    first = {name: i for i, name in reversed([*enumerate(trace["labels"])])}
    drawn = zip(made["y"], made["marker"]["color"], inks, strict=True)
    for name, plain, ink in drawn:
        assert ink == (plain if first[name] % 4 == 1 else colours[first[name]])


def test_the_totals_of_a_strip_stand_under_its_bar():
    strip = ck.plots.strip(ck.samples.path("billing"), 150)
    picture = strip.drawing.svg()
    for name, tokens, *_ in strip.rows:
        assert f">{name} {tokens}<" in picture
    assert [n["text"] for n in strip.to_plotly()["layout"]["annotations"]] == [
        f"{name} {tokens}" for name, tokens, *_ in strip.rows
    ]


def test_totals_stand_in_the_order_of_their_blocks_and_below_the_first_of_them():
    spans = ((0, 1_661, 0), (1_661, 539, 3), (2_200, 781, 0), (2_981, 70, 1), (3_051, 3, 2))
    row = BlockRow("", tuple(BlockSpan(*span, "a block") for span in spans))
    kinds = tuple((name, "#000000") for name in ("read", "written", "fresh", "taken out"))
    notes = BlockRowsDrawing(kinds=kinds, rows=(row,)).plotly()["layout"]["annotations"]
    assert [n["text"] for n in notes] == ["read 2,442", "taken out 539", "written 70", "fresh 3"]
    places = [n["x"] for n in notes]
    assert places == sorted(places)
    assert 1_661 <= places[1] < 2_200


def test_totals_of_thin_blocks_stand_beside_each_other_in_half_the_height_of_the_row():
    names = ("read", "written", "a name of twenty", "fresh", "none")
    kinds = tuple((name, "#000000") for name in names)
    spans = tuple(BlockSpan(start, n, kind, "a block") for start, n, kind in (
        (0, 10, 0), (10, 10, 1), (10, 0, 4), (20, 480, 2), (500, 400, 3), (900, 100, 3)
    ))  # fmt: skip
    rows = (BlockRow("now", ()), BlockRow("without it", spans))
    notes = BlockRowsDrawing(kinds=kinds, rows=rows).plotly()["layout"]["annotations"]
    # a character of a total, and one between two totals, take 0.0105 of the width, at most 0.18
    ends = [0, 8 * 10.5, (8 + 11) * 10.5, 500]
    assert [(n["x"], n["y"], n["xanchor"], n["yanchor"]) for n in notes] == [
        (pytest.approx(x), 1.25, "left", "top") for x in ends
    ]
    totals = ["read 10", "written 10", "a name of twenty 480", "fresh 500"]
    assert [n["text"] for n in notes] == totals
    late = BlockRow("", tuple(s._replace(start=s.start + 9_000) for s in spans))
    notes = BlockRowsDrawing(kinds=kinds, rows=(late,)).plotly()["layout"]["annotations"]
    widths = [0.0105 * 11, 0.18, 0.0105 * 10]  # of the totals after the first
    assert [(n["x"], n["xanchor"]) for n in notes] == [
        (pytest.approx(10_000 * (1 - sum(widths[n:]))), "right") for n in range(4)
    ]


def test_several_prompts_have_their_names_beside_rows_of_70_pixels():
    block = BlockSpan(0, 5, 0, "a block")
    for n in range(3):
        rows = tuple(BlockRow(f"<row {i}>", (block,)) for i in range(n))
        drawing = BlockRowsDrawing(kinds=(("read", "#000000"),), rows=rows)
        layout = drawing.plotly()["layout"]
        assert layout["margin"] == {"l": 90 if n > 1 else 12, "r": 12, "t": 44, "b": 84}
        assert layout["height"] == 170 + 70 * n
        assert layout["xaxis"]["range"] == [0, 5 if n else 1]
        y_axis = layout["yaxis"]
        assert (y_axis["showticklabels"], y_axis["type"]) == (n > 1, "category")
        assert y_axis["range"] == [max(n, 1) - 0.4, -0.35]  # the first row on top
        assert drawing.still_height == 50 + 62 * max(n, 1)
        traces = drawing.plotly()["data"]
        assert [t["y"] for t in traces] == [[f"&lt;row {i}&gt;" for i in range(n)]] * bool(n)
    empty = BlockRowsDrawing(kinds=(), rows=(BlockRow("", (BlockSpan(0, 0, 0, ""),)),))
    assert empty.plotly()["layout"]["xaxis"]["range"] == [0, 1]


def test_the_figure_of_a_cell_can_be_read_on_its_colour():
    steps = len(SEQUENTIAL_COLOURS) - 1
    colours = [[i / steps, c] for i, c in enumerate(SEQUENTIAL_COLOURS)]
    cells = {"type": "heatmap", "y": ["d"], "colorscale": colours, "texttemplate": "%{text}"}
    n = 41
    values = {"x": [f"x{i}" for i in range(n)], "z": [list(range(n))], "text": [["one"] * n]}
    picture = render_svg_html({"data": [cells | values]})
    fills = re.findall(r'<rect[^>]* fill="(#[0-9a-f]{6})"', picture)
    inks = re.findall(r'style="fill:(#[0-9a-f]{6});[^>]*>one<', picture)
    assert len(fills) == len(inks) == n
    assert min(map(contrast, fills, inks)) >= 4.5


def test_plotly_writes_the_figure_of_a_cell_in_an_ink_that_can_be_read_on_it():
    n = 41
    drawing = HeatmapDrawing(
        x="keep", y="window", z="cost_usd",
        across=tuple(f"x{i}" for i in range(n)), upward=("d",),
        values=(tuple(map(float, range(n))),), texts=(("$1.00",) * (n - 1) + ("",),),
    )  # fmt: skip
    trace = drawing.plotly()["data"][0]
    inks = [re.search(r"color:(#[0-9a-f]{6})'>&#36;1.00<", t)[1] for t in trace["text"][0][:-1]]
    fills = interpolate_colours(np.arange(n, dtype=float), trace["colorscale"])
    assert min(map(contrast, fills, inks)) >= 4.5
    assert trace["text"][0][-1] == ""
    assert "style" not in json.dumps(trace["customdata"])  # the hover has an ink of its own
    assert trace["colorbar"]["tickprefix"] == "$"


def test_words_of_a_picture_vanish_where_a_lab_strips_its_tags():
    picture = render_svg_html(
        {"data": [{"x": [1, 2], "y": [3, 5]}], "layout": {"xaxis": {"title": "calls"}}}
    )
    start = picture.index("<svg")
    assert picture[:start].endswith(';font-size:0">')
    texts = re.findall(r"<text[^>]*>", picture)
    assert texts
    assert all("font:11px" in text for text in texts)


def test_a_picture_grows_with_its_page_up_to_1000_pixels():
    assert "width:100%;min-width:619px;max-width:1000px" in render_svg_html(
        {"data": [{"y": [3, 5]}]}
    )


def test_named_points_hide_nothing_of_the_lines_beside_them():
    """The range for which names are placed is that of all traces, not of the named points."""
    turns, sums = np.arange(50), np.arange(50) * 1_000
    agent = CumulativeAgentTokens("a", turns, sums, sums, sums)
    data = CumulativeInputAndThresholds(
        (agent,), (), 60_000, None, (HandoffMark(5, 5_000, "b"), HandoffMark(9, 9_000, "c"))
    )
    layout = draw_cumulative_input_chart(data).to_plotly()["layout"]
    assert layout["xaxis"]["range"][0] <= 0 < 49 <= layout["xaxis"]["range"][1]
    assert layout["yaxis"]["range"][1] >= 60_000


def test_a_limit_is_named_on_its_line_or_in_the_legend():
    log = [m for n in range(30) for m in (user(), assistant(usage=usage(1_000 * n + 10)))]
    picture = ck.plots.growth(session(*log, model="claude-sonnet-4-5")).drawing.svg()
    assert picture.count("limit") <= 1


@pytest.mark.parametrize(
    "symbol", ["circle", "diamond", "square", "triangle-up", "triangle-down", "cross", "x"]
)
@pytest.mark.parametrize("hollow", ["", "-open"])
def test_a_marker_leaves_room_for_the_name_beside_it(symbol, hollow):
    """A name begins 7 pixels beside its point; plotly's markers of size 9 end before."""
    marker = {"size": 9, "symbol": symbol + hollow}
    figure = go.Figure(go.Scatter(x=[1, 2], y=[1, 2], mode="markers", marker=marker))
    path = re.search(r'<path d="M[\d.]+ [\d.]+((?:[a-z][^M"]*)+)[M"]', render_svg_html(figure))[1]
    x = y = 0.0
    reach = []
    for command, numbers in re.findall(r"([a-z])([^a-z]*)", path):
        steps = [float(n) for n in re.findall(r"-?[\d.]+", numbers)]
        if command == "h":
            x += steps[0] if steps else 0.0
        elif command == "v":
            y += steps[0]
        elif command in "ml":
            x, y = x + steps[0], y + steps[1]
        reach += [abs(x), abs(y)]
    assert max(reach) < 7


def test_a_column_is_read_as_numbers_and_what_is_none_is_not_drawn():
    assert to_floats([1, 2.5]).tolist() == [1.0, 2.5]
    assert to_floats([True, False]).tolist() == [1.0, 0.0]
    mixed = to_floats([["1", "x"], [None, 4]])
    assert np.isnan(mixed).tolist() == [[False, True], [True, False]]
    assert (mixed[0, 0], mixed[1, 1], mixed.dtype.kind) == (1.0, 4.0, "f")
