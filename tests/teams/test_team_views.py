"""What each agent is shown of the others: views change prompts, and nothing else."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager

import pytest
from teams.small_teams import DONE, config, made, shown, state, to

import ctxkit as ck

TALK = {
    "A": [
        [("write_file", {"path": "a.txt", "content": "a" * 400}), "A one"],
        ["A two " + "x" * 300],
        ["A three"],
    ],
    "B": [["B one"], [("read_file", {"path": "a.txt"}), "B two"], ["B three"]],
    "C": [[("read_file", {"path": "a.txt"}), "C one"], ["C two"], ["C three"]],
}


@contextmanager
def talked(folder, **of_c):
    plan = config(["A", "B", {"Name": "C", **of_c}], Termination={"MaxIterations": 9})
    with made(folder, TALK, plan) as team:
        team.run("Talk, all of you, about the file that A writes.")
        yield team


@pytest.fixture
def talk(tmp_path):
    with ExitStack() as stack:
        yield lambda **of_c: stack.enter_context(talked(tmp_path / "talk", **of_c))


def heard(team, call=-1):
    return [t.split("\n")[-1][:7].strip() for k, t in shown(team, "C", call) if k == "heard"]


def billed(team, **of_c):
    """Prompt tokens of C: as they were recorded, and under a view of these keys."""
    found = ck.compare(team, {"as C": of_c}, loss=False).set_index(["agent", "view"])
    return [int(found.loc[("C", view), "prompt_tokens"]) for view in ("recorded", "as C")]


def kinds(team, call=-1):
    return [k for k, _ in shown(team, "C", call)]


def ledger(team):
    return [(m.kind, m.text) for m in team.ledger.session.messages if m.kind != "move"]


def test_agents_take_turns_and_hear_each_other(talk):
    team = talk()
    assert team.moves["agent"].dropna().tolist() == ["A", "B", "C"] * 3
    assert team.status.why == "the team has had its 9 turns"
    assert heard(team)[-2:] == ["A three", "B three"]
    assert kinds(team).count("frame") == 2
    assert kinds(team).count("tool") == 1


def test_a_view_changes_no_history(talk, tmp_path):
    whole = ledger(talk())
    assert len(whole) == 1 + 9 + 3 + 3  # task, words, words beside calls, frames
    for n, window in enumerate(
        [{"TextOnly": True}, {"ExcludeAgents": ["A"]}, {"MaxTailMessages": 2}]
    ):
        with talked(tmp_path / str(n), ContextWindow=window) as team:
            assert ledger(team) == whole


def test_text_only_hides_what_tools_said_before_this_turn(talk):
    """F2: A filter of one agent holds for that agent."""
    team = talk(ContextWindow={"TextOnly": True})
    assert set(kinds(team)) == {"task", "user", "heard", "assistant"}
    within = kinds(team, 1)  # the second call of its first turn: its own tool's result is there
    assert within[-1] == "tool"
    assert "frame" not in within
    assert any(
        m.kind == "frame" for m in team.sessions["C"].session.messages
    )  # it is in its session


def test_excluded_agents_are_not_heard(talk):
    """F30: The text and the tool frames of named agents are left out."""
    team = talk(ContextWindow={"ExcludeAgents": ["a"]})
    assert not any("A " in t for k, t in shown(team, "C") if k == "heard")
    assert "frame" not in kinds(team)
    assert heard(team)[-1] == "B three"


def test_a_tail_and_an_age_count_from_the_turns_beginning(talk, tmp_path):
    team = talk(ContextWindow={"MaxTailMessages": 2})
    assert heard(team) == ["A three", "B three"]
    assert kinds(team)[-1] == "user"
    assert kinds(team, 1)[-2:] == ["assistant", "tool"]
    with talked(tmp_path / "aged", ContextWindow={"MaxTurnAge": 2}) as aged:
        assert heard(aged) == ["A three", "B three"]


def test_long_replies_and_frames_are_cut(talk):
    team = talk(ContextWindow={"MaxReplayChars": 50, "MaxToolResultChars": 100})
    long = [t for k, t in shown(team, "C") if "A two" in t]
    assert long
    assert "characters omitted" not in long[0]
    assert "chars omitted to reduce" in long[0]
    assert all(len(t) < 200 for k, t in shown(team, "C") if k == "frame")


def test_fresh_hears_nobody_and_fork_what_was_said_before_its_first_turn(talk, tmp_path):
    team = talk(Isolation="Fresh")
    assert heard(team) == []
    assert "frame" not in kinds(team)
    with talked(tmp_path / "forked", Isolation="Fork") as forked:
        assert heard(forked)[-2:] == ["A one", "B one"]
        recorded, viewed = billed(forked, Isolation="Fork")
        assert recorded == viewed < billed(forked)[1]


def test_a_declared_history_is_text_bounded_and_the_oldest_goes_first(talk, tmp_path):
    """F51, F52: One's own history is text alone, in so many turns and characters, the last one cut."""
    sources = [
        {"Source": "own_history:1"},
        {"Source": "file:a.txt", "MaxChars": 10, "Label": "The file"},
        {"Source": "file:none.txt"},
    ]
    team = talk(Context=sources)
    recorded, viewed = billed(team, Context=sources)
    assert recorded == viewed
    assert kinds(team) == ["task", "assistant", "artifacts", "user"]
    lines = team.workspace.events(team.id).read_text().splitlines()
    told = [e for e in map(json.loads, lines) if e["event_type"] == "context_assembly"]
    assert [(e["agent"], e["turn"]) for e in told] == [("C", 2), ("C", 5), ("C", 8)]
    assert told[-1]["payload"] == {
        "context_strategy": "artifact_spec",
        "context_chars": len(dict(shown(team, "C"))["artifacts"]),
        "declared_sources": ["own_history:1", "file:a.txt", "file:none.txt"],
        "empty_sources": ["file:none.txt"],
    }
    said = dict(shown(team, "C"))
    assert said["assistant"] == "C two"
    assert said["artifacts"].endswith(
        "## The file\naaaaaaaaaa\n[...390 chars truncated — use file tool to read in full]"
    )
    long = {**TALK, "C": [["x" * 900]] * 3}
    plan = config(
        ["A", "B", {"Name": "C", "Context": [{"Source": "own_history", "MaxChars": 30}]}],
        Termination={"MaxIterations": 6},
    )
    with made(tmp_path / "cut", long, plan) as cut:
        cut.run("Talk.")
        suffix = "\n[...truncated — own_history turn exceeded 30 char limit]"
        assert dict(shown(cut, "C"))["assistant"] == "x" * 30 + suffix
    with talked(tmp_path / "wide", Context=[{"Source": "own_history:9"}]) as wide:
        words = [t for k, t in shown(wide, "C") if k == "assistant"]
        assert words == ["Now read_file: a.txt", "C one", "C two"]


