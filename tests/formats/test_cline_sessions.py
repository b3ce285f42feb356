"""Cline from 4.0 on: a session's file, what is beside it, its latest compaction, its subagents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ctxkit as ck
from ctxkit.session import Attachment

if TYPE_CHECKING:
    from pathlib import Path

PICTURE = {"type": "image", "data": "iVBORw0KGgo=", "mediaType": "image/png"}


def said(role: str, *content: Any, own: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]
    return {"id": own, "role": role, "content": parts, "ts": 1_787_400_000_000, **more}


def result(of: str, content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": of, "name": "read_files", "content": content}


TALK = [
    said("user", "look", {"type": "file", "path": "/w/a.py", "content": "x = 1"}, own="u1"),
    said("assistant", {"type": "thinking", "thinking": "hm", "signature": "s"},
         {"type": "tool_use", "id": "c1", "name": "read_files", "input": {"paths": ["a"]}}, own="a1",
         modelInfo={"id": "m-1", "provider": "cline"},
         metrics={"inputTokens": 100, "cacheReadTokens": 60, "cacheWriteTokens": 10,
                  "outputTokens": 7, "cost": 0.5}),
    said("user", result("c1", [{"query": "a", "result": "x = 1", "success": True}]), own="r1"),
    said("assistant", "It is one.", own="a2", metrics={"inputTokens": 0, "outputTokens": 0}),
    said("user", "and now?", PICTURE, own="u2"),
    said("user", "Time to finish.", own="n1",
         metadata={"kind": "completion_reminder", "displayRole": "system"}),
    said("assistant", "Two.", own="a3"),
]  # fmt: skip
ABOUT = {"version": 1, "updated_at": "2026-08-22T10:00:00.000Z", "agent": "lead", "sessionId": "s1",
         "origin": {"source": "cli", "mode": "user", "sessionId": "s1", "version": "4.1.13"},
         "system_prompt": "be brief"}  # fmt: skip
SUMMARY = said("user", "Context summary:\n\nlooked at a.", own="x",
               metadata={"kind": "compaction_summary", "displayRole": "system", "tokensBefore": 900})  # fmt: skip


def session(folder: Path, *, state: dict[str, Any] | None = None, **more: Any) -> Path:
    folder = folder / "s1"
    folder.mkdir(exist_ok=True)
    manifest = {"version": 1, "session_id": "s1", "cwd": "/w", "model": "m-0", "metadata": {"title": "Look at a"},
                "started_at": "2026-08-22T09:00:00Z"}  # fmt: skip
    (folder / "s1.json").write_text(json.dumps(manifest))
    (folder / "s1.messages.json").write_text(json.dumps({**ABOUT, "messages": TALK, **more}))
    if state is not None:
        told = {"version": 1, "updated_at": "2026-08-22T09:30:00Z", **state}
        (folder / "s1.compaction.json").write_text(json.dumps(told))
    return folder


def test_a_session_is_read_with_what_lies_beside_it(tmp_path: Path):
    found = ck.read(session(tmp_path))
    assert (found.format, found.product, found.version) == ("cline", "cline", "4.1.13")
    assert (found.id, found.title, found.cwd, found.model) == ("s1", "Look at a", "/w", "m-1")
    roles = ["system", "user", "assistant", "tool", "assistant", "user", "user", "assistant"]
    assert [m.role for m in found.messages] == roles
    user, first, answer, second, seen, notice = found.messages[1:7]
    assert user.text.splitlines() == ["look", "x = 1"]
    usage = first.usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (30, 60, 10)
    assert (usage.output_tokens, usage.cost_usd, second.usage) == (7, 0.5, None)
    assert json.loads(answer.text) == [{"query": "a", "result": "x = 1", "success": True}]
    assert (answer.tool, answer.call_id) == ("read_files", "c1")
    assert [p.media_type for p in seen.parts if isinstance(p, Attachment)] == ["image/png"]
    assert (notice.kind, seen.kind) == ("injected", "")
    assert not found.skipped
    assert ck.read(tmp_path / "s1" / "s1.messages.json") == found


def test_the_latest_compaction_stands_where_it_was_made(tmp_path: Path):
    state = {"source_message_count": 4, "messages": [SUMMARY, TALK[3]]}
    found = ck.read(session(tmp_path, state=state))
    (edit,) = found.edits
    assert [m.role for m in edit.inserted] == ["summary"]
    assert (edit.tokens_before, edit.method) == (900, "compaction_summary")
    assert edit.targets == ("u1", "a1", *(m.id for m in found.messages if m.call_id == "c1"))
    assert [m.text for m in found.view(2)][:3] == ["be brief", "Context summary:\n\nlooked at a.", "It is one."]  # fmt: skip
    late = ck.read(session(tmp_path, state={**state, "source_message_count": 7}))
    assert late.log[-1] == late.edits[0]
    stale = ck.read(session(tmp_path, state={**state, "source_message_count": 70}))
    assert not stale.edits  # it is of messages that are not there any more


def test_a_talk_that_begins_with_a_summary(tmp_path: Path):
    found = ck.read(session(tmp_path, messages=[SUMMARY, *TALK[3:]]))
    assert [m.role for m in found.view(0)] == ["system", "summary"]
    assert found.edits[0].targets == ()


def test_subagents_are_children_and_listed_once(tmp_path: Path):
    folder = session(tmp_path)
    origin = {
        **ABOUT["origin"],
        "sessionId": "s1__scout",
        "parentThreadId": "s1",
        "subagent": "scout",
    }
    below = {**ABOUT, "agent": "subagent", "sessionId": "s1__scout", "origin": origin}
    (folder / "scout.messages.json").write_text(json.dumps({**below, "messages": TALK[:2]}))
    for found in (ck.read(folder), *ck.read_all(tmp_path, progress=False)):
        (child,) = found.children
        assert (child.id, child.agent, child.parent) == ("s1__scout", "scout", "s1")
        assert len(child.calls) == 1
    home = tmp_path / "home" / ".cline" / "data" / "sessions"
    home.mkdir(parents=True)
    folder.rename(home / "s1")
    assert set(ck.discover(tmp_path / "home").tool) == {"cline"}


def test_a_link_beside_is_not_followed(tmp_path: Path):
    folder = session(tmp_path)
    (folder / "s1.json").rename(tmp_path / "far.json")
    (folder / "s1.json").symlink_to(tmp_path / "far.json")
    assert ck.read(folder).title is None
