"""A zero that means nothing is missing: marks that a format does not have, prices of nothing."""

from __future__ import annotations

import json

import pytest
from truth.raw_log_figures import codex, mini_swe_agent

import ctxkit as ck
from ctxkit.formats import is_failed_exit, parse_exit_code


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("<returncode>2</returncode>\n<output>", 2),
        ("Exit code: 1\nWall time: 0.1 seconds\nOutput:\n", 1),
        ("Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 127\nOutput:\n", 127),
        (
            (
                "failed in sandbox LinuxSeccomp with execution error: sandbox denied exec error, "
                "exit code: 2, stdout:"
            ),
            2,
        ),
        ("Exit code: 0\n", 0),
        ("the manual says: Exit code: 1 is an error", None),
        ("x\n" * 300 + "Exit code: 1\n", None),
    ],
)
def test_exit_codes_stand_at_the_head(said, code):
    assert parse_exit_code(said) == code
    assert is_failed_exit(code) is (code not in (None, 0))


def test_real_codes_are_errors(real):
    for path in sorted((real / "codex").glob("rollout*.jsonl")):
        found = ck.frame(ck.read(path), per="session")["tool_errors_n"].iloc[0]
        assert found == codex(path)[0]["tool_errors_n"] > 0
    for path in sorted((real / "mini-swe-agent").glob("*.json")):
        found = ck.frame(ck.read(path), per="session")["tool_errors_n"].iloc[0]
        assert found == mini_swe_agent(path)[0]["tool_errors_n"] > 0


def test_what_swe_agent_cannot_tell_is_missing_and_its_totals_are_recorded(real):
    row = ck.frame(ck.read(real / "swe-agent/psf__requests-1921.traj"), per="session").iloc[0]
    assert row[["tool_errors_n", "compactions_n", "peak_tokens"]].isna().all()
    totals = (row["logged_prompt_tokens"], row["logged_output_tokens"], row["source"])
    assert totals == (1_304_218, 7_586, "recorded")
    assert (row["cost_usd"], row["cost_source"]) == (4.026444, "recorded")
    bare = ck.frame(ck.read(real / "swe-agent/ctf-crypto-katy.traj"), per="session").iloc[0]
    assert bare[["prompt_tokens", "output_tokens", "cost_usd"]].isna().all()  # its totals are zeros


def test_chat_messages_cannot_tell_of_compactions(tmp_path):
    talk = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "yes"}]
    (tmp_path / "s.json").write_text(json.dumps(talk))
    session = ck.read(tmp_path / "s.json")
    row = ck.frame(session, per="session").iloc[0]
    assert row[["compactions_n", "tool_errors_n"]].isna().all()
    assert "no mark for compactions" in " ".join(session.notes)


def pi_log(tmp_path, cost, model="gpt-4o", **usage):
    counts = {"input": 100, "output": 20, "cacheRead": 0, "cacheWrite": 0, **usage}
    reply = {"role": "assistant", "content": [{"type": "text", "text": "yes"}], "model": model}
    lines = [
        {"type": "session", "version": 3, "id": "s"},
        {
            "type": "message",
            "id": "a",
            "parentId": None,
            "message": {"role": "user", "content": "go"},
        },
        {
            "type": "message",
            "id": "b",
            "parentId": "a",
            "message": {**reply, "usage": {**counts, "cost": {"total": cost}}},
        },
    ]
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return ck.read(tmp_path / "s.jsonl")


def test_a_price_of_nothing_is_none(tmp_path):
    row = ck.frame(pi_log(tmp_path, 0, model="some-free-model"), per="session").iloc[0]
    assert row[["cost_usd", "cost_source"]].isna().all()
    assert "prices 1 calls at $0" in row["notes"]
    known = ck.frame(pi_log(tmp_path, 0), per="call").iloc[0]
    assert (known["cost_source"], known["cost_usd"] > 0) == ("derived", True)


def test_free_models_of_real_logs_cost_what_is_not_known(real):
    for path in sorted((real / "opencode").glob("*.json")):
        assert ck.frame(ck.read(path), per="session")["cost_usd"].isna().all()


def test_a_prompt_without_tokens_leaves_what_the_call_wrote(tmp_path):
    call = ck.frame(pi_log(tmp_path, 0.5, input=0), per="call").iloc[0]
    assert (call["output_tokens"], call["cost_usd"]) == (20, 0.5)
    assert call[["prompt_tokens", "input_tokens"]].isna().all()
