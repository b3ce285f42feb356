"""A recorded team under several views: what each agent would have been sent, billed, and lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from builders import assistant, session, summarised, usage, user
from teams.small_teams import config, made

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics import get_agent_logs, get_team_turns
from ctxkit.session import Message, Session, Text, ToolCall
from ctxkit.teams import DEMO_TASK

TESTER = [{"Source": s} for s in ("session_context", "changes_recent:5",
                                  "brief_field:test_targets", "own_history:4")]  # fmt: skip


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    with ck.team("scripted", folder=tmp_path_factory.mktemp("team")) as team:
        team.run(DEMO_TASK)
        yield team


@pytest.fixture(scope="module")
def compared(team):
    views = {"text": {"TextOnly": True}, "as the Tester": {"Context": TESTER},
             "fresh": {"Isolation": "Fresh"}, "fork": {"Isolation": "Fork"},
             "without": {"ExcludeAgents": ["Developer"]}, "young": {"MaxTurnAge": 1}}  # fmt: skip
    return ck.compare(team, views)


def tokens(compared, agent, view):
    rows = compared[(compared["agent"] == agent) & (compared["view"] == view)]
    return int(rows["prompt_tokens"].iloc[0])


@pytest.mark.parametrize(
    ("agent", "view"), [("Developer", "shared"), ("Reviewer", "text"), ("Tester", "as the Tester")]
)
def test_the_view_that_an_agent_had_is_billed_as_it_was(compared, agent, view):
    assert tokens(compared, agent, view) == tokens(compared, agent, "recorded")


def test_what_hides_more_costs_less(compared):
    for agent in ("Tester", "Reviewer"):
        whole = tokens(compared, agent, "shared")
        for view in ("text", "as the Tester", "fresh", "without", "young"):
            assert tokens(compared, agent, view) < whole
        assert tokens(compared, agent, "fork") == whole  # it speaks in one turn alone
    assert tokens(compared, "Planner", "fresh") == tokens(compared, "Planner", "shared")


def test_a_view_costs_the_prompts_of_the_record(compared):
    """F30, F126: Views of one recorded team, with what each costs and hides."""
    recorded = compared[compared["view"] == "recorded"]
    assert (recorded["prompt_tokens"] > 0).all()
    assert compared["cost_usd"].isna().all()  # scripted models have no price
    assert set(compared["source"]) == {"recorded", "derived"}


def test_all_agents_together_are_the_sum(compared):
    for view, rows in compared.groupby("view"):
        each = rows[rows["agent"] != "all agents"]["prompt_tokens"].sum()
        assert tokens(compared, "all agents", view) == each
        turns = compared.turns[compared.turns["view"] == view]
        assert turns["turn_input_tokens"].sum() == each
        agents, whole = rows[rows["agent"] != "all agents"], rows.iloc[-1]
        assert (whole["agent"], whole["calls_n"]) == ("all agents", agents["calls_n"].sum())
        assert whole["peak_tokens"] == agents["peak_tokens"].max()
        assert whole["token_share"] == each / tokens(compared, "all agents", "shared")
        if view != "recorded":  # only what a view hides is lost
            lost, reused = agents["needed_lost_n"].sum(), agents["reused_items_n"].sum()
            assert (whole["needed_lost_n"], whole["reused_items_n"]) == (lost, reused)
            assert whole["needed_later_loss"] == lost / reused
    assert compared.turns.index.tolist() == list(range(8 * 5)), "eight views of five turns"
    order = compared.turns[compared.turns["view"] == "recorded"]
    names = ["Planner", "Developer", "Developer", "Tester", "Reviewer"]
    assert order["agent"].tolist() == names
    assert order["to"].tolist() == ["Developer", "", "Tester", "Reviewer", ""]
    assert compared.limits == {"warn_at": 20_000}


def test_a_table_names_each_agent_once_and_rounds_its_figures(compared):
    lines = compared.to_text().splitlines()
    assert lines[0] == compared.title
    begins = [
        n for n, line in enumerate(lines) if line.startswith(("Pl", "Dev", "Te", "Re", "all"))
    ]
    assert [b - a for a, b in pairwise(begins)] == [8] * 4
    for begin, (_, rows) in zip(begins, compared.groupby("agent", sort=False), strict=True):
        for line, row in zip(lines[begin:], rows.itertuples(), strict=False):
            figures = [f"{row.prompt_tokens:,}", f"{row.peak_tokens:,}", f"{row.token_share:.0%}"]
            assert line.split(row.view)[-1].split()[:3] == [f.rstrip("%") for f in figures]
    shown = type(compared)(compared.head(2))
    shown["needed_later_loss"], shown["cost_usd"] = [0.099, 0.1], [0.123456, 1234.5]
    shown.title = "t"
    assert [line.split()[-5:] for line in shown.to_text().splitlines()[3:5]] == [
        ["100", "%", "$0.1235", "9.9", "%"], ["100", "%", "$1,234", "10", "%"],
    ]  # fmt: skip


def test_a_chart_by_agent_shows_each_view_and_who_hands_on(compared):
    chart = ck.plots.views(compared)
    panels = {p.title: p for p in chart.drawing.panels}
    assert list(panels) == ["Planner", "Developer", "Tester", "Reviewer"]
    lines = {t.name: t for t in panels["Tester"].traces}
    assert lines["shared"].y[-1] == tokens(compared, "Tester", "shared")
    assert lines["recorded"].x[0] == 0, "the first turn is 0"
    assert lines["recorded"].y[:3] == [0, 0, 0] != lines["recorded"].y[1:4]
    assert lines["handoff"].x == [3]
    assert "<svg" in chart.to_html()
    assert "of recorded" in chart.to_text()
    assert len(chart.to_plotly()["data"]) == len(chart.drawing.traces)


def test_a_chart_of_something_else_is_a_sentence(team):
    with pytest.raises(BadArguments, match=r"takes what ck\.compare"):
        ck.plots.views(team.session)


def test_names_of_agents_and_views_are_escaped():
    evil = "<img src=x onerror=alert(1)>"
    session = Session(id="s", title=evil, log=(says(evil, "I look.", 1), says("B", "Good.", 2)))
    found = ck.compare(session, {evil: {"TextOnly": True}})
    chart = ck.plots.views(found)
    for page in (found._repr_html_(), chart.to_html(), chart.page()):
        assert "<img" not in page
    assert "\x1b" not in found.to_text()


def test_the_budget_of_a_team_has_its_thresholds_and_hand_offs(team):
    chart = ck.plots.budget(team.session)
    names = [t.name for t in chart.drawing.traces]
    assert names == ["Planner", "Developer", "Tester", "Reviewer", "handoff to"]
    assert chart.drawing.traces[-1].names == ("Developer", "Tester", "Reviewer")
    assert [limit.y for limit in chart.drawing.limits] == [20_000]
    rows = ck.read_snapshots(team.workspace.snapshots(team.id))
    sums = rows.groupby("agent")["cumulative_input_tokens"].max()
    assert {t.name: t.y[-1] for t in chart.drawing.traces[:-1]} == sums.to_dict()


def test_a_team_that_was_written_down_is_compared_alike(team, compared, tmp_path):
    ck.write(team.session, tmp_path / "team.jsonl")
    again = ck.compare(tmp_path / "team.jsonl", {"text": {"TextOnly": True}})
    for agent in ("Developer", "Tester", "Reviewer"):
        assert tokens(again, agent, "text") == tokens(compared, agent, "text")
    assert "text" in again.to_text()
    assert "&lt;" not in again._repr_html_()


def test_what_a_view_hides_and_an_agent_names_later_is_lost(tmp_path):
    path = "deep/in/the/tree/numerals.py"
    call = ToolCall("c", "write_file", {"path": path, "content": "x = 1"})
    silent = Message(role="assistant", parts=(call,), stop="tool")
    parts = {
        "A": [[silent, "It is written."], ["Go on."]],
        "B": [["I begin."], [("read_file", {"path": path}), "I read it."]],
    }
    plan = config(["A", "B"], Termination={"MaxIterations": 4})
    with made(tmp_path, parts, plan) as team:
        team.run("Work.")
        found = ck.compare(team, {"text": {"TextOnly": True}, "fresh": {"Isolation": "Fresh"}})
    of = found[found["agent"] == "B"].set_index("view")["needed_lost_n"]
    assert of["shared"] == 0
    assert of["text"] >= 1
    assert of["fresh"] >= 1


def test_each_turn_sees_the_files_and_hears_the_others_as_its_view_has_them_by_then(tmp_path):
    """A writes 500 words and B speaks; then A puts one word in their place and B speaks again."""
    long = "word " * 500
    wrote = ("write_file", {"path": "a.txt", "content": long})
    patched = ("patch_file", {"path": "a.txt", "old": long, "new": "short"})
    parts = {"A": [[wrote, "Written."], [patched, "Go on."]], "B": [["I begin."], ["I end."]]}
    views = {"file": {"Context": [{"Source": "file:a.txt"}]},
             "none": {"Context": [{"Source": "file:other.txt"}]},
             "fork": {"Isolation": "Fork"}, "fresh": {"Isolation": "Fresh"}}  # fmt: skip
    with made(tmp_path, parts, config(["A", "B"], Termination={"MaxIterations": 4})) as team:
        team.run("Work.")
        turns = ck.compare(team, views).turns
    tokens = turns.pivot_table(index="view", columns="turn", values="turn_input_tokens")
    block = tokens.loc["file"] - tokens.loc["none"]
    assert block[0] == 0, "a turn sees what earlier turns wrote"
    assert 500 <= block[1] < 530
    assert 0 < block[3] < 30
    # a fork hears what was said before its own first reply, and nothing that comes later
    shared, fork, fresh = (tokens.loc[view] for view in ("shared", "fork", "fresh"))
    assert fork[1] == shared[1] > fresh[1]
    assert fresh[3] < fork[3] < shared[3]
    assert fork[3] - fork[1] == fresh[3] - fresh[1]


def test_a_recorded_summary_is_billed_as_asked_and_loss_can_be_left_out():
    """Calls: 11,010 tokens of prompts at $3 and 20 of replies at $15 per million."""
    asked, model = user("word " * 9000, time=0.0), "claude-sonnet-4-5"
    first, second = (assistant(time=float(t), usage=usage(n)) for t, n in ((1, 10_000), (2, 1_010)))
    child = session(asked, first, summarised([asked], time=1.5), second, model=model, id="child")
    caller = assistant(time=1.0, usage=usage(100))
    whole = session(user("Go on."), caller, model=model, id="whole", children=(child,))
    for reuse in (False, True):
        found = ck.compare(whole, {"text": {"TextOnly": True}}, loss=False, reuse=reuse)
        costs = found.set_index(["agent", "view"])["cost_usd"]
        summary = ck.score(child, loss=False, reuse=reuse)["summaries_usd"]
        assert costs["main child", "recorded"] == pytest.approx(0.03333 + summary)
        assert found["needed_lost_n"].isna().all()


def says(agent, text, n, *calls):
    parts = (Text(text), *calls)
    return Message(role="assistant", id=f"a{n}", parts=parts, agent=agent, time=float(n))


def test_one_log_of_several_agents_has_a_log_for_each():
    call = ToolCall("c", "read_file", {"path": "a.py"})
    result = Message(role="tool", id="r1", parts=(Text("x" * 400),), call_id="c", tool="read_file",
                     agent="A", time=2.0)  # fmt: skip
    task = Message(role="user", id="u0", parts=(Text("Work."),), time=0.0)
    log = (
        task,
        says("A", "I look.", 1, call),
        result,
        says("A", "Seen.", 3),
        says("B", "Good.", 4),
    )
    session = Session(id="s", log=log)
    found = {log.agent: log.shared.messages for log in get_agent_logs(session)}
    assert [m.kind or m.role for m in found["A"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "heard",
    ]
    assert [m.kind or m.role for m in found["B"]] == [
        "user",
        "heard",
        "frame",
        "heard",
        "assistant",
    ]
    assert "x" * 400 in found["B"][2].text
    assert [(t.agent, t.calls) for t in get_team_turns(session)] == [("A", (0, 1)), ("B", (0,))]
    compared = ck.compare(session, {"text": {"TextOnly": True}})
    assert tokens(compared, "B", "text") < tokens(compared, "B", "shared")


def test_names_in_a_table_of_views_are_cut():
    session = Session(id="s", log=(says("a" * 99, "I look.", 1), says("B", "Good.", 2)))
    found = ck.compare(session, {"v" * 99: {"TextOnly": True}, "w" * 30: {"Isolation": "Fresh"}})
    assert list(found["view"].unique()) == ["recorded", "shared", "v" * 59 + "…", "w" * 30]
    text, page = found.to_text(), found._repr_html_()
    assert f">{'a' * 29}…<" in page
    assert f">{'v' * 39}…<" in page
    assert "recorded" in text
    with pytest.raises(BadArguments, match=f"^View '{'v' * 59}…' has a key '{'k' * 39}…'; there"):
        ck.compare(session, {"v" * 99: {"k" * 99: True}})


def test_one_agent_alone_has_no_views():
    session = Session(id="s", log=(says("A", "Alone.", 1),))
    with pytest.raises(BadArguments, match="only one speaks here"):
        ck.compare(session, "views")


@pytest.mark.parametrize(("views", "words"), [
    ({"x": {"TextOnyl": True}}, "Did you mean 'TextOnly'"),
    ({"x": {"TextOnly": "yes"}}, "true or false"),
    ({"x": {"Isolation": "Sealed"}}, "Shared, Fresh or Fork"),
    ({"x": {"Context": [{"Source": "fiel:a"}]}}, "Did you mean 'file'"),
    ({"x": 3}, "needs keys and values"),
    ({}, "Give views"),
])  # fmt: skip
def test_a_view_that_cannot_be_is_a_sentence(team, views, words):
    with pytest.raises(BadArguments, match=words):
        ck.compare(team, views)


def test_a_real_session_with_subagents(real):
    """Recorded subagents of Claude Code hear nobody: the fresh view is billed as the record was."""
    folder = real / "claude-code" / "session-share"
    session = ck.read(folder / "0ccf1a04-1b4c-43b6-8aa5-79e41db43a68.jsonl")
    found = ck.compare(session, {"text": {"TextOnly": True}, "fresh": {"Isolation": "Fresh"}})
    names = [a for a in found["agent"].unique() if a not in ("main", "all agents")]
    assert len(names) == 5
    for name in names:
        assert tokens(found, name, "fresh") == tokens(found, name, "recorded")
        shared = tokens(found, name, "shared")
        assert tokens(found, name, "fresh") < tokens(found, name, "text") < shared
    rows = found[found["agent"] == "all agents"].set_index("view")
    assert rows.loc["text", "token_share"] == pytest.approx(0.80, abs=0.005)
    assert rows.loc["fresh", "cost_usd"] < rows.loc["shared", "cost_usd"]
