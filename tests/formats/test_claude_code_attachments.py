"""What Claude Code lays into a prompt as an attachment is a message, and known in the prompt."""

from __future__ import annotations

import json

import pytest

import ctxkit as ck
from ctxkit.formats.claude_code_attachments import _TEXTS, get_attachment_text

RULES = "Always run the linter before you commit, and name the ticket. " * 400
SHAPES = {
    "nested_memory": {"content": {"path": "CLAUDE.md", "type": "Project", "content": RULES}},
    "file": {"content": {"type": "text", "file": {"filePath": "a.py", "content": RULES}}},
    "edited_text_file": {"filename": "a.py", "snippet": RULES},
    "directory": {"path": "src", "content": RULES},
    "skill_listing": {"content": RULES},
    "hook_additional_context": {"content": [RULES]},
    "total_tokens_reminder": {"text": RULES},
    "deferred_tools_delta": {"addedNames": ["A"], "addedLines": [RULES]},
    "agent_listing_delta": {"addedTypes": ["a"], "addedLines": [RULES]},
    "mcp_instructions_delta": {"addedNames": ["m"], "addedBlocks": [RULES]},
}


def transcript(attachment, prompt):
    base = {"sessionId": "s", "cwd": "/w", "version": "2.1.200"}
    usage = {"input_tokens": prompt, "output_tokens": 5}
    reply = {"id": "msg_1", "role": "assistant", "model": "claude-opus-5", "usage": usage}
    reply |= {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"}
    lines = [
        {"type": "user", "uuid": "u", "message": {"role": "user", "content": "Fix it."}},
        {"type": "attachment", "uuid": "a", "parentUuid": "u", "attachment": attachment},
        {"type": "assistant", "uuid": "r", "parentUuid": "a", "requestId": "q", "message": reply},
    ]
    return "\n".join(json.dumps({**base, **line}) for line in lines)


def read(tmp_path, attachment, prompt=9_000):
    path = tmp_path / "s.jsonl"
    path.write_text(transcript(attachment, prompt), encoding="utf-8")
    return ck.read(path)


def test_every_parser_has_a_shape_here():
    assert set(SHAPES) == set(_TEXTS)


@pytest.mark.parametrize("kind", SHAPES)
def test_its_text_is_a_message_of_its_own_that_starts_no_turn(tmp_path, kind):
    s = read(tmp_path, {"type": kind, **SHAPES[kind]})
    (message,) = [m for m in s.messages if "attachment" in m.details]
    assert (message.role, message.kind, message.text) == ("user", "injected", RULES)
    assert message.details == {"attachment": kind}
    assert [c.turn for c in s.calls] == [0]
    assert message in [item.message for item in s.sent(0)]
    assert not any("attachment" in name for name in s.skipped)


@pytest.mark.parametrize(
    "attachment",
    [
        {"type": "hook_success", "stdout": RULES},
        {"type": "auto_mode"},
        {"type": "nested_memory", "content": "no object"},
        {"type": "file", "content": {"file": [1]}},
        {"type": "skill_listing", "content": [{"no": "text"}, 3]},
        {"type": ["list"]},
        {},
    ],
)
def test_what_has_no_text_or_a_damaged_one_is_counted_and_no_message(tmp_path, attachment):
    s = read(tmp_path, attachment)
    assert get_attachment_text({"attachment": attachment}) == ""
    assert len(s.messages) == 2
    assert any("attachment" in name for name in s.skipped)


SYSTEM = "You are an agent. " * 500
TOOL = {"name": "Read", "description": "Reads. " * 400, "input_schema": {"type": "object"}}


def shape(tools, text=SYSTEM):
    system = [{"type": "text", "text": text}]
    return {"type": "api-request-shape", "shape": {"system": system, "tools": tools}}


def read_today(tmp_path, *lines, prompt=7_000):
    """Read a transcript as versions seen in autumn 2026 write it, with lines before its own."""
    rendered = [{"content": "<system-reminder>one</system-reminder>"}, {"content": RULES}]
    text = transcript({"type": "instructions"}, prompt)
    user, attachment, reply = map(json.loads, text.splitlines())
    reply["parentUuid"] = lines[-1].get("uuid", "a") if lines else "a"
    reminder = {**attachment, "uuid": "b", "parentUuid": "r", "rendered": [{"content": "later"}]}
    second = {**reply, "uuid": "r2", "parentUuid": "b", "requestId": "q2"}
    second["message"] = {**reply["message"], "id": "msg_2"}
    all_lines = [user, {**attachment, "rendered": rendered}, *lines, reply, reminder, second]
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, all_lines)), encoding="utf-8")
    return ck.read(path)


def test_an_attachment_of_any_kind_is_the_text_that_was_sent(tmp_path):
    s = read_today(tmp_path)
    first, later = [m for m in s.messages if m.details]
    assert first.text == f"<system-reminder>one</system-reminder>\n{RULES}"
    assert first.details == {"attachment": "instructions"}
    assert later.text == "later"
    assert [c.turn for c in s.calls] == [0, 0]


def test_system_prompt_and_tools_of_the_first_request_are_known(tmp_path):
    title = shape([], "Name the talk.")
    s = read_today(tmp_path, title, shape([TOOL]), shape([TOOL, TOOL], "Another."), prompt=10_000)
    assert [m.text for m in s.messages if m.role == "system"] == [SYSTEM]
    assert s.messages[0] in [item.message for item in s.sent(1)]
    assert [t.name for t in s.tools] == ["Read"]
    assert "not in the log" not in ck.report(s, call=0).to_text()


def test_a_compaction_leaves_the_system_prompt(tmp_path):
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "c", "parentUuid": None}
    summary = {"type": "user", "uuid": "d", "parentUuid": "c", "isCompactSummary": True}
    summary["message"] = {"role": "user", "content": "A summary."}
    s = read_today(tmp_path, shape([TOOL]), {**boundary, "sessionId": "s"}, summary)
    assert [m.role for m in s.view(0)][:2] == ["system", "summary"]


@pytest.mark.parametrize("damaged", [None, [], {"system": "text"}, {"tools": [1], "system": [2]}])
def test_a_damaged_shape_says_nothing(tmp_path, damaged):
    s = read_today(tmp_path, {"type": "api-request-shape", "shape": damaged})
    assert not s.tools
    assert all(m.role != "system" for m in s.messages)


def test_the_rest_that_is_not_in_the_log_is_smaller_with_it(tmp_path):
    def unknown(attachment):
        text = ck.report(read(tmp_path, attachment)).to_text()
        line = next(line for line in text.splitlines() if "not in the log" in line)
        return int(line.split()[0].replace(",", ""))

    without = unknown({"type": "hook_success", "stdout": RULES})
    assert unknown({"type": "nested_memory", **SHAPES["nested_memory"]}) < 0.6 * without
