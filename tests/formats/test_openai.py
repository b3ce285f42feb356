"""OpenAI's two APIs: messages, requests that repeat what they know, completions, items."""

from __future__ import annotations

from typing import Any

import pytest
from source_builders import document, source, texts

import ctxkit as ck
from ctxkit.errors import ReadError
from ctxkit.formats import detect_reader, openai, openai_responses
from ctxkit.session import Attachment, SizeOnly, Usage

SYSTEM = {"role": "system", "content": "Be good."}
ASK = {"role": "user", "content": "do"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "ls", "arguments": '{"p": 1}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "a.txt"}
DONE = {"role": "assistant", "content": "done"}
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 4},
}


def completion(message: Any) -> dict[str, Any]:
    choices = [
        {"message": message, "finish_reason": "tool_calls" if message.get("tool_calls") else "stop"}
    ]
    return {"object": "chat.completion", "model": "gpt-x", "choices": choices, "usage": USAGE}


@pytest.mark.parametrize(
    "file",
    [document([SYSTEM, ASK, CALL, RESULT, DONE]), document({"messages": [SYSTEM, ASK, CALL, RESULT, DONE]}),
     source(SYSTEM, ASK, CALL, RESULT, DONE)],
)  # fmt: skip
def test_messages_are_read_in_every_wrapping(file: Any) -> None:
    assert detect_reader(file).NAME == "openai"
    (s,) = openai.read(file)
    assert [m.role for m in s.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert s.messages[2].tool_calls[0].arguments == {"p": 1}
    assert s.messages[3].tool == "ls"


def test_requests_with_completions_are_one_conversation_with_usage() -> None:
    first = {"request": {"model": "gpt-x", "messages": [SYSTEM, ASK]}, "response": completion(CALL)}
    second = {"request": {"messages": [SYSTEM, ASK, CALL, RESULT]}, "response": completion(DONE)}
    file = source(first, second)
    assert detect_reader(file).NAME == "openai"
    (s,) = openai.read(file)
    assert [m.role for m in s.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert s.calls[0].message.usage == Usage(40, 60, None, None, 9, 4)
    assert [c.message.stop for c in s.calls] == ["tool", "stop"]
    assert [len(shown) for _, shown in s.views()] == [2, 4]


def test_a_request_that_lacks_messages_is_a_derived_edit() -> None:
    summary = {"role": "user", "content": "So far: nothing."}
    first = {"messages": [SYSTEM, ASK, CALL, RESULT, DONE]}
    second = {"messages": [SYSTEM, ASK, summary, DONE, {"role": "user", "content": "more"}]}
    (s,) = openai.read(source(first, second))
    (edit,) = s.edits
    assert (edit.source, edit.kind, texts(edit.inserted)) == (
        "derived",
        "summarised",
        ["So far: nothing."],
    )
    assert texts(s.view()) == ["Be good.", "do", "So far: nothing.", "done", "more"]


def test_lines_of_other_conversations_are_other_sessions() -> None:
    other = [SYSTEM, {"role": "user", "content": "something else"}]
    assert len(openai.read(source({"messages": [SYSTEM, ASK]}, {"messages": other}))) == 2


def test_arguments_that_are_no_json_are_kept_as_written() -> None:
    call = {
        "role": "assistant",
        "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": "{torn"}}],
    }
    (s,) = openai.read(document([ASK, call]))
    assert (s.messages[1].tool_calls[0].arguments, s.messages[1].tool_calls[0].raw) == ({}, "{torn")


def test_no_messages_is_an_error() -> None:
    with pytest.raises(ReadError, match="expected messages"):
        openai.read(document({"choices": []}))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"thinking": "a", "reasoning": "b", "text": "c"}, "a"),
        ({"thinking": "", "reasoning": "b", "text": "c"}, "b"),
        ({"text": "c", "content": "d"}, "c"),
        ({"content": "d", "summary": [{"text": "e"}]}, "d"),
        ({"summary": [{"text": "e"}, {"text": "f"}]}, "e\nf"),
    ],
)
def test_reasoning_is_the_first_of_its_fields_that_has_text(fields, text):
    reply = {"role": "assistant", "content": [{"type": "reasoning", **fields}]}
    (s,) = openai.read(document([ASK, reply, DONE]))
    assert s.messages[1].parts[0].text == text


# -- Responses -------------------------------------------------------------------------------------------------------

USER_ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "do"}]}
THOUGHT = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "x" * 9,
}
CALL_ITEM = {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}
OUTPUT_ITEM = {"type": "function_call_output", "call_id": "c", "output": "a.txt"}
DONE_ITEM = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "done"}],
}


@pytest.mark.parametrize(
    "file",
    [document([USER_ITEM, THOUGHT, CALL_ITEM, OUTPUT_ITEM, DONE_ITEM]),
     document({"object": "list", "data": [USER_ITEM, THOUGHT, CALL_ITEM, OUTPUT_ITEM, DONE_ITEM]}),
     source(USER_ITEM, THOUGHT, CALL_ITEM, OUTPUT_ITEM, DONE_ITEM)],
)  # fmt: skip
def test_items_of_one_reply_are_one_call(file: Any) -> None:
    assert detect_reader(file).NAME == "openai-responses"
    (s,) = openai_responses.read(file)
    assert [m.role for m in s.messages] == ["user", "assistant", "tool", "assistant"]
    assert [type(p).__name__ for p in s.messages[1].parts] == ["Thinking", "ToolCall"]
    assert s.messages[1].parts[0].hidden == 9


