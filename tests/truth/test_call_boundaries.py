"""One call is one call, however it is written; failed ones are told apart, and events are none."""

from __future__ import annotations

import json

from builders import assistant, session, summarised, tool_call, usage, user
from truth.claude_code_transcripts import Transcript, said, use
from truth.raw_log_figures import claude_code

import ctxkit as ck


def test_lines_of_one_call_with_others_between_are_one():
    t = Transcript()
    t.ask("go")
    t.reply("a", 20_000, 5, said("first"))
    t.ask("and this, queued meanwhile")
    t.reply("b", 20_500, 5, said("of another call"))
    t.reply("a", 20_000, 90, said("second"), use("c1"), stop="tool_use")
    t.answer("c1", "ok")
    s = t.read()
    assert [c.message.usage.prompt_tokens for c in s.calls] == [20_000, 20_500]
    first = s.calls[0].message
    assert [type(p).__name__ for p in first.parts] == ["Text", "Text", "ToolCall"]
    assert first.usage.output_tokens == 90  # the last line's


def test_another_request_under_the_same_message_is_another_call():
    t = Transcript()
    t.ask("go")
    t.reply("a", 20_000, 5, said("first"))
    t.reply("a", 20_000, 5, said("again"))
    t.lines[-1]["requestId"] = "another"
    assert len(t.read().calls) == 2


def test_a_rewind_ends_a_call():
    t = Transcript()
    asked = t.ask("go")
    t.reply("a", 20_000, 50, said("one way"))
    t.reply("a", 20_000, 50, said("another way"))
    t.lines[-1]["parentUuid"] = asked
    t.lines[-1]["requestId"] = "another"
    assert [m.text for m in t.read().messages] == ["go", "another way"]


def test_real_files_have_a_call_for_each_message_of_a_request(real):
    apart = 0
    for path in sorted((real / "claude-code").glob("entire-*.jsonl")):
        (figures,) = claude_code(path)
        assert len(ck.read(path).calls) == figures["calls_n"]
        apart += _apart(path)
    assert apart  # at least one has another line between its blocks


def _apart(path) -> int:
    places: dict[tuple, list[int]] = {}
    for i, line in enumerate(path.read_text().splitlines()):
        record = json.loads(line) if line.startswith("{") else {}
        if record.get("type") == "assistant":
            places.setdefault((record["message"]["id"], record.get("requestId")), []).append(i)
    return sum(p[-1] - p[0] >= len(p) for p in places.values())


def test_a_prompt_of_no_tokens_is_missing(tmp_path):
    failed = {
        "id": "m2",
        "role": "assistant",
        "error": {"name": "MessageAbortedError"},
        "modelID": "gpt-4o",
    }
    zero = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    log = {
        "info": {"id": "ses_1"},
        "messages": [
            {"info": {"id": "m1", "role": "user"}, "parts": [{"type": "text", "text": "go"}]},
            {
                "info": {**failed, "tokens": zero, "cost": 0},
                "parts": [{"type": "text", "text": "half an"}],
            },
        ],
    }
    (tmp_path / "s.json").write_text(json.dumps(log))
    frame = ck.frame(ck.read(tmp_path / "s.json"), per="call")
    told = [
        "prompt_tokens",
        "input_tokens",
        "cache_read_tokens",
        "output_tokens",
        "cost_usd",
        "source",
    ]
    assert frame[told].isna().all().all()
    assert frame["is_error"].tolist() == [True]


def test_failed_calls_after_a_cut_are_no_prompt_of_a_replay():
    old = [user("go " * 200), assistant("word " * 4_000, usage=usage(60_000))]
    failed = [
        m
        for _ in range(7)
        for m in (user("again " * 500), assistant("", is_error=True, visible=False))
    ]
    s = session(
        *old, summarised(old, "short"), *failed, user("now"), assistant(usage=usage(22_000))
    )
    again = ck.replay(s, ck.presets.none())
    frame = ck.frame(again, per="call")
    assert frame["prompt_tokens"].notna().tolist() == [True, *[False] * 7, True]
    assert ck.score(again, loss=False)["peak_tokens"] == frame["prompt_tokens"].max()
    assert ck.frame(s, per="session")["peak_tokens"].iloc[0] == 60_000


def test_calls_of_aborted_replies_count(real):
    """Pi's log holds 467 calls of tools, 18 of them in replies that were broken off."""
    path = real / "pi/before-compaction.jsonl"
    row = ck.frame(ck.read(path), per="session").iloc[0]
    said_ = [
        json.loads(line).get("message", {})
        for line in path.read_text().splitlines()
        if line.startswith("{")
    ]
    replies = [m for m in said_ if m.get("role") == "assistant"]
    assert row["tool_calls_n"] == sum(
        p["type"] == "toolCall" for m in replies for p in m["content"]
    )
    assert row["failed_calls_n"] == sum(m["stopReason"] in ("error", "aborted") for m in replies)


def test_calls_of_an_aborted_reply_that_were_run_count_once():
    s = session(
        user(), assistant("", tool_call(), details={"calls_not_run": [{"id": "x", "name": "bash"}]})
    )
    assert ck.frame(s, per="call")["tool_calls_n"].tolist() == [2]


def test_retries_and_made_up_replies_are_events(real):
    path = real / "claude-code/episodic-memory-long-conversation.jsonl"
    row = ck.frame(ck.read(path), per="session").iloc[0]
    (figures,) = claude_code(path)
    assert figures["events_n"] > 0
    assert (row["calls_n"], row["events_n"], row["failed_calls_n"]) == (
        figures["calls_n"],
        figures["events_n"],
        0,
    )
    t = Transcript()
    t.ask("go")
    t.add("system", subtype="api_error", error={"status": 529})
    t.reply("x", 0, 0, said("No response requested."), model="<synthetic>")
    t.reply("a", 20_000, 50, said("yes"), stop="end_turn")
    s = t.read()
    assert [c.message.model for c in s.calls] == ["claude-opus-4-5-20251101"]
    assert ck.frame(s, per="session")["events_n"].iloc[0] == 2
