"""Charts turned by hand, without a browser: what they are given, what they say, what they leave in a notebook."""

from __future__ import annotations

import asyncio
import json

import pandas as pd
import pytest
from builders import assistant, session, step, summarised, usage, user
from widgets.reports.hostile_logs import hostile, intruders
from widgets.team_snapshots_and_long_session import team

import ctxkit as ck
from ctxkit import tokens
from ctxkit._internal import format_usd
from ctxkit.agent import LiveSession, ScriptedModel, Workspace, get_script
from ctxkit.errors import BadArguments
from ctxkit.formats import write_snapshots
from ctxkit.metrics import ReplayCostModel
from ctxkit.policies import Above, AntiThrash, Rules, Summary

COUNT = tokens.get_counter("chars/4")
ALL = (ck.budget, ck.savings, ck.thrash)


@pytest.fixture(scope="module")
def sample():
    return ck.read(ck.samples.path("billing"))


@pytest.fixture(scope="module")
def busy(sample):
    """A replay with many compactions."""
    return ck.replay(sample, "pi")


def asked(chart, **question):
    return chart._answer_or_error(question)


# -- what they are given -------------------------------------------------------------------------------------------


def test_a_budget_begins_with_the_thresholds_of_the_log_and_says_what_others_would_have_done():
    log = team(300, 2)
    chart = ck.budget(log)
    assert (chart.warn, chart.cutover) == (2_000_000, 3_000_000)
    turns = log[log["agent"] == "agent-1"]["cumulative_input_tokens"].tolist()
    assert chart.verdict["agent-1"].cutovers == tuple(
        i for i, n in enumerate(turns) if n >= 3_000_000
    )
    chart.warn, chart.cutover = 0, 1_000_000
    assert chart.verdict["agent-1"] == ((), tuple(i for i, n in enumerate(turns) if n >= 1_000_000))
    assert str(len(chart.verdict["agent-1"].cutovers)) in chart.to_text().splitlines()[-1]


def test_sums_that_start_again_after_a_cut_cut_again(sample):
    chart = ck.budget(sample, cutover=700_000, again=True)
    recorded = ck.budget(sample, cutover=700_000)
    spent = ck.frame(sample, per="turn")["turn_input_tokens"].tolist()
    total, cutovers = 0, []
    sums = ck.frame(sample, per="turn")["cumulative_input_tokens"].tolist()
    fell = [i for i in range(1, len(sums)) if sums[i] < sums[i - 1]]
    for i, n in enumerate(spent):
        total = n + (0 if i in fell else total)
        if total >= 700_000:
            cutovers.append(i)
            total = 0
    assert chart.verdict["main"].cutovers == tuple(cutovers)
    assert len(cutovers) < len(recorded.verdict["main"].cutovers)


def test_sessions_snapshots_folders_and_turn_frames_are_one_to_a_budget(tmp_path):
    log = team(60, 2)
    file = tmp_path / "logs" / "ctx_snapshots_s.jsonl"
    file.parent.mkdir()
    write_snapshots(log, file)
    told = [
        ck.budget(given).verdict
        for given in (log, file.parent, str(file), ck.read_all(file.parent))
    ]
    assert told[0] == told[1] == told[2] == told[3]
    assert ck.budget(ck.frame(ck.read(file), per="turn")).verdict == told[0]


def test_a_list_names_agents_by_the_titles_of_their_sessions(sample):
    two = [
        sample,
        session(user("x"), assistant("y", usage=usage(90)), title="Other " + "o" * 10_000),
    ]
    names = list(ck.budget(two).verdict)
    assert names[0].startswith("BILL-4127: the nightly export fails ·")
    assert names[1].startswith("Other ooo")
    assert len(names[1]) < 80


def test_savings_of_a_record_are_its_frame_and_its_diff(sample):
    chart = ck.savings(sample)
    table = ck.frame(sample, per="compaction")
    assert [c.before for c in chart.compactions] == table["tokens_before"].tolist()
    assert [c.usd for c in chart.compactions] == table["cost_usd"].tolist()
    detail = chart.detail
    needed = ck.metrics.loss_tables.losses(sample).query("call == 175")
    assert f"{len(needed):,} facts" in detail["needed"]
    assert f"{int(needed['needed_call'].notna().sum())} were named again later" in detail["needed"]
    assert "272 summarised" in detail["changed"]
    assert [row[0] for row in detail["items"]] == sorted(row[0] for row in detail["items"])


def test_making_a_compaction_costs_what_the_log_or_the_bill_of_a_replay_says(sample, busy):
    [recorded] = ck.frame(sample, per="compaction")["cost_usd"].head(1)
    assert (
        f"Making it cost {format_usd(recorded)} (recorded)."
        in ck.savings(sample).detail["ledger"][0]
    )
    first = min(
        ck.metrics.compaction_outcomes.get_compaction_outcomes(busy), key=lambda one: one.call
    ).summaries
    billed = f"{format_usd(ReplayCostModel.of(sample).summaries_usd(first))} (derived)."
    assert f"Making it cost {billed}" in ck.savings(busy).detail["ledger"][0]
    dropped = ck.replay(sample, "inspect_trim")
    assert "No model made it." in ck.savings(dropped).detail["ledger"][0]


