"""Every chart of a session of 450 calls whose compactions edit more messages than a picture has points."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import msgspec
import numpy as np
import pytest
from builders import assistant, result, session, summarised, system, tool_call, usage, user
from conftest import sample
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.plots import Trace, XyDrawing, get_diff_data
from ctxkit.plots.label_placement_and_thinning import decimate_stacked_bands
from ctxkit.presets import names
from ctxkit.session import group_edits

CALLS, OUTPUT, RESULT = 450, 40, 380
RULE = "Never push to main."
MODEL = "claude-sonnet-4-5"
PRESETS = sample(names(), 3)
CUT = ("ai", "codex", "fased", "openclaw", "pi")
"""Presets under which a compaction of this session meets more than 800 messages."""


def record(agents=("agent",), compaction=420):
    """Return a record of a read file a call; at one call all but the system prompt was folded."""
    log, window = [system("You fix things. " * 40), user("Fix it all. " * 39 + RULE)], 900
    for n in range(CALLS):
        if n == compaction:
            log.append(summarised(log[1:], "So far: much. " * 60, time=6.0 * n))
            window = 1_200
        read = window - 300 if n % 7 else 0
        call = tool_call("read_file", f"c{n}", path=f"src/file{n % 90}.py")
        bill = usage(window - read - 100, read, 100, OUTPUT)
        who = {"agent": agents[n // 10 % len(agents)], "model": MODEL, "time": 6.0 * n + 1}
        log.append(assistant(f"Step {n}: look. ", call, usage=bill, **who))
        text = f"line {n} of the file reads so; " * (RESULT // 9)
        log.append(result(text, call, time=6.0 * n + 3))
        window += OUTPUT + RESULT
    return session(*log, model=MODEL, id="long")


@cache
def long_record():
    return record()


@cache
def long_replay(rules):
    return ck.replay(long_record(), rules)


GIVEN = {
    "frontier": lambda: ck.sweep(long_record(), ["pi", "codex"], loss=True),
    "heatmap": lambda: ck.sweep(
        long_record(),
        ck.grid("pi", reserve_tokens=[9_000, 20_000], keep_recent_tokens=[5_000, 9_000]),
    ),
    "views": lambda: ck.compare(record(("Developer", "Tester")), "views"),
}
"""What is given to the charts that take no session."""
SETTINGS = {"heatmap": ("reserve_tokens", "keep_recent_tokens")}


def render(chart):
    """Make all forms of a chart, the live one as plotly checks it; return the static picture."""
    page, text, bundle = chart.to_html(), chart.to_text(), chart._repr_mimebundle_()
    assert page == bundle["text/html"]
    assert text == bundle["text/plain"]
    assert "<svg" in page
    assert text.startswith(chart.title[:20])
    live = json.loads(json.dumps(bundle["application/vnd.plotly.v1+json"], allow_nan=False))
    assert len(chart.figure().data) == len(live["data"])
    assert any(value is not None for trace in live["data"] for value in trace["y"])
    picture = chart.drawing.svg()
    assert len(picture) < 100_000
    return picture


@pytest.mark.parametrize("name", ck.plots.__all__)
def test_every_chart_of_a_long_session_is_shown_in_every_form(name):
    of = GIVEN.get(name, long_record)()
    render(getattr(ck.plots, name)(of, *SETTINGS.get(name, ())))


@pytest.mark.parametrize("name", [n for n in ck.plots.__all__ if n not in GIVEN])
def test_every_chart_of_a_replay_of_it_is_shown_in_every_form(name):
    render(getattr(ck.plots, name)(long_replay("codex")))


@pytest.mark.parametrize("rules", dict.fromkeys([*CUT, *PRESETS]))
def test_a_compaction_of_any_size_is_shown_message_by_message(rules):
    replay = long_replay(rules)
    compactions = group_edits(replay)
    rows = ck.frame(replay, per="compaction").set_index("compaction")
    for number in {0, len(compactions) - 1} if compactions else ():
        chart, changes = ck.plots.diff(replay, number), get_diff_data(replay, number)
        render(chart)
        actions = Counter(change.action for change in changes)
        bars_n = sum(int(np.isfinite(np.array(t.y, float)).sum()) for t in chart.figure().data)
        assert bars_n == len(changes) == rows["messages_before"][number] + actions["inserted"]
        assert len(chart.rows) == len(changes) - actions["kept"]
    if rules in CUT:
        bars = ck.plots.diff(replay).drawing.traces[0].x  # one a message of the window
        assert len(bars) > max(800, XyDrawing.points)


def test_more_compactions_than_a_picture_has_points_are_shown():
    """savings stacks what each compaction put in, left and saved"""
    one = long_replay("agent_framework")
    several = [msgspec.structs.replace(one, id=name) for name in "abc"]
    assert sum(len(group_edits(s)) for s in several) > XyDrawing.points
    render(ck.plots.savings(several))


def expired_calls(size, every):
    """Return heights of read and written tokens; each `every`-th call and its next read nothing."""
    total = 20_000 + 30 * np.arange(size) + 400 * (np.arange(size) % 5)
    missed = np.isin(np.arange(size) % every, (0, 1))
    read = np.where(missed, 0, total - 300)
    return read, total - read, np.flatnonzero(missed)


def test_a_call_that_reads_nothing_stays_in_a_thinned_stack_as_narrow_as_it_is():
    read, written, missed = expired_calls(4_000, 100)
    drawn = decimate_stacked_bands([read, written], 600)
    assert len(drawn) < 700
    assert set(missed) <= set(drawn)
    around = {i + step for i in missed[2:-2] for step in (-1, 1)}
    assert around <= set(drawn)


def test_nothing_is_left_out_of_traces_that_together_have_few_points():
    read, written, missed = expired_calls(900, 100)
    marks = np.where(np.isin(np.arange(900), missed), read + written, np.nan)
    stack = [Trace(name="t", x=range(900), y=y, kind="area") for y in (read, written)]
    axes = XyDrawing(
        x="x",
        y="y",
        traces=(*stack, *[Trace(name="m", x=range(900), y=marks, kind="points")] * 5),
        stacked=True,
    )
    assert [len(t["x"]) for t in axes.plotly()["data"]] == [900] * 7


@given(
    st.integers(1, 5),
    st.integers(0, 3000),
    st.sampled_from(["area", "bar"]),
    st.integers(0, 2**32 - 1),
)
def test_bands_of_a_stack_are_drawn_at_the_same_places_with_their_extremes(n, size, kind, seed):
    r = np.random.default_rng(seed)
    heights = [np.where(r.random(size) < 0.5, np.nan, r.random(size)) for _ in range(n)]
    traces = tuple(Trace(name="t", x=range(size), y=y, kind=kind, look=0) for y in heights)
    axes = XyDrawing(x="x", y="y", traces=traces, stacked=True)
    axes.svg()
    assert len({tuple(t["x"]) for t in axes.plotly()["data"]}) == 1
    drawn = decimate_stacked_bands(heights, 600)
    assert len(drawn) <= 600 + 2 * n + 8
    for y in heights:
        if np.isfinite(y).any():
            assert np.nanmax(y[drawn]) == np.nanmax(y)
