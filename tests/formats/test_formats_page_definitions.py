"""What docs/formats.md defines of server calls, API errors as replies and messages of agents."""

from __future__ import annotations

import json
from pathlib import Path

import ctxkit as ck

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
AT = "2026-08-01T10:00:0{}.000Z"


def write(tmp_path, name, *records):
    path = tmp_path / name
    path.write_text("\n".join(map(json.dumps, records)))
    return ck.read(path)


def codex(tmp_path, *items):
    meta = {
        "id": "s",
        "timestamp": AT.format(0),
        "cli_version": "0.140.0",
        "model_provider": "openai",
    }
    lines = [{"timestamp": AT.format(0), "type": "session_meta", "payload": meta}]
    lines += [{"timestamp": AT.format(1), "type": "response_item", "payload": i} for i in items]
    return write(tmp_path, "rollout.jsonl", *lines)


def said(role, text):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def test_a_search_of_the_provider_has_one_result_without_parts_or_tokens(tmp_path):
    assert "\n| calls that the provider runs | " in PAGE
    search = {
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    s = codex(tmp_path, said("user", "Look it up."), search, said("assistant", "Found."))
    (result,) = [m for m in s.messages if m.role == "tool"]
    assert (result.kind, result.parts) == ("server", ())
    rows = ck.frame(s, per="message")
    assert rows.loc[rows["role"] == "tool", "tokens"].sum() == 0


def test_a_message_of_an_agent_is_an_input_that_begins_a_turn(tmp_path):
    assert "\n| messages of agents | " in PAGE
    told = {"type": "agent_message", "content": [{"type": "input_text", "text": "I am done."}]}
    s = codex(
        tmp_path, said("user", "Go."), said("assistant", "Gone."), told, said("assistant", "Well.")
    )
    (message,) = [m for m in s.messages if m.kind == "agent"]
    assert (message.role, message.text) == ("user", "I am done.")
    assert [c.turn for c in s.calls] == [0, 1]
    assert "I am done." in [m.text for m in s.view(-1)]


def test_an_api_error_as_a_reply_is_an_event_and_no_failed_call(tmp_path):
    assert "\n| API errors as replies | " in PAGE
    base = {
        "sessionId": "s",
        "version": "2.1.299",
        "cwd": "/w",
        "isSidechain": False,
        "userType": "external",
    }
    content = [{"type": "text", "text": "API Error: 529 overloaded"}]
    error = {"id": "e", "type": "message", "role": "assistant", "model": "<synthetic>", "content": content,
             "usage": {"input_tokens": 0, "output_tokens": 0}}  # fmt: skip
    s = write(
        tmp_path,
        "s.jsonl",
        {**base, "type": "user", "uuid": "1", "parentUuid": None, "timestamp": AT.format(0), "message": {"role": "user", "content": "Go."}},
        {**base, "type": "assistant", "uuid": "2", "parentUuid": "1", "timestamp": AT.format(1), "isApiErrorMessage": True, "message": error},
    )  # fmt: skip
    row = ck.frame(s, per="session").iloc[0]
    assert (row["calls_n"], row["failed_calls_n"], row["events_n"]) == (0, 0, 1)
