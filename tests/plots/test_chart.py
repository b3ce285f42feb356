"""Every chart: three forms of one thing, escaped, small, its extremes exact."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from browser.view_pages import list_views
from builders import assistant, result, session, summarised, system, tool_call, usage, user
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import ctxkit as ck
from ctxkit._internal.chart_style import (
    COLOURS,
    DASHES,
    GRID_COLOUR,
    GROUP_COLOURS,
    SYMBOLS,
    TEXT_COLOUR,
    read_plotly_javascript,
)
from ctxkit.plots import (
    PAGE_TEXT_COLOUR,
    Chart,
    LimitLine,
    Trace,
    VerticalMark,
    XyDrawing,
    apply_page_text_colours,
    decimate_points,
    escape_plotly_label,
    render_small_table,
)
from ctxkit.plots.plotly_axes_and_traces_as_numbers import choose_ticks, format_tick

EVIL = '<script>alert(1)</script><a href="javascript:x()">y</a><img src=x onerror=z()>%{x}$\\href{javascript:x}{y}$\x1b[31m\u202e'
CHARTS = ["growth", "budget", "composition", "tiles", "savings", "thrash", "diff"]


def evil_session():
    u, a = (
        user(EVIL),
        assistant(EVIL, tool_call(EVIL, arg=EVIL), model=EVIL, agent=EVIL, usage=usage(500)),
    )
    r = result(EVIL * 9, a, tool=EVIL)
    cut = summarised(
        [u, a, r],
        EVIL,
        reason=EVIL,
        trigger=EVIL,
        method=EVIL,
        agent=EVIL,
        tokens_before=500,
        tokens_after=50,
    )
    end = assistant(EVIL, model=EVIL, agent=EVIL, usage=usage(60))
    return session(system(f"# {EVIL}\nx\n"), u, a, r, cut, end, id=EVIL, agent=EVIL)


def chart_of(name, s):
    if name == "tiles":
        return ck.plots.composition(s, -1)
    return getattr(ck.plots, name)(s)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}


SAFE_TAGS = {
    "figure",
    "figcaption",
    "strong",
    "br",
    "div",
    "svg",
    "path",
    "line",
    "circle",
    "rect",
    "polygon",
    "text",
    "span",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
}


@pytest.mark.parametrize("name", CHARTS)
def test_nothing_of_a_log_becomes_markup(name):
    bundle = chart_of(name, evil_session())._repr_mimebundle_()
    tags = Tags()
    tags.feed(bundle["text/html"])
    assert tags.seen <= SAFE_TAGS
    assert not [
        a for a in tags.attributes if a.startswith("on") or a in ("href", "src", "xlink:href")
    ]
    told = json.dumps(bundle["application/vnd.plotly.v1+json"], ensure_ascii=False)
    told = told.replace(f"<span style='color:{PAGE_TEXT_COLOUR}'>", "").replace("</span>", "")
    assert not re.search(r"<(?!br>|extra>|/extra>)", told)  # plotly would read any other tag
    assert "$" not in told  # nor may MathJax find a formula
    for text in (told, bundle["text/html"], bundle["text/plain"]):
        assert "\x1b" not in text
        assert "\u202e" not in text


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_has_its_three_forms_and_a_figure_of_the_same_json(name):
    chart = chart_of(name, evil_session())
    bundle = chart._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "application/vnd.plotly.v1+json"}
    assert not hasattr(chart, "_ipython_display_")  # it would stop updates in place
    assert len(chart.figure().data) == len(bundle["application/vnd.plotly.v1+json"]["data"])
    assert bundle["application/vnd.plotly.v1+json"]["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"
    json.dumps(bundle, allow_nan=False)


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize(
    "s",
    [session(id="empty"), session(user()), session(user(), assistant())],
    ids=["empty", "none", "one"],
)
def test_a_session_with_little_in_it_gives_a_chart_that_says_so(name, s):
    if name == "diff":
        pytest.skip("needs a compaction")
    chart = chart_of(name, s)
    assert chart.to_text()
    assert "<figure" in chart.to_html()
    has_table = bool(chart.head and chart.rows)  # heads alone say nothing
    assert ("<table" in chart.to_html()) == has_table
    assert ("The same in figures" in chart.to_html()) == has_table
    chart.figure()


def test_a_page_opens_offline(tmp_path):
    page = (
        ck.plots.growth(evil_session())
        .write_html(tmp_path / "chart.html")
        .read_text(encoding="utf-8")
    )
    assert "<script>alert(1)" not in page
    assert not re.search(r"""<(?:script|link|img)[^>]+(?:src|href)=["']?(?:https?:)?//""", page)
    with pytest.raises(ck.BadArguments, match="could not be written"):
        ck.plots.growth(evil_session()).write_html(tmp_path / "no" / "chart.html")