@pytest.mark.parametrize(("written", "read"), [(50.0, 50), (50.5, None), (True, None), (-1, None)])
def test_a_whole_float_is_a_count_and_what_is_no_count_is_missing(written: Any, read: Any) -> None:
    """Programs that keep numbers as floats write 50.0 for 50."""
    usage = {"prompt_tokens": 60, "completion_tokens": written}
    reply = {**completion(DONE), "usage": usage}
    (s,) = openai.read(document({"request": {"messages": [ASK]}, "response": reply}))
    assert s.calls[0].message.usage.output_tokens == read


def test_a_response_bears_the_usage_of_its_call() -> None:
    usage = {"input_tokens": 50, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 5}
    first = {"input": [USER_ITEM], "instructions": "Be good."}
    one = {
        "object": "response",
        "id": "r1",
        "status": "completed",
        "output": [THOUGHT, CALL_ITEM],
        "usage": usage,
    }
    second = {"input": [USER_ITEM, THOUGHT, CALL_ITEM, OUTPUT_ITEM]}
    two = {**one, "id": "r2", "output": [DONE_ITEM]}
    (s,) = openai_responses.read(
        source({"request": first, "response": one}, {"request": second, "response": two})
    )
    assert [m.role for m in s.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert [c.message.usage for c in s.calls] == [Usage(30, 20, None, None, 5)] * 2


def test_a_compaction_item_stands_for_all_before_it() -> None:
    (s,) = openai_responses.read(
        document([USER_ITEM, DONE_ITEM, {"type": "compaction", "encrypted_content": "xyz"}])
    )
    assert [m.role for m in s.view()] == ["summary"]
    assert s.view()[0].parts == (SizeOnly("compaction"),), "sealed: its size is unknown"


SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x" * 900}


@pytest.mark.parametrize("drops_before", [False, True], ids=["all sent again", "cut by the caller"])
def test_what_stands_before_a_compaction_of_the_server_is_in_no_later_prompt(drops_before) -> None:
    used = {"input_tokens": 50, "output_tokens": 5}
    made = {"object": "response", "status": "completed", "usage": used}
    head = [USER_ITEM, THOUGHT, CALL_ITEM, OUTPUT_ITEM]
    one = {
        "request": {"input": head, "instructions": "Be good."},
        "response": {**made, "id": "r1", "output": [SEALED, DONE_ITEM]},
    }
    again = [*([] if drops_before else head), SEALED, DONE_ITEM, USER_ITEM]
    two = {"request": {"input": again}, "response": {**made, "id": "r2", "output": [DONE_ITEM]}}
    (s,) = openai_responses.read(source(one, two))
    assert [e.kind for e in s.edits] == ["summarised"]
    assert [m.role for m in s.view(-1)] == ["system", "summary", "assistant", "user"]


def test_a_compaction_by_a_call_of_its_own_keeps_user_messages_and_has_a_cost() -> None:
    used = {"input_tokens": 40_000, "output_tokens": 700}
    one = {
        "request": {"model": "gpt-6-sol", "input": [USER_ITEM]},
        "response": {"object": "response", "id": "r1", "output": [DONE_ITEM], "usage": used},
    }
    compact = {
        "request": {"model": "gpt-6-sol", "input": [USER_ITEM, DONE_ITEM]},
        "response": {"object": "response.compaction", "output": [USER_ITEM, SEALED], "usage": used},
    }
    two = {
        "request": {"model": "gpt-6-sol", "input": [USER_ITEM, SEALED, USER_ITEM]},
        "response": {"object": "response", "id": "r2", "output": [DONE_ITEM], "usage": used},
    }
    (s,) = openai_responses.read(source(one, compact, two))
    (edit,) = s.edits
    assert edit.usage is not None
    assert edit.usage.prompt_tokens == 40_000
    assert [m.role for m in s.view(-1)] == ["user", "summary", "user"]
    assert len(s.calls) == 2
    row = ck.frame(s, per="compaction").iloc[0]
    assert row["cost_usd"] == pytest.approx(40_000 * 2e-6 + 700 * 10e-6)
    assert row[["summary_tokens"]].isna().all()


def test_records_without_a_request_are_refused_under_the_name_of_the_session() -> None:
    with pytest.raises(ReadError) as raised:
        openai.read_requests_as_one_conversation([{"a": 1}], "calls of today")
    assert raised.value.path == "calls of today"
    assert raised.value.why == "expected a request with messages, or a completion; found none."


@pytest.mark.parametrize(
    ("url", "picture"),
    [
        ("data:image/gif;base64,AA==", Attachment("image/gif", "AA==")),
        ("data:;base64,AA==", Attachment("image/png", "AA==")),
        ("data:" + "x" * 194 + ",AA==", Attachment("x" * 194, "AA==")),
        # a comma behind 200 characters ends no type: the whole is an address
        ("data:" + "x" * 195 + ",AA==", Attachment("image/png", "", "data:" + "x" * 195 + ",AA==")),
        ("https://a.example/b,c.png", Attachment("image/png", "", "https://a.example/b,c.png")),
    ],
)
def test_a_picture_has_the_type_and_data_of_its_data_url(url, picture):
    content = [{"type": "image_url", "image_url": {"url": url}}]
    (s,) = openai.read(document([{"role": "user", "content": content}, DONE]))
    assert s.messages[0].parts == (picture,)


@pytest.mark.parametrize("damaged", ["x", 3, None])
def test_an_item_before_a_compaction_that_is_no_object_is_passed_over(damaged):
    kept = {"type": "compaction", "encrypted_content": "e" * 10}
    response = {"object": "response.compaction", "output": [damaged, USER_ITEM, kept]}
    (s,) = openai_responses.read(source({"request": {"input": [USER_ITEM]}, "response": response}))
    assert [m.role for m in s.messages] == ["user"]
    assert len(s.edits) == 1
