"""What `opencode run --format json` prints."""

from __future__ import annotations

import json

from synthetic_logs_current_layouts import OPENCODE_RUN

from ctxkit.formats import Source, read_source
from ctxkit.session import ToolCall


def test_steps_are_replies_with_their_usage():
    (session,) = read_source(Source("run.jsonl", OPENCODE_RUN))
    asked, result, said = session.messages
    assert asked.tool_calls == (ToolCall("c", "read", {"filePath": "a"}),)
    usage = asked.usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.cost_usd) == (
        7,
        5,
        5,
        0.5,
    )
    assert (result.call_id, result.text, said.text, said.usage) == ("c", "x", "It is x.", None)
    assert (session.id, asked.stop) == ("ses_a", "tool")


def test_a_part_belongs_to_the_message_that_it_names_and_without_a_name_to_the_current_one():
    texts = [
        {"messageID": "a", "text": "One."},
        {"text": "Two."},
        {"messageID": "b", "text": "Three."},
    ]
    data = b"".join(
        json.dumps(
            {"type": "text", "timestamp": n, "sessionID": "s", "part": {"type": "text", **part}}
        ).encode()
        + b"\n"
        for n, part in enumerate(texts)
    )
    (session,) = read_source(Source("run.jsonl", OPENCODE_RUN + data))
    assert [(m.id, [p.text for p in m.parts]) for m in session.messages[-2:]] == [
        ("a", ["One.", "Two."]),
        ("b", ["Three."]),
    ]
    unnamed = data.replace(b'"messageID": "a", ', b"")
    (session,) = read_source(Source("run.jsonl", unnamed))
    assert [m.text for m in session.messages] == ["One.\nTwo.", "Three."]


def test_a_part_after_an_error_belongs_to_the_reply_that_was_under_way():
    part = {"type": "text", "messageID": "a"}
    events = [
        {"type": "text", "part": {**part, "text": "One."}},
        {"type": "error", "error": {"name": "APIError", "data": {"message": "overloaded"}}},
        {"type": "text", "part": {**part, "text": "Two."}},
    ]
    data = b"".join(
        json.dumps({"timestamp": n, "sessionID": "s", **event}).encode() + b"\n"
        for n, event in enumerate(events)
    )
    (session,) = read_source(Source("run.jsonl", data))
    assert [(m.text, m.is_error, m.error) for m in session.messages] == [
        ("One.\nTwo.", False, None),
        ("", True, "overloaded"),
    ]
