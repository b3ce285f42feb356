"""What stands for old turns of a team's agent: the state, the contracts, and what was done."""

from __future__ import annotations

import json
import re

import pytest
from teams.small_teams import DONE, config, made, state, to

import ctxkit as ck

CONTRACTS = [
    {"Name": "Written", "Requires": [{"Type": "FileExists", "Path": "a.txt"}]},
    {"Name": "Tested", "Requires": [{"Type": "CommandSucceeded", "Pattern": "check"}]},
]
STATES = {
    "Building": state("A", to("Review", "ON", Contracts=["Written", "Tested"])),
    "Review": state("B", to("Building", "BACK"), to("End", "DONE")),
    "End": DONE,
}
PARTS = {
    "A": [
        [("write_file", {"path": "a.txt", "content": "a" * 4_000}), "I say that it is done.\nON"],
        [("shell", {"command": "echo check && false"}), "It is checked, I say.\nON"],
        [("shell", {"command": "echo check"}), ("read_file", {"path": "a.txt"}), "Now.\nON"],
        [("read_file", {"path": "a.txt"}), "Again.\nON"],
    ],
    "B": [["No.\nBACK"], ["Yes.\nDONE"]],
}


@pytest.fixture(scope="module", params=["lossless", "hybrid"])
def team(request, tmp_path_factory):
    compaction = {"TriggerTurnCount": 3, "KeepRecentTurns": 1, "Mode": request.param}
    plan = config([{"Name": "A", "Plugins": ["FileSystem", "Shell"]}, "B"], STATES,
                  Contracts=CONTRACTS, Compaction=compaction)  # fmt: skip
    folder = tmp_path_factory.mktemp(request.param)
    with made(folder, PARTS, plan, tools=("files", "shell")) as team:
        team.run("Build a.")
        yield team


def summaries(session):
    return [m.text for i in range(len(session.calls)) for m in
            (x.message for x in session.sent(i)) if m.role == "summary"]  # fmt: skip


def test_it_says_where_the_machine_stands_and_which_contracts_hold(team):
    """F62, F121: State, contracts and evidence stand for old turns, as of the turn under way."""
    said = summaries(team.sessions["A"].session)
    first, last = said[0], said[-1]
    assert "STATE MACHINE POSITION" in first
    assert "  State: Building (agent: A)" in first
    assert "  Signals out of it: ON → Review" in first
    assert re.search(r"^  Failed Building > Review: [12] in a row$", first, re.MULTILINE)
    assert "  ✓ Written\n  ✗ Tested\n    Reason: " in first
    assert "  Entered so far: Building, Review" in last
    assert "CONTRACT STATUS\n  ✓ Written\n  ✓ Tested" in last


def test_it_goes_by_what_was_done_and_not_by_what_was_said(team):
    """F67: What is listed is what the files of the work hold; what an agent claims is not."""
    text = summaries(team.sessions["A"].session)[-1].split("\n---\n")[0]
    assert "I say" not in text
    files = team.workspace.state(team.sessions["A"].id)
    nodes = json.loads((files / "evidence.json").read_text())["Nodes"]
    for node in nodes:
        if node["NodeType"] == "FileWrite":
            assert f"FILES WRITTEN\n  {node['Path']}" in text
        if node["NodeType"] == "CommandRun":
            mark = "✗" if node.get("ExitCode") else "✓"
            assert f"{mark} shell {node['Command']}" in text
    assert {n["NodeType"] for n in nodes} >= {"FileWrite", "CommandRun"}


def test_a_replay_of_the_log_says_the_same(team):
    """Live, log and replay hold the same words, as the standing is kept with the prompt."""
    live = team.sessions["A"]
    read = ck.read(live.log.path)
    assert summaries(read) == summaries(live.session)
    again = ck.replay(read, live.agent.rules)
    assert [s for s in dict.fromkeys(summaries(again)) if "CONTRACT STATUS" in s]


def test_a_session_of_no_team_says_nothing_of_a_state():
    from builders import assistant, user

    from ctxkit.session import Session

    talk = [m for n in range(6) for m in (user(f"ask {n} " * 50), assistant(f"say {n} " * 50))]
    rules = ck.presets.fuseraft(mode="lossless", trigger_turn_count=3, keep_recent_turns=1)
    (text,) = set(summaries(ck.replay(Session(id="s", log=tuple(talk)), rules))[-1:])
    assert "STATE" not in text


