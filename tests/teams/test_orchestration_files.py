"""Files built as fuseraft's examples are: they run, obey their keys, and leave fuseraft's files."""

from __future__ import annotations

import json

import pytest
from teams.orchestration_files import BROWNFIELD, DEV, PIPELINE, RESEARCH
from teams.small_teams import clock, shown

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.teams import make_scripted_agent, parse_plan

VERIFY = "python -c 'print(1)' # test"
BRIEF = json.dumps({"files_to_change": ["one.py", "test_one.py"], "verify_command": VERIFY,
                    "goal": "one is 1" + " and stays so" * 9})  # fmt: skip
REPORT = json.dumps({"results": [{"criterion": "one", "status": "PASS", "command": VERIFY}]})


def write(path, content):
    return "write_file", {"path": path, "content": content}


def on(signal):
    return "handoff", {"route_keyword": signal}


DEV_PARTS = {
    "Planner": [[write("plans/brief.json", BRIEF), on("HANDOFF TO DEVELOPER"), "Planned."]],
    "Developer": [
        [write("one.py", "ONE = 1\n"), on("HANDOFF TO TESTER"), "I hope that it is done."],
        [write("test_one.py", "from one import ONE\nassert ONE == 1\n"), ("shell", {"command": VERIFY}),
         ("session_context_write", {"text": "one.py holds ONE."}), on("HANDOFF TO TESTER"), "Built."],
        [on("HANDOFF TO TESTER"), "Nothing was wrong."],
    ],
    "Tester": [
        [on("BUGS FOUND"), "I found something."],
        [write("plans/report.json", REPORT), on("HANDOFF TO REVIEWER"), "Tested."],
    ],
    "Reviewer": [[("read_file", {"path": "one.py"}), "Good.\n\nAPPROVED"]],
    "Auditor": [["INCONSISTENCY: one.py was said to be done before it was tested."]],
}  # fmt: skip


def opened(folder, text, parts, **more):
    path = folder / "orchestration.yaml"
    path.write_text(text)
    tick = clock()
    models = {name: make_scripted_agent(name, turns, tick) for name, turns in parts.items()}
    return ck.team(path, models=models, folder=folder, clock=tick, seed="7", **more)


@pytest.fixture(scope="module")
def dev(tmp_path_factory):
    tools = ("files", "shell")
    with opened(tmp_path_factory.mktemp("dev"), DEV, DEV_PARTS, tools=tools) as team:
        team.run("Write one, which is 1.")
        yield team


def test_a_state_machine_of_four_runs_to_its_end(dev):
    """F128, F131: A file of fuseraft's kind runs as a team, by its signals, contracts and limits."""
    assert dev.status.ended == "done"
    told = dev.moves[["agent", "kind"]].dropna().to_numpy().tolist()
    assert told == [
        ["Planner", "state_advanced"], ["Developer", "validation_fail"],
        ["Developer", "state_advanced"], ["Tester", "state_advanced"],
        ["Developer", "state_advanced"], ["Auditor", "agent_routed"], ["Tester", "state_advanced"],
        ["Reviewer", "state_advanced"],
    ]  # fmt: skip


def test_each_key_of_a_context_is_obeyed(dev):
    """F45, F46, F47, F48, F51: Summary, changes, a field, a file cut to its length, a label."""
    text = dict(shown(dev, "Tester"))["artifacts"]
    assert "## Session Context\none.py holds ONE." in text
    assert "## Recent Changes\n[Turn 0] Planner" in text
    assert f"## How to test\n{VERIFY}" in text
    assert f"## brief.json\n{BRIEF[:60]}\n[...{len(BRIEF) - 60} chars truncated" in text
    words = next(t for k, t in shown(dev, "Tester") if k == "assistant")
    assert words == "Now handoff: handoff"


def test_each_key_of_a_window_is_obeyed(dev):
    """F30: A window of four keys: text alone, without one agent, of the last replies and messages."""
    first = shown(dev, "Reviewer", 0)
    assert not [k for k, _ in first if k == "frame"]
    assert not [t for _, t in first if "[Planner]" in t]
    assert len([k for k, _ in first if k != "system"]) <= 6  # five, and the prompt
    assert [k for k, _ in shown(dev, "Reviewer", 1)][-1] == "tool"


def events(team):
    lines = team.workspace.events(team.id).read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_window_that_fills_up_is_told(dev):
    (told,) = [e for e in events(dev) if e["event_type"] == "context_cap_warning"]
    assert (told["agent"], told["payload"]["cap"], told["payload"]["threshold"]) == (
        "Reviewer",
        5,
        2,
    )
    assert told["payload"]["messages"] > 2


def test_what_is_not_obeyed_is_said(dev):
    """F131: Keys that are not known, or not obeyed here, are named."""
    said = "\n".join(dev.notes)
    for key in (
        "EvidenceStore",
        "ChangeTracking",
        "Checkpoint",
        "Events",
    ):
        assert key in said
    assert "not known" not in said


