"""Frontier, heat map, cache and loss: the data are right, the charts are whole, what cannot be said is said."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from builders import assistant, session, summarised, user
from experiments.test_cost_and_loss_scores import talk
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.plots import cache_data, frontier_data, heatmap_data, loss_data
from ctxkit.plots.label_placement_and_thinning import place_labels


def runs():
    rows = [
        {
            "session": f"s{i}",
            "rules": r,
            "cost_usd": c + i,
            "needed_later_loss": x,
            "keep": k,
            "window": w,
        }
        for i in range(6)
        for r, c, x, k, w in (
            ("a", 1.0, 0.5, 1, 10),
            ("b", 2.0, 0.1, 2, 10),
            ("<c>", 3.0, 0.2, 1, 20),
        )
    ]
    return pd.DataFrame(rows)


def test_the_front_is_what_no_other_setting_beats():
    points = frontier_data(runs())
    assert [(p.rules, p.x, p.y, p.on_front) for p in points] == [
        *(
            ("a", 3.5, 0.5, True),
            ("b", 4.5, pytest.approx(0.1), True),
            ("<c>", 5.5, pytest.approx(0.2), False),
        )
    ]
    chart = ck.plots.frontier(runs())
    assert [t.name for t in chart.figure().data] == [
        "Pareto front",
        "Pareto front",
        "dominated",
    ]
    assert "<c>" not in chart.to_html()


def test_what_beats_by_less_than_the_error_of_the_dollars_is_not_told_apart():
    """Half widths of $3, whose errors may share a sign: a mean is known within $3; <c> is $1 dearer
    than b, which loses less.
    """
    wide = runs().assign(cost_low_usd=0.0, cost_high_usd=6.0)
    assert [p.near for p in frontier_data(wide)] == [False, False, True]
    assert "1 more lies within noise of it" in ck.plots.frontier(wide).caption
    narrow = wide.assign(cost_high_usd=1.5)
    assert not any(p.near for p in frontier_data(narrow))
    assert "within noise" not in ck.plots.frontier(narrow).caption


def test_few_sessions_are_marked():
    chart = ck.plots.frontier(runs().query("session < 's3'"))
    assert "(few)" in chart.to_text()
    assert "Fewer than five" in chart.caption


def test_a_frontier_needs_both_figures():
    with pytest.raises(ck.BadArguments, match="loss=True"):
        ck.plots.frontier(runs().assign(needed_later_loss=None))


def test_a_comparison_has_a_frontier_too():
    assert "recorded" in ck.plots.frontier(ck.compare(talk(12), ["none"])).to_text()


def test_a_heat_map_has_a_cell_for_each_pair_of_settings():
    cells = {(c.x, c.y): (c.z, c.sessions) for c in heatmap_data(runs(), "keep", "window")}
    assert cells == {(1, 10): (3.5, 6), (2, 10): (4.5, 6), (1, 20): (5.5, 6)}
    # a run without one of the two settings is in no cell
    missing = runs().assign(keep=lambda f: f["keep"].where(f["rules"] != "a"))
    assert {(c.x, c.y) for c in heatmap_data(missing, "keep", "window")} == {(2, 10), (1, 20)}
    assert {(c.x, c.y) for c in heatmap_data(missing, "window", "keep")} == {(10, 2), (20, 1)}
    for x, y in (("keep", "depth"), ("depth", "keep")):
        with pytest.raises(ck.BadArguments, match="depth"):
            heatmap_data(runs(), x, y)
    chart = ck.plots.heatmap(runs(), x="keep", y="window")
    assert chart.figure().data[0].z[1][1] is None
    # 34 pixels for each of at least three rows, and more where the name of the axis is long
    assert chart.to_plotly()["layout"]["height"] == 112 + 34 * 3
    tall = runs().rename(columns={"window": "tokens of the context window"})
    tall_chart = ck.plots.heatmap(tall, x="keep", y="tokens of the context window")
    assert tall_chart.to_plotly()["layout"]["height"] == 112 + 9 * 28
    assert "$3.50" in chart.to_text()
    with pytest.raises(ck.BadArguments, match="two settings"):
        ck.plots.heatmap(runs(), x="keep", y="keep")


def test_the_cache_of_a_record_and_of_its_replay():
    s = talk(20)
    data = cache_data(s)
    assert [c.miss for c in data] == ["cold_start"] + [None] * 19
    assert sum(c.read for c in data) == ck.score(s, loss=False)["cache_read_tokens"]
    again = ck.replay(
        s, ck.presets.pi(context_window=50_000, keep_recent_tokens=4000, summariser="fixed")
    )
    replayed = cache_data(again)
    assert sum(c.miss == "compaction" for c in replayed) == len(again.edits)
    assert sum(c.read for c in replayed) == ck.score(again, loss=False)["cache_read_tokens"]
    assert "a compaction" in ck.plots.cache(again).to_text()
    ck.plots.cache(again).figure()
    assert "does not see this session's cache reads" in ck.plots.cache(again).notes[0]
    assert len(ck.plots.cache(again).caption) < 200
    frontier = ck.plots.frontier(ck.sweep(s, "none", loss=True))
    assert any("predicts this session's input cost with an error of" in n for n in frontier.notes)


def test_without_a_split_the_cache_says_nothing():
    s = session(user(), assistant())
    assert cache_data(s) == ()
    assert "does not tell" in ck.plots.cache(s).caption


def test_losses_by_family_over_cuts():
    old = [user("Never touch src/a.py or src/b.py."), assistant("I see.")]
    s = session(*old, summarised(old, "src/a.py"), user("go"), assistant("now src/b.py"))
    told = {(r.family, r.items, r.retained, r.lost, r.needed, r.missed) for r in loss_data(s)}
    assert told == {("path", 2, 1, 1, 1, 1), ("constraint", 1, 0, 1, 0, 0)}
    chart = ck.plots.loss(s)
    assert "1 of 1 items that the record used again" in chart.caption
    assert [(t.name, t.mode) for t in chart.figure().data] == [
        ("path", "markers+text"),
        ("constraint", "markers+text"),
    ]  # nothing is between two compactions, so no line is
    assert "Nothing was compacted" in ck.plots.loss(session(user(), assistant())).caption


def test_advice_needs_five_sessions_and_then_names_the_front():
    few = ck.advise([talk(20)], ["pi"], progress=False)
    assert not few["advised"].any()
    assert "advice needs 5" in " ".join(repr(few).split())
    rules = ck.grid(
        ck.presets.pi,
        context_window=[50_000, 60_000],
        keep_recent_tokens=[2000, 6000],
        summariser="fixed",
    )
    found = ck.advise([talk(20 + i, id=f"s{i}") for i in range(5)], rules)
    assert found["on_pareto_front"].all()
    assert (found["sessions_n"] == 5).all()
    assert "no management" in found["advice"][0]
    assert (
        found["saved_usd"]
        == found.loc[found["rules"] == "no management", "cost_usd"].iloc[0] - found["cost_usd"]
    ).all()
    assert found["cost_usd"].is_monotonic_increasing


def test_advice_shows_no_bar_where_none_is_asked_for(monkeypatch):
    from ctxkit.experiments import sweep_runs

    asked, real = [], sweep_runs._make_progress_bar
    monkeypatch.setattr(
        sweep_runs, "_make_progress_bar", lambda *a: asked.append(a[-1]) or real(*a)
    )
    ck.advise([talk(20 + i, id=f"s{i}") for i in range(5)], ["none"], progress=False)
    assert asked == [False]


def test_no_session_and_no_text():
    with pytest.raises(ck.BadArguments, match="session"):
        ck.plots.cache(3)
    with pytest.raises(ck.BadArguments, match="session"):
        ck.plots.loss([3])


def test_points_have_their_names_where_they_find_room():
    found = place_labels(
        [(100, 50), (595, 50)], ["first", "last"], [(110, 50)], width=600, height=100
    )
    assert [(label.text, label.anchor) for label in found] == [("first", "middle"), ("last", "end")]
    assert place_labels([(10, 5)], ["too long for it"], width=60, height=10) == [None]


def test_points_in_a_heap_are_all_named():
    """A name without room beside its point stands farther off, at the end of a line."""
    heap = [(300 + 6 * i, 100 + 4 * (i % 3)) for i in range(8)]
    found = place_labels(heap, [f"setting {i}" for i in range(8)], width=600, height=240)
    assert None not in found
    assert {bool(label.side) for label in found} == {True, False}
    assert not list_crossed(found)


def test_no_name_stands_on_the_line_of_another():
    """In a denser heap, where the nearest free place of a name is on the line of one before it."""
    heap = [(300 + 4 * i, 100 + 6 * (i % 3)) for i in range(10)]
    found = place_labels(heap, [f"setting {i}" for i in range(10)], width=600, height=240)
    assert sum(label is None for label in found) == 1
    assert not list_crossed([label for label in found if label])


def list_crossed(labels):
    """Pairs of a name and another whose line runs through it; a letter is 6.6 x 13 pixels."""
    crossed = []
    for label in labels:
        width = 6.6 * len(label.text)
        left = label.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor] * width
        bottom = label.y + 2
        for other in labels:
            if other is not label and not other.side:
                line = np.linspace(other.point, other.end, 200)[1:-1]
                on_name = (left < line[:, 0]) & (line[:, 0] < left + width)
                on_name &= (bottom - 13 < line[:, 1]) & (line[:, 1] < bottom)
                crossed += [(label.text, other.text)] if on_name.any() else []
    return crossed


def test_the_picture_of_a_frontier_names_its_points():
    picture = ck.plots.frontier(runs()).drawing.svg()
    assert all(f">{p.rules}<" in picture for p in frontier_data(runs())[:1])


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 200)), max_size=12))
def test_names_never_leave_the_picture_nor_cover_each_other(points):
    named = [f"name{i}" for i in range(len(points))]
    found = [label for label in place_labels(points, named, width=600, height=200) if label]
    ends = {"start": 0.0, "middle": 0.5, "end": 1.0}
    boxes = [(w.x - ends[w.anchor] * 5.8 * len(w.text), w.y) for w in found]
    assert all(
        x >= -1e-6 and x + 5.8 * len(w.text) <= 600 + 1e-6
        for (x, _), w in zip(boxes, found, strict=True)
    )
    for i, (x, y) in enumerate(boxes):
        assert not any(abs(x - a) < 5.8 * 5 and abs(y - b) < 11 for a, b in boxes[i + 1 :])