@pytest.mark.parametrize("window", [
    {"TextOnly": True}, {"ExcludeAgents": ["B"]}, {"MaxTurnAge": 1}, {"MaxTailMessages": 3}, {"MaxReplayChars": 20}, {"TextOnly": True, "MaxReplayChars": 3},
])  # fmt: skip
def test_live_and_replay_agree_under_each_view(talk, window):
    team = talk(ContextWindow=window)
    live = team.sessions["C"]
    from ctxkit.tokens import default_counter, estimate_schema_tokens

    sizes = [default_counter().message(m) for m in live.session.messages]
    fixed = estimate_schema_tokens(t.schema for t in live.agent.tools.values())
    again = ck.replay(ck.read(live.log.path), live.agent.rules, tokens=sizes, fixed=fixed)
    for a, b in zip(live.session.calls, again.calls, strict=True):
        assert a.message.usage.prompt_tokens == b.message.usage.prompt_tokens
        one, two = ([i.message.parts for i in s.sent(a.index)] for s in (live.session, again))
        assert one == two
    recorded, viewed = billed(team, ContextWindow=window)
    assert recorded == viewed


def test_a_signal_by_a_tool_call_counts(tmp_path):
    plan = config(
        [{"Name": "A", "Plugins": ["Handoff"]}], {"One": state("A", to("End", "DONE")), "End": DONE}
    )
    parts = {"A": [[("handoff", {"route_keyword": "Done"}), "I am through."]]}
    with made(tmp_path, parts, plan) as team:
        assert team.run("Work.").ended == "done"


def test_a_round_robin_ends_at_the_words_of_an_agent(tmp_path):
    stop = {"Strategies": [{"Type": "regex", "Pattern": r"(?m)^APPROVED$", "AgentNames": ["B"]}]}
    parts = {"A": [["APPROVED"]] * 4, "B": [["not yet"], ["APPROVED"]]}
    with made(tmp_path, parts, config(["A", "B"], Termination=stop)) as team:
        assert (team.run("Work.").ended, team.status.turns) == ("done", 4)


def test_each_agent_speaks_once_in_a_sequence(tmp_path):
    plan = config(["A", "B"], Selection={"Type": "sequential"})
    with made(tmp_path, {"A": [["a"]] * 2, "B": [["b"]] * 2}, plan) as team:
        assert (team.run("Work.").why, team.status.turns) == ("each agent has had its turn", 2)
        assert (team.run("Work again.").ended, team.status.turns) == ("done", 4)


def test_a_budget_of_all_agents_ends_the_team(tmp_path):
    with made(tmp_path, {"A": [["a"]] * 9}, config(["A"], MaxTotalTokens=600)) as team:
        assert team.run("Work.").why == "the team has used its 600 tokens"


def test_a_declared_context_is_not_filtered_and_all_still_read_the_agent(talk, tmp_path):
    """F50, F53: With `Context:` the ContextWindow of the agent changes none of its prompts, and what
    it says is written into the shared history all the same.
    """
    sources = [{"Source": "file:a.txt"}, {"Source": "own_history"}]
    window = {"MaxTailMessages": 1, "MaxTurnAge": 1, "MaxReplayChars": 3, "MaxToolResultChars": 3}
    plain = talk(Context=sources)
    with talked(tmp_path / "both", Context=sources, ContextWindow=window) as both:
        for call in range(len(plain.sessions["C"].session.calls)):
            assert shown(both, "C", call) == shown(plain, "C", call)
        assert set(kinds(both)) == {"task", "assistant", "artifacts", "user"}
        assert ledger(both) == ledger(plain)
        assert [t for k, t in shown(both, "B") if k == "heard"][-1].endswith("A three")
        assert any("C two" in t for k, t in shown(both, "B") if k == "heard")
