"""SWE-agent and mini-SWE-agent: actions are calls, demonstrations are prompt, completions bring usage."""

from __future__ import annotations

import json

import ctxkit as ck
from ctxkit.formats import Source, read_source


def test_an_action_is_a_call_and_the_observation_its_result(real):
    s = ck.read(real / "swe-agent/pydicom__pydicom-1458.traj")
    call = s.call(0)
    (asked,) = call.message.tool_calls
    result = s.path[call.position + 1]
    assert asked.name == "create"
    assert asked.arguments["command"].startswith("create reproduce_bug.py")
    assert (result.role, result.call_id, result.tool) == ("tool", asked.id, "create")
    assert len(s.calls) == s.details["api_calls"] == 12


def test_demonstrations_are_prompt_and_no_calls(real):
    s = ck.read(real / "swe-agent/psf__requests-1921.traj")
    assert sum(m.kind == "demo" for m in s.messages) == 22
    assert len(s.calls) == s.details["api_calls"] == 86
    assert s.details["input_tokens"] == 1_304_218
    assert not s.has_usage


def test_text_of_a_reply_is_kept_once(real):
    s = ck.read(real / "swe-agent/pydicom__pydicom-1458.traj")
    said = json.loads((real / "swe-agent/pydicom__pydicom-1458.traj").read_bytes())["history"][3]
    m = s.call(0).message
    assert m.text == said["thought"]
    assert m.tool_calls[0].arguments["command"] == said["action"]


def test_mini_agents_input_holds_the_cache(real):
    s = ck.read(real / "mini-swe-agent/marshmallow-code__marshmallow-1343.traj.json")
    u = s.call(0).message.usage
    assert (u.input_tokens, u.cache_read_tokens, u.output_tokens, u.cost_usd) == (
        1_716,
        320,
        72,
        0.00051968,
    )
    assert abs(sum(c.message.usage.cost_usd for c in s.calls) - s.details["cost_usd"]) < 1e-9
    assert s.messages[3].details == {"returncode": 0}
    assert s.messages[3].tool == "bash"


def test_an_older_mini_agent_is_a_bare_list(real):
    s = ck.read(real / "mini-swe-agent/github_issue.traj.json")
    assert s.format == "mini-swe-agent"
    assert len(s.calls) == 10


def test_tau_bench_gives_a_session_a_run(real):
    sessions = ck.read_all(real / "tau-bench/gpt-4o-airline.json", progress=False)
    assert len(sessions) == 200
    assert len({s.id for s in sessions}) == 200
    assert {s.details["reward"] for s in sessions} == {0.0, 1.0}
    assert not sessions[0].has_usage
    assert not sessions[0].has_time


def test_a_run_that_is_none_is_a_fault_of_the_first():
    runs = [{"traj": 5}, {"task_id": 1, "traj": [{"role": "user", "content": "a"}]}]
    (s,) = read_source(Source("t.json", json.dumps(runs[::-1]).encode()))
    assert len(s.messages) == 1