def test_what_compactions_of_a_snapshot_log_saved_is_unknown_in_every_view(tmp_path):
    log = team(300, 2)
    chart = ck.savings(log)
    assert {(c.before, c.after, c.saved) for c in chart.compactions} == {(None, None, None)}
    assert chart.detail is None
    assert "no diff" in chart.to_text()
    write_snapshots(log, tmp_path / "ctx_snapshots_s.jsonl")
    sessions = ck.read_all(tmp_path)
    read = ck.savings(sessions)
    assert [c.saved for c in read.compactions] == [c.saved for c in chart.compactions]
    [one] = sessions
    by_widget, by_plot = ck.thrash(one), ck.plots.thrash(one)
    n = len(read.compactions)
    assert by_widget.shares() == [None] * n
    assert by_widget.to_text() == by_plot.to_text()
    assert f"{n} compactions, 0 saved less than 10 % of tokens, of {n} it is unknown" in str(
        by_plot
    )
    summary = ck.metrics.compaction_outcomes.thrash(one)
    assert (summary.outcomes, summary.is_thrashing) == ((), None)
    assert ck.score(one).detail[["is_thrashing"]].isna().all()


def test_a_frame_of_compactions_is_taken_and_another_refused(sample):
    table = ck.frame(sample, per="compaction")
    assert [c[1:6] for c in ck.savings(table).compactions] == [
        c[1:6] for c in ck.savings(sample).compactions
    ]
    assert ck.thrash(table).shares() == pytest.approx(ck.thrash(sample).shares(), abs=1e-4)
    for chart in ALL:
        with pytest.raises(BadArguments, match="lacks"):
            chart(pd.DataFrame({"x": [1]}))


def test_a_fall_without_a_mark_is_no_compaction_in_a_frame_either():
    first, *talk = user("x"), *(assistant("y", usage=usage(n)) for n in (40_000, 12_000, 12_500))
    log = session(
        first, *talk, summarised([first], text="short"), assistant("z", usage=usage(6_000))
    )
    table = ck.frame(log, per="compaction")
    assert len(table) == 2
    assert [c[1:6] for c in ck.savings(table).compactions] == [
        c[1:6] for c in ck.savings(log).compactions
    ]
    assert len(ck.thrash(table).shares()) == 1


# -- the guard -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "window"), [(0.06, 2), (0.5, 3), (0.07, 1), (0.02, 1), (0.0, 3), (0.5, 0)]
)
@pytest.mark.parametrize("by", ["tokens", "messages"])
def test_where_the_guard_closes_and_its_dollars_are_those_of_the_real_guard(
    sample, busy, least, window, by
):
    rules = ck.presets.pi()
    guard = AntiThrash(min_savings=least, window=window, by=by)
    real = ck.replay(sample, rules.but(guards=(*rules.guards, guard)))
    chart = ck.thrash(busy, min_savings=least, window=window, by=by)
    n = len(ck.frame(real, per="compaction"))
    assert (len(chart.shares()) if chart.closes is None else chart.closes + 1) == n
    found = asked(chart, kind="usd", session=0, at=chart.closes)["usd"]
    told = found["0/none" if chart.closes is None else f"0/{chart.closes}"]
    assert told == pytest.approx(ck.score(real)["cost_usd"])


def test_a_record_and_a_replay_from_a_file_have_no_dollars_and_say_why(sample, busy, tmp_path):
    assert "ck.replay(session, rules)" in ck.thrash(sample).rows[0]["why"]
    ck.write(busy, tmp_path / "replay.json")
    assert "call ck.replay again" in ck.thrash(ck.read(tmp_path / "replay.json")).rows[0]["why"]
    assert ck.thrash(sample).usd == {}


@pytest.mark.parametrize("wrong", [{"by": "words"}, {"min_savings": 2.0}, {"window": -1}])
def test_a_guard_that_cannot_be_is_refused(sample, wrong):
    with pytest.raises(BadArguments):
        ck.thrash(sample, **wrong)


@pytest.mark.parametrize("wrong", [{"warn": -1}, {"cutover": 2.5}])
def test_a_budget_that_cannot_be_is_refused(sample, wrong):
    with pytest.raises(BadArguments, match="number of tokens"):
        ck.budget(sample, **wrong)


# -- a live session ------------------------------------------------------------------------------------------------


