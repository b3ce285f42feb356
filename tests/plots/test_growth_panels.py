"""Small multiples of growth: a panel a session, one scale for all, and behind a replay what was recorded."""

from __future__ import annotations

import json

import pytest
from builders import assistant, session, summarised, usage, user
from plots.test_chart import EVIL, SAFE_TAGS, Tags, evil_session

import ctxkit as ck


def talk(name, *sizes, cut=False, **more):
    log = [m for n in sizes for m in (user(), assistant(usage=usage(n)))]
    if cut:
        log.insert(2, summarised([log[0]], tokens_before=sizes[0], tokens_after=9))
    return session(*log, id=name, title=name, **more)


def panels(*sessions, **more):
    return ck.plots.growth(sessions, small=True, **more).to_plotly()


def test_every_session_has_a_panel_and_all_have_one_scale():
    drawn = panels(talk("a", 10, 20), talk("b", 500), talk("c", 30, 40, 50))
    assert {d["xaxis"] for d in drawn["data"]} == {"x", "x2", "x3"}
    axes = [v for k, v in drawn["layout"].items() if k[1:5] == "axis"]
    assert {tuple(a["range"]) for a in axes} == {(-0.5, 2.5), (0, 500 * 1.06)}
    titles = [a["text"] for a in drawn["layout"]["annotations"] if "domain" in a["xref"]]
    assert titles == ["a", "b", "c"]


def test_four_panels_are_two_by_two():
    layout = panels(*(talk(name, 10, 20) for name in "abcd"))["layout"]
    places = {
        (layout[f"xaxis{n}"]["domain"][0], layout[f"yaxis{n}"]["domain"][0])
        for n in ("", "2", "3", "4")
    }
    assert [len(set(of)) for of in zip(*places, strict=True)] == [2, 2]


def test_compactions_are_marked_and_counted_in_the_corner():
    drawn = panels(talk("a", 100, 20, cut=True), talk("b", 90))
    (marks,) = [d for d in drawn["data"] if d.get("mode") == "markers"]
    assert (marks["x"], marks["y"], marks["xaxis"]) == ([0.5], [100], "x")
    assert "100 → 9 tokens" in marks["hovertext"][0]
    assert "▼ 1" in [a["text"] for a in drawn["layout"]["annotations"]]


def test_a_mark_stands_on_the_line_also_where_the_cut_saw_more():
    s = session(
        user(), assistant(usage=usage(40)), summarised([], tokens_before=90, tokens_after=9), id="s"
    )
    (marks,) = [d for d in panels(s)["data"] if d.get("mode") == "markers"]
    assert marks["y"] == [40]
    assert "90 → 9 tokens" in marks["hovertext"][0]


def test_behind_a_replay_stands_what_was_recorded():
    s = talk("s", 100, 200, 300)
    drawn = ck.plots.growth(
        {"recorded": s, "none": ck.replay(s, ck.presets.none())}, small=True
    ).to_plotly()
    behind = [d for d in drawn["data"] if d["name"] == "as recorded"]
    assert [(d["y"], d["xaxis"]) for d in behind] == [([100, 200, 300], "x2")]


def test_a_name_has_one_place_in_the_legend():
    drawn = panels(talk("a", 10, context_window=20), talk("b", 15, context_window=20))
    shown = [d["name"] for d in drawn["data"] if d["showlegend"]]
    assert shown == ["prompt", "the window"]


def test_a_window_far_above_is_not_drawn():
    drawn = panels(talk("a", 10, context_window=1000))
    assert [d["name"] for d in drawn["data"]] == ["prompt"]


def test_agents_of_one_session_share_its_panel():
    s = session(
        user(),
        assistant(agent="a", usage=usage(1)),
        assistant(agent="b", usage=usage(2)),
        id="s",
        title="s",
    )
    drawn = panels(s)
    assert [(d["name"], d["xaxis"]) for d in drawn["data"]] == [("s · a", "x"), ("s · b", "x")]


def test_more_sessions_than_colours_are_small_multiples_unless_told_otherwise():
    many = [talk(str(i), 10 + i) for i in range(9)]  # there are eight colours
    assert "xaxis9" in ck.plots.growth(many).to_plotly()["layout"]
    assert "xaxis2" not in ck.plots.growth(many[:-1]).to_plotly()["layout"]
    assert "xaxis2" not in ck.plots.growth(many, small=False).to_plotly()["layout"]


def test_what_is_too_much_is_said_and_stands_in_no_panel():
    chart = ck.plots.growth([talk(str(i), 10) for i in range(60 + 3)])
    assert "3 more are not drawn" in chart.caption
    assert len(chart.figure().data) == 60
    assert "... and 3 more" in chart.to_text()


def test_a_long_session_stays_small_and_keeps_its_peak():
    sizes = [100 + (i * 37) % 900 for i in range(3000)]
    drawn = panels(*[talk(str(i), *sizes) for i in range(12)])
    assert len(json.dumps(drawn)) < 60_000
    assert {max(d["y"]) for d in drawn["data"]} == {max(sizes)}


@pytest.mark.parametrize(
    "s", [session(id="e"), session(user()), evil_session()], ids=["empty", "none", "evil"]
)
def test_the_twins_hold_for_any_log(s):
    chart = ck.plots.growth({EVIL: s, "b": s}, small=True)
    tags = Tags()
    tags.feed(chart.to_html())
    assert tags.seen <= SAFE_TAGS
    told = json.dumps(chart.to_plotly(), ensure_ascii=False, allow_nan=False)
    assert "<script" not in told
    assert "$" not in told
    chart.figure()


def test_a_comparison_is_charted_as_it_is():
    found = ck.compare(talk("s", 100, 200), ["none", "pi"], loss=False)
    assert ck.plots.growth(found).to_text() == ck.plots.growth(found.replays).to_text()
    chart = ck.plots.growth(found, small=True)
    assert chart.title == "Context of s under 2 settings"
    assert [row[0] for row in chart.rows] == ["recorded", "none", "pi"]
