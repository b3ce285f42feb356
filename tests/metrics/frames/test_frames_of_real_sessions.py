"""Frames and charts of real sessions agree with the sessions and with each other."""

from __future__ import annotations

import pandas as pd
import pytest
from conftest import sample

import ctxkit as ck
from ctxkit.metrics import FRAME_COLUMNS
from ctxkit.session import with_unique_ids

KINDS = [
    "aider",
    "atif",
    "claude-code",
    "codex",
    "gemini-cli",
    "inspect-ai",
    "kimi-cli",
    "mini-swe-agent",
    "opencode",
]
KINDS += ["openhands", "pi", "swe-agent", "tau-bench"]


@pytest.fixture(scope="module", params=KINDS)
def sessions(request, real):
    return sample(list(ck.read_all(real / request.param, progress=False)), 6)


def test_one_frame_over_all_is_the_frames_of_each_in_a_row(sessions):
    for per in FRAME_COLUMNS:
        parts = [ck.frame(s, per=per) for s in with_unique_ids(sessions)]
        whole = (
            pd.concat([p for p in parts if len(p)], ignore_index=True)
            if any(map(len, parts))
            else parts[0]
        )
        pd.testing.assert_frame_equal(ck.frame(sessions, per=per), whole)


def test_rows_are_messages_and_calls(sessions):
    messages, calls = ck.frame(sessions, per="message"), ck.frame(sessions, per="call")
    assert messages["id"].tolist() == [m.id for s in sessions for m in s.messages]
    assert calls["id"].tolist() == [c.message.id for s in sessions for c in s.calls]


def test_turns_sum_what_calls_were_billed(sessions):
    calls, turns = ck.frame(sessions, per="call"), ck.frame(sessions, per="turn")
    assert turns["turn_input_tokens"].sum() == calls["prompt_tokens"].sum()
    assert turns["turn_output_tokens"].sum() == calls["output_tokens"].sum()
    rows = ck.frame(sessions, per="session")
    assert rows["prompt_tokens"][rows["source"] == "derived"].sum() == calls["prompt_tokens"].sum()


def test_visible_messages_are_those_of_the_view(sessions):
    for s in sessions:
        frame = ck.frame(s, per="message")
        inserted = {m.id for e in s.edits for m in e.inserted}
        shown = [m.id for m in s.view() if m.id not in inserted]
        as_written = frame[frame["visible"] & frame["state"].isin(["shown", "pruned"])]
        assert as_written["id"].tolist() == shown


def test_every_chart_of_every_session_can_be_drawn(sessions):
    for s in sessions:
        charts = [
            ck.plots.growth(s),
            ck.plots.budget(s),
            ck.plots.composition(s),
            ck.plots.savings(s),
            ck.plots.thrash(s),
        ]
        charts += [ck.plots.diff(s, k) for k in range(len(s.edits))]
        for chart in charts:
            forms = {"text/plain", "text/html"}
            # a chart without a point is its sentences and its table: it has no axes to draw
            assert set(chart._repr_mimebundle_()) == (
                forms if chart.drawing.is_empty else {*forms, "application/vnd.plotly.v1+json"}
            )
            assert ("<svg" in chart.to_html()) is not chart.drawing.is_empty
        assert not (s.calls and ck.plots.composition(s).drawing.is_empty)
