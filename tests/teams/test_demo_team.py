"""The scripted team: it really writes and tests a program, hands off, fails a contract once and recovers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from teams.small_teams import shown

import ctxkit as ck
from ctxkit.teams import DEMO_TASK
from ctxkit.tokens import default_counter, estimate_schema_tokens


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    with ck.team("scripted", folder=tmp_path_factory.mktemp("team")) as team:
        team.run(DEMO_TASK)
        yield team


def test_it_ends_with_a_program_that_works(team):
    """F128: A state machine of signals, transitions and contracts leads a team to its end."""
    assert (team.status.ended, team.status.state, team.status.turns) == ("done", "Done", 5)
    code = "from roman import roman; print(roman(4), roman(1994))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=team.root.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["IV", "MCMXCIV"]


def test_a_contract_fails_once_and_the_same_agent_recovers(team):
    kinds = team.moves[["agent", "kind"]].dropna().to_numpy().tolist()
    assert kinds == [
        ["Planner", "state_advanced"], ["Developer", "validation_fail"], ["Developer", "state_advanced"],
        ["Tester", "state_advanced"], ["Reviewer", "state_advanced"],
    ]  # fmt: skip
    told = [text for kind, text in shown(team, "Developer") if kind == "correction"]
    assert len(told) == 1
    assert told[0].startswith("MISSING ARTIFACT")
    assert "no command like" in told[0]
    failed = [
        m
        for m in team.sessions["Developer"].session.messages
        if m.role == "tool" and "FAIL" in m.text
    ]
    assert failed  # the tests really ran, and found the wrong numeral


def test_a_hand_off_says_what_its_sources_hold(team):
    """F44, F45, F46, F47: A block of the summary, the last changes and a field of the brief is handed on."""
    (text,) = [text for kind, text in shown(team, "Reviewer") if kind == "handoff"]
    assert text.startswith(
        "[HANDOFF CONTEXT — assembled for Tester]\n\n## Session Context\nroman.py and"
    )
    assert "## Recent Changes\n[Turn 1] Developer (" in text
    assert "    - roman.py" in text
    assert "- python" in text
    assert "[FAILED]" in text
    assert "[OK]" in text
    assert "## Task: test_targets\nnumbers with 4 and 9; both bounds" in text


def test_the_changes_of_a_hand_off_are_those_of_the_file(team):
    """F46: It names the files and commands of `changes.json`, in its order, and how they ended."""
    (text,) = [text for kind, text in shown(team, "Reviewer") if kind == "handoff"]
    block = text.split("## Recent Changes\n")[1].split("\n\n## ")[0]
    path = team.workspace.state(team.sessions["Developer"].id) / "changes.json"
    rows = []
    for entry in json.loads(path.read_text())["Entries"]:
        rows += entry["FilesWritten"]
        rows += [f"{run['Command']} [{'OK' if run['succeeded'] else 'FAILED'}]"
                 for run in entry["CommandsRun"]]  # fmt: skip
    assert len(rows) == 5
    assert [line[6:] for line in block.splitlines() if line.startswith("    - ")] == rows


def test_a_declared_context_shows_nothing_of_the_others(team):
    """F50, F53, F54, F126: A Tester that is shown artifacts and its own turns sees nothing that others said."""
    first = shown(team, "Tester", 0)
    kinds = [kind for kind, _ in first]
    assert kinds == ["system", "task", "artifacts", "user"]
    assert "[AGENT CONTEXT — assembled from artifacts]" in first[2][1]


def test_each_session_is_a_child_with_an_account(team):
    """F2: Each agent has its own model, tools and rules, and its own account."""
    account = team.account.set_index("agents")
    assert len(account) == 4
    assert (account["parent"] == team.id).all()
    whole = team.session
    assert [c.agent for c in whole.children] == ["Planner", "Developer", "Tester", "Reviewer"]
    assert not whole.calls  # no call is counted twice
    assert int(account["calls_n"].sum()) == 17
    assert {t.name for t in team.sessions["Planner"].session.tools} >= {"write_file"}
    assert "shell" not in {t.name for t in team.sessions["Planner"].session.tools}


def test_live_log_and_replay_agree_to_the_token(team):
    for live in team.sessions.values():
        session = live.session
        kept = ck.read(live.log.path)
        sizes = [default_counter().message(m) for m in session.messages]
        fixed = estimate_schema_tokens(t.schema for t in live.agent.tools.values())
        again = ck.replay(kept, live.agent.rules, tokens=sizes, fixed=fixed)
        prompts = [[c.message.usage.prompt_tokens for c in s.calls] for s in (session, kept, again)]
        assert prompts[0] == prompts[1] == prompts[2]
        for call in range(len(session.calls)):
            assert [i.message.parts for i in session.sent(call)] == [
                i.message.parts for i in again.sent(call)
            ]


def test_the_snapshots_have_a_line_for_each_turn_of_each_agent(team):
    rows = ck.read_snapshots(team.workspace.snapshots(team.id))
    assert rows["agent"].tolist() == ["Planner", "Developer", "Developer", "Tester", "Reviewer"]
    assert rows["turn"].tolist() == [0, 1, 2, 3, 4]
    for name, live in team.sessions.items():
        sent = sum(c.message.usage.prompt_tokens for c in live.session.calls)
        assert rows[rows["agent"] == name]["cumulative_input_tokens"].iloc[-1] == sent
    assert set(rows["warn_at"]) == {20_000}


def test_the_events_have_fuserafts_names(team):
    """F130: A team's events are told under fuseraft's names."""
    lines = [json.loads(x) for x in team.workspace.events(team.id).read_text().splitlines()]
    told = [e["event_type"] for e in lines]
    assert [
        told.count(k) for k in ("agent_start", "turn_end", "state_advanced", "validation_fail")
    ] == [5, 5, 4, 1]
    (assembled,) = [e for e in lines if e["event_type"] == "context_assembly"]
    assert assembled["agent"] == "Tester"
    assert assembled["payload"]["empty_sources"] == []