def test_what_a_log_says_of_a_standing_is_bounded_data():
    from ctxkit.policies import tool_evidence_summaries as evidence

    odd = {"state": "x" * 9_000 + "\n## Signals", "entered": list(range(9_000)), "contracts": [
        7, {"name": ["a"], "why": {"b": "c" * 9_000}}], "signals": "no list", "failures": None}  # fmt: skip
    text = "\n".join(evidence.format_team_state_sections(odd))
    assert len(text) < 3_000
    assert "\n## " not in text
    assert evidence.format_team_state_sections({"state": None}) == []


def summed_by(folder, names, **more):
    """A team that compacts with a model's words: who was asked for what."""
    from stand_in_models import Says, said

    cheap = Says(*(said("THE MODEL'S NOTES") for _ in range(9)))
    others = {n: Says(*(said(f"{n} says {i}. " + "word " * 40) for i in range(12))) for n in "AB"}
    keys = {"TriggerTurnCount": 3, "KeepRecentTurns": 1, "Mode": "llm", "Model": names}
    plan = config(["A", "B"], Compaction=keys, Termination={"MaxIterations": 16})
    with ck.team(plan, models={"cheap": cheap, **others, **more}, folder=folder) as team:
        team.run("Talk.")
        return cheap, others, team.sessions["A"].session, team.notes


@pytest.mark.parametrize("names", ["cheap", {"ModelId": "cheap", "MaxTokens": 900}])
def test_the_model_that_the_config_names_writes_the_summaries(tmp_path, names):
    """F69: `Compaction.Model` is asked for summaries, and for nothing else; the others never are."""
    cheap, others, session, notes = summed_by(tmp_path, names)
    assert len(cheap.asked) >= 2
    asked = ["".join(p.text for m in r.messages for p in m.parts) for r in cheap.asked]
    assert all(("working notes" in words and "A says 0." in words) or "B says 0." in words
               or "THE MODEL'S NOTES" in words for words in asked)  # fmt: skip
    assert not any("working notes" in m.text for model in others.values()
                   for r in model.asked for m in r.messages)  # fmt: skip
    assert any("THE MODEL'S NOTES" in text for text in summaries(session))
    assert all(e.usage is not None and e.usage.output_tokens == 1 for e in session.edits)
    assert not any("Compaction.Model" in n for n in notes)


def test_without_a_name_the_first_agents_model_writes_the_summaries(tmp_path):
    """F69: Of all agents' summaries; the second agent's model is asked for its own turns alone."""
    cheap, others, _, _ = summed_by(tmp_path, None)
    notes = {
        name: ["".join(p.text for m in r.messages for p in m.parts) for r in model.asked
               if any("working notes" in m.text for m in r.messages)]
        for name, model in others.items()
    }  # fmt: skip
    assert cheap.asked == notes["B"] == []
    assert any("B says 0." in words for words in notes["A"])
    assert len(notes["A"]) >= 2


def test_a_summary_model_that_is_not_known_is_a_sentence(tmp_path):
    words = "Compaction.Model asks for model 'dear', which is not known"
    with pytest.raises(ck.BadArguments, match=words):
        summed_by(tmp_path, "dear")


@pytest.mark.parametrize("mode", ["lossless", "hybrid"])
def test_a_contract_never_contradicts_the_files_beside_it(tmp_path, mode):
    """F62, F67: A compaction within the turn that writes the file and runs the command finds both."""
    compaction = {"TriggerTurnCount": 4, "KeepRecentTurns": 1, "Mode": mode}
    plan = config([{"Name": "A", "Plugins": ["FileSystem", "Shell"]}, "B"], STATES,
                  Contracts=CONTRACTS, Compaction=compaction)  # fmt: skip
    script = [
        ("write_file", {"path": "a.txt", "content": "a" * 4_000}),
        ("read_file", {"path": "a.txt"}),
        ("shell", {"command": "echo check"}),
        *[("read_file", {"path": "a.txt"})] * 3,
        "Done.\nON",
    ]
    parts = {"A": [script], "B": [["Yes.\nDONE"]]}
    with made(tmp_path, parts, plan, tools=("files", "shell")) as team:
        team.run("Build a.")
        session = team.sessions["A"].session
        assert len({m.turn for m in session.messages}) == 1
        told = list(dict.fromkeys(t for t in summaries(session) if "CONTRACT STATUS" in t))
        assert told
        for text in told:
            block = text.split("CONTRACT STATUS")[1].split("\n\n")[0]
            assert ("✓ Written" in block) is ("FILES WRITTEN\n  a.txt" in text)
            assert ("✓ Tested" in block) is ("✓ shell echo check" in text)
        assert "✓ Tested" in told[-1]
        assert summaries(ck.read(team.sessions["A"].log.path)) == summaries(session)
