"""Who is next: by keywords, by JSON, by a graph, by a manager, and in branches."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from shutil import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from teams.small_teams import DONE, config, made, shown, state, to

import ctxkit as ck
from ctxkit.presets import load_config
from ctxkit.teams import JsonCondition, find_json_object, parse_plan
from ctxkit.teams.team_factory import load_referenced_files

CONFIGS = Path(__file__).parents[1] / "presets/configs"


def route(keyword, agent, *sources, **more):
    return {"Keyword": keyword, "Agent": agent, "SourceAgents": list(sources), **more}


def write(path):
    return "write_file", {"path": path, "content": "x"}


def went(team):
    return team.moves["agent"].dropna().tolist()


def last_request(team, agent):
    """The words with which an agent was given its last turn."""
    return [text for kind, text in shown(team, agent) if kind == "user"][-1]


KEYWORDS = {"Type": "keyword", "DefaultAgent": "B", "Routes": [
    route("GO ON", "C", "A", "B", Validator="RequireWriteFile"),
    route("AGAIN", "A", "C"), route("APPROVED", "C", "C")]}  # fmt: skip


def test_a_keyword_leads_to_its_agent_and_one_to_oneself_ends(tmp_path):
    """No keyword: the default agent is next. A validator holds a route back."""
    parts = {
        "A": [["I say\nGO ON"], [write("a.txt"), "Now\nGO ON"]],
        "B": [["Nothing to say."], ["Let A do it."], [write("b.txt"), "GO ON"]],
        "C": [["AGAIN"], ["**APPROVED**: it is good."]],
    }
    plan = config(["B", "A", "C"], Selection=KEYWORDS)
    with made(tmp_path, parts, plan) as team:
        assert team.run("Work.").ended == "done"
        assert went(team) == ["B", "B", "B", "C", "A", "A", "C"]
        failed = team.moves[team.moves["kind"] == "validation_fail"]
        assert failed["message"].tolist() == ["RequireWriteFile: no file was written in this turn"]
        assert team.status.why == "the end is reached"


def test_termination_ends_a_state_machine_too_but_not_behind_a_failed_contract(tmp_path):
    held = {"Name": "C", "Requires": [{"Type": "FileExists", "Path": "x.txt"}]}
    ways = (to("End", "APPROVED", Contract="C"),)
    plan = config(["A"], {"One": state("A", *ways), "End": DONE}, Contracts=[held],
                  Termination={"Type": "regex", "Pattern": "APPROVED|ENOUGH"})  # fmt: skip
    with made(tmp_path, {"A": [["APPROVED"], ["It is ENOUGH."]]}, plan) as team:
        assert team.run("Work.").why == "A said APPROVED|ENOUGH"
        assert team.status.turns == 2


def says(**fields):
    return [f"Here it is:\n```json\n{json.dumps(fields)}\n```"]


STRUCTURED = {"Type": "structured", "DefaultAgent": "Writer", "StructuredRoutes": [
    {"Agent": "Editor", "Condition": {"Field": "draft.text", "Exists": True}, "SourceAgents": ["Writer"]},
    {"Agent": "Writer", "Condition": {"Field": "verdict", "Is": "no"}, "SourceAgents": ["Editor"]},
    {"Agent": "Publisher", "Condition": {"Field": "verdict", "IsNot": "no"}, "SourceAgents": ["Editor"]},
]}  # fmt: skip


def test_a_field_of_the_reply_leads_to_the_next_agent(tmp_path):
    parts = {
        "Writer": [says(draft={"text": "a"}), says(other=1), says(draft={"text": "b"})],
        "Editor": [says(verdict="NO"), says(verdict="Yes")],
        "Publisher": [says(published=True)],
    }
    ends = {"Type": "structured", "Condition": {"Field": "published", "Is": "true"}}
    plan = config(["Writer", "Editor", "Publisher"], Selection=STRUCTURED, Termination=ends)
    with made(tmp_path, parts, plan) as team:
        assert team.run("Work.").ended == "done"
        assert went(team) == ["Writer", "Editor", "Writer", "Writer", "Editor", "Publisher"]
        told = [t for k, t in shown(team, "Writer") if k == "correction"]
        assert told == [
            "JSON block correct? End your reply with one JSON object that says draft.text."
        ]


def test_an_agent_that_never_says_json_comes_to_an_end(tmp_path):
    plan = config(["Writer", "Editor", "Publisher"], Selection=STRUCTURED)
    with made(
        tmp_path, {"Writer": [["{" * 50_000]] * 9, "Editor": [], "Publisher": []}, plan
    ) as team:
        assert team.run("Work.").ended == "stopped"
        assert team.status.turns == 3


@given(st.text(max_size=300))
def test_any_reply_holds_an_object_or_none(text):
    found = find_json_object(text)
    assert found is None or isinstance(found, dict)
    condition = JsonCondition(field="a.b", operator="Contains", value="x")
    assert condition.matches({"a": {"b": "xyz"}})
    assert not condition.matches(found or {"a": "x"})


def test_a_graph_has_a_state_for_each_node_and_its_last_agent_speaks(tmp_path):
    graph = {"EntryNode": "plan", "Nodes": [
        {"Id": "plan", "Agent": "A"}, {"Id": "work", "Agent": "B"}, {"Id": "last", "Agent": "A", "Terminal": True}],
        "Edges": [{"From": "plan", "To": "work"}, {"From": "work", "To": "plan", "Keyword": "REPLAN"},
                  {"From": "work", "To": "last", "Keyword": "DONE"}]}  # fmt: skip
    parts = {"A": [["Plan."], ["Again."], ["All is said."]], "B": [["REPLAN"], ["DONE"]]}
    plan = config(["A", "B"], Selection={"Type": "graph", "Graph": graph})
    with made(tmp_path, parts, plan) as team:
        assert team.run("Work.").ended == "done"
        assert went(team) == ["A", "B", "A", "B", "A"]


def leads(name, *, done=False, progress=True):
    return says(progress=progress, task_complete=done, next_agent=name, instruction="Do it.")


MAGENTIC = {"Type": "magentic", "Magentic": {"Model": "boss", "MaxRoundCount": 9,
                                            "MaxStallCount": 2, "MaxResetCount": 1}}  # fmt: skip


def test_a_manager_says_who_is_next_until_the_task_is_done(tmp_path):
    """It is an agent: its session is a child with an account, and what it says is heard."""
    parts = {"boss": [leads("B"), leads("A"), leads("A", done=True)],
             "A": [["Built."]], "B": [["Found."]]}  # fmt: skip
    with made(tmp_path, parts, config(["A", "B"], Selection=MAGENTIC)) as team:
        assert team.run("Work.").ended == "done"
        assert went(team) == ["Manager", "B", "Manager", "A", "Manager"]
        assert any("Do it." in t for k, t in shown(team, "A") if k == "heard")
        assert "- A: no description" in shown(team, "Manager")[0][1]
        assert team.account.set_index("agents").loc["Manager", "calls_n"] == 3
        assert set(ck.compare(team, {"t": {"TextOnly": True}})["agent"]) >= {"Manager", "A", "B"}


def test_a_manager_that_gets_nowhere_plans_anew_and_then_stops(tmp_path):
    parts = {"boss": [leads("A", progress=False)] * 20, "A": [["Hm."]] * 20, "B": []}
    with made(tmp_path, parts, config(["A", "B"], Selection=MAGENTIC)) as team:
        assert team.run("Work.").why == "no progress in 2 rounds, after 1 new plans"
        assert team.moves["kind"].tolist().count("magentic_replan") == 2
        assert any("STAGNATION" in t for k, t in shown(team, "Manager") if k == "correction")


def test_the_rounds_of_a_manager_are_counted(tmp_path):
    parts = {"boss": [leads("A")] * 20, "A": [["Hm."]] * 20, "B": []}
    with made(tmp_path, parts, config(["A", "B"], Selection=MAGENTIC)) as team:
        assert team.run("Work.").why == "the team has had its 19 turns"


BRANCHES = {
    "Plan": state("A", to("Join", "SPLIT", Parallel=True, Targets=["Back", "Front"])),
    "Back": {"Agent": "B"},
    "Front": {"Agent": "C"},
    "Join": state("A", to("End", "DONE"), to("Plan", "AGAIN")),
    "End": DONE,
}
BRANCHED = {
    "A": [["Two parts.\nSPLIT"], ["One more.\nAGAIN"], ["Again.\nSPLIT"], ["All fits.\nDONE"]],
    "B": [["The back.\nDONE"], ["The back, better."]],
    "C": [["The front."], ["The front, better."]],
}


def test_branches_do_not_hear_each_other_and_the_next_agent_hears_all(tmp_path):
    with made(tmp_path, BRANCHED, config(["A", "B", "C"], BRANCHES)) as team:
        assert team.run("Work.").ended == "done"
        assert went(team) == ["A", "B", "C", "A", "A", "B", "C", "A"]
        first = [t for k, t in shown(team, "C", 0) if k == "heard"]
        assert first == ["[A]\nTwo parts.\nSPLIT"]
        later = [t for k, t in shown(team, "C", 1) if k == "heard"]
        assert "[B]\nThe back.\nDONE" in later
        assert "[B]\nThe back, better." not in later
        joined = [t for k, t in shown(team, "A") if k == "heard"]
        assert joined[-2:] == ["[B]\nThe back, better.", "[C]\nThe front, better."]
        signals = next(t for k, t in shown(team, "C") if k == "user")
        assert "end your reply" not in signals
        found = ck.compare(team, {"t": {"TextOnly": True}}).set_index(["agent", "view"])
        assert (
            found.loc[("C", "shared"), "prompt_tokens"]
            == found.loc[("C", "recorded"), "prompt_tokens"]
        )


def test_branches_go_on_where_they_were_cut_off(tmp_path):
    plan = config(["A", "B", "C"], BRANCHES)
    with made(tmp_path, BRANCHED, plan) as team:
        team.set_task("Work.")
        for _ in range(2):
            asyncio.run(team.step())
        assert team.status.branches == ("Front",)
    with made(tmp_path, BRANCHED, plan) as team:
        assert team.run().ended == "done"
        assert went(team) == ["A", "B", "C", "A", "A", "B", "C", "A"]


def test_a_verifier_looks_now_and_then_and_what_it_finds_is_said(tmp_path):
    parts = {"A": [["One."], ["Two."], ["Three."]], "B": [["Four."], ["Five."]],
             "V": [["All agrees."], ["INCONSISTENCY: two is not there."]]}  # fmt: skip
    plan = config(["A", "B", "V"], Termination={"MaxIterations": 6},
                  Verifier={"AgentName": "v", "EveryNTurns": 2})  # fmt: skip
    with made(tmp_path, parts, plan) as team:
        team.run("Count.")
        assert went(team) == ["A", "B", "V", "A", "B", "V"]
        assert shown(team, "V")[-1][1] == (
            "It is your turn, V: hold what was claimed against what was done."
            " Write nothing but what you find."
        )
        corrections = [m.text for m in team.ledger.session.messages if m.kind == "correction"]
        assert corrections == [
            "VERIFICATION FINDING of V, to be settled before you go on:\nINCONSISTENCY: two is not there."
        ]
        assert last_request(team, "V") == (
            "It is your turn, V: hold what was claimed against what was done. Write nothing but what"
            " you find."
        )


def test_a_verifier_looks_where_a_hand_off_is_claimed_without_work(tmp_path):
    held = {"Name": "C", "Requires": [{"Type": "FileExists", "Path": "x.txt"}]}
    states = {"One": state("A", to("End", "DONE", Contract="C")), "End": DONE}
    plan = config(["A", "V"], states, Contracts=[held], Verifier={"AgentName": "V"})
    parts = {
        "A": [["DONE"], ["DONE"], [write("x.txt"), "DONE"]],
        "V": [["INCONSISTENCY: no x.txt"]],
    }
    with made(tmp_path, parts, plan) as team:
        assert team.run("Work.").ended == "done"
        assert went(team) == ["A", "A", "V", "A"]
        assert team.moves["failure"].dropna().tolist() == ["MissingEvidence", "NoProgress"]
        assert any("VERIFICATION FINDING" in t for k, t in shown(team, "A") if k == "correction")


@pytest.mark.parametrize(("handling", "turns", "words"), [
    ({}, 4, "failed 4 times in a row"),
    ({"MaxConsecutiveContractFailures": 6}, 6, "failed 6 times in a row"),
    ({"MissingEvidence": {"Action": "EscalateToHuman"}}, 1, "failed once"),
    ({"NoProgress": {"Action": "Abort", "Threshold": 2}}, 2, "failed 2 times in a row"),
])  # fmt: skip
def test_how_often_a_contract_may_fail_is_said(tmp_path, handling, turns, words):
    held = {"Name": "C", "Requires": [{"Type": "FileExists", "Path": "x.txt"}]}
    states = {"One": state("A", to("End", "DONE", Contract="C")), "End": DONE}
    plan = config(["A"], states, Contracts=[held], FailureHandling=handling)
    with made(tmp_path, {"A": [["DONE"]] * 9}, plan) as team:
        assert words in team.run("Work.").why
        assert team.status.turns == turns


def test_an_agent_for_recovery_may_come_at_once_and_silence_may_last_longer(tmp_path):
    held = {"Name": "C", "Requires": [{"Type": "FileExists", "Path": "x.txt"}]}
    ways = to("End", "DONE", Contract="C", RecoveryAgent="B")
    handling = {
        "MissingEvidence": {"Action": "ActivateRecovery"},
        "MaxConsecutiveTurnsWithoutSignal": 5,
    }
    plan = config(["A", "B"], {"One": state("A", ways), "End": DONE}, Contracts=[held],
                  FailureHandling=handling)  # fmt: skip
    parts = {"A": [["Hm."]] * 4 + [["DONE"]] * 2, "B": [[write("x.txt"), "Mended."]]}
    with made(tmp_path, parts, plan) as team:
        assert team.run("Work.").ended == "done"
        assert went(team) == ["A"] * 5 + ["B", "A"]
        assert last_request(team, "B") == (
            "It is your turn, B: mend what is missing; then the agent that asked goes on."
        )


def test_a_list_of_steps_is_held_against_what_was_written(tmp_path):
    needs = {"Name": "C", "Requires": [{"Type": "ChecklistComplete", "Source": "b.json"}]}
    states = {"One": state("A", to("End", "DONE", Contract="C")), "End": DONE}
    brief = json.dumps(
        {"execution_checklist": ["Write `src/a.py`.", "Look at it, e.g. twice", "then b.md"]}
    )
    wrote = ("write_file", {"path": "b.json", "content": brief})
    parts = {"A": [[wrote, "DONE"], [write("src/a.py"), write("b.md"), "DONE"]]}
    with made(tmp_path, parts, config(["A"], states, Contracts=[needs])) as team:
        assert (team.run("Work.").ended, team.status.turns) == ("done", 2)
        assert team.moves["message"].dropna().tolist() == ["C: not written: src/a.py, b.md"]


def put(path, **fields):
    return "write_file", {"path": path, "content": json.dumps(fields)}


def test_each_requirement_says_what_it_misses_until_it_holds(tmp_path):
    """In the first turn nothing is done, in the second all is done by half, in the third the rest."""
    needs = [
        {"Type": "FileExists", "Path": "x.txt"},
        {"Type": "FilesWritten", "Source": "b.json"},
        {"Type": "FilesWritten", "Source": "b.json", "Field": "more"},
        {"Type": "ChecklistComplete", "Source": "b.json", "Field": "steps"},
        {"Type": "CommandSucceeded", "Pattern": "make|echo"},
        {"Type": "CommandSucceeded", "Source": "b.json", "Field": "verify"},
        {"Type": "RelatedTestsPass"},
        {"Type": "TestReport", "Path": "r.json", "NoFailures": True, "HasAssertions": True},
    ]
    validators = ["RequireBrief", "RequireWriteFile", "RequireShellPass"]
    ends = route("DONE", "A", "A", Contract="C", Validators=validators)
    plan = config(
        [{"Name": "A", "Plugins": ["FileSystem", "Shell"]}],
        Selection={"Type": "keyword", "Routes": [ends]},
        Contracts=[{"Name": "C", "Requires": needs}], Validation={"BriefPath": "brief.json"},
        TestSelector={"FullSuiteCommand": "test -f b.json"},
    )  # fmt: skip
    numbers = [f"f{n}.txt" for n in range(12)]
    b = put("b.json", files_to_change=["x.txt", "./b.json"], more=numbers, steps=["Write y.md."],
            verify="test -f x.txt")  # fmt: skip
    halves = [
        put("brief.json", goal="All.", files_to_change=["x.txt"]),
        b,
        put("r.json", results=[{"status": "pass"}, {"status": "FAIL"}, "PASS"]),
        ("shell", {"command": "echo 1 && false"}),
        ("shell", {"command": "test -f x.txt"}),
        "DONE",
    ]
    rest = [
        *(write(path) for path in ["x.txt", "y.md", *numbers]),
        put("brief.json", goal="All.", files_to_change=["x.txt"], acceptance_criteria=["It is."]),
        put("r.json", results=[{"status": "PASS"}]),
        ("shell", {"command": "echo 2"}),
        ("shell", {"command": "test -f x.txt"}),
        ("shell", {"command": "test -f b.json"}),
        "DONE",
    ]
    last = [
        ("write_file", {"path": "test_x.py", "content": "assert x"}),
        ("shell", {"command": "test -f b.json"}),
        "DONE",
    ]
    with made(
        tmp_path, {"A": [["DONE"], halves, rest, last]}, plan, tools=("files", "shell")
    ) as team:
        assert team.run("Work.").ended == "done"
        said = [message.split("; ") for message in team.moves["message"].dropna()]
    untested = "C: the tests were not run after the last change: test -f b.json"
    assert said == [
        [
            "C: there is no file x.txt",
            "C: b.json names no files_to_change",
            "C: b.json names no more",
            "C: b.json names no steps",
            "C: no command like 'make|echo' was run",
            "C: no command was run",
            untested,
            "C: r.json has no results",
            "RequireBrief: brief.json has no goal, files_to_change, acceptance_criteria",
            "RequireWriteFile: no file was written in this turn",
            "RequireShellPass: no command was run",
        ],
        [
            "C: there is no file x.txt",
            "C: not written: x.txt",
            f"C: not written: {', '.join(numbers[:10])}",
            "C: not written: y.md",
            "C: the last command like 'make|echo' failed",
            "C: the last command like 'test -f x.txt' failed",
            untested,
            "C: r.json reports 2 of 3 as not passed",
            "RequireBrief: brief.json has no acceptance_criteria",
            "RequireShellPass: the last command failed",
        ],
        ["C: no test file that was written holds an assertion"],
    ]


EXAMPLES = sorted([*CONFIGS.glob("*.yaml"), CONFIGS / "devops-team.json"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_each_example_runs_on_scripted_agents(path, tmp_path):
    """F131: What fuseraft's own examples are built like takes turns, whatever its selection."""
    path = Path(copy(path, tmp_path))
    (tmp_path / "agents").mkdir()
    for name in ("developer", "reviewer"):
        (tmp_path / f"agents/{name}.yaml").write_text(f"Agent: {{Name: {name.title()}}}")
    names = [
        m.name for m in parse_plan(load_referenced_files(load_config(path)[0], path.parent)).members
    ]
    words = says(verdict="x", next_agent=names[0], content="c")
    with made(tmp_path, {name: [words] * 3 for name in names}, path) as team:
        team.set_task("Work.")
        for _ in range(3):
            asyncio.run(team.step())
        assert team.status.turns == min(3, team.plan.max_turns) or team.status.ended
        assert team.tokens > 0