def test_its_checkpoint_events_and_snapshots_are_read_back(dev):
    """F130: The files of a run are fuseraft's, and its readers find the turns in them."""
    path = dev.workspace.state(dev.id) / "checkpoint.json"
    raw = json.loads(path.read_text())
    assert list(raw)[:4] == ["SessionId", "Task", "ConfigPath", "WorkingDirectory"]
    assert raw["StateMachineState"]["VisitedStates"][0] == "Planning"
    assert raw["StateMachineState"]["BackEdgeVisits"] == {
        "Testing > Building": 1,
        "Building > Testing": 1,
    }
    checkpoint = ck.read(path)
    assert (checkpoint.format, checkpoint.id, checkpoint.title) == (
        "fuseraft-checkpoint", dev.id, "Write one, which is 1.",
    )  # fmt: skip
    snapshots = ck.read(dev.workspace.snapshots(dev.id))
    log = ck.read(dev.workspace.events(dev.id))
    turns = dev.moves.dropna(subset="agent")
    assert checkpoint.details["complete"] is True
    assert [c.agent for c in checkpoint.calls] == turns["agent"].tolist()
    sent = [c.message.usage.input_tokens for c in checkpoint.calls]
    assert sent == [c.message.usage.input_tokens for c in snapshots.calls]
    assert sum(sent) == sum(
        c.message.usage.prompt_tokens for live in dev.sessions.values() for c in live.session.calls
    )
    assert set(log.agents) >= {"Planner", "Developer", "Tester", "Reviewer"}
    called = [t for m in checkpoint.messages for t in m.tool_calls]
    assert [c.name for c in called][:2] == ["write_file", "handoff"]
    assert ck.frame(snapshots, per="turn")["warn_at"].tolist() == [900] * len(sent)


def test_evidence_changes_brief_and_summary_lie_in_files(dev):
    """F129: What agents did is kept as evidence and changes; brief and summary are the team's."""
    state = dev.workspace.state(dev.sessions["Developer"].id)
    nodes = json.loads((state / "evidence.json").read_text())["Nodes"]
    assert {"FileWrite", "CommandRun"} <= {n["NodeType"] for n in nodes}
    changes = json.loads((state / "changes.json").read_text())["Entries"]
    assert [c["FilesWritten"] for c in changes] == [["one.py"], ["test_one.py"]]
    assert json.loads(dev.root.read("plans/brief.json").decode())["verify_command"] == VERIFY
    assert dev.root.read("context_summary.md") == b"one.py holds ONE."


def test_its_checkpoint_is_compared_by_its_texts_and_its_snapshots_are_not(dev):
    """A log that bills whole turns says nothing of single prompts: the views are estimated."""
    found = ck.compare(
        dev.workspace.state(dev.id) / "checkpoint.json", {"text": {"TextOnly": True}}
    )
    rows = found.set_index(["agent", "view"])
    billed = len(dev.sessions["Reviewer"].session.calls)
    assert billed > rows.loc[("Reviewer", "recorded"), "calls_n"] == 1  # a turn is one call
    assert rows.loc[("Reviewer", "text"), "prompt_tokens"] > 0
    assert rows.loc[("Reviewer", "text"), "token_share"] < 1
    assert set(found["source"].dropna()) == {"estimated"}
    with pytest.raises(BadArguments, match="holds no text"):
        ck.compare(dev.workspace.snapshots(dev.id), "views")


def test_an_agent_that_hears_nobody_gets_what_its_hand_off_brings(tmp_path):
    """F44, F48: A file is handed on to an agent that is shown nothing else of the others."""
    parts = {
        "Researcher": [[write("notes/raw.txt", "fact " * 40), "Found.\n\nHANDOFF TO WRITER"]],
        "Writer": [[write("report.md", "# Report"), "REPORT COMPLETE"]],
    }
    with opened(tmp_path, RESEARCH, parts) as team:
        assert team.run("Find facts.").ended == "done"
        kinds = [k for k, _ in shown(team, "Writer", 0)]
        assert "heard" not in kinds
        assert (
            "## Findings\n" + "fact " * 20 + "\n[...99 chars truncated"
            in dict(shown(team, "Writer", 0))["handoff"]
        )


def test_an_agent_that_may_call_no_tool_has_none(tmp_path):
    text = PIPELINE.replace("Isolation: Shared, Plugins", "FunctionChoice: none, Plugins")
    with opened(tmp_path, text, {"Extractor": [], "Transformer": []}) as team:
        assert "read_file" not in team.sessions["Extractor"].agent.tools
        assert not any("FunctionChoice" in n for n in team.notes)


def test_a_line_of_two_ends_by_its_words(tmp_path):
    parts = {"Extractor": [["Two records."]], "Transformer": [["Done.\nPIPELINE_COMPLETE"]]}
    with opened(tmp_path, PIPELINE, parts) as team:
        assert team.run("Move it.").why == "Transformer said PIPELINE_COMPLETE"
        assert not any("Security" in n or "Capabilities" in n for n in team.notes)


