"""What `codex exec --json` prints: calls of every kind, usage of a turn, what never ended."""

from __future__ import annotations

import json
from pathlib import Path

from synthetic_logs_current_layouts import CODEX_EXEC

import ctxkit as ck
from ctxkit.formats import Source, read_source

GOLDEN = Path(__file__).parent / "golden" / "codex-exec.jsonl"


def test_calls_and_the_usage_of_the_turn():
    session = ck.read(GOLDEN)
    calls = [c for m in session.messages for c in m.tool_calls]
    assert [c.name for c in calls] == ["mcp__files__read", "mcp__files__read", "shell"]
    assert [(m.text, m.is_error) for m in session.messages if m.role == "tool"] == [
        ("one two three", False),
        ("No such file: log.txt", True),
        ("3 notes.txt", False),
    ]
    last = session.messages[-1]
    assert (last.kind, last.usage.input_tokens, last.usage.cache_read_tokens) == (
        "turn",
        1360,
        2400,
    )
    assert session.messages[0].text == "Two files."


def test_a_command_with_its_exit_code():
    ran = {
        "id": "i",
        "type": "command_execution",
        "command": "make",
        "aggregated_output": "no",
        "exit_code": 2,
    }
    lines = [{"type": "thread.started", "thread_id": "t"}, {"type": "item.completed", "item": ran}]
    (session,) = read_source(Source("x", b"\n".join(json.dumps(x).encode() for x in lines)))
    reply, result = session.messages
    assert reply.tool_calls[0].arguments == {"command": "make"}
    assert (result.is_error, result.details) == (True, {"exit_code": 2})


def test_what_never_ended_and_what_failed():
    (session,) = read_source(Source("x", CODEX_EXEC))
    patch, result, search = session.messages
    assert (result.is_error, search.tool_calls[0].name) == (True, "web_search")
    assert (search.error, search.stop) == ("overloaded", "error")
    assert search.usage.output_tokens == 1
    assert patch.tool_calls[0].name == "apply_patch"


def test_a_broken_line_that_comes_back_fails_no_reply():
    """`Reconnecting... 1/5` is an error event, after which the turn continues."""

    def said(text: str) -> dict:
        item = {"id": text, "type": "agent_message", "text": text}
        return {"type": "item.completed", "item": item}

    broken = {"type": "error", "message": "Reconnecting... 1/5"}
    begun = {"type": "thread.started", "thread_id": "t"}
    lines = [begun, said("One."), broken, said("Two."), broken]

    def read(*more: dict) -> ck.Session:
        data = b"\n".join(json.dumps(x).encode() for x in (*lines, *more))
        return read_source(Source("x", data))[0]

    done = read({"type": "turn.completed", "usage": {"input_tokens": 9, "output_tokens": 1}})
    assert [m.is_error for m in done.messages] == [False, False]
    assert done.skipped == {"error that a turn went on after": 2}
    assert [m.error for m in read().messages] == [None, "Reconnecting... 1/5"]
    failed = read({"type": "turn.failed", "error": {"message": "gave up"}})
    assert [m.error for m in failed.messages] == [None, "gave up"]