TERMINAL = {
    "Work": state("A", to("Check", "DONE")),
    "Check": {"Agent": "B", "Terminal": True, "Transitions": []},
}


def test_the_agent_of_a_terminal_state_has_the_last_turn(tmp_path):
    """fuseraft's own examples end so: what is done last is done in a terminal state."""
    parts = {"A": [["DONE"]], "B": [[write("report.md"), "All checked."]]}
    with made(tmp_path, parts, config(["A", "B"], TERMINAL)) as team:
        assert team.run("Work.").why == "Check is reached"
        assert went(team) == ["A", "B"]
        assert team.root.read("report.md") == b"x"


def test_it_goes_on_until_it_says_what_the_team_ends_by(tmp_path):
    ends = {
        "Strategies": [{"Type": "regex", "Pattern": "VALIDATION COMPLETE", "AgentNames": ["B"]}]
    }
    parts = {"A": [["DONE"]], "B": [["Half of it."], ["VALIDATION COMPLETE"]]}
    with made(tmp_path, parts, config(["A", "B"], TERMINAL, Termination=ends)) as team:
        assert team.run("Work.").why == "B said VALIDATION COMPLETE"
        assert went(team) == ["A", "B", "B"]
    never = {"A": [["DONE"]], "B": [["Hm."]] * 9}
    plan = config(["A", "B"], TERMINAL, Termination={**ends, "MaxIterations": 5})
    with made(tmp_path / "never", never, plan) as team:
        assert team.run("Work.").why == "the team has had its 5 turns"


def test_who_leads_to_a_terminal_state_of_its_own_has_no_further_turn(tmp_path):
    states = {"Work": state("A", to("Done", "DONE")), "Done": {"Agent": "A", "Terminal": True}}
    with made(tmp_path, {"A": [["DONE"]]}, config(["A"], states)) as team:
        assert team.run("Work.").ended == "done"
        assert went(team) == ["A"]
