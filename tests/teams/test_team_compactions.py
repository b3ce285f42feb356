"""Compactions of a team's agents in the team's own log, and limits of the prompts of each agent."""

from __future__ import annotations

import json

import pytest
from teams.small_teams import config, made

import ctxkit as ck
from ctxkit.agent import count_payload_bytes
from ctxkit.errors import BadArguments

READS = [("read_file", {"path": "a.txt"})] * 4
CUTOVER = {"ContextBudget": {"WarnAt": 2_000, "CutoverAt": 3_000},
           "Compaction": {"TriggerTurnCount": 50, "KeepRecentTurns": 1, "Mode": "intent"}}  # fmt: skip


def reading(folder, agents, **more):
    """A team whose agents read one file of 4,000 characters four times each."""
    (folder / "root").mkdir(exist_ok=True)
    (folder / "root/a.txt").write_text("word " * 800)
    names = [a if isinstance(a, str) else a["Name"] for a in agents]
    parts = {name: [[*READS, "Read."]] for name in names}
    plan = config(agents, Termination={"MaxIterations": len(names)}, **more)
    return made(folder, parts, plan, root=folder / "root")


def rows(team):
    lines = team.workspace.snapshots(team.id).read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_compaction_within_a_turn_stands_in_the_teams_log_and_resets_its_sums(tmp_path):
    """F90: After a compaction, in a turn or between two, each sum begins at nothing."""
    with reading(tmp_path, ["A", "B"], **CUTOVER) as team:
        team.run("Read.")
        own = {n: sum(e.kind == "summarised" for e in team.sessions[n].session.edits) for n in "AB"}
        written = rows(team)
    assert all(own.values())
    markers = [r for r in written if r.get("compaction_occurred")]
    assert len(markers) == sum(own.values())
    assert {(r["agent"], r["cumulative_input_tokens"]) for r in markers} == {("system", 0)}
    assert [r["agent"] for r in written] == ["system"] * own["A"] + ["A"] + ["system"] * own[
        "B"
    ] + ["B"]
    assert [r["turn"] for r in markers] == [0] * own["A"] + [1] * own["B"]
    frame = ck.frame(ck.read(team.workspace.snapshots(team.id)), per="turn")
    assert (frame["cumulative_input_tokens"] == frame["turn_input_tokens"]).all()


def test_without_a_compaction_the_sums_go_on(tmp_path):
    with reading(tmp_path, ["A"], ContextBudget={"WarnAt": 2_000}) as team:
        team.run("Read.")
        (row,) = rows(team)
    assert row["cumulative_input_tokens"] == row["turn_input_tokens"]


def test_a_cut_over_without_a_compaction_is_refused(tmp_path):
    """F92: A team says the error that a check of the file names."""
    sentence = "ContextBudget.CutoverAt cannot fire without a Compaction section: add one"
    with pytest.raises(BadArguments, match=sentence):
        reading(tmp_path, ["A"], ContextBudget={"CutoverAt": 3_000})
    with pytest.raises(BadArguments, match="MaxSingleTurnInputTokens cannot fire"):
        reading(tmp_path, ["A"], ContextBudget={"MaxSingleTurnInputTokens": 3_000})


LIMIT = 7_000
PLACES = {
    "the agent": ([{"Name": "A", "MaxPayloadBytes": LIMIT}], {}),
    "its model": ([{"Name": "A", "Model": {"ModelId": "m", "MaxPayloadBytes": LIMIT}}], {}),
    "its model's alias": ([{"Name": "A", "Model": "m"}], {"Models": {"m": {"MaxPayloadBytes": LIMIT}}}),
    "the top level": (["A"], {"MaxPayloadBytes": LIMIT}),
    "the least of two": ([{"Name": "A", "MaxPayloadBytes": LIMIT}], {"MaxPayloadBytes": 90_000}),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_payload_that_the_config_limits_is_trimmed_before_it_is_sent(tmp_path, place):
    """F107: Wherever MaxPayloadBytes stands, no prompt is larger when its stream begins."""
    agents, more = PLACES[place]
    with reading(tmp_path, agents, **more) as team:
        assert not [n for n in team.notes if "Payload" in n]
        team.run("Read.")
        assert max(sizes_of_prompts(team, "A")) <= LIMIT
    free = tmp_path / "free"
    free.mkdir()
    with reading(free, ["A"]) as team:
        team.run("Read.")
        assert max(sizes_of_prompts(team, "A")) > LIMIT


def sizes_of_prompts(team, agent):
    session = team.sessions[agent].session
    for n in range(len(session.calls)):
        yield count_payload_bytes([i.message for i in session.sent(n) if i.row >= 0])


WINDOWS = {
    "the agent": ([{"Name": "A", "MaxContextTokens": 2_000}], {}),
    "its model": ([{"Name": "A", "Model": {"ModelId": "m", "MaxContextTokens": 2_000}}], {}),
    "the top level": (["A"], {"MaxContextTokens": 2_000}),
    "the least of three": (
        [{"Name": "A", "MaxContextTokens": 2_000, "Model": {"ModelId": "m", "MaxContextTokens": 9_000}}],
        {"MaxContextTokens": 8_000},
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", WINDOWS)
def test_a_window_that_the_config_limits_is_kept_to(tmp_path, place):
    """F107: Wherever MaxContextTokens stands, a prompt is trimmed to it before it is sent."""
    agents, more = WINDOWS[place]
    with reading(tmp_path, agents, **more) as team:
        team.run("Read.")
        session = team.sessions["A"].session
        assert session.context_window == 2_000
        assert max(c.message.usage.prompt_tokens for c in session.calls) <= 2_000
