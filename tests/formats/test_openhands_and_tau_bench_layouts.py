"""OpenHands' layouts of 2024 and its store, its newer outputs, and tau-bench's few-shot talks."""

from __future__ import annotations

import json
from pathlib import Path

import ctxkit as ck
from ctxkit.formats import Source, read_source

GOLDEN = Path(__file__).parent / "golden" / "openhands"
PAIRS = [
    [
        {"action": "message", "args": {"content": "Mend it."}},
        {"observation": "null", "content": "", "extras": {}},
    ],
    [
        {"action": "run", "args": {"command": "make", "thought": "I look."}},
        {
            "observation": "run",
            "content": "2 errors",
            "extras": {"command": "make", "exit_code": 2},
        },
    ],
    [
        {"action": "message", "args": {"content": "May I?", "wait_for_response": True}},
        {"observation": "null", "content": "", "extras": {}},
    ],
    [{"action": "message", "args": {"content": "Yes."}}, {"observation": "null", "content": ""}],
    [{"action": "finish", "args": {"thought": "Done."}}, {"observation": "null", "content": ""}],
]


def test_pairs_without_source_and_id():
    run = {"instance_id": "i-1", "history": PAIRS, "metadata": {"agent_class": "CodeActAgent"}}
    (session,) = read_source(Source("output.jsonl", json.dumps(run).encode()))
    assert [m.role for m in session.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    call, result = session.messages[1].tool_calls[0], session.messages[2]
    assert (call.name, call.arguments, result.call_id) == ("run", {"command": "make"}, call.id)
    assert result.is_error
    assert session.messages[0].text == "Mend it."


def test_a_store_of_numbered_events_is_one_session(tmp_path: Path):
    flat = [{"id": n, "source": "agent" if n else "user", **e[0]} for n, e in enumerate(PAIRS)]
    folder = tmp_path / "sessions" / "abc" / "events"
    folder.mkdir(parents=True)
    for e in flat * 3:
        (folder / f"{e['id']}.json").write_text(json.dumps(e))
    session = ck.read(tmp_path / "sessions" / "abc")
    assert [m.text for m in session.messages] == ["Mend it.", "I look.", "May I?", "Yes.", "Done."]
    assert session.id == "abc"
    assert len(ck.read_all(tmp_path, progress=False)) == 1


def test_an_output_with_events_of_v1(tmp_path: Path):
    events = [json.loads(f.read_bytes()) for f in sorted(GOLDEN.rglob("event-*.json"))]
    run = {"instance_id": "i-2", "history": events, "metrics": {}}
    (tmp_path / "output.jsonl").write_text(json.dumps(run) + "\n")
    session = ck.read(tmp_path / "output.jsonl")
    assert session.id == "i-2"
    assert [m.text for m in session.messages] == [m.text for m in ck.read(GOLDEN).messages]


def test_few_shot_talks():
    said = "user: Hi.\nIt is late.\nassistant: None\ntool: Error: user not found\nassistant: Sorry: none.\nuser: bye"
    data = json.dumps({"messages_display": said}).encode() + b"\n"
    first, second = read_source(Source("few_shot.jsonl", data * 2))
    assert [m.role for m in first.messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert [m.text for m in second.messages][::2] == [
        "Hi.\nIt is late.",
        "Error: user not found",
        "bye",
    ]
    assert first.messages[1].tool_calls[0].id == first.messages[2].call_id
