"""A team that was kept is read from its ledger's file, with its agents' sessions beside it."""

from __future__ import annotations

import shutil

import pandas as pd
import pytest
from teams.small_teams import config, made

import ctxkit as ck
from ctxkit.teams import DEMO_TASK


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    with ck.team("scripted", folder=folder) as team:
        team.run(DEMO_TASK)
        live = ck.compare(team, "views")
        return folder / ".ctxkit/sessions", team.session, live


def test_its_views_are_compared_as_those_of_the_team_itself(kept):
    place, _, live = kept
    found = ck.compare(place / "team.jsonl", "views")
    pd.testing.assert_frame_equal(pd.DataFrame(found), pd.DataFrame(live))
    assert found.limits == live.limits
    read = ck.compare(ck.read(place / "team.jsonl"), "views")
    pd.testing.assert_frame_equal(pd.DataFrame(read), pd.DataFrame(live))


def test_its_agents_are_its_children_in_the_order_of_the_config(kept):
    place, session, _ = kept
    read = ck.read(place / "team.jsonl")
    assert [c.agent for c in read.children] == ["Planner", "Developer", "Tester", "Reviewer"]
    assert [c.id for c in read.children] == [c.id for c in session.children]
    assert ck.plots.budget(read).to_text() == ck.plots.budget(session).to_text()


def test_a_folder_of_it_is_one_session_and_none_is_counted_twice(kept):
    place, *_ = kept
    found = ck.read_all(place)
    assert [len(s.children) for s in found] == [4]
    assert found.failures == []


def test_what_lies_beside_and_is_none_of_its_agents_is_left_alone(kept, tmp_path):
    place, *_ = kept
    own = tmp_path / "own"
    shutil.copytree(place, own)
    (own / "team.Tester.jsonl").rename(tmp_path / "elsewhere.jsonl")
    (own / "team.Tester.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    (own / "team.Broken.jsonl").write_text(
        '{"type": "custom", "customType": "ctxkit.session", "data": 7}\n'
    )
    with made(
        tmp_path / "two", {"A": [["Hi."]]}, config(["A"], Termination={"MaxIterations": 1})
    ) as two:
        two.run("Talk.")
        shutil.copy(two.sessions["A"].log.path, own / "team.Stranger.jsonl")
    read = ck.read(own / "team.jsonl")
    assert [c.agent for c in read.children] == ["Planner", "Developer", "Reviewer"]
    assert any("team.Broken.jsonl" in f.why for f in read.faults)


def test_an_agent_that_is_asked_comes_with_the_one_that_asks(tmp_path):
    from teams.test_sub_agents import PARTS, PLAN

    with made(tmp_path, PARTS, PLAN) as team:
        team.run("Find the table.")
        read = ck.read(team.ledger.log.path)
    assert [[c.agent for c in child.children] for child in read.children] == [["A.sub"], []]
    (one,) = ck.read_all(tmp_path / ".ctxkit/sessions")
    assert one.id == team.id
