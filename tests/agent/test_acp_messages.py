"""Updates of the Agent Client Protocol as replies, tool calls, results, usage and diffs, field by field."""

from __future__ import annotations

import pytest

from ctxkit.agent import AcpReplyBuilder, parse_acp_usage, with_stored_call_id
from ctxkit.session import Attachment, Message, Text, Thinking, ToolCall, Usage


def text(words, kind="text", **more):
    return {"content": {"type": "text", "text": words}, **more}


def build(*updates):
    """Return the messages of updates: (kind of text, update), or an update of a call."""
    builder, messages = AcpReplyBuilder("own"), []
    for update in updates:
        if isinstance(update, tuple):
            messages += builder.add_text(*update)
        else:
            messages += builder.update_call(update)
    return [*messages, *builder.end()]


def call(ident="c1", **fields):
    return {"toolCallId": ident, "status": "completed", **fields}


def test_text_and_thinking_are_parts_in_their_order():
    pieces = [
        ("thinking", "Hm"),
        ("thinking", "."),
        ("text", "It "),
        ("text", ""),
        ("text", "is."),
        ("thinking", "So"),
    ]
    (reply,) = build(*((kind, text(words)) for kind, words in pieces))
    assert reply.parts == (Thinking("Hm."), Text("It is."), Thinking("So"))
    assert (reply.role, reply.model, reply.stop, reply.usage) == ("assistant", "own", "stop", None)
    assert build() == []
    assert build(("text", text(""))) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"type": "text", "text": "words"}, "words"),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}, "inside"),
        ({"type": "resource_link", "uri": "file:///a"}, "[resource_link file:///a]"),
        ({"type": "image", "text": 5}, "[image]"),
        ({}, "[content]"),
    ],
)
def test_a_content_block_as_text(content, expected):
    (reply,) = build(("text", {"content": content}))
    assert reply.text == expected
    assert build(("text", {"content": "no block"})) == []


def test_a_reply_and_its_results():
    messages = build(
        ("text", text("I look.")),
        call("c1", kind="read", rawInput={"path": "a"}, content=[{"content": {"type": "text", "text": "A"}}]),
        call("c2", title="Run tests", status="failed", content=[]),
    )  # fmt: skip
    # the second call came after one that had ended: a reply of its own
    assert [(m.role, m.stop) for m in messages] == [
        ("assistant", "tool"), ("tool", None), ("assistant", "tool"), ("tool", None)]  # fmt: skip
    assert messages[0].parts == (Text("I look."), ToolCall("c1", "read", {"path": "a"}))
    assert messages[1].parts == (Text("A"),)
    assert [(m.tool, m.call_id, m.text, m.is_error) for m in messages if m.role == "tool"] == [
        ("read", "c1", "A", False),
        ("Run", "c2", "(no output)", True),
    ]


def test_calls_that_run_together_are_of_one_reply():
    messages = build(
        *(call(f"c{i}", status="pending", title="Look") for i in range(2)),
        call("c0", rawOutput="A"),
    )
    reply, *results = messages
    assert [c.id for c in reply.tool_calls] == ["c0", "c1"]
    assert [(m.call_id, m.text, m.is_error) for m in results] == [
        ("c0", "A", False),
        ("c1", "The agent did not say how this call ended.", True),
    ]


def test_one_reply_has_1000_calls_at_most():
    replies = [
        m
        for m in build(*(call(f"c{i}", status="pending") for i in range(1_001)))
        if m.role == "assistant"
    ]
    assert [len(m.tool_calls) for m in replies] == [1_000, 1]


def test_one_reply_has_a_million_characters_at_most():
    half = "x" * 600_000
    first, second = build(("text", text(half)), ("text", text(half)), ("thinking", text("more")),
                          ("text", text("y", messageId="m1")), ("text", text(half, messageId="m2")))  # fmt: skip
    assert first.parts == (Text("x" * 1_000_000),)
    assert second.parts == (Text(half),)


@pytest.mark.parametrize(
    ("fields", "name", "arguments"),
    [
        ({"_meta": {"toolName": "grep"}, "kind": "search", "title": "Find it"}, "grep", {"title": "Find it"}),
        ({"_meta": {"vendor": {"toolName": "grep"}}}, "grep", {}),
        ({"_meta": {"toolName": 5}, "kind": "search"}, "search", {}),
        ({"_meta": "none", "kind": "other", "title": "Find it"}, "Find", {"title": "Find it"}),
        ({"title": "Find it", "rawInput": {"q": 1}, "locations": [{"path": "a"}]}, "Find", {"q": 1}),
        ({"title": "Find it", "rawInput": {}, "locations": [{"path": "a"}, {"path": "b"}]}, "Find", {"path": "a"}),
        ({"title": "Find it", "rawInput": "q", "locations": [{}]}, "Find", {"path": ""}),
        ({"title": "Find it", "locations": ["a"]}, "Find", {"title": "Find it"}),
        ({"title": "Find it", "locations": []}, "Find", {"title": "Find it"}),
        ({"title": "Find it", "locations": {"path": "a"}}, "Find", {"title": "Find it"}),
        ({}, "tool", {}),
        ({"kind": "x" * 300}, "x" * 200, {}),
    ],
)  # fmt: skip
def test_the_name_and_the_arguments_of_a_call(fields, name, arguments):
    reply, result = build(call(**fields))
    assert reply.tool_calls == (ToolCall("c1", name, arguments),)
    assert (result.tool, result.call_id) == (name, "c1")


