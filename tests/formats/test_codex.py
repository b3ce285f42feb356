"""Codex rollouts: which items are one call, which count belongs to it, what a replacement keeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from source_builders import source, texts

import ctxkit as ck
from ctxkit.formats import codex
from ctxkit.session import Usage

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session import Session

META = {
    "type": "session_meta",
    "payload": {"id": "s", "cwd": "/tmp", "base_instructions": {"text": "Be good."}},
}


def item(kind: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "response_item",
        "timestamp": "2026-01-01T00:00:00Z",
        "payload": {"type": kind, **more},
    }


def user(said: str) -> dict[str, Any]:
    return item("message", role="user", content=[{"type": "input_text", "text": said}])


def reply(said: str) -> dict[str, Any]:
    return item("message", role="assistant", content=[{"type": "output_text", "text": said}])


def call(own: str) -> dict[str, Any]:
    return item("function_call", name="shell", call_id=own, arguments='{"command": ["ls"]}')


def output(own: str, said: Any = "ok") -> dict[str, Any]:
    return item("function_call_output", call_id=own, output=said)


def count(total: int, last: int, cached: int = 0) -> dict[str, Any]:
    usage = {
        "input_tokens": last,
        "cached_input_tokens": cached,
        "output_tokens": 5,
        "reasoning_output_tokens": 2,
    }
    info = {
        "total_token_usage": {"input_tokens": total},
        "last_token_usage": usage,
        "model_context_window": 1000,
    }
    return {"type": "event_msg", "payload": {"type": "token_count", "info": info}}


def read(*records: Any) -> Session:
    return codex.read(source(META, *records))[0]


def test_counts_before_the_items_belong_to_what_follows() -> None:
    s = read(
        user("a"),
        count(10, 10, 4),
        item("reasoning", summary=[]),
        call("1"),
        output("1"),
        call("2"),
        output("2"),
        count(10, 10, 4),
        count(30, 20),
        reply("done"),
    )
    assert [(c.message.usage.prompt_tokens, len(c.message.tool_calls)) for c in s.calls] == [
        (10, 2),
        (20, 0),
    ]
    assert s.calls[0].message.usage == Usage(6, 4, None, None, 5, 2)
    assert s.calls[0].message.context_window == 1000


def test_counts_after_the_items_belong_to_what_came_before() -> None:
    s = read(
        user("a"),
        call("1"),
        call("2"),
        count(10, 10),
        output("1"),
        output("2"),
        reply("done"),
        count(30, 20),
    )
    assert [(c.message.usage.prompt_tokens, len(c.message.tool_calls)) for c in s.calls] == [
        (10, 2),
        (20, 0),
    ]


def test_a_counted_call_without_items_is_a_call_that_shows_nothing() -> None:
    s = read(user("a"), count(10, 10), count(30, 20), reply("done"))
    assert [(c.message.usage.prompt_tokens, c.message.visible) for c in s.calls] == [
        (10, False),
        (20, True),
    ]


def test_events_that_repeat_items_do_not_count_twice() -> None:
    shown = {"type": "event_msg", "payload": {"type": "agent_message", "message": "done"}}
    s = read(user("a"), reply("done"), shown)
    assert texts(s.messages) == ["Be good.", "a", "done"]
    assert s.skipped == {"event agent_message": 1}


def test_the_code_and_text_of_a_wrapped_output_are_taken_apart() -> None:
    s = read(
        user("a"),
        call("1"),
        output("1", json.dumps({"output": "text", "metadata": {"exit_code": 2}})),
    )
    assert (s.messages[-1].text, s.messages[-1].details, s.messages[-1].tool) == (
        "text",
        {"exit_code": 2},
        "shell",
    )


@pytest.mark.parametrize(
    "said", [[{"type": "input_text", "text": "ok"}], {"content": "ok", "success": False}]
)
def test_outputs_come_in_several_shapes(said: Any) -> None:
    assert read(user("a"), call("1"), output("1", said)).messages[-1].text == "ok"


def test_what_a_replacement_repeats_keeps_its_id() -> None:
    kept = [user("a")["payload"], user("SUMMARY")["payload"]]
    compacted = {"type": "compacted", "payload": {"message": "", "replacement_history": kept}}
    s = read(user("a"), reply("b"), user("c"), compacted, user("d"))
    (edit,) = s.edits
    assert texts(m for m in s.messages if m.id in edit.targets) == ["b", "c"]
    assert [(m.role, m.text) for m in edit.inserted] == [("summary", "SUMMARY")]
    assert sorted(texts(s.view())) == ["Be good.", "SUMMARY", "a", "d"]


def test_a_result_in_a_replacement_has_the_tool_of_the_call_before_it() -> None:
    cut = output("1", "cut")["payload"]
    kept = [cut, user("SUMMARY")["payload"]]
    compacted = {"type": "compacted", "payload": {"message": "", "replacement_history": kept}}
    s = read(user("a"), call("1"), output("1", "whole"), compacted, user("d"))
    tool = next(m.tool for m in s.messages if m.text == "whole")
    (edit,) = s.edits
    inserted = [(m.role, m.text, m.tool) for m in edit.inserted]
    assert tool is not None
    assert inserted == [("tool", "cut", tool), ("summary", "SUMMARY", None)]


def test_a_compaction_without_a_replacement_keeps_the_opening() -> None:
    s = read(
        user("<environment_context>x"),
        user("a"),
        reply("b"),
        {"type": "compacted", "payload": {"message": "S"}},
    )
    assert texts(s.view()) == ["Be good.", "<environment_context>x", "S"]


def test_aborts_and_errors_are_failed_calls() -> None:
    events = [
        {"type": "event_msg", "payload": p}
        for p in (
            {"type": "turn_aborted", "reason": "interrupted"},
            {"type": "error", "message": "full"},
        )
    ]
    s = read(user("a"), *events)
    assert [(c.message.stop, c.message.error) for c in s.calls] == [
        ("aborted", "interrupted"),
        ("error", "full"),
    ]


def test_instructions_that_the_opening_repeats_are_no_system_prompt() -> None:
    meta = {"type": "session_meta", "payload": {"id": "s", "instructions": "Use tabs."}}
    s = codex.read(source(meta, user("# AGENTS.md instructions\n\nUse tabs.")))[0]
    assert [(m.role, m.kind) for m in s.messages] == [("user", "wrapper")]


def test_the_first_versions_wrote_bare_items() -> None:
    head = {"id": "s", "timestamp": "2025-05-01T00:00:00Z", "instructions": None}
    file = source(head, user("a")["payload"], reply("b")["payload"])
    assert codex.sniff(file)
    assert texts(codex.read(file)[0].messages) == ["a", "b"]


def test_every_count_of_a_real_rollout_is_one_call(real: Path) -> None:
    for path, calls in (("rollout-2025-10-31*.jsonl", 456), ("rollout-2025-11-13*.jsonl", 80)):
        (s,) = ck.read_all(real / "codex" / path)
        assert len(s.calls) == calls
        assert all(c.message.usage for c in s.calls)
        total = sum(c.message.usage.prompt_tokens for c in s.calls)
        raw = [
            json.loads(line)["payload"]
            for line in next((real / "codex").glob(path)).read_bytes().splitlines()
        ]
        assert (
            total
            == [p["info"] for p in raw if p.get("info")][-1]["total_token_usage"]["input_tokens"]
        )
