"""Any team file runs without a key: by a script that follows from it, or by one that is read."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from teams import orchestration_files
from teams.small_teams import DONE, clock, config, state, to

import ctxkit as ck
from ctxkit.errors import BadArguments, ReadError

FILES = {
    name: text
    for name, text in vars(orchestration_files).items()
    if isinstance(text, str) and "Agents:" in text
}
TOOLS = ("files", "shell", "document")


def opened(folder, body, **more):
    path = folder / "orchestration.yaml"
    path.write_text(body if isinstance(body, str) else yaml.safe_dump(body))
    options = {"model": "scripted", "tools": TOOLS, "allow": (".fuseraft",), **more}
    return ck.team(path, folder=folder, clock=clock(), seed="7", **options)


def taken(team):
    return [m["agent"] for m in team.ledger.moves() if m["agent"]]


def calls(team, agent):
    messages = team.sessions[agent].session.messages
    return [(c.name, c.arguments) for m in messages for c in m.tool_calls]


@pytest.mark.parametrize("name", FILES)
def test_each_file_of_fuserafts_kind_runs_to_its_end(tmp_path, name):
    """G13: Files with contracts, routes and all kinds of selections end as done, with a script."""
    with opened(tmp_path, FILES[name]) as team:
        standing = team.run("Do the work.")
        assert standing.ended == "done", standing.why
        assert "validation_fail" not in set(team.moves["kind"])
        verifier = team.plan.verifier.agent if team.plan.verifier is not None else ""
        assert {m.name for m in team.plan.members} - set(taken(team)) <= {verifier}


def test_contracts_are_met_by_what_tools_really_wrote_and_ran(tmp_path):
    with opened(tmp_path, FILES["DEV"]) as team:
        team.run("Write one.")
        assert [k for _, k in team.moves[["agent", "kind"]].dropna().to_numpy()] == [
            "state_advanced"
        ] * 4
        brief = json.loads(team.root.read(team.plan.brief_path))
        assert [team.root.read(p) for p in brief["files_to_change"]] == [
            b'"""A part of the work."""\n\nPART = 1\n',
            b"from part import PART\n\nassert PART == 1\n",
        ]
        assert ("shell", {"command": brief["verify_command"]}) in calls(team, "Developer")
        assert team.root.read(team.plan.report_path)


def test_a_file_that_must_be_there_is_a_brief_where_the_config_says_so(tmp_path):
    needs = [{"Type": "FileExists", "Path": p} for p in ("plans/brief.json", "notes.txt")]
    states = {"One": state("A", to("Over", "ON", Contract="C")), "Over": DONE}
    plan = config(["A"], states, Contracts=[{"Name": "C", "Requires": needs}],
                  Validation={"BriefPath": "plans/brief.json"})  # fmt: skip
    with opened(tmp_path, plan) as team:
        assert team.run("Work.").ended == "done"
        brief = json.loads(team.root.read("plans/brief.json"))
        assert list(brief) == ["goal", "files_to_change", "acceptance_criteria", "verify_command",
                               "execution_checklist"]  # fmt: skip
        assert brief["execution_checklist"] == [f"write {p}" for p in brief["files_to_change"]]
        assert b"goal" not in team.root.read("notes.txt")


def test_a_contract_that_tools_cannot_meet_stops_the_team(tmp_path):
    """The script asks for nothing that the agent was not given: without a shell nothing ran."""
    with opened(tmp_path, FILES["DEV"], tools=("files",)) as team:
        standing = team.run("Write one.")
    assert standing.ended == "stopped"
    assert "the contract failed 4 times in a row" in standing.why


SCRIPT = {
    "A": [
        [{"write_file": {"path": "a.txt", "content": "first"}}, "Written.\nON"],
        "Again.\nON",
    ],
    "b": [["Not yet.\nBACK"], "Good.\nEND"],
}
STATES = {
    "One": state("A", to("Two", "ON")),
    "Two": state("B", to("One", "BACK"), to("Over", "END")),
    "Over": DONE,
}


def script(tmp_path, content, name="script.yaml"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return f"scripted:{path}"


def test_a_script_that_is_read_is_played_turn_by_turn(tmp_path):
    plan = config([{"Name": "A", "Model": {"ModelId": "fast"}}, "B"], STATES,
                  Compaction={"TriggerTurnCount": 40, "Model": {"ModelId": "small"}})  # fmt: skip
    with opened(tmp_path, plan, model=script(tmp_path, SCRIPT)) as team:
        assert team.run("Work.").why == "Over is reached"
        assert taken(team) == ["A", "B", "A", "B"]
        assert team.root.read("a.txt") == b"first"
        assert team.sessions["A"].agent.writer is None  # no script writes summaries
    with ck.team(name="team", folder=tmp_path, clock=clock()) as team:
        assert team.status.ended == "done"  # it is opened again as it was


def test_who_is_not_in_a_script_plays_by_the_plan(tmp_path):
    half = script(tmp_path, {"B": ["Good.\nEND"]})
    with opened(tmp_path, config(["A", "B"], STATES), model=half) as team:
        assert team.run("Work.").ended == "done"
        assert taken(team) == ["A", "B"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"Bb": ["x"]}, "The script names 'Bb', and the team has A, B. Did you mean 'B'"),
        ({"A": [[7]]}, "A step of A in the script is words, or one tool"),
        ({"A": [[{"read_file": "a.txt"}]]}, "A step of A in the script is words, or one tool"),
        ({"A": [[{"a": {}, "b": {}}]]}, "A step of A in the script is words, or one tool"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused(tmp_path, content, sentence):
    with pytest.raises(BadArguments, match=sentence):
        opened(tmp_path, config(["A", "B"], STATES), model=script(tmp_path, content))


def test_a_long_name_or_step_is_cut_where_a_script_is_refused(tmp_path):
    name, step = "n" * 90, {"read_file": "x" * 90}
    refusal = f"A step of {'n' * 39}… in the script is words, .*; not {str(step)[:79]!r}"[:-1] + "…"
    with pytest.raises(BadArguments, match=re.escape(refusal).replace(r"\.\*", ".*")):
        opened(tmp_path, config([name]), model=script(tmp_path, {name: [[step]]}))
    with pytest.raises(BadArguments, match=f"The script names '{'m' * 59}…', and the team has"):
        opened(tmp_path, config([name]), model=script(tmp_path, {"m" * 90: [[step]]}))


def test_a_script_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ReadError):
        opened(tmp_path, config(["A", "B"], STATES), model=f"scripted:{tmp_path}/none.yaml")


def test_a_round_ends_when_each_had_its_turn(tmp_path):
    plan = config(
        ["A", "B", "C"], Termination={"Type": "regex", "Pattern": r"(?m)^\s*ALL DONE\s*$"}
    )
    with opened(tmp_path, plan) as team:
        assert team.run("Work.").why == "C said (?m)^\\s*ALL DONE\\s*$"
        assert taken(team) == ["A", "B", "C"]


def test_it_writes_where_the_envelope_lets_it(tmp_path):
    contract = {"Name": "Made", "Requires": [{"Type": "FilesWritten", "Path": "out/brief.json"}]}
    states = {"One": state("A", to("Over", "ON", Contract="Made")), "Over": DONE}
    plan = config(["A"], states, Contracts=[contract], Security={"ChangeEnvelope": ["out/**"]})
    with opened(tmp_path, plan) as team:
        assert team.run("Work.").ended == "done"
        assert team.root.read("out/part.py")