def test_an_update_replaces_the_fields_that_it_names():
    builder = AcpReplyBuilder("own")
    assert not builder.has_call("c1")
    list(builder.update_call({"toolCallId": "c1", "kind": "read", "rawInput": {"a": 1}}))
    list(builder.update_call({"toolCallId": "c1", "kind": None, "rawInput": {"b": 2}}))
    assert builder.has_call("c1")
    assert builder.get_call("c1") == ToolCall("c1", "read", {"b": 2})
    assert builder.get_call("gone") == ToolCall("gone", "tool", {})


DIFF = {"type": "diff", "path": "a.py", "oldText": "one\ntwo\r\n", "newText": "one\n2\r\n"}
CHANGED = "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+2"


@pytest.mark.parametrize(
    ("fields", "expected", "images"),
    [
        ({"content": [DIFF]}, CHANGED, []),
        ({"content": [{**DIFF, "newText": DIFF["oldText"]}]}, "a.py: unchanged", []),
        ({"content": [{**DIFF, "oldText": None, "newText": "x" * 20_001}]}, "a.py: 0 characters became 20,001", []),
        ({"content": [{"content": {"type": "image", "mimeType": "image/gif", "data": "AA=="}}]}, "(no output)",
         [Attachment("image/gif", "AA==")]),
        ({"content": [{"content": {"type": "image"}}], "rawOutput": "x"}, "(no output)", [Attachment("image/png", "")]),
        ({"content": ["x", {"content": {"text": "A"}}, {}, {"content": {"text": "B"}}], "rawOutput": "x"}, "A\nB", []),
        ({"content": "none", "rawOutput": "raw"}, "raw", []),
        ({"rawOutput": {"é": [1]}}, '{"é": [1]}', []),
        ({"rawOutput": ""}, "(no output)", []),
        ({"status": "in_progress"}, "The agent did not say how this call ended.", []),
    ],
)  # fmt: skip
def test_the_result_of_a_call(fields, expected, images):
    _, result = build(call(**fields))
    assert result.parts == (Text(expected), *images)


def test_a_call_as_a_person_reviews_it():
    def review(**fields):
        builder = AcpReplyBuilder("own")
        list(builder.update_call(call(**fields)))
        return builder.get_call_for_review("c1").arguments

    assert review(rawInput={"a": 1}, title="Edit it", kind="edit", locations=[{"path": "a.py"}], content=[DIFF, "x"]) == {
        "a": 1,
        "its title": "Edit it",
        "its kind": "edit",
        "its locations": [{"path": "a.py"}],
        "its content 1": "--- a.py\n+++ a.py\n@@ -1,3 +1,3 @@\n one\n-two\r\n+2\r\n ",
        "its content 2": "x",
    }  # fmt: skip
    assert review(rawInput="ls", content={"text": "y"}) == {
        "its input": "ls",
        "its content 1": {"text": "y"},
    }
    assert review() == {}
    long = {**DIFF, "newText": "x" * 20_000}
    assert review(content=[long]) == {"its content 1": "a.py: all of it becomes\n" + "x" * 20_000}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"inputTokens": 100, "outputTokens": 10, "cachedReadTokens": 70, "cachedWriteTokens": 20, "totalTokens": 110},
         Usage(input_tokens=10, cache_read_tokens=70, cache_write_tokens=20, output_tokens=10)),
        ({"inputTokens": 100, "outputTokens": 10, "cachedReadTokens": 70, "totalTokens": 180},
         Usage(input_tokens=100, cache_read_tokens=70, output_tokens=10)),
        ({"inputTokens": 100, "cachedReadTokens": 170, "totalTokens": 100},
         Usage(input_tokens=0, cache_read_tokens=170)),
        ({"inputTokens": 0}, Usage(input_tokens=0)),
        ({"inputTokens": 10**9 - 1, "outputTokens": -1}, Usage(input_tokens=10**9 - 1)),
        ({"inputTokens": 10**9}, None),
        ({"inputTokens": True}, None),
        ({"outputTokens": 10}, None),
        ("none", None),
    ],
)  # fmt: skip
def test_a_usage_in_disjoint_classes(usage, expected):
    assert parse_acp_usage(usage) == expected


def test_a_usage_is_of_the_open_reply():
    first, last = {"usage": {"inputTokens": 5}}, {"vendor": {"usage": {"inputTokens": 7}}}
    messages = build(("text", text("a", _meta=first)), ("text", text("b")), ("text", text("c", messageId="m1")),
                     ("text", text("d", messageId="m2", _meta=last)), ("text", text("e", messageId="m3")))  # fmt: skip
    assert [(m.text, m.usage) for m in messages] == [
        ("abc", Usage(input_tokens=5)),
        ("d", Usage(input_tokens=7)),
        ("e", None),
    ]


def test_a_result_has_the_id_under_which_its_call_is_stored():
    result = Message(role="tool", call_id="c1")
    assert with_stored_call_id(result, {"c1": "own-1"}).call_id == "own-1"
    assert with_stored_call_id(result, {"c2": "own-1"}).call_id == "c1"
