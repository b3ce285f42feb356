"""A session says of itself what its log cannot say, and all that rests on it shows the note."""

from __future__ import annotations

import pytest

import ctxkit as ck

ABOUT = "The conversation before line 1 is not in this file"
FILE = "claude-code/entire-198393f2.jsonl"


@pytest.fixture(scope="module")
def session(real):
    return ck.read(real / FILE)


@pytest.mark.parametrize(
    "name", ["growth", "composition", "budget", "savings", "thrash", "diff", "cache", "loss"]
)
def test_every_chart_shows_it(session, name):
    chart = getattr(ck.plots, name)(session)
    assert ABOUT in chart.to_text()
    assert ABOUT in chart.to_html()


@pytest.mark.parametrize("name", ["growth", "budget", "savings", "thrash"])
def test_a_chart_of_a_path_shows_it_too(real, name):
    chart, file = getattr(ck.plots, name), real / FILE
    for drawn in (chart(str(file)), chart([file]), chart(iter([file]))):
        assert ABOUT in drawn.to_text()


def test_reports_and_frames_show_it(session, tmp_path):
    assert ABOUT in ck.report(session).to_text()
    assert ABOUT in ck.report(session).to_html()
    assert ABOUT in ck.frame(session, per="session")["notes"].iloc[0]
    ck.export(session, tmp_path / "s.html")
    assert ABOUT in (tmp_path / "s.html").read_text()
    assert (
        ABOUT in repr(ck.metrics.optimal_trigger_floor_and_wait.when_to_compact(session))
        if hasattr(ck.metrics, "when")
        else True
    )


def test_comparisons_and_their_reports_show_it(session, tmp_path):
    found = ck.compare(session, ["pi", "none"], loss=False, progress=False)
    assert ABOUT in found.to_text(why=True)
    assert ABOUT in found._repr_html_()
    assert found["session_notes"].str.contains(ABOUT).all()
    ck.export(found, tmp_path / "c.html")
    assert ABOUT in (tmp_path / "c.html").read_text()
    assert ABOUT in ck.plots.growth(found).to_text()


def test_replays_carry_it_and_charts_of_several_say_whose_it_is(session, real):
    again = ck.replay(session, ck.presets.none())
    assert again.notes == session.notes
    other = ck.read(real / "gemini-cli/entire-f7633853.json")
    told = ck.plots.growth([session, other]).to_text()
    assert f"{session.id}: {ABOUT}" in told


def test_charts_of_runs_show_it(session):
    runs = ck.sweep([session], ["pi", "none"], loss=False)
    chart = ck.plots.heatmap(runs, "rules", "session", "prompt_tokens")
    assert ABOUT in chart.to_text()


def test_a_log_that_says_all_has_no_note(real):
    session = ck.read(real / "mini-swe-agent/marshmallow-code__marshmallow-1343.traj.json")
    assert session.notes == ()
    chart = ck.plots.growth(session)
    assert "Note:" not in chart.to_text()


def test_widgets_show_it(session):
    explorer = ck.explore(session)
    assert any(ABOUT in note for note in explorer.data["notes"])
    assert ABOUT in explorer.to_text()
    assert ABOUT in explorer.to_html()
    assert ABOUT in ck.tune(session, "pi").to_text()
