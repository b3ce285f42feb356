"""What cannot work is said in a sentence, or comes to an end by itself."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from teams.small_teams import DONE, config, made, shown, state, to

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.presets import MAX_AGENTS, MAX_STATES, MAX_TRANSITIONS
from ctxkit.presets.config_text_reading_and_writing import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_VALUES,
    load_config,
)
from ctxkit.teams import parse_plan
from ctxkit.teams.handoffs_and_contracts import _MAX_CHANGES
from ctxkit.teams.sub_agents_and_permissions import MAX_GLOBS
from ctxkit.teams.team_definition import MAX_CONTRACT_FAILURES, MAX_SILENT_TURNS
from ctxkit.teams.turn_decisions import find_signals

GO = ["Go on.\nDONE"]
CONTRACT = {"Name": "C", "Requires": [{"Type": "FileExists", "Path": "x.txt"}]}


def refused(plan, words):
    with pytest.raises(BadArguments, match=words):
        parse_plan(plan)


@pytest.mark.parametrize(("plan", "words"), [
    ({}, "needs Agents"),
    (config(["A", "a"]), "Two agents are called"),
    (config([{"Instructions": "x"}]), "no Name"),
    (config(["A"], {}), "names none"),
    (config(["A"], {"One": state("A", to("Two", "X"))}), "'Two', and there are One"),
    (config(["A"], {"One": state("B", to("End", "X")), "End": DONE}), "'B', and there are A"),
    (config(["A"], {"One": state("A", to("Two", "X")), "Two": state("A", to("One", "Y"))}), "could never end"),
    (config(["A"], {"One": DONE}), "out of which nothing leads"),
    (config(["A"], {"One": state("A", to("End", "X", Contract="None")), "End": DONE}), "there are none"),
    (config(["A"], {"One": state("A", to("End", "X", Contract="C")), "End": DONE}, Contracts=[{"Name": "C"}]), "requires nothing"),
    (config(["A"], {"One": state("A", to("End", "X")), "End": DONE},
            Contracts=[{"Name": "C", "Requires": [{"Type": "FileExists", "Path": "../x"}]}]), "can never hold"),
    (config(["A"], {"One": state("A", to("End", "X")), "End": DONE}, Contracts=[CONTRACT, CONTRACT]), "Two contracts"),
    (config(["A"], {"One": state("A", to("End", "X"), to("One", "x")), "End": DONE}), "Two signals out of state One"),
    (config(["A"], {"One": state("A", to("End", "X", HandoffContext=[{"Source": "own_history"}])), "End": DONE}), "own_history is no part"),
    (config(["A"], {"One": state("A", to("End", "X", HandoffContext=[{"Source": "brief_feild:x"}])), "End": DONE}), "Did you mean"),
    (config(["A"], {"One": state("A", to("End", "X", Parallel=True)), "End": DONE}), "name its Targets"),
    (config(["A"], {"One": state("A", to("End", "X", Parallel=True, Targets=["End"])), "End": DONE}), "Two Targets"),
    (config(["A"], Selection={"Type": "mapreduce"}), "MapReduce.Splitter is '', and there are A"),
    (config(["A"], Selection={"Type": "mapreduce", "MapReduce": {
        "Splitter": "A", "Mapper": "A", "Reducer": "A", "MaxSplitterRetries": 0}}), "1 or more"),
    (config(["A"], Selection={"Type": "scattergather"}), "needs Participants"),
    (config(["A"], Selection={"Type": "adversarial"}), "needs Stages"),
    (config(["A"], Selection={"Type": "adversarial", "Adversarial": {"Rounds": 51}}), "from 1 to 50"),
    (config(["A"], Selection={"Type": "adversarial", "Adversarial": {
        "Stages": [{"Generator": "A", "Critic": "A"}]}}), "are both A"),
    (config(["A", "B"], Selection={"Type": "adversarial", "Adversarial": {"Stages": [
        {"Generator": "A", "Critic": "B"}, {"Generator": "B", "Critic": "A"}]}}), "and a Critic"),
    (config(["A"], Selection={"Type": "magnetic"}), "Did you mean"),
    (config([{"Name": "A", "Isolation": "Fresh"}], Selection={"Type": "magentic"}), "cannot have Isolation"),
    (config(["A"], Selection={"Type": "keyword"}), "needs Routes"),
    (config(["A"], Selection={"Type": "keyword", "Routes": [{"Agent": "A"}]}), "names no Keyword"),
    (config(["A"], Selection={"Type": "keyword", "Routes": [{"Agent": "B", "Keyword": "X"}]}), "'B', and there are A"),
    (config(["A"], Selection={"Type": "keyword", "Routes": [{"Agent": "A", "Keyword": k} for k in "Xx"]}), "Two keywords"),
    (config(["A"], Selection={"Type": "structured"}), "needs StructuredRoutes"),
    (config(["A"], Selection={"Type": "structured", "StructuredRoutes": [{"Agent": "A", "Condition": {"Field": "x"}}]}), "needs a Condition"),
    (config(["A"], Selection={"Type": "graph"}), "needs Nodes"),
    (config(["A"], Selection={"Type": "graph", "Graph": {"Nodes": [{"Id": "a", "SubGraphId": "b"}]}}), "take turns"),
    (config(["A"], Selection={"Type": "graph", "Graph": {"Nodes": [
        {"Id": "a", "Agent": "A"}, {"Id": "A", "Agent": "A"}]}}), "Two nodes are called 'a'"),
    (config(["A"], Selection={"Type": "graph", "Graph": {"Nodes": [{"Id": "a", "Agent": "B"}]}}), "The agent of node a is 'B'"),
    (config(["A"], Selection={"Type": "graph", "Graph": {
        "Nodes": [{"Id": "a", "Agent": "A"}], "Edges": [{"From": "a", "To": "b"}]}}), "To of the edge from a is 'b'"),
    (config(["A"], Selection={"Type": "graph", "Graph": {"Nodes": [{"Id": "a", "Agent": "A"}],
        "Edges": [{"From": "a", "To": "a", "Keyword": k} for k in "xX"]}}), "Two keywords out of node a are called 'x'"),
    (config(["A"], Selection={"Type": "graph", "Graph": {
        "EntryNode": "b", "Nodes": [{"Id": "a", "Agent": "A"}]}}), "EntryNode is 'b'"),
    (config(["A"], Verifier={"AgentName": "B"}), "Verifier.AgentName is 'B'"),
    (config(["A"], FailureHandling={"NoProgress": {"Action": "Shrug"}}), "'Shrug'; there are"),
    (config(["A"], {"One": state("A", to("End", "X")), "End": DONE},
            Contracts=[{"Name": "C", "Requires": [{"Type": "RelatedTestsPass"}]}]), "can never hold"),
    (config([{"Name": "A", "Isolation": "Sealed"}]), "Shared, Fresh or Fork"),
    (config(["A"], Termination={"Strategies": [{"Type": "regex", "Pattern": "("}]}), "no regular expression"),
    (config([{"Name": "A", "Context": [{"Source": "own_history:0"}]}]), "a number above 0"),
    ({"Agents": [{"Name": "A", "NAME": "B"}]}, "beside each other"),
    (config(["A"], {"One": state("A", to("End", "X")), "one": DONE}), "beside each other"),
])  # fmt: skip
def test_a_config_that_cannot_work_is_a_sentence(plan, words):
    """F49: A source that does not belong to a hand-off is refused."""
    refused(plan, words)


LONG = "n" * 300


def graph(nodes, *edges):
    return config(["A"], Selection={"Type": "graph", "Graph": {"Nodes": nodes, "Edges": [*edges]}})


def stages(*pairs):
    rows = [{"Generator": maker, "Critic": critic} for maker, critic in pairs]
    return config(
        [LONG, f"n{LONG}"], Selection={"Type": "adversarial", "Adversarial": {"Stages": rows}}
    )


def machine(**contract):
    states = {"One": state("A", to("End", "X")), "End": DONE}
    return config(["A"], states, Contracts=[{"Name": LONG, **contract}])


def has_cut_names(sentence: str, text: str) -> bool:
    """Look for a sentence in which `<60>` stands for the long name, cut to 60 characters."""
    pattern = re.sub("<([0-9]+)>", lambda m: f"(?<!n)n{{{int(m[1]) - 1}}}…", re.escape(sentence))
    return re.search(pattern, text) is not None


@pytest.mark.parametrize(("plan", "sentence"), [
    (graph([{"Id": LONG, "Agent": "A", "Parallel": True}]), "Node <60> is a graph of its own"),
    (graph([{"Id": "a", "Agent": "A"}], {"From": "a", "To": LONG, "Keyword": "X"}), "is '<60>', and there are a"),
    (config([LONG, LONG]), "Two agents are called '<60>':"),
    (config([{"Name": LONG, "Isolation": LONG}]), "Isolation of <40> is Shared, Fresh or Fork, not '<40>'."),
    (stages((LONG, LONG)), "its Generator and its Critic are both <60>."),
    (stages((LONG, f"n{LONG}"), (f"n{LONG}", LONG)), "<60> is a Generator and a Critic"),
    (graph([{"Id": LONG, "Agent": "A"}, {"Id": LONG.upper(), "Agent": "A"}]), "Two nodes are called '<60>':"),
    (graph([{"Id": "a", "Agent": "A"}], *[{"From": "A", "To": "a", "Keyword": LONG}] * 2), "Two keywords out of node a are called '<60>':"),
    (graph([{"Id": "a", "Agent": "A"}], {"From": "a", "To": LONG}), "To of the edge from a is '<60>', and"),
    (graph([{"Id": LONG, "Agent": "A"}], {"From": LONG, "To": "b"}), "To of the edge from <60> is 'b', and"),
    (config(["A"], Selection={"Type": LONG}), "There is no Selection.Type '<40>';"),
    (machine(), "Contract <60> requires nothing"),
    (machine(Requires=[{"Type": "RelatedTestsPass"}]), "Contract <60> can never hold: its RelatedTestsPass"),
    (machine(Requires=[{"Type": "FileExists"}]), "Contract <60> can never hold: its FileExists names no Path."),
    (machine(Requires=[{"Type": "FileExists", "Path": f"/{LONG}"}]), "Contract <60> can never hold: /<79> lies outside"),
    (config(["A"], FailureHandling={"NoProgress": {"Action": LONG}}), "Action is '<40>';"),
    (config(["A"], Verifier={"AgentName": LONG}), "Verifier.AgentName is '<60>', and"),
    (config(["A"], Termination={"Strategies": [{"Type": "regex", "Pattern": f"({LONG}"}]}), "'(<59>' is no regular"),
    (config([{"Name": LONG, "Context": [{"Source": LONG}]}]), "Context of <40>: there is no source '<40>';"),
    (config([{"Name": "A", "Context": [{"Source": f"own_history:{LONG}"}]}]), "behind its colon, not '<40>'."),
    (config([{"Name": LONG, "Capabilities": {"FileSystem": [LONG]}}]), "Capabilities.FileSystem of <40> names '<40>';"),
])  # fmt: skip
def test_a_name_in_an_error_is_cut(plan, sentence):
    with pytest.raises(BadArguments) as refusal:
        parse_plan(plan)
    assert has_cut_names(sentence, str(refusal.value))


def test_names_in_notes_are_cut():
    states = {LONG: state("A", to("End", "X", Odd=1), Odd=1), "End": DONE}
    body = config(
        ["A", {"Name": LONG, "Context": [{"Source": "session_context", LONG: 1}]}], states,
        Contracts=[{"Name": LONG, "Requires": [{"Type": "FileExists", "Path": "x", "Odd": 1}]}],
    )  # fmt: skip
    routes = [{"Keyword": "X", "Agent": "A", "Validator": LONG}]
    keywords = config(["A", "B"], Selection={"Type": "keyword", "Routes": routes})
    notes = [*parse_plan(body).notes, *parse_plan(keywords).notes]
    for beginning in (
        "Requirement 1 of contract <40> has a key 'Odd' that",
        "A source in the Context of <40> has a key '<60>' that",
        "State <40> has a key 'Odd' that", "Transition 1 of state <40> has a key 'Odd' that",
        "Validator <60> is not checked here;",
    ):  # fmt: skip
        assert [has_cut_names(beginning, note) for note in notes].count(True) == 1, beginning


NAME, KEY = "n" * 150, "o" * 150


def test_a_long_path_of_an_agent_file_is_cut(tmp_path):
    path = tmp_path / "orchestration.yaml"
    path.write_text(f"Agents: [{{AgentFile: {NAME}.yaml}}]")
    with pytest.raises(BadArguments, match=f"^AgentFile {'n' * 119}…: "):
        ck.team(path, folder=tmp_path)


def test_a_long_name_or_key_is_cut_in_a_note():
    """Each section of a name of 150 characters has an unknown key of 150 characters."""
    unknown = {KEY: 1}
    source = {"Source": "own_history", **unknown}
    way = to("End", "X", HandoffContext=[{"Source": "session_context", **unknown}], **unknown)
    plan = config(
        [{"Name": NAME, "Context": [source]}],
        {NAME: state(NAME, way, **unknown), "End": DONE},
        Contracts=[{"Name": NAME, "Requires": [{"Type": "FileExists", "Path": "x", **unknown}], **unknown}],
    )  # fmt: skip
    cut, key = "n" * 39 + "…", "o" * 59 + "…"
    places = [
        f"Contract {cut}",
        f"Requirement 1 of contract {cut}",
        f"A source in the Context of {cut}",
        f"State {cut}",
        f"Transition 1 of state {cut}",
        f"A source in the HandoffContext of transition 1 of state {cut}",
    ]
    notes = [n for n in parse_plan(plan).notes if "not obeyed" in n]
    assert notes == [f"{p} has a key {key!r} that is not known, and not obeyed." for p in places]


def test_a_file_that_names_a_state_twice_is_refused(tmp_path):
    path = tmp_path / "orchestration.yaml"
    path.write_text(
        "Agents:\n  - Name: A\n  - Name: B\nSelection:\n  Type: statemachine\n  StateMachine:\n    Initial: One\n"
        "    States:\n      One: {Agent: A, Transitions: [{To: End}]}\n      End: {Terminal: true}\n"
        "      One: {Agent: B, Transitions: [{To: End}]}\n",
    )
    with pytest.raises(BadArguments, match="Line 11 names 'One' a second time"):
        ck.team(path, folder=tmp_path)


def test_an_agent_that_never_signals_comes_to_an_end(tmp_path):
    plan = config(["A"], {"One": state("A", to("End", "DONE")), "End": DONE})
    with made(tmp_path, {"A": [["I think."]] * 9}, plan) as team:
        assert team.run("Work.").ended == "stopped"
        assert team.status.turns == MAX_SILENT_TURNS
        assert "A gave no clear signal in 3 turns; it may give DONE" in team.status.why
        assert [k for k, _ in shown(team, "A")].count("correction") == MAX_SILENT_TURNS - 1


def test_a_contract_that_never_holds_comes_to_an_end_after_help(tmp_path):
    ways = to("End", "DONE", Contract="C", RecoveryAgent="B")
    plan = config(["A", "B"], {"One": state("A", ways), "End": DONE}, Contracts=[CONTRACT])
    with made(tmp_path, {"A": [GO] * 9, "B": [["I cannot."]]}, plan) as team:
        assert team.run("Work.").ended == "stopped"
        assert team.moves["agent"].dropna().tolist() == ["A", "A", "B", "A", "A"]
        assert (
            f"failed {MAX_CONTRACT_FAILURES} times in a row (C: there is no file x.txt)"
            in team.status.why
        )


UNREADABLE = {
    "torn": b"{",
    "a list": b"[1, 2]",
    "no text": b"\xff\xfe\x00",
    "nested without end": b"[" * 100_000,
    "larger than what is read": b'{"goal": "' + b"x" * 1_000_001 + b'"}',
    "of other types": b'{"goal": 1, "results": "x", "files_to_change": {}, "execution_checklist": 3}',
    "a folder": None,
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_contract_whose_files_cannot_be_read_fails_and_loses_no_message(tmp_path, content):
    kinds = ("FilesWritten", "ChecklistComplete", "TestReport")
    contract = {"Name": "C", "Requires": [{"Type": k, "Path": "b.json"} for k in kinds]}
    ways = to("End", "DONE", Contract="C")
    plan = config(["A"], {"One": state("A", ways), "End": DONE}, Contracts=[contract])
    root = tmp_path / "root"
    root.mkdir()
    if content is None:
        (root / "b.json").mkdir()
    else:
        (root / "b.json").write_bytes(content)
    with made(tmp_path / "team", {"A": [GO] * 9}, plan, root=root) as team:
        assert team.run("Work.").ended == "stopped"
        assert (
            f"failed {MAX_CONTRACT_FAILURES} times in a row (C: b.json names no " in team.status.why
        )
        assert team.moves["message"].dropna().iloc[0] == (
            "C: b.json names no files_to_change; C: b.json names no execution_checklist; "
            "C: b.json has no results"
        )
        said = [text for kind, text in shown(team, "A") if "Go on.\nDONE" in text]
    assert len(said) == team.status.turns - 1


UNMET = {
    "there is no file x.txt": {"Type": "FileExists", "Path": "x.txt"},
    "not written: f0, f1, f2, f3, f4, f5, f6, f7, f8, f9": {"Type": "FilesWritten"},
    "b.json names no todo": {"Type": "FilesWritten", "Path": "b.json", "Field": "todo"},
    "not written: src/a.py, c.py": {"Type": "ChecklistComplete"},
    "no command like 'pytest|ruff' was run": {"Type": "CommandSucceeded", "Pattern": "pytest|ruff"},
    "the last command like 'none | FALSE' failed": {
        "Type": "CommandSucceeded", "Pattern": "none | FALSE"},
    "no command like 'make check' was run": {"Type": "CommandSucceeded", "Field": "verify"},
    "none.json has no results": {"Type": "TestReport", "Path": "none.json"},
    "r.json reports 2 of 3 as not passed": {
        "Type": "TestReport", "Path": "r.json", "NoFailures": True},
    "no test file that was written holds an assertion": {
        "Type": "TestReport", "Path": "r.json", "HasAssertions": True},
}  # fmt: skip


def test_an_agent_is_told_each_requirement_that_is_not_met(tmp_path):
    brief = {"files_to_change": [*(f"f{n}" for n in range(12)), "b.json"], "verify": "make check",
             "execution_checklist": ["write `src/a.py`, then c.py.", "see b.json"]}  # fmt: skip
    report = {"results": [{"status": "pass"}, {"status": "FAIL"}, "PASS"]}
    write = [("write_file", {"path": path, "content": json.dumps(content)})
             for path, content in (("b.json", brief), ("r.json", report))]  # fmt: skip
    run = [("shell", {"command": command}) for command in ("true", "false")]
    met = [{"Type": "FileExists", "Path": "b.json"}, {"Type": "TestReport", "Path": "r.json"},
           {"Type": "CommandSucceeded", "Pattern": "true|none"}]  # fmt: skip
    contract = {"Name": "C", "Requires": [*UNMET.values(), *met]}
    states = {"One": state("A", to("End", "DONE", Contract="C")), "End": DONE}
    agents = [{"Name": "A", "Plugins": ["FileSystem", "Shell"]}]
    plan = config(agents, states, Contracts=[contract], Validation={"BriefPath": "b.json"})
    parts = {"A": [[*write, *run, "DONE"], *[["Hm."]] * 9]}
    with made(tmp_path, parts, plan, tools=("files", "shell")) as team:
        team.run("Work.")
        missing = [f"C: {why}" for why in UNMET]
        assert team.moves["message"].dropna().tolist() == ["; ".join(missing)]
        told = [text for kind, text in shown(team, "A") if kind == "correction"]
    blocked = "MISSING ARTIFACT: DONE was not taken. What is not there yet:"
    assert told[0].splitlines() == [blocked, *(f"- {line}" for line in missing)]
    assert told[1] == "No handoff keyword in your reply. Give one, alone on a line: DONE"


@pytest.mark.parametrize(("task_chars", "block_chars", "reminded"), [
    (51, 2_001, True), (50, 2_001, False), (51, 2_000, False), (300, 2_001, True),
    (2_500, 200, False),
])  # fmt: skip
def test_a_long_task_that_lies_far_back_is_repeated(tmp_path, task_chars, block_chars, reminded):
    """The block of a declared context stands between the task and the prompt of the turn."""
    agents = ["A", {"Name": "C", "Context": [{"Source": "file:a.txt"}]}]
    plan = config(agents, Termination={"MaxIterations": 2})
    head = "[AGENT CONTEXT — assembled from artifacts]\n\n## a.txt\n"
    content = "y" * (block_chars - len(head))
    parts = {"A": [[("write_file", {"path": "a.txt", "content": content}), "a"]], "C": [["c"]]}
    with made(tmp_path, parts, plan) as team:
        team.run("t" * task_chars)
        (_, task), (_, block), (_, prompt) = shown(team, "C")
    assert (task, block) == ("t" * task_chars, head + content)
    reminder = [f"[Task Reminder] {'t' * min(task_chars, 200)}"] if reminded else []
    assert prompt.splitlines() == ["It is your turn, C.", *reminder]


def test_an_agent_for_recovery_mends_what_is_missing(tmp_path):
    ways = to("End", "DONE", Contract="C", RecoveryAgent="B")
    plan = config(["A", "B"], {"One": state("A", ways), "End": DONE}, Contracts=[CONTRACT])
    help_ = [("write_file", {"path": "x.txt", "content": "x"}), "Mended."]
    with made(tmp_path, {"A": [GO] * 9, "B": [help_]}, plan) as team:
        assert (team.run("Work.").ended, team.status.turns) == ("done", 4)


def test_a_cycle_of_hand_offs_comes_to_an_end(tmp_path):
    states = {
        "One": state("A", to("Two", "ON")),
        "Two": state("B", to("One", "BACK"), to("End", "DONE")),
        "End": DONE,
    }
    plan = config(["A", "B"], states, Termination={"MaxIterations": 9})
    with made(tmp_path, {"A": [["ON"]] * 9, "B": [["BACK"]] * 9}, plan) as team:
        assert team.run("Work.").why == "the team has had its 9 turns"


def test_work_goes_back_only_so_often(tmp_path):
    back = to("One", "BACK", MaxRevisits=1, ReviewArtifactPath="review.md")
    states = {
        "One": state("A", to("Two", "ON")),
        "Two": state("B", back, to("End", "DONE")),
        "End": DONE,
    }
    parts = {
        "A": [["ON"]] * 3,
        "B": [
            [("write_file", {"path": "review.md", "content": "no tests"}), "BACK"],
            ["BACK"],
            ["DONE"],
        ],
    }
    with made(tmp_path, parts, config(["A", "B"], states)) as team:
        assert team.run("Work.").ended == "done"
        assert team.moves["kind"].tolist()[-2:] == ["back_edge_escalation", "state_advanced"]
        told = [t for k, t in shown(team, "B") if k == "correction"]
        assert "STAGNATION" in told[0]
        assert "no tests" in told[0]


QUOTED = ["> DONE", "```\nDONE\n```", "~~~text\nDONE\n~~~", "    DONE", '"DONE"', "`DONE`", "'DONE'",
          "I will say DONE later.", "DONENESS", "````\n```\nDONE\n````", "NOT DONE", "DONE-ish"]  # fmt: skip


@pytest.mark.parametrize("text", QUOTED)
def test_a_signal_in_quoted_text_is_none(text):
    assert find_signals(text, ["DONE"]) == ()
    assert find_signals(f"{text}\n\nDONE", ["DONE"]) == ("DONE",)


@pytest.mark.parametrize(
    "text", ["DONE", "**DONE**", "done.", "So:\nDONE: all of it", "```\nx\n```\n_DONE_", "DONE all"]
)
def test_a_signal_of_ones_own_counts(text):
    assert find_signals(text, ["DONE"]) == ("DONE",)


def test_of_two_signals_the_longer_one_is_meant_and_two_are_none(tmp_path):
    assert find_signals("DONE WITH BUGS", ["DONE", "DONE WITH BUGS"]) == ("DONE WITH BUGS",)
    plan = config(["A"], {"One": state("A", to("End", "DONE"), to("One", "AGAIN")), "End": DONE})
    with made(tmp_path, {"A": [["DONE\nAGAIN"], ["DONE"]]}, plan) as team:
        assert team.run("Work.").ended == "done"
        assert team.moves["kind"].tolist()[1] == "multi_keyword"


@given(st.text(), st.lists(st.text(min_size=1, max_size=5), max_size=4))
def test_any_text_has_only_signals_that_were_asked_for(text, signals):
    assert set(find_signals(text, signals)) <= set(signals)


def test_a_model_that_is_not_known_is_a_sentence(tmp_path):
    with pytest.raises(BadArguments, match="asks for model 'fast', which is not known"):
        ck.team(config([{"Name": "A", "Model": {"ModelId": "fast"}}]), folder=tmp_path)


def test_a_config_alone_gives_nobody_a_shell(tmp_path):
    plan = config(
        [{"Name": "A", "Plugins": ["FileSystem", "Shell"]}], Selection={"Type": "sequential"}
    )
    with made(tmp_path, {"A": [["ok"]]}, plan) as team:
        assert "shell" not in team.sessions["A"].agent.tools
        assert team.notes == (
            "A asks for shell: name it, tools=('files', 'shell'), if it may have it.",
        )


def test_a_tool_that_no_agent_can_have_is_a_sentence(tmp_path):
    with pytest.raises(BadArguments, match=r"no tool 'shel'.*Did you mean 'shell'"):
        made(tmp_path, {"A": [["ok"]]}, config(["A"]), tools=("files", "shel"))


def test_a_pattern_that_takes_for_ever_is_given_up_and_mended(tmp_path):
    def ending(pattern):
        rows = [{"Type": "regex", "Pattern": pattern}]
        return config(["A"], Selection={"Type": "roundrobin"}, Termination={"Strategies": rows})

    parts = {"A": [["a" * 40 + "b"]]}
    late = pytest.raises(BadArguments, match="takes longer than 1 s")
    with made(tmp_path, parts, ending("(a|a)*$")) as team, late:
        team.run("Work.")
    with made(tmp_path, parts, ending("ab$")) as team:
        assert (team.run().ended, len(team.sessions["A"].session.calls)) == ("done", 1)


def test_assertions_are_looked_for_in_test_files_alone(tmp_path):
    report = {"Type": "TestReport", "HasAssertions": True}
    ways = to("End", "DONE", Contract="C")
    plan = config(["A"], {"One": state("A", ways), "End": DONE},
                  Contracts=[{"Name": "C", "Requires": [report]}],
                  Validation={"TestAssertionPatterns": ["shall be"]})  # fmt: skip
    rows = (
        "write_file",
        {"path": "test-report.json", "content": '{"results": [{"status": "PASS"}]}'},
    )

    def writes(path):
        return [("write_file", {"path": path, "content": "x shall be 1"}), rows, "DONE"]

    with made(tmp_path, {"A": [writes("a.txt"), writes("test_a.txt")]}, plan) as team:
        assert (team.run("Work.").ended, team.status.turns) == ("done", 2)


def test_aliases_that_unfold_to_ever_more_are_refused_at_once(tmp_path):
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    path = tmp_path / "orchestration.yaml"
    path.write_text("\n".join([*rows, "Agents: [{Name: A}]"]))
    with pytest.raises(ck.ReadError, match="unfold to too many values"):
        ck.team(path, folder=tmp_path)
    path.write_text("Agents:\n  - &a {Name: A}\n  - {<<: *a, Name: B}\n")
    assert [m.name for m in parse_plan(load_config(path)[0]).members] == ["A", "B"]


def test_states_that_yaml_takes_for_numbers_are_names(tmp_path):
    path = tmp_path / "orchestration.yaml"
    path.write_text(
        "Agents: [{Name: A}]\nSelection:\n  Type: statemachine\n  StateMachine:\n    Initial: 1\n    States:\n"
        "      1: {Agent: A, Transitions: [{To: 2, Signal: GO}]}\n      2: {Terminal: true}\n",
    )
    with made(tmp_path, {"A": [["GO"]]}, path) as team:
        assert team.run("Work.").why == "2 is reached"


def test_a_file_that_is_nested_without_end_is_refused_at_once(tmp_path):
    path = tmp_path / "orchestration.json"
    path.write_text('{"Agents": ' + "[" * 400_000 + "]" * 400_000 + "}")
    begun = time.thread_time()
    with pytest.raises(ck.ReadError, match="nested too deeply"):
        ck.team(path, folder=tmp_path)
    assert time.thread_time() - begun < 5


def written(thing):
    """As YAML, by libyaml where it is there: some of these are long."""
    return yaml.dump(thing, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))


def scripted(folder, content):
    path = folder / "script.yaml"
    path.write_text(written(content))
    return f"scripted:{path}"


@pytest.mark.parametrize(("agent", "options", "sentence"), [
    ({}, {"memory": (LONG,)}, "There is no memory '<40>': a team can reach user and webhook"),
    ({}, {"tools": (LONG,)}, "can have no tool '<60>'; name some of files, "),
    ({}, {}, "No model is named for <40>: give"),
    ({"Model": LONG}, {}, "<40> asks for model '<60>', which"),
    ({"Model": LONG}, {}, "models={'<60>': 'PROVIDER/MODEL'}"),
    ({}, {"script": {f"{LONG}n": ["x"]}}, "The script names '<60>', and"),
    ({}, {"script": {LONG: [[[LONG]]]}}, "A step of <40> in the script is"),
    ({}, {"script": {LONG: [["x", [LONG]]]}}, "not \"['<78>\"."),
    ({"AgentFile": LONG}, {"file": True}, "AgentFile <120>: "),
])  # fmt: skip
def test_a_name_in_an_error_of_opening_is_cut(tmp_path, agent, options, sentence):
    plan, model = config([{"Name": LONG, **agent}]), ""
    if "script" in options:
        model = scripted(tmp_path, options["script"])
    if "file" in options:
        (tmp_path / "team.yaml").write_text(written(plan))
        plan = tmp_path / "team.yaml"
    more = {k: v for k, v in options.items() if k not in ("script", "file")}
    with pytest.raises(ck.CtxkitError) as refusal:
        ck.team(plan, model=model, folder=tmp_path, **more)
    assert has_cut_names(sentence, str(refusal.value))


def test_names_in_the_notes_of_an_opened_team_are_cut(tmp_path):
    held = {"Name": "C", "Requires": [{"Type": "FileExists", "Path": f".git/{LONG}"}]}
    states = {"One": state(LONG, to("End", "X", Contract="C")), "End": DONE}
    plan = config([{"Name": LONG, "Plugins": ["Shell"]}], states, Contracts=[held])
    with made(tmp_path, {LONG: []}, plan) as team:
        notes = "\n".join(team.notes)
    assert has_cut_names("<40> asks for shell: name it, tools=('files', 'shell')", notes)
    assert has_cut_names("ask for .git/<115>, which agents may not write", notes)
    assert "allow=('.git',) lets them." in notes


def rows(key, n, row, **more):
    """A section with a list of so many rows, each of them `row` with its number in it."""
    return {key: [row(i) for i in range(n)], **more}


MACHINE = {f"S{n}": state("A", to(f"S{n + 1}", "GO")) for n in range(MAX_STATES)}
AGENTS = {"Agents": [{"Name": "A"}]}
FAULTS = [
    ("Agents: [{Name: A}]\nx: &x [*x]\n", "line 2: x contains itself"),
    ("Agents: [{Name: A}]\nx: &x {y: {z: [*x]}}\n", "line 2: x contains itself"),
    ("Agents: [{Name: A}]\nx: &x {<<: *x}\n", "line 2: x contains itself"),
    ("&x\nAgents: [{Name: A}]\nx: *x\n", "line 3: x contains itself"),
    ("Agents: [{Name: A}]\nTermination:\n  MaxIterations: " + ":".join(["1"] * 5000), "line 3 has a number"),
    ("Agents: [{Name: A}]\nTermination:\n  MaxIterations: " + ":".join(["1"] * 5000) + ".5", "line 3 has a number"),
    ("Agents: [{Name: A}]\nx: !!int '" + ":".join(["1"] * 5000) + "'", "line 2 has a number"),
    ("Agents: [{Name: A}]\nx: 0x" + "f" * 5000, "line 2 has a number"),
    ("Agents: [{Name: A}]\nx: " + "9" * 5000, "line 2 has a number"),
    ("Agents: [{Name: A}]\nx: " + ":".join(["1"] * 400) + ".5", "a value is not of the kind"),
    ("Agents: [{Name: A}]\nx: !!bool perhaps\n", "a value is not of the kind"),
    ("Agents: [{Name: A}]\nx: !!timestamp now\n", "a value is not of the kind"),
    ("Agents: [{Name: A}]\nx: 1\nx: 2\n", "Line 3 names 'x' a second time"),
    (rows("Agents", MAX_AGENTS + 1, lambda n: {"Name": f"A{n}"}), "There are 201 Agents"),
    (rows("Agents", 2000, lambda n: {"AgentFile": f"a{n}.yaml"}), "There are 2,000 Agents"),
    (config(["A"], {**MACHINE, f"S{MAX_STATES}": DONE}), "There are 1,001 Selection.StateMachine.States"),
    (config(["A"], {"S": state("A", *(to("T", f"X{n}") for n in range(MAX_TRANSITIONS + 1))), "T": DONE}),
     "There are 5,001 Transitions"),
    *(({**AGENTS, "Selection": {"Type": kind, **section}}, f"{words} Selection.{path}")
      for kind, path, section, words in (
          ("graph", "Graph.Nodes", {"Graph": rows("Nodes", 1001, lambda n: {"Id": f"N{n}"})}, "There are 1,001"),
          ("graph", "Graph.Edges", {"Graph": rows("Edges", 5001, lambda n: {"From": f"N{n}"})}, "There are 5,001"),
          ("adversarial", "Adversarial.Stages",
           {"Adversarial": rows("Stages", 1001, lambda n: {"Label": f"L{n}"})}, "There are 1,001"),
          ("keyword", "Routes", rows("Routes", 5001, lambda n: {"Keyword": f"X{n}"}), "There are 5,001"),
          ("structured", "StructuredRoutes", rows("StructuredRoutes", 5001, lambda _: {"Agent": "A"}), "There are 5,001"),
      )),
    ({**AGENTS, **rows("Contracts", 5001, lambda n: {"Name": f"C{n}"})}, "There are 5,001 Contracts"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), FAULTS, ids=[words for _, words in FAULTS])
def test_what_no_file_may_hold_is_one_sentence_wherever_it_is_read(tmp_path, text, words):
    path = tmp_path / "orchestration.yaml"
    path.write_text(text if isinstance(text, str) else written(text))
    begun = time.thread_time()
    with pytest.raises(ck.CtxkitError) as opened:
        ck.team(path, folder=tmp_path)
    assert time.thread_time() - begun < 5
    with pytest.raises(ck.CtxkitError) as loaded:
        ck.load_rules(path, system="fuseraft")
    faults = [row.why for row in ck.validate(path, system="fuseraft").itertuples()]
    assert words in str(opened.value)
    assert str(loaded.value).removeprefix(f"{path}: ") == str(opened.value).removeprefix(
        f"{path}: "
    )
    assert str(loaded.value) in faults


def test_a_file_of_json_names_no_key_twice(tmp_path):
    path = tmp_path / "orchestration.json"
    for text in (
        '{"Agents": [{"Name": "A", "Name": "B"}]}',
        '{"Agents": [{"Name": "A", "Name": "B",}]}',
    ):
        path.write_text(text)
        with pytest.raises(BadArguments, match="names 'Name' a second time"):
            ck.team(path, folder=tmp_path)


def test_an_alias_of_what_stands_beside_is_no_circle(tmp_path):
    path = tmp_path / "orchestration.yaml"
    path.write_text("y: &b [1]\nz: [*b, {<<: {q: *b}, b: *b}]\n")
    assert load_config(path)[0] == {"y": [1], "z": [[1], {"q": [1], "b": [1]}]}


def test_a_mapping_that_contains_itself_is_a_sentence(tmp_path):
    circle: dict = {"Agents": [{"Name": "A"}]}
    circle["x"] = {"y": circle}
    with pytest.raises(BadArguments, match="none of these holds itself"):
        ck.team(circle, folder=tmp_path)
    with pytest.raises(BadArguments, match="keys, texts, numbers"):
        ck.team({"Agents": [{"Name": "A"}], "x": object()}, folder=tmp_path)


def test_a_team_of_the_most_agents_and_states_is_opened(tmp_path):
    names = [f"A{n}" for n in range(MAX_AGENTS)]
    states = {
        f"S{n}": state(names[n % MAX_AGENTS], to(f"S{n + 1}", "GO")) for n in range(MAX_STATES - 1)
    }
    plan = parse_plan(config(names, {**states, f"S{MAX_STATES - 1}": DONE}))
    assert (len(plan.members), len(plan.states)) == (MAX_AGENTS, MAX_STATES)


def test_stages_make_no_more_states_than_a_team_may_have(tmp_path):
    stages = [{"Generator": "A", "Critic": "B", "Label": f"L{n}"} for n in range(11)]
    rounds = {"Rounds": 50, "Stages": stages}
    refused(config(["A", "B"], Selection={"Type": "adversarial", "Adversarial": rounds}),
            "There are 1,100 states made of Adversarial.Stages")  # fmt: skip


def test_the_bounds_of_team_files_stand_in_the_policy():
    policy = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    for bound in (
        f"{MAX_AGENTS} agents", f"{MAX_STATES:,} states", f"{MAX_TRANSITIONS:,} transitions",
        f"{MAX_TRANSITIONS:,} contracts", f"{MAX_GLOBS} globs", f"{_MAX_CHANGES} turns of `changes_read`", f"{MAX_BYTES:,} bytes",
        f"{MAX_DEPTH} levels deep", f"{MAX_VALUES:,} values", f"numbers of {MAX_DIGITS:,} characters",
    ):  # fmt: skip
        assert re.search(rf"(?<![\d,]){re.escape(bound)}", policy), bound
