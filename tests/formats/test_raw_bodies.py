"""A folder of raw request and response bodies is one session with nothing unexplained."""

from __future__ import annotations

import json
import os

import pytest

import ctxkit as ck
from ctxkit.formats import raw_bodies

SYSTEM = "You are an agent that repairs builds. " * 300
TOOLS = [
    {"name": "read", "description": "Reads a file. " * 90, "input_schema": {"type": "object"}},
    {"name": "bash", "description": "Runs a command. " * 90, "input_schema": {"type": "object"}},
]
CHARS_PER_TOKEN = 4


def count(value):
    return len(json.dumps(value)) // CHARS_PER_TOKEN


def write(path, value, at):
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    os.utime(path, (at, at))


def make_folder(folder, *, calls=4, session="11111111-aaaa", index=True, start=1_800_000_000):
    """Write the bodies of a session as Claude Code's documentation describes them."""
    folder.mkdir(exist_ok=True)
    messages = [{"role": "user", "content": [{"type": "text", "text": "Repair the build. " * 60}]}]
    lines = []
    for n in range(calls):
        header = {"type": "text", "text": f"x-anthropic-billing-header: cch={n}"}
        request = {
            "model": "claude-opus-5",
            "max_tokens": 8_000,
            "system": [header, {"type": "text", "text": SYSTEM}],
            "tools": TOOLS,
            "messages": json.loads(json.dumps(messages)),
            "metadata": {"user_id": f"user_0_account__session_{session}"},
        }
        use = {"type": "tool_use", "id": f"toolu_{session}_{n}", "name": "read", "input": {"n": n}}
        content = [{"type": "text", "text": f"Step {n}."}, use]
        tokens = count(SYSTEM) + count(TOOLS) + count(messages)
        response = {
            "id": f"msg_{session}_{n}",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5",
            "content": content,
            "stop_reason": "tool_use",
            "usage": {"input_tokens": tokens, "output_tokens": count(content)},
        }
        names = f"{session}-{n}.request.json", f"req_{session}_{n}.response.json"
        write(folder / names[0], request, start + 10 * n)
        write(folder / names[1], response, start + 10 * n + 4)
        lines.append(
            {
                "timestamp": f"2027-01-15T08:00:{10 * n:02}.000Z",
                "session_id": session,
                "query_source": "repl_main_thread",
                "request_file": f"/home/x/bodies/{names[0]}",
                "response_file": f"/home/x/bodies/{names[1]}",
            }
        )
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": f"line {n} " * 200}
        messages += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": [result]},
        ]
    if index:
        with (folder / "index.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    return folder


@pytest.mark.parametrize("index", [True, False])
def test_it_is_one_session_whose_prompts_are_whole(tmp_path, index):
    s = ck.read(make_folder(tmp_path / "bodies", index=index))
    assert (s.id, len(s.calls), len(s.edits), s.faults) == ("11111111-aaaa", 4, 0, ())
    assert {tool.name for tool in s.tools} == {"read", "bash"}
    assert s.messages[0].role == "system"
    assert s.messages[0].text == SYSTEM
    assert all(c.message.usage.output_tokens == 31 for c in s.calls)
    assert [len(s.view(c)) for c in range(4)] == [2, 4, 6, 8]
    assert all(c.message.time is not None for c in s.calls)


@pytest.mark.parametrize("index", [True, False])
def test_at_most_a_hundredth_of_each_prompt_is_not_in_the_log(tmp_path, index):
    s = ck.read(make_folder(tmp_path / "bodies", index=index))
    for call in range(len(s.calls)):
        text = ck.report(s, call=call).to_text()
        lines = [line for line in text.splitlines() if "not in the log" in line]
        share = float(lines[0].split()[1].rstrip("%")) if lines else 0.0
        assert share <= 1.0, text


def test_bodies_of_other_sessions_are_sessions_of_their_own(tmp_path):
    folder = make_folder(tmp_path / "bodies")
    make_folder(folder, session="22222222-bbbb", calls=2, index=False, start=1_800_500_000)
    sessions = ck.read_all(folder, progress=False)
    assert {s.id: len(s.calls) for s in sessions} == {"11111111-aaaa": 4, "22222222-bbbb": 2}


def test_missing_doubled_and_half_written_files_are_named_and_the_rest_is_joined(tmp_path):
    folder = make_folder(tmp_path / "bodies", calls=5)
    (folder / "req_11111111-aaaa_1.response.json").unlink()
    half = folder / "11111111-aaaa-2.request.json"
    half.write_text(half.read_text(encoding="utf-8")[:500], encoding="utf-8")
    write(folder / "req_orphan.response.json", {"type": "message"}, 1_900_000_000)
    index = folder / "index.jsonl"
    index.write_text(index.read_text(encoding="utf-8") * 2 + '{"half', encoding="utf-8")
    s = ck.read(folder)
    # the second has no response, the third no request: their replies stand in later requests
    assert [c.message.usage is not None for c in s.calls] == [True, False, False, True, True]
    why = " ".join(fault.why for fault in s.faults)
    for name in ("aaaa_1.response.json", "aaaa-2.request.json", "req_orphan", "index.jsonl"):
        assert name in why


def test_many_files_are_read_one_at_a_time_and_the_bound_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(raw_bodies, "MAX_FILES", 6)
    s = ck.read(make_folder(tmp_path / "bodies", calls=9, index=False))
    assert any("beyond the first 6" in fault.why for fault in s.faults)