def test_a_live_session_grows_in_all_three(tmp_path):
    rules = Rules(policy=Summary(keep_tokens=500), trigger=Above(3_000), counter=COUNT)
    model = ScriptedModel(
        get_script("audit").turns,
        name="audit",
        counter=COUNT,
        clock=lambda: 0.0,
        context_window=32_000,
    )
    with LiveSession(
        "one", model=model, rules=rules, clock=lambda: 1e9, workspace=Workspace(tmp_path)
    ) as live:
        charts = [chart(live) for chart in ALL]
        assert [chart.to_text() != "" for chart in charts] == [True] * 3
        for _ in range(3):
            asyncio.run(live.turn("go"))
        budget, savings, thrash = charts
        assert [a["name"] for a in budget.data["agents"]] == ["main"]
        assert len(budget.data["agents"][0]["inputs"]) == 3
        cutovers = len(live.session.edits)
        assert cutovers > 0
        assert (len(savings.compactions), len(thrash.shares())) == (cutovers, cutovers)
        for chart in charts:
            chart.stop()
        asyncio.run(live.turn("go"))
        assert len(budget.data["agents"][0]["inputs"]) == 3


def test_each_is_one_anywidget_that_loads_nothing(sample, busy):
    """So it lives wherever anywidget does: nothing is around it, and no address is in its code."""
    from anywidget import AnyWidget
    from ipywidgets import Box

    for made in (*(chart(busy) for chart in ALL), ck.explore(sample), ck.watch(sample)):
        assert isinstance(made, AnyWidget)
        assert not isinstance(made, Box)
        assert f"{made._esm}{getattr(made, '_css', '')}".count("http") == f"{made._esm}".count(
            "http://www.w3.org"
        )


# -- what a notebook keeps, and pages ------------------------------------------------------------------------------


def saved(chart) -> int:
    """Bytes that a chart adds to a notebook that stores the state of widgets."""
    data = chart._repr_mimebundle_()
    state = {
        k: v for k, v in chart.get_state().items() if not k.startswith("_") or k in ("_esm", "_css")
    }
    return len(json.dumps(data)) + len(json.dumps(state))


@pytest.mark.parametrize(("turns", "kilobytes"), [(1_000, 100), (10_000, 300)])
def test_a_chart_adds_little_to_a_notebook(turns, kilobytes):
    assert saved(ck.budget(team(turns, 3))) < kilobytes * 1000


def test_savings_and_guards_add_little_too(busy):
    assert saved(ck.savings(busy)) < 100_000
    assert saved(ck.thrash(busy)) < 100_000


def test_a_page_holds_what_a_click_shows(sample, busy):
    page = ck.savings(sample).page(plotly=False).html
    assert "were named again later" in page
    assert "data-ctxkit-plotly>" not in page
    told = ck.thrash(busy, window=2).page(plotly=False).html
    assert told.count('"usd"') > 20


def test_it_cannot_write_where_there_is_no_folder(sample, tmp_path):
    with pytest.raises(BadArguments, match="could not be written"):
        ck.budget(sample).write_html(tmp_path / "none" / "x.html")


def test_a_title_cannot_end_the_script_of_a_page():
    evil = session(
        user("x"),
        assistant("y", usage=usage(90), agent="</script><script>window.evil=1</script>"),
        title="</script><img src=x>",
    )
    for chart in ALL:
        page = chart([evil, evil]).page(plotly=False).html
        assert page.count("</script>") == 2
        assert page.count("<script") == 2
        assert "<img" not in page


@pytest.mark.parametrize("chart", ALL)
def test_a_hostile_log_is_only_text(chart):
    assert intruders(chart(hostile()).to_html()) == []


# -- bad input -----------------------------------------------------------------------------------------------------

NO_CALL, ONE = session(user("x")), session(user("x"), assistant("y", usage=usage(90)))
NO_USAGE = session(user("x"), *step(text="r"), assistant("y"))


@pytest.mark.parametrize(
    "log",
    [session(), NO_CALL, ONE, NO_USAGE, team(1)],
    ids=["empty", "no call", "one", "no usage", "turn"],
)
@pytest.mark.parametrize("chart", ALL)
def test_what_is_missing_is_said(chart, log):
    made = chart(log)
    assert made.to_text()
    assert made.to_html()
    assert made.page(plotly=False).html
    assert made.figure() is not None


def test_one_that_no_call_followed_and_one_that_grew_are_drawn():
    first = user("x " * 50)
    log = session(first, assistant("y", usage=usage(900)), summarised([first], text="long " * 900))
    chart = ck.savings(log)
    assert len(chart.compactions) == 1
    assert "no call followed" in chart.detail["needed"]
    assert chart.compactions[0].saved < 0


def test_a_hundred_thousand_messages_stand():
    talk = [
        m
        for i in range(50_000)
        for m in (user("go on"), assistant("ok", usage=usage(1_000 + i % 7_000)))
    ]
    chart = ck.budget(session(*talk, title="t" * 10_000), warn=0)
    assert len(chart.verdict["main"].warned) == 0
    assert len(chart.to_html()) < 200_000
    assert ck.savings(session(*talk)).compactions == ()
    assert ck.thrash(session(*talk)).closes is None
