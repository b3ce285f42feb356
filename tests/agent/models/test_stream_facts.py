"""What a stream said of its end and its usage, and which replies are no answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ctxkit.agent.models.provider_streams_and_retries import (
    StreamFinishAndUsageFlags,
    assemble_tool_calls,
    check_reply_complete,
    describe_failure,
    has_reported_usage,
)
from ctxkit.errors import ModelError

STOP = {"candidates": [{"finishReason": "STOP"}]}


@pytest.mark.parametrize(
    ("events", "finish", "word", "usage"),
    [
        ([], None, None, None),
        (["text", None], None, None, None),
        # Gemini
        ([{"candidates": [{}]}], False, None, False),
        ([{"usageMetadata": {"promptTokenCount": 5}}], False, None, True),
        ([{"usageMetadata": {"promptTokenCount": 0}}], False, None, False),
        ([STOP, {"candidates": None, "usageMetadata": None}], True, "STOP", False),
        ([{"candidates": [], "usageMetadata": {"promptTokenCount": 5}}, STOP], True, "STOP", True),
        ([STOP, {"candidates": [{"finishReason": "SAFETY"}, {}]}], True, "SAFETY", False),
        # Anthropic
        ([{"type": "message_delta", "delta": {"stop_reason": "refusal"}}], None, "refusal", None),
        ([{"type": "message_delta", "delta": {"stop_reason": "refusal"}}, {"type": "message_delta"}],
         None, "refusal", None),
        ([{"type": "message_start", "delta": {"stop_reason": "refusal"}}], None, None, None),
        # Responses
        ([{"type": "response.completed", "response": {"usage": {"input_tokens": 5}}}], None, None, True),
        ([{"type": "response.completed", "response": {"usage": {"input_tokens": 0}}}], None, None, False),
        ([{"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
          {"type": "response.failed"}], None, "max_output_tokens", False),
        ([{"type": "response.completed", "response": {"usage": {"input_tokens": 5}}},
          {"type": "response.failed"}], None, None, True),
    ],
)  # fmt: skip
def test_what_the_events_of_a_stream_say(events, finish, word, usage):
    flags = StreamFinishAndUsageFlags()
    for event in events:
        flags.note(event)
    assert (flags.finish, flags.word, flags.usage) == (finish, word, usage)


def make_piece(index=None, ident=None, name=None, arguments=None):
    function = SimpleNamespace(name=name, arguments=arguments)
    call = SimpleNamespace(index=index, id=ident, function=function)
    return SimpleNamespace(choices=[SimpleNamespace(delta=SimpleNamespace(tool_calls=[call]))])


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        # one call in pieces: the id and the name come once, or in each piece
        ([(0, "a", "see", '{"x"'), (0, None, None, ": 1}")], [("a", "see", '{"x": 1}')]),
        ([(0, "a", "see", '{"x"'), (0, "a", "see", ": 1}")], [("a", "see", '{"x": 1}')]),
        ([(0, None, "see", None), (0, "late", None, "{}")], [("late", "see", "{}")]),
        # another index, another id, another name, or a name behind whole arguments begin another
        ([(0, "a", "see", "{}"), (1, "b", "see", "{}"), (0, None, None, None)], [("a", "see", "{}"), ("b", "see", "{}")]),
        ([(0, "a", "see", '{"x"'), (0, "b", "see", "{}")], [("a", "see", '{"x"'), ("b", "see", "{}")]),
        ([(0, None, "see", "{}"), (0, None, "see", "{}")], [("call_0", "see", "{}"), ("call_1", "see", "{}")]),
        ([(0, None, "see", "["), (0, None, "hear", "{}")], [("call_0", "see", "["), ("call_1", "hear", "{}")]),
        ([(0, None, "see", "[1]"), (0, None, "see", "2")], [("call_0", "see", "[1]2")]),  # no object yet
        # without arguments, without an index, and arguments that are no text
        ([(None, "a", "see", None), (None, "b", "hear", {"x": 1})], [("a", "see", "{}"), ("b", "hear", '{"x":1}')]),
        ([(None, None, None, None)], [("call_0", "", "{}")]),
    ],
)  # fmt: skip
def test_calls_that_came_in_pieces(pieces, calls):
    chunks = [make_piece(*p) for p in pieces]
    chunks += [SimpleNamespace(), SimpleNamespace(choices=[])]
    assert assemble_tool_calls(chunks) == [
        {"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls
    ]


def test_the_usage_that_a_server_reported():
    def make_chunk(prompt, output):
        usage = SimpleNamespace(prompt_tokens=prompt, completion_tokens=output)
        return SimpleNamespace(usage=usage)

    nothing = SimpleNamespace(usage=None)
    for prompt, output, expected in ((5, 1, True), (5, 0, True), (0, 5, False), (0, 0, False)):
        chunks = [nothing, SimpleNamespace(), make_chunk(prompt, output)]
        assert has_reported_usage(SimpleNamespace(), chunks) is expected
        assert has_reported_usage(SimpleNamespace(chunks=[nothing]), chunks) is False
    # the first that is not all zeros
    assert has_reported_usage(None, [make_chunk(0, 0), make_chunk(3, 0), make_chunk(0, 9)])


def check(stream=None, calls=(), finish_reason="stop", message=None, **more):
    data = {
        "choices": [{"message": message or {"content": "It is."}, "finish_reason": finish_reason}]
    }
    check_reply_complete("m", stream or SimpleNamespace(), data, calls, **more)


HTML = SimpleNamespace(_response_headers={"Content-Type": "text/html; charset=utf-8"})
EMPTY = {"content": ""}


@pytest.mark.parametrize(
    ("more", "error", "again"),
    [
        ({"stream": HTML, "message": EMPTY}, "m was answered by a web page and not by the model", True),
        ({"message": EMPTY, "finished": False}, "m sent an empty stream: no word of a reply came.", True),
        ({"finished": False}, "m broke the reply off in the middle; it was not kept as one.", True),
        ({"message": {"reasoning_content": "Hm."}, "finished": False}, "m broke the reply off", True),
        ({"message": EMPTY, "calls": [1], "finish_reason": None}, "m broke the reply off", True),
        ({"stream": SimpleNamespace(received_finish_reason=None)}, "m broke the reply off", True),
        ({"finish_reason": "tool_calls"}, "m said that it calls a tool, and sent no call.", True),
        ({"finish_reason": "function_call"}, "m said that it calls a tool, and sent no call.", True),
        ({"finish_word": "MALFORMED_FUNCTION_CALL"}, "m wrote a tool call that it could not send (MALFORMED_", True),
        ({"finish_word": "UNEXPECTED_TOOL_CALL"}, "m wrote a tool call that it could not send (UNEXPECTED_", True),
        ({"finish_reason": "content_filter"},
         "m refused to answer (its finish reason is content_filter); what it had said is in the log.", False),
        ({"finish_word": "SAFETY", "message": EMPTY},
         "m refused to answer (its finish reason is SAFETY).", False),
        ({"stream": SimpleNamespace(received_finish_reason="stop"), "finish_reason": "refusal"},
         "m refused to answer (its finish reason is stop)", False),
        ({"finish_reason": "Safety"}, "m refused to answer (its finish reason is Safety)", False),
        ({"finish_word": "<refusal>", "finish_reason": "refusal"}, "(its finish reason is refusal)", False),
        ({"finish_word": "x" * 50, "finish_reason": "refusal"}, f"(its finish reason is {'x' * 40})", False),
    ],
)  # fmt: skip
def test_what_is_no_answer(more, error, again):
    with pytest.raises(ModelError) as raised:
        check(**more)
    assert error in str(raised.value)
    assert raised.value.again is again


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"finished": True},
        {"message": EMPTY},
        {"stream": HTML},
        {"calls": [1], "finish_reason": "tool_calls"},
        {"calls": [1], "finish_word": "MALFORMED_FUNCTION_CALL"},
        {"stream": SimpleNamespace(received_finish_reason=None, intermittent_finish_reason="stop")},
        {"finish_reason": "length"},
    ],
)
def test_what_is_an_answer(more):
    check(**more)


def test_a_failure_names_the_address_that_cannot_be_reached():
    assert describe_failure("m", "unreachable", "http://x") == "m cannot be reached at http://x"
    assert describe_failure("m", "unreachable") == "m cannot be reached"
    assert describe_failure("m", "overload", "http://x") == "m is overloaded"