@given(
    arrays(np.float64, st.integers(0, 3000), elements=st.floats(allow_infinity=False)),
    st.integers(4, 400),
)
def test_decimation_keeps_order_ends_and_extremes(y, n):
    kept = decimate_points(y, n)
    assert (np.diff(kept) > 0).all()
    assert len(kept) <= max(len(y) if len(y) <= n else n + 8, 0)
    if len(y):
        assert (kept[0], kept[-1]) == (0, len(y) - 1)
    if np.isfinite(y).any():
        assert np.nanmin(y[kept]) == np.nanmin(y)
        assert np.nanmax(y[kept]) == np.nanmax(y)


def test_a_million_points_are_few_bytes_with_exact_extremes():
    rng = np.random.default_rng(0)
    traces = tuple(
        Trace(name=f"t{i}", x=np.arange(200_000), y=rng.integers(0, 10**6, 200_000))
        for i in range(5)
    )
    chart = Chart(title="t", drawing=XyDrawing(x="x", y="y", traces=traces))
    drawn = chart.to_plotly()
    assert len(json.dumps(drawn)) <= 50_000
    for trace, data in zip(traces, drawn["data"], strict=True):
        assert (min(data["y"]), max(data["y"])) == (trace.y.min(), trace.y.max())


def test_stacked_traces_keep_common_places_and_each_extreme():
    rng = np.random.default_rng(1)
    ys = [rng.integers(0, 1000, 5000).tolist() for _ in range(4)]
    traces = tuple(Trace(name=str(i), x=range(5000), y=y, kind="area") for i, y in enumerate(ys))
    data = XyDrawing(x="x", y="y", traces=traces, stacked=True).plotly()["data"]
    assert len({tuple(d["x"]) for d in data}) == 1
    assert [(min(d["y"]), max(d["y"])) for d in data] == [(min(y), max(y)) for y in ys]


def test_missing_values_are_gaps_not_zeros():
    data = XyDrawing(
        x="x", y="y", traces=(Trace(name="t", x=[0, 1, 2], y=[1, None, float("nan")]),)
    ).plotly()["data"][0]
    assert data["y"] == [1, None, None]


def test_limits_are_traces_and_marks_are_lines():
    axes = XyDrawing(
        x="x",
        y="y",
        traces=(Trace(name="t", x=[0, 9], y=[1, 2]),),
        limits=(LimitLine(y=5, label="top"),),
        marks=(VerticalMark(x=3),),
    )
    drawn = axes.plotly()
    assert [d["name"] for d in drawn["data"]] == ["t", "top"]
    assert drawn["data"][1]["x"] == [0, 9]
    assert [s["x0"] for s in drawn["layout"]["shapes"]] == [3]


def test_the_text_twin_is_bounded():
    chart = Chart(
        title="t" * 999,
        caption="c",
        drawing=XyDrawing(x="x", y="y"),
        head=("a",),
        rows=tuple((str(i),) for i in range(99)),
    )
    lines = chart.to_text().split("\n")
    assert len(lines) == 2 + 1 + 12 + 1
    assert len(lines[0]) <= 120
    assert lines[-1] == "... and 87 more"


def test_the_caption_of_a_table_is_bounded():
    table = render_small_table(("a",), (("b",),), caption="c" * 999)
    captions = re.findall(r"<caption[^>]*>([^<]*)</caption>", table)
    assert [len(caption) for caption in captions] == [600]