def test_tests_must_have_run_after_the_last_change(tmp_path):
    parts = {
        "scout": [],
        "Surveyor": [["RECON COMPLETE"]],
        "Builder": [
            ["BUILT"],
            [("shell", {"command": "echo all tests"}), "BUILT"],
            [write("a.txt", "a"), ("shell", {"command": "echo all tests && false"}), "BUILT"],
            [("shell", {"command": "echo all tests"}), "BUILT"],
        ],
    }
    with opened(tmp_path, BROWNFIELD, parts, tools=("files", "shell")) as team:
        assert (team.run("Build.").ended, team.status.turns) == ("done", 5)
        why = team.moves["message"].dropna().tolist()
        assert "the tests were not run after the last change: echo all tests" in why[0]
        assert why[1] == "Built: there is no file a.txt"
        assert why[2] == "Built: the last run of the tests failed"
        said = "\n".join(team.notes)
        assert "Agents.Surveyor.KnowledgeWeight" in said
        assert "SubAgent" not in said


SLIPS = [
    ("NoFailures: true", "NoFailure: true", "Requirement 2 of contract Tested has a key 'NoFailure'"),
    ("MaxRevisits: 2", "MaxRevisit: 2", "Transition 2 of state Testing has a key 'MaxRevisit'"),
    ("Terminal: true", "Terminl: true", "State Done has a key 'Terminl'"),
    ("MaxChars: 2000", "MaxChar: 2000", "A source in the Context of Tester has a key 'MaxChar'"),
    ("MaxTurnAge: 6", "MaxTurnAg: 6", "Agents.Reviewer.ContextWindow.MaxTurnAg"),
    ("WarnAt: 900", "WarnsAt: 900", "ContextBudget.WarnsAt"),
    ("Initial: Planning", "Initial: Planning\n      Begin: x", "Selection.StateMachine has a key 'Begin'"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "said"), SLIPS)
def test_a_misspelt_key_is_said(right, wrong, said):
    """F131: Each key that nobody knows is named, with the nearest one that is known."""
    from yaml import safe_load

    assert right in DEV
    notes = parse_plan(safe_load(DEV.replace(right, wrong, 1))).notes
    found = [n for n in notes if n.startswith(said)]
    assert len(found) == 1
    assert "not known, and not obeyed" in found[0]


def test_a_share_is_a_number_from_0_to_1():
    from yaml import safe_load

    with pytest.raises(BadArguments, match="ContextCapFraction must be a number between 0 and 1"):
        parse_plan(safe_load(DEV.replace("ContextCapFraction: 0.4", "ContextCapFraction: 4")))


HOMES = """
Orchestration:
  Validation: {BriefPath: "~/.fuseraft/sessions/{project_slug}/{session_id}/brief.json"}
  Contracts:
    - {Name: Planned, Requires: [
        {Type: FileExists, Path: "~/.fuseraft/sessions/{project_slug}/{session_id}/brief.json"}]}
  Agents:
    - Name: Planner
      Instructions: Write ~/.fuseraft/sessions/{project_slug}/{session_id}/brief.json, {session_id}.
      Plugins: [FileSystem, Git]
      Capabilities: {FileSystem: [read, write], Git: [read]}
      FunctionChoice: required
      Model: {ModelId: fast, Temperature: 0.3}
  WarnTurnTokens: 10
  Selection:
    Type: graph
    Graph:
      MaxRetries: 2
      Nodes: [{Id: plan, Agent: Planner}, {Id: done, Agent: Planner, Terminal: true}]
      Edges: [{From: plan, To: done, Keyword: PLANNED, Contract: Planned, SourceAgents: [Planner]}]
"""
"""Paths as newer programs write them: in a folder of the session, in the user's home."""


def test_paths_of_a_session_in_the_home_lie_in_the_teams_folder(tmp_path):
    """F131: Real files name them so; what no agent may write is said before it is tried."""
    brief = ".fuseraft/sessions/brief.json"
    parts = {"Planner": [[write(brief, BRIEF), "PLANNED"], ["Over."]]}
    with opened(tmp_path, HOMES, parts, allow=(".fuseraft",)) as team:
        assert team.run("Plan.").why == "the end is reached"
        assert team.root.read(brief).decode() == BRIEF
        told = shown(team, "Planner", 0)[0][1]
        assert told == f"Write {brief}, {{session_id}}."  # a path, and nothing else
        warned = [e for e in events(team) if e["event_type"] == "context_warning"]
        assert warned[0]["payload"]["budget"] == 10
        said = "\n".join(team.notes)
        assert "Capabilities" not in said
        assert said.startswith(
            "Not obeyed here, the weightiest first: Plugins Git (there is no tool"
        )
        assert "; FunctionChoice required of Planner (a model is free to call a tool); " in said
        assert "; Model.Temperature (model= and models= name models" in said
        assert "allow=" not in said
    parts = {"Planner": [["PLANNED"]] * 3}
    with opened(tmp_path, HOMES, parts, name="barred") as team:
        assert f"Its contracts ask for {brief}, which agents may not write" in team.notes[-1]
        assert team.run("Plan.").why.startswith("plan > done: the contract failed 2 times")
