"""The growth chart: sizes as billed, else estimated and said so; compactions and limits marked."""

from __future__ import annotations

import pytest
from builders import assistant, session, summarised, usage, user

import ctxkit as ck
from ctxkit.metrics import compaction_sizes_and_detection, measure_compactions
from ctxkit.plots.growth_chart import (
    CompactionMark,
    GrowthLine,
    collect_compaction_marks,
    growth_data,
)
from ctxkit.session import Message
from ctxkit.tokens import default_counter


def compacted(**more):
    u = user("x" * 400)
    first = assistant("a", usage=usage(100), model="m", time=5.0)
    cut = summarised([u], trigger="auto", method="tail", tokens_before=110, tokens_after=20)
    return session(
        u, first, cut, user("next"), assistant("b", usage=usage(30, 10)), context_window=400, **more
    )


def test_a_line_is_one_agent_of_one_session():
    cut = CompactionMark(0, 1, "main", 110, 20, "tail · auto", "summarised")
    assert growth_data(compacted(id="s", title="s")) == (
        GrowthLine(
            "s",
            (0, 1),
            (100, 40),
            (0, 1),
            ("m", None),
            (5.0, None),
            (cut,),
            (),
            400,
            "recorded",
            2,
            40,
            False,
        ),
    )


def test_marks_of_billed_compactions_take_no_count_of_messages(monkeypatch):
    s = compacted()
    expected = collect_compaction_marks(s)
    (measured,), (without,) = measure_compactions(s), measure_compactions(s, summaries=False)
    assert measured.inserted
    assert measured.summary
    assert without == measured._replace(inserted=None, summary=None)

    def count(*_):
        raise AssertionError

    monkeypatch.setattr(compaction_sizes_and_detection, "count_messages", count)
    assert collect_compaction_marks(s) == expected


def test_without_usage_sizes_are_estimated_and_said_to_be():
    u = user("x" * 400)
    s = session(u, assistant("y" * 40), summarised([u], "s" * 80), user("z" * 40), assistant())
    (line,) = growth_data(s)
    count = default_counter().message
    (summary,) = s.edits[0].inserted
    after = sum(map(count, (summary, *s.messages[1:3])))
    assert (line.tokens, line.source) == ((count(u), after), "estimated")
    assert "estimated" in ck.plots.growth(s).caption


def test_failed_calls_leave_no_point():
    (line,) = growth_data(session(user(), assistant(is_error=True), assistant(usage=usage(5))))
    assert (line.calls, line.tokens) == ((1,), (5,))


def test_whole_turns_have_no_size_and_the_chart_says_where_to_look():
    s = session(Message(role="assistant", id="t", kind="turn", usage=usage(500)))
    assert growth_data(s)[0].tokens == ()
    assert "plots.budget" in ck.plots.growth(s).caption


def test_agents_and_sessions_are_told_apart():
    two = session(
        user(),
        assistant(agent="a", usage=usage(1)),
        assistant(agent="b", usage=usage(2)),
        id="s",
        title="s",
    )
    assert [x.name for x in growth_data(two)] == ["s · a", "s · b"]
    assert [
        x.name for x in growth_data([compacted(id="s", title="s"), compacted(id="s2", title="s")])
    ] == ["s", "s (2)"]
    assert [x.name for x in growth_data({"before": compacted(), "after": compacted()})] == [
        "before",
        "after",
    ]


def test_the_figure_has_a_line_its_compactions_and_the_limit():
    chart = ck.plots.growth(compacted(id="s", title="s"))
    assert [t.name for t in chart.figure().data] == ["s", "compactions", "limit 400"]
    assert len(chart.to_plotly()["layout"]["shapes"]) == 1
    several = ck.plots.growth([compacted(id="s", title="s"), compacted(id="t", title="t")]).figure()
    assert [t.name for t in several.data] == [
        "s",
        "t",
        "compactions of s",
        "compactions of t",
        "limit 400",
    ]


def test_a_limit_far_above_waits_in_the_legend():
    s = session(user(), assistant(usage=usage(10)), context_window=1000)
    assert ck.plots.growth(s).figure().data[-1].visible == "legendonly"


@pytest.mark.parametrize("thing", [3, [None], {"a": 1}])
def test_what_is_no_session_is_refused(thing):
    with pytest.raises(ck.BadArguments, match="session"):
        ck.plots.growth(thing)
