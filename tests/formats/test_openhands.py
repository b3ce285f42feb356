"""OpenHands: runs of an output, a folder of events, logs of completions, condensations."""

from __future__ import annotations

import json
import shutil

import pytest
from synthetic_logs import lines

import ctxkit as ck
from ctxkit.formats import Source, read_source


def test_usage_is_counted_once_a_completion(real):
    sessions = ck.read_all(real / "openhands/multi-swe-bench-output.jsonl", progress=False)
    assert [len(s.calls) for s in sessions] == [23, 33, 49]
    first = sessions[0]
    assert sum(c.message.usage.prompt_tokens for c in first.calls) == 565_158
    assert first.tools[0].name == "execute_bash"
    assert first.call(0).message.latency == pytest.approx(3.057, abs=1e-3)


def test_the_clock_is_set_by_the_completions(real):
    first = ck.read_all(real / "openhands/multi-swe-bench-output.jsonl", progress=False)[0]
    assert abs(first.call(0).message.time - 1_746_001_974) < 60


def test_a_conversation_folder_is_one_session(real):
    s = ck.read(real / "openhands/sdk-conversation-cd945624")
    assert [m.role for m in s.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert s.id == "sdk-conversation-cd945624"
    assert len(ck.read_all(real / "openhands", progress=False)) == 3 + 2 + 1


def test_a_completion_log_is_a_prompt_and_its_reply(real):
    s = ck.read(real / "openhands/llm-log-claude-sonnet-4-1757015046.707.json")
    last = s.call(-1).message
    assert (len(s.view(-1)), last.usage.prompt_tokens, last.usage.cost_usd) == (12, 6_729, 0.023172)
    assert (last.context_window, s.tools[0].name) == (200_000, "terminal")


def test_completion_logs_of_one_folder_grow_into_one_session(tmp_path):
    def log(n: int, *said: str) -> None:
        messages = [
            {"role": r, "content": t} for r, t in zip(("user", "assistant") * 3, said, strict=False)
        ]
        reply = {
            "choices": [{"message": {"role": "assistant", "content": f"reply {n}"}}],
            "usage": {"prompt_tokens": n},
        }
        record = {
            "messages": messages,
            "response": reply,
            "kwargs": {},
            "timestamp": 1_757_015_000 + n,
            "latency_sec": 1,
        }
        (tmp_path / f"m-175701504{n}.123.json").write_text(json.dumps(record))

    log(1, "a")
    log(2, "a", "reply 1", "b")
    s = ck.read(tmp_path)
    assert [m.text for m in s.messages] == ["a", "reply 1", "b", "reply 2"]
    assert [c.message.usage.prompt_tokens for c in s.calls] == [1, 2]


def act(n: int, **more) -> dict:
    return {"id": n, "timestamp": "2025-01-01T00:00:00", "source": "agent", **more}


def test_a_condensation_takes_the_events_it_forgets():
    history = [
        act(0, action="message", source="user", args={"content": "do"}),
        act(1, action="run", args={"command": "ls", "thought": "look"}),
        act(2, observation="run", content="a.py", cause=1),
        act(
            3,
            action="condensation",
            args={"forgotten_event_ids": [1, 2], "summary": "looked", "summary_offset": 1},
        ),
    ]
    (s,) = read_source(Source("o.jsonl", lines({"instance_id": "i", "history": history})))
    assert [m.text for m in s.view()] == ["do", "looked"]
    assert s.messages[2].call_id == s.messages[1].tool_calls[0].id


def test_a_command_that_still_runs_has_not_failed():
    """OpenHands writes the exit code -1 until the command has ended."""

    def observe(n: int, **observation) -> dict:
        return act(n, kind="ObservationEvent", tool_name="terminal", observation=observation)

    history = [
        act(0, kind="MessageEvent", llm_message={"role": "user", "content": "do"}),
        *(
            observe(n, content="x", exit_code=code)
            for n, code in enumerate((0, -1, -2, 1, None), 1)
        ),
        observe(6, content="x", exit_code=-1, is_error=True),
        act(7, kind="AgentErrorEvent", error="no such tool"),
    ]
    (s,) = read_source(Source("o.jsonl", lines({"instance_id": "i", "history": history})))
    results = [m for m in s.messages if m.role == "tool"]
    assert [m.is_error for m in results] == [False, False, True, True, False, True, True]
    assert [m.details.get("exit_code") for m in results] == [0, -1, -2, 1, None, -1, None]
    assert results[-1].text == "no such tool"


def test_older_histories_are_pairs():
    history = [
        [
            act(1, action="run", args={"command": "ls"}),
            act(2, observation="run", content="x", cause=1),
        ]
    ]
    (s,) = read_source(Source("o.jsonl", lines({"instance_id": "i", "history": history})))
    assert [m.role for m in s.messages] == ["assistant", "tool"]


def test_usage_of_a_conversation_comes_from_its_state(real, tmp_path):
    shutil.copytree(
        real / "openhands/sdk-conversation-cd945624", tmp_path / "c", copy_function=shutil.copyfile
    )
    used = {
        "response_id": "chatcmpl-D5rlWUdHeehJ1YAPoStNh1wWFayTf",
        "prompt_tokens": 50,
        "cache_read_tokens": 40,
    }
    state = {"id": "conv", "stats": {"usage_to_metrics": {"agent": {"token_usages": [used]}}}}
    (tmp_path / "c/base_state.json").write_text(json.dumps(state))
    s = ck.read(tmp_path / "c")
    assert s.id == "conv"
    assert (s.call(0).message.usage.input_tokens, s.call(0).message.usage.cache_read_tokens) == (
        10,
        40,
    )


@pytest.mark.parametrize("first", [1, None])
def test_a_condensation_takes_the_span_of_events_that_it_names(first):
    """A span has both ends; without a start it begins with the first event."""
    span = {"forgotten_events_start_id": first, "forgotten_events_end_id": 2, "summary": "looked"}
    history = [
        act(0, action="message", source="user", args={"content": "do"}),
        act(1, action="run", args={"command": "ls", "thought": "look"}),
        act(2, observation="run", content="a.py", cause=1),
        act(3, action="message", source="user", args={"content": "go on"}),
        act(4, action="condensation", args={**span, "summary_offset": 1}),
    ]
    (s,) = read_source(Source("o.jsonl", lines({"instance_id": "i", "history": history})))
    start = ["do"] if first else []
    assert sorted(m.text for m in s.view()) == sorted([*start, "looked", "go on"])
