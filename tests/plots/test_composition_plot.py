"""The composition charts hold the numbers of the context report."""

from __future__ import annotations

from builders import assistant, session, step, summarised, system, usage, user

import ctxkit as ck
from ctxkit._internal import choose_text_colour
from ctxkit.metrics import count_groups_by_call
from ctxkit.plots import composition_data
from ctxkit.plots.composition_chart import Tile, TileMap
from ctxkit.tokens import estimated_counter

COUNTER = estimated_counter()


def some():
    u, (a, r) = user("x" * 40), step("bash", "y" * 400)
    return session(
        system("# A\nx\n# B\ny\n"),
        u,
        a,
        r,
        assistant("m", usage=usage(300)),
        summarised([u, a, r]),
        assistant("e"),
    )


def test_the_data_are_the_layers_and_the_compactions():
    s = some()
    data = composition_data(s, counter=COUNTER)
    assert (data.session, data.layers) == ("test", count_groups_by_call(s, COUNTER))
    assert [(mark.number, mark.call) for mark in data.compactions] == [(0, 2)]


def test_the_stack_has_a_trace_for_each_group():
    chart = ck.plots.composition(some(), counter=COUNTER)
    drawn = chart.to_plotly()["data"]
    groups = list(count_groups_by_call(some(), COUNTER).groups)
    assert [d["name"] for d in drawn] == [groups[-1], *groups[:-1]]
    assert groups[-1] == "not in the log"  # what never changes is the floor
    assert {d["type"] for d in drawn} == {"bar"}
    assert chart.to_plotly()["layout"]["barmode"] == "relative"


def test_many_calls_become_areas():
    s = session(user(), *[assistant(usage=usage(10 + i)) for i in range(80)])
    assert {
        d["stackgroup"] for d in ck.plots.composition(s, counter=COUNTER).to_plotly()["data"]
    } == {"one"}


def test_tiles_sum_up_to_the_prompt():
    r = ck.report(some(), 1, counter=COUNTER)
    trace = ck.plots.composition(some(), 1, counter=COUNTER).to_plotly()["data"][0]
    assert trace["type"] == "treemap"
    assert trace["values"][0] == r.prompt_tokens == 300
    for i, parent in zip(trace["ids"], trace["values"], strict=True):
        inner = [v for v, p in zip(trace["values"], trace["parents"], strict=True) if p == i]
        assert not inner or sum(inner) == parent
    inks = zip(trace["marker"]["colors"][1:], trace["textfont"]["color"][1:], strict=True)
    assert all(ink == choose_text_colour(fill) for fill, ink in inks)


def test_tiles_have_the_sums_and_colours_of_their_parts_and_bounded_names():
    tiles = (
        Tile(name="n" * 70, tokens=30, colour="#000000", note="m" * 130),
        Tile(name="<b>", tokens=1_000, parent=0, note="<i>"),
        Tile(name="last", tokens=5),
    )
    figure = TileMap(whole="<all>", tiles=tiles).plotly()
    (trace,) = figure["data"]
    columns = (trace[k] for k in ("ids", "parents", "labels", "values", "text", "customdata"))
    assert list(zip(*columns, strict=True)) == [
        ("whole", "", "&lt;all&gt;", 35, "35", ""),
        ("0", "whole", "n" * 59 + "…", 30, "30", "m" * 119 + "…"),
        ("1", "0", "&lt;b&gt;", 1_000, "1,000", "&lt;i&gt;"),
        ("2", "whole", "last", 5, "5", ""),
    ]
    assert trace["marker"]["colors"] == ["rgba(128,128,128,0.15)", *(t.colour for t in tiles)]
    assert trace["textfont"]["color"][1] == choose_text_colour("#000000")
    assert (trace["branchvalues"], trace["maxdepth"], trace["name"]) == ("total", 3, "&lt;all&gt;")
    assert figure["layout"]["margin"] == {"l": 8, "r": 8, "t": 44, "b": 8}
