"""Files of known formats in other shapes: packed, in other encodings, as a list, several in one, whole or cut."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

import ctxkit as ck
from ctxkit.errors import ReadError
from ctxkit.formats import Source, read_source
from ctxkit.session import Edit, Message

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session import Session

Rows = list[dict[str, Any]]
TALK: Rows = [
    {
        "type": "user",
        "uuid": "1",
        "parentUuid": None,
        "sessionId": "s",
        "message": {"role": "user", "content": "hi"},
    },
    {
        "type": "assistant",
        "uuid": "2",
        "parentUuid": "1",
        "sessionId": "s",
        "message": {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "ho"}]},
    },
]


def lines(rows: Rows) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def read(data: bytes | Rows | dict[str, Any]) -> list[Session]:
    if not isinstance(data, bytes):
        data = lines(data) if isinstance(data, list) else json.dumps(data).encode()
    return read_source(Source("s", data))


def said(session: Session) -> list[str]:
    return [m.text for m in session.messages]


@pytest.mark.parametrize(
    "data",
    [
        lines(TALK) + b'\n{"type":"user","uuid":"3","mess',
        b"\xef\xbb\xbf" + lines(TALK).replace(b"\n", b"\r\n") + b"\r\n",
        lines(TALK).decode().encode("utf-16"),
        lines(TALK).decode().encode("utf-16-le"),
        lines(TALK).decode().encode("utf-16-be"),
        gzip.compress(lines(TALK)),
        gzip.compress(lines(TALK[:1]) + b"\n") + gzip.compress(lines(TALK[1:])),
        gzip.compress(lines(TALK) + b"\n" + b" " * 100_000)[:-30],
        json.dumps(TALK).encode(),
        json.dumps(TALK, indent=1).encode(),
    ],
)
def test_the_same_lines_in_another_shape_are_the_same_session(data: bytes):
    (session,) = read(data)
    assert (session.format, said(session)) == ("claude-code", ["hi", "ho"])


def test_a_gzip_bomb_is_refused_and_a_damaged_one_told():
    with pytest.raises(ReadError, match="bomb"):
        read(gzip.compress(b"\n" * 20_000_000))
    packed = gzip.compress(lines(TALK))
    with pytest.raises(ReadError, match="damaged"):
        read(packed[:-8] + b"\0" * 8)


def test_packed_logs_of_a_folder_are_found(tmp_path: Path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(TALK)))
    (tmp_path / "picture.gz").write_bytes(gzip.compress(b"\0\1\2"))
    found = ck.read_all(tmp_path, progress=False)
    assert len(found) == 1
    assert found.failed.empty


def atif(name: str) -> dict[str, Any]:
    step = {"step_id": 1, "source": "user", "message": name}
    return {
        "schema_version": "ATIF-v1.4",
        "session_id": name,
        "agent": {"name": "n"},
        "steps": [step],
    }


@pytest.mark.parametrize("shape", [list, lines])
def test_several_documents_in_one_file_are_several_sessions(shape: Any, tmp_path: Path):
    made = shape([atif("a"), atif("b")])
    path = tmp_path / "both.jsonl"
    path.write_bytes(made if isinstance(made, bytes) else json.dumps(made).encode())
    found = ck.read_all(path)
    assert [(s.id, said(s), s.path_) for s in found] == [
        ("a", ["a"], str(path)),
        ("b", ["b"], str(path)),
    ]
    with pytest.raises(ReadError, match="2 sessions"):
        ck.read(path)


# -- Claude Code -------------------------------------------------------------------------------------------------------

USAGE = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 7}


def printed(kind: str, content: Any, call: str | None = None, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more}
    return {"type": kind, "session_id": "s", "parent_tool_use_id": call, "message": message}


def test_what_claude_code_prints_is_read_as_its_transcripts_are():
    task = [{"type": "tool_use", "id": "t", "name": "Task", "input": {}}]
    (session,) = read(
        [
            {
                "type": "system",
                "subtype": "init",
                "session_id": "s",
                "cwd": "/w",
                "tools": ["Bash"],
                "model": "c",
            },
            printed("assistant", [{"type": "text", "text": "go"}], id="m", model="c", usage=USAGE),
            printed("assistant", task, id="m", model="c", usage=USAGE),
            printed("user", "look", "t"),
            printed(
                "assistant", [{"type": "text", "text": "seen"}], "t", id="n", model="d", usage=USAGE
            ),
            printed("user", [{"type": "tool_result", "tool_use_id": "t", "content": "done"}]),
            {
                "type": "system",
                "subtype": "compact_boundary",
                "compact_metadata": {"trigger": "auto", "pre_tokens": 9},
            },
            printed("user", "This session is being continued from a previous conversation: go on"),
            {"type": "result", "subtype": "success", "session_id": "s", "total_cost_usd": 0.5},
        ]
    )
    assert (session.id, session.cwd, session.details["cost_usd"]) == ("s", "/w", 0.5)
    assert [t.name for t in session.tools] == ["Bash"]
    (child,) = session.children
    assert said(child) == ["look", "seen"]
    assert child.details["call_id"] == "t"
    edit = session.log[-1]
    assert isinstance(edit, Edit)
    assert (edit.trigger, edit.tokens_before, len(edit.targets)) == ("auto", 9, 2)


def test_lines_of_claude_code_without_ids_are_read():
    (session,) = read([{"type": r["type"], "message": r["message"]} for r in TALK])
    assert said(session) == ["hi", "ho"]
    assert all(isinstance(m, Message) for m in session.log)
