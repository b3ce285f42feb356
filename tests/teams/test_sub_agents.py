"""An agent as another's tool: its session is a child, its tokens are in the account."""

from __future__ import annotations

import asyncio
import json

import pytest
from teams.small_teams import config, made, shown

import ctxkit as ck
from ctxkit.teams import make_scripted_agent

ASKS = ("sub_agent_explore", {"query": "Where is the table?"})
PLAN = config(
    [{"Name": "A", "Plugins": ["FileSystem", "SubAgent"], "SubAgentModel": "scout",
      "SubAgentMaxToolCalls": 3, "SubAgentPlugins": ["Search"]}, "B"],
    Termination={"MaxIterations": 4},
)  # fmt: skip
PARTS = {
    "A": [[ASKS, "It is in a.txt."], [("sub_agent_locate", {"query": "And the chair?"}), "There."]],
    "B": [["Fine."]] * 2,
    "scout": [[("list_files", {}), "In a.txt, line 1."], ["In b.txt."]],
}


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    with made(tmp_path_factory.mktemp("sub"), PARTS, PLAN) as team:
        team.run("Find the table.")
        yield team


def test_its_answer_is_the_result_of_the_call(team):
    results = [t for k, t in shown(team, "A") if k == "tool"]
    assert results == ["In a.txt, line 1.", "In b.txt."]


def test_its_session_is_a_child_and_its_cost_is_in_the_account(team):
    sub = team.subs["A"].session
    (child,) = next(c for c in team.session.children if c.agent == "A").children
    assert (child.id, child.parent, child.agent) == (sub.id, team.sessions["A"].id, "A.sub")
    account = team.account.set_index("agents")
    assert account.loc["A.sub", "calls_n"] == 3
    assert account.loc["A.sub", "parent"] == team.sessions["A"].id
    total = int(account["prompt_tokens"].sum() + account["output_tokens"].sum())
    assert team.tokens == total
    own = sum(c.message.usage.prompt_tokens for c in sub.calls)
    assert account.loc["A.sub", "prompt_tokens"] == own


def test_each_question_begins_anew(team):
    sub = team.subs["A"].session
    assert [i.message.text for i in sub.sent(2) if i.message.role == "user"] == ["And the chair?"]
    assert len([m for m in sub.messages if m.role == "user"]) == 2


def test_nobody_hears_it_but_who_asks(team):
    assert not [t for k, t in shown(team, "B") if "list_files" in t and k != "frame"]
    assert any("In a.txt, line 1." in t for k, t in shown(team, "B") if k == "frame")


def test_it_is_told_under_fuserafts_names(team):
    lines = team.workspace.events(team.id).read_text().splitlines()
    told = [e for e in map(json.loads, lines) if e["event_type"].startswith("sub_agent")]
    assert [e["event_type"] for e in told] == ["sub_agent_start", "sub_agent_end"] * 2
    assert [(e["payload"].get("query"), e["payload"]["mode"]) for e in told] == [
        ("Where is the table?", "explore"),
        (None, "explore"),
        ("And the chair?", "locate"),
        (None, "locate"),
    ]
    assert told[1]["payload"]["summary_chars"] == len("In a.txt, line 1.")
    used = [c.message.usage.prompt_tokens for c in team.subs["A"].session.calls]
    assert told[1]["payload"]["input_tokens"] == sum(used[:2])


def test_it_has_no_more_than_its_plugins_and_no_shell(team):
    tools = team.subs["A"].agent.tools
    assert "list_files" in tools
    assert not {"shell", "sub_agent_explore", "handoff"} & set(tools)
    assert team.subs["A"].agent.limits.calls == 3


def test_one_that_does_not_end_is_stopped_and_says_so(tmp_path):
    parts = {**PARTS, "scout": [[("list_files", {})] * 9]}
    with made(tmp_path, parts, PLAN) as team:
        team.set_task("Find the table.")
        asyncio.run(team.step())
        result = next(t for k, t in shown(team, "A") if k == "tool")
        assert "3 calls" in result or "Now list_files" in result
        assert len(team.subs["A"].session.calls) == 3


def test_it_goes_on_in_another_process(tmp_path):
    with made(tmp_path, PARTS, PLAN) as team:
        team.set_task("Find the table.")
        asyncio.run(team.step())
        before = [m.id for m in team.subs["A"].session.messages]
    with made(tmp_path, PARTS, PLAN) as team:
        assert team.run().ended == "stopped"
        assert [m.id for m in team.subs["A"].session.messages][: len(before)] == before
        assert len(team.subs["A"].session.calls) == 3


def test_a_model_that_is_asked_for_must_be_known(tmp_path):
    parts = {k: v for k, v in PARTS.items() if k != "scout"}
    with pytest.raises(ck.BadArguments, match=r"A\.sub asks for model 'scout'"):
        made(tmp_path, parts, PLAN)


def test_its_model_is_that_of_its_agent_where_none_is_named(tmp_path):
    one = {k: v for k, v in PLAN["Agents"][0].items() if k != "SubAgentModel"}
    model = make_scripted_agent("one", [["Here."]] * 9, lambda: 1.0)
    plan = config([one], Selection={"Type": "sequential"})
    with ck.team(plan, model=model, folder=tmp_path) as team:
        assert team.subs["A"].agent.model is model


def test_its_tokens_stand_in_a_comparison_of_views(team):
    """It has a row of its own, which no view changes, and is in the sum of all agents."""
    found = ck.compare(team, {"text": {"TextOnly": True}}).set_index(["agent", "view"])
    own = sum(c.message.usage.prompt_tokens for c in team.subs["A"].session.calls)
    for view in ("recorded", "shared", "text"):
        assert found.loc[("A.sub", view), "prompt_tokens"] == own
        each = found.drop(index="all agents", level="agent").xs(view, level="view")
        for column in ("prompt_tokens", "calls_n", "reused_items_n"):
            total = found.loc[("all agents", view), column]
            assert view == "recorded" or total == each[column].sum()
    assert found.loc[("all agents", "recorded"), "prompt_tokens"] == sum(
        c.message.usage.prompt_tokens for live in team.lives for c in live.session.calls
    )
    again = ck.compare(team.ledger.log.path, {"text": {"TextOnly": True}})
    assert again.set_index(["agent", "view"])["prompt_tokens"].equals(found["prompt_tokens"])
