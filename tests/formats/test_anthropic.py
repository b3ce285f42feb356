"""Anthropic's messages: lists, requests with their system prompt, responses with usage."""

from __future__ import annotations

from typing import Any

import pytest
from source_builders import document, source, texts

from ctxkit.formats import anthropic, detect_reader
from ctxkit.session import Usage

ASK = {"role": "user", "content": "do"}
USE = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "tool_use", "id": "c", "name": "ls", "input": {"p": 1}},
    ],
}
RESULT = {
    "role": "user",
    "content": [
        {
            "type": "tool_result",
            "tool_use_id": "c",
            "content": [{"type": "text", "text": "no"}],
            "is_error": True,
        },
        {"type": "text", "text": "and now?"},
    ],
}
DONE = {"role": "assistant", "content": [{"type": "text", "text": "done"}]}
USAGE = {
    "input_tokens": 4,
    "cache_read_input_tokens": 90,
    "cache_creation_input_tokens": 6,
    "output_tokens": 2,
}


def response(message: dict[str, Any], stop: str) -> dict[str, Any]:
    return {
        "type": "message",
        "id": "m",
        "model": "claude-x",
        "stop_reason": stop,
        "usage": USAGE,
        **message,
    }


@pytest.mark.parametrize(
    "file", [document([ASK, USE, RESULT, DONE]), source(ASK, USE, RESULT, DONE)]
)
def test_messages_are_read_in_every_wrapping(file: Any) -> None:
    assert detect_reader(file).NAME == "anthropic"
    (s,) = anthropic.read(file)
    assert [m.role for m in s.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert (s.messages[2].tool, s.messages[2].is_error, s.messages[2].text) == ("ls", True, "no")


def test_requests_and_responses_are_one_conversation_with_usage() -> None:
    head = {
        "model": "claude-x",
        "max_tokens": 9,
        "system": "Be good.",
        "tools": [{"name": "ls", "input_schema": {}}],
    }
    first = {"request": {**head, "messages": [ASK]}, "response": response(USE, "tool_use")}
    second = {
        "request": {**head, "messages": [ASK, USE, RESULT]},
        "response": response(DONE, "end_turn"),
    }
    file = source(first, second)
    assert detect_reader(file).NAME == "anthropic"
    (s,) = anthropic.read(file)
    assert [m.role for m in s.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert [(c.message.usage, c.message.stop) for c in s.calls] == [
        (Usage(4, 90, 6, None, 2), "tool"),
        (Usage(4, 90, 6, None, 2), "stop"),
    ]
    assert [t.name for t in s.tools] == ["ls"]


def test_a_request_that_lacks_messages_is_a_derived_edit() -> None:
    (s,) = anthropic.read(source({"messages": [ASK, USE, RESULT, DONE]}, {"messages": [ASK, DONE]}))
    assert [(e.kind, e.source) for e in s.edits] == [("dropped", "derived")]
    assert texts(s.view()) == ["do", "done"]


def test_a_response_alone_is_a_session() -> None:
    file = document(response(DONE, "end_turn"))
    assert detect_reader(file).NAME == "anthropic"
    (s,) = anthropic.read(file)
    (reply,) = s.messages
    assert (reply.role, reply.text, reply.model, reply.stop) == (
        "assistant",
        "done",
        "claude-x",
        "stop",
    )
    assert reply.usage.prompt_tokens == 100
    assert not s.skipped


@pytest.mark.parametrize(
    ("request_fields", "is_anthropic"),
    [
        ({"system": "Be brief.", "model": "claude-x"}, True),
        ({"system": "Be brief.", "model": "m", "max_tokens": 9}, True),
        ({"system": "Be brief.", "model": "m"}, False),
        ({"system": "Be brief.", "model": 1}, False),
        ({"model": "claude-x", "max_tokens": 9}, False),
    ],
)
def test_a_request_of_plain_text_is_known_by_its_system_prompt(
    request_fields: dict[str, Any], is_anthropic: bool
) -> None:
    """Beside it the model is one of Anthropic's, or the field that its API requires is there."""
    assert anthropic.sniff(document({"messages": [ASK], **request_fields})) == is_anthropic