def test_colours_of_the_page_are_set_in_a_copy_of_the_figure():
    bar = {"title": {"text": "usd"}, "tickfont": {"color": TEXT_COLOUR}}
    trace = {"name": "tokens", "type": "scatter", "y": [1, 2], "colorbar": bar}
    layout = {"title": {"text": "t"}, "font": {"color": TEXT_COLOUR}}
    figure = {"data": [trace], "layout": layout}
    before = copy.deepcopy(figure)
    once = apply_page_text_colours(figure)
    assert once["data"][0]["name"] != "tokens"
    assert figure == before
    assert apply_page_text_colours(figure) == once


def test_labels_keep_what_looks_like_markup_as_text():
    assert escape_plotly_label("<b>&$x$") == "&lt;b&gt;&amp;&#36;x&#36;"


def luminance(colour):
    linear = [
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
        for c in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_every_colour_reads_on_both_themes(page):
    assert min(contrast(c, page) for c in (*COLOURS, *GROUP_COLOURS)) >= 3
    assert contrast(TEXT_COLOUR, page) >= 4.2


def test_no_axis_has_the_white_lines_of_plotly():
    """They are stark on a dark page."""
    log, seen = ck.read(ck.samples.path("billing")), 0
    for name, draw in list_views().items():
        if not name.startswith("plots."):
            continue
        layout = draw(log).to_plotly()["layout"]
        for axis in (layout[key] for key in layout if re.match("[xy]axis", key)):
            drawn = axis.get("showgrid") is not False
            assert axis.get("zeroline") is False, name
            assert not drawn or axis.get("gridcolor") == GRID_COLOUR, name
            seen += 1
    assert seen >= 2 * 14


def test_traces_differ_by_more_than_colour():
    looks = {
        (COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)], SYMBOLS[i % len(SYMBOLS)])
        for i in range(24)
    }
    assert len(looks) == 24


def test_ticks_are_round():
    assert choose_ticks(0, 100_000) == [0, 50_000, 100_000]
    assert [format_tick(v) for v in (0, 999, 1500, 2e6, 0.25)] == ["0", "999", "1.5k", "2M", "0.25"]


def test_the_static_picture_has_each_line_of_a_trace_whose_lines_begin_anywhere():
    chart = ck.plots.user_rules(ck.samples.path("billing"))
    [trace] = chart.drawing.traces
    drawn = re.findall(r'<path d="(M[^"]+L[^"]+)"', chart.drawing.svg())
    assert drawn[0].count("L") == sum(y is not None for y in trace.y) / 2 == 5


def test_the_head_of_a_column_stands_over_its_cells():
    from ctxkit.plots import render_small_table

    rows = [("Tester", "1,154,725", "257 %"), ("Planner", "20,476", "no limit")]
    heads = re.findall(
        r"<th[^>]*text-align:(\w+)", render_small_table(("agent", "input", "cutover"), rows)
    )
    assert heads == ["left", "right", "left"]


@pytest.mark.parametrize(("letters", "lines", "size"), [(80, 1, 15), (81, 1, 13), (110, 2, 13)])
def test_a_title_breaks_only_where_the_page_ends(letters, lines, size):
    title = ("abcdefghi " * 12)[: letters - 1] + "!"
    written = Chart(title=title, drawing=XyDrawing(x="x", y="y")).to_plotly()["layout"]["title"]
    assert written["text"].count("<br>") + 1 == lines
    assert written["font"]["size"] == size


def test_a_page_has_the_library_of_plotly_once_and_loads_none():
    page = ck.plots.budget(ck.samples.path("billing")).page()
    library = read_plotly_javascript().decode()
    assert page.count(f"<script>{library}</script>") == 1
    assert "src=" not in page.replace(library, "")


def test_the_pieces_of_a_page_are_the_page():
    chart = ck.plots.budget(ck.samples.path("billing"))
    assert b"".join(chart.encode_page()) == chart.page().encode()
