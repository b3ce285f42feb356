"""Kimi: replies are put together from events; a compaction keeps the last user messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from synthetic_logs import lines
from synthetic_logs_old_layouts import KIMI_CONTEXT, KIMI_WIRE

import ctxkit as ck
from ctxkit.formats import Source, read_source

if TYPE_CHECKING:
    from pathlib import Path

HEAD = {"type": "metadata", "protocol_version": "1.4", "created_at": 1_785_612_803_281}


def loop(kind: str, **more) -> dict:
    return {
        "type": "context.append_loop_event",
        "event": {"type": kind, **more},
        "time": 1_785_612_803_300,
    }


def user(said: str, origin: str = "user") -> dict:
    message = {
        "role": "user",
        "content": [{"type": "text", "text": said}],
        "origin": {"kind": origin},
    }
    return {"type": "context.append_message", "message": message}


def read(*records: dict):
    (session,) = read_source(Source("wire.jsonl", lines(HEAD, *records)))
    return session


def test_a_real_log_has_its_calls_and_its_compaction(real):
    s = ck.read(real / "kimi-cli/assistant_tools.jsonl")
    (edit,) = s.edits
    assert (edit.tokens_before, edit.tokens_after, edit.trigger) == (15_912, 654, "manual")
    assert edit.usage.prompt_tokens == 42_371
    assert sorted(m.role for m in s.view()) == ["summary", "system"] + ["user"] * 8
    assert all(c.message.latency for c in s.calls)
    assert len(s.calls) == 22


def test_results_come_after_the_reply_that_asked():
    s = read(
        user("a"),
        loop("step.begin", uuid="s"),
        loop("content.part", part={"type": "think", "think": "hm"}),
        loop("tool.call", toolCallId="c", name="Bash", args={"command": "ls"}),
        loop("tool.result", toolCallId="c", result={"output": "x", "isError": True}),
        loop(
            "step.end",
            usage={"inputOther": 5, "inputCacheRead": 7, "inputCacheCreation": 1, "output": 2},
        ),
    )
    assert [m.role for m in s.messages] == ["user", "assistant", "tool"]
    assert s.messages[1].id == "s"
    assert s.messages[1].usage.prompt_tokens == 13
    assert s.messages[2].is_error
    assert s.messages[2].tool == "Bash"


def test_a_step_that_was_cut_off_keeps_what_came():
    s = read(
        user("a"),
        loop("step.begin", uuid="s"),
        loop("content.part", part={"type": "text", "text": "half"}),
    )
    assert s.messages[-1].text == "half"
    assert s.messages[-1].usage is None


def test_a_step_without_a_reply_is_counted():
    assert read(user("a"), loop("step.begin"), user("b")).skipped == {"step without a reply": 1}


def test_reminders_are_not_kept_as_user_messages():
    compaction = {
        "type": "context.apply_compaction",
        "contextSummary": "so far",
        "keptUserMessageCount": 1,
    }
    s = read(user("a"), user("b"), user("mind the list", "injection"), compaction)
    assert {m.text for m in s.view()} == {"so far", "b"}


def test_compactions_beyond_measure_are_told_and_take_nothing():
    compaction = {
        "type": "context.apply_compaction",
        "contextSummary": "s",
        "keptUserMessageCount": 10**6,
    }
    s = read(*[r for n in range(3_000) for r in (user(str(n)), compaction)])
    assert len(s.edits) == 3_000
    assert "too often" in s.edits[-1].reason
    assert not s.edits[-1].targets


def test_a_folder_of_the_older_kimi_is_one_session(tmp_path: Path) -> None:
    folder = tmp_path / "hash" / "some-session"
    folder.mkdir(parents=True)
    (folder / "wire.jsonl").write_bytes(KIMI_WIRE)
    (folder / "context.jsonl").write_bytes(KIMI_CONTEXT)
    (session,) = ck.read_all(tmp_path, progress=False)
    assert (session.id, session.skipped["context.jsonl"]) == ("some-session", 1)
    assert ck.read(folder / "context.jsonl").id == "some-session"


def test_a_step_that_was_cut_off_keeps_its_time():
    call = {"toolCallId": "c", "name": "Bash", "args": {"command": "ls"}}
    cut = (loop("step.begin", uuid="s"), loop("tool.call", **call), loop("step.begin", uuid="t"))
    (reply,) = (c.message for c in read(user("a"), *cut).calls)
    assert reply.time == 1_785_612_803.3
