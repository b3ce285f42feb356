"""OpenCode: calls with results, the plug-in's compression, the built-in one, the storage folder with subagents."""

from __future__ import annotations

import json

import pytest

import ctxkit as ck
from ctxkit.formats import Source, opencode, read_source


def message(n: int, role: str, *parts: dict, **more) -> dict:
    info = {
        "id": f"msg_{n}",
        "sessionID": "ses_1",
        "role": role,
        "time": {"created": 1_000_000_000_000 + n},
        **more,
    }
    return {"info": info, "parts": [{"id": f"prt_{n}{i}", **p} for i, p in enumerate(parts)]}


def text(said: str, **more) -> dict:
    return {"type": "text", "text": said, **more}


def read(*messages: dict):
    export = {
        "info": {"id": "ses_1", "projectID": "p", "directory": "/w"},
        "messages": list(messages),
    }
    (session,) = read_source(Source("x.json", json.dumps(export).encode()))
    return session


def test_the_context_of_a_call_is_input_and_cache(real):
    s = ck.read(real / "opencode/prsui-compress-06b0c1c68.json")
    u = s.call(0).message.usage
    assert (u.input_tokens, u.cache_read_tokens, u.prompt_tokens) == (1_422, 10_240, 11_662)
    assert u.output_tokens == 140 + 66


def test_the_plug_in_takes_the_messages_it_numbers(real):
    s = ck.read(real / "opencode/prsui-compress-06b0c1c68.json")
    (edit,) = s.edits
    assert edit.method == "compress"
    assert edit.targets[0] == s.messages[0].id
    assert edit.inserted[0].text.startswith("TypeScript build error")
    assert sum(m.role in ("user", "assistant") for m in s.messages if m.id in edit.targets) == 5


def test_a_built_in_compaction_takes_everything_shown():
    s = read(
        message(1, "user", text("a")),
        message(2, "assistant", text("sum"), summary=True),
        message(3, "user", text("b")),
    )
    assert [m.text for m in s.view()] == ["sum", "b"]
    assert s.edits[0].inserted[0].role == "summary"
    assert not s.calls


def test_what_the_user_sees_alone_is_not_shown():
    s = read(
        message(1, "user", text("only you", ignored=True)), message(2, "assistant", text("hm"))
    )
    assert s.view(0) == ()


def test_a_tool_that_never_ended_has_no_result():
    running = {
        "type": "tool",
        "tool": "bash",
        "callID": "c",
        "state": {"status": "running", "input": {"command": "ls"}},
    }
    s = read(message(1, "assistant", running))
    assert s.calls[0].message.tool_calls[0].arguments == {"command": "ls"}
    assert s.skipped == {"tool without a result: running": 1}


def store(root, kind: str, place: str, record: dict) -> None:
    (root / kind / place).mkdir(parents=True, exist_ok=True)
    (root / kind / place / f"{record['id']}.json").write_text(json.dumps(record))


def test_a_storage_folder_gives_main_sessions_with_their_subagents(tmp_path):
    for n, parent in (("1", None), ("2", "ses_1")):
        store(
            tmp_path, "session", "proj", {"id": f"ses_{n}", "parentID": parent, "directory": "/w"}
        )
        info = {"id": f"msg_{n}", "role": "user", "sessionID": f"ses_{n}", "time": {"created": 5}}
        store(tmp_path, "message", f"ses_{n}", info)
        store(tmp_path, "part", f"msg_{n}", {"id": f"prt_{n}", **text(f"said {n}")})
    s = ck.read(tmp_path)
    assert (s.id, s.messages[0].text) == ("ses_1", "said 1")
    assert [c.messages[0].text for c in s.children] == ["said 2"]
    assert len(ck.read_all(tmp_path, progress=False)) == 1
    assert ck.read(tmp_path / "session/proj/ses_2.json").messages[0].text == "said 2"


def test_a_stored_message_or_session_has_its_own_id_and_the_field_of_its_kind():
    sniffed = {
        (id_, field): opencode.sniff(Source("x.json", json.dumps({"id": id_, field: "x"}).encode()))
        for id_ in ("msg_1", "ses_1", "x")
        for field in ("sessionID", "directory")
    }
    assert {k for k, v in sniffed.items() if v} == {("msg_1", "sessionID"), ("ses_1", "directory")}
    for info in ({"id": "ses_1"}, {"id": "x", "projectID": "p"}, {"id": "x"}, None):
        export = json.dumps({"id": "x", "info": info, "messages": []}).encode()
        assert opencode.sniff(Source("x.json", export)) == (info not in ({"id": "x"}, None))


def test_a_storage_without_sessions_is_refused(tmp_path):
    for name in ("session/p", "message"):
        (tmp_path / name).mkdir(parents=True)
    assert not opencode.sniff_folder(tmp_path)
    with pytest.raises(ck.ReadError, match="expected sessions in the folder") as raised:
        opencode.read_folder(tmp_path)
    assert raised.value.path == str(tmp_path)
    (tmp_path / "session/p/ses_1.json").write_text("{}")
    assert opencode.sniff_folder(tmp_path)
