"""Langfuse, OpenTelemetry, LangChain: prompts grow into one log; what left a prompt is an edit that was derived."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_logs import LANGCHAIN, MADE, OTLP, lines, span

import ctxkit as ck
from ctxkit.formats import Source, detect_reader, get_reader, read_source
from ctxkit.formats.conversations_from_requests import PromptThreads, make_keyed_message
from ctxkit.session import Message, Text


def talk(*prompts: tuple[str, ...], compacted: bool = False) -> PromptThreads:
    threads = PromptThreads()
    for n, prompt in enumerate(prompts):
        heard = [
            make_keyed_message(
                Message(role="user" if i % 2 == 0 else "assistant", parts=(Text(t),))
            )
            for i, t in enumerate(prompt)
        ]
        threads.add_call(
            heard, Message(role="assistant", parts=(Text(f"r{n}"),)), compacted=compacted
        )
    return threads


def shown(threads: PromptThreads) -> list[list[str]]:
    from ctxkit.session import Session

    (thread,) = threads.all
    return [
        [m.text for m in view] for _, view in Session(id="x", log=tuple(thread.log.entries)).views()
    ]


def test_a_prompt_that_compacted_adds_only_what_is_new():
    threads = talk(("a",), ("a", "r0", "b"), ("a", "r0", "b", "r1", "c"))
    assert len(threads.all[0].log.entries) == 6
    assert shown(threads) == [["a"], ["a", "r0", "b"], ["a", "r0", "b", "r1", "c"]]


def test_what_left_the_prompt_is_a_derived_edit():
    threads = talk(("a",), ("a", "r0", "b"), ("b", "r1", "c"))
    assert shown(threads)[-1] == ["b", "r1", "c"]
    (edit,) = [e for e in threads.all[0].log.entries if not isinstance(e, Message)]
    assert (edit.kind, edit.source) == ("dropped", "derived")


def test_a_prompt_that_grows_after_a_derived_edit_is_the_same_thread():
    threads = talk(
        ("a",), ("a", "r0", "b"), ("b", "r1", "c"), ("b", "r1", "c", "r2", "d"), ("c", "r2", "e")
    )
    assert shown(threads)[-2:] == [["b", "r1", "c", "r2", "d"], ["c", "r2", "e"]]
    assert sum(not isinstance(e, Message) for e in threads.all[0].log.entries) == 2


def test_a_summary_before_a_kept_tail_stands_in_its_place():
    threads = talk(("a",), ("a", "r0", "b"), ("sum", "r1", "c"))
    assert shown(threads)[-1] == ["sum", "r1", "c"]


def test_a_prompt_with_nothing_in_common_is_another_thread():
    assert len(talk(("a",), ("x",)).all) == 2
    assert len(talk(("a",), ("x",), compacted=True).all) == 1


def test_langfuse_threads_hold_each_calls_prompt(real):
    s = ck.read(real / "langfuse/openai-agents-2025-09-30.trace.json")
    assert [m.role for m in s.view(-1)] == ["system", "user", "assistant", "tool"]
    assert s.messages[3].tool == "get_weather"
    assert s.tools[0].name == "get_weather"
    t = ck.read(real / "langfuse/langgraph-js-2025-10-30.trace.json")
    assert (
        t.call(-1).message.usage.output_tokens == 35 + 64
    )  # the classes of this export stand apart
    assert (t.messages[2].role, t.messages[2].tool) == ("tool", "get_weather")


def test_a_reply_that_was_not_logged_comes_from_the_next_prompt(real):
    s = ck.read(real / "langfuse/beeai-2025-08-01.trace.json")
    assert [bool(c.message.text) for c in s.calls] == [True, True, False]
    assert not s.edits


def test_otlp_spans_of_a_conversation_are_a_session():
    (s,) = read_source(Source("t.json", OTLP))
    assert (s.id, s.product, [m.role for m in s.messages]) == (
        "talk",
        "shop",
        ["user", "assistant", "tool", "assistant"],
    )
    assert (s.call(-1).message.usage.input_tokens, s.call(-1).message.usage.cache_read_tokens) == (
        30,
        100,
    )
    assert s.skipped == {"span: execute_tool": 1}
    assert s.call(0).message.latency == 1


def test_lists_of_messages_inside_attributes_are_numbered_messages():
    """Phoenix exports nested attributes; a list of plain values stays one value."""
    nested = {
        "openinference.span.kind": "LLM",
        "llm": {
            "input_messages": [{"message": {"role": "user", "content": "hi"}}],
            "output_messages": [{"message": {"role": "assistant", "content": "ho"}}],
            "token_count": {"prompt": 12},
        },
    }
    (s,) = read_source(
        Source("t.jsonl", lines({"context": {"span_id": "s"}, "attributes": nested}))
    )
    assert [(m.role, m.text) for m in s.messages] == [("user", "hi"), ("assistant", "ho")]


@pytest.mark.parametrize("kind", ["arrayValue", "kvlistValue"])
def test_an_attribute_nested_without_end_does_not_stop_the_reading_of_its_trace(kind):
    values = "%s" if kind == "arrayValue" else '{"key": "k", "value": %s}'
    nested = '{"stringValue": "deep"}'
    for _ in range(200):
        nested = f'{{"{kind}": {{"values": [{values % nested}]}}}}'
    start = b'"attributes": ['
    trace = OTLP.replace(start, start + f'{{"key": "extra", "value": {nested}}}, '.encode())
    assert trace.count(b'"extra"') > 3
    (plain,) = read_source(Source("t.json", OTLP))
    (s,) = read_source(Source("t.json", trace))
    assert not s.faults
    assert s.messages == plain.messages


def write_typed_value(value: object) -> dict:
    """Return a JSON value as OTLP's typed value."""
    match value:
        case dict():
            pairs = [{"key": k, "value": write_typed_value(v)} for k, v in value.items()]
            return {"kvlistValue": {"values": pairs}}
        case list():
            return {"arrayValue": {"values": [write_typed_value(v) for v in value]}}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case _:
            return {"stringValue": value}


def test_messages_as_typed_values_are_those_of_their_json():
    data = (Path(__file__).parent / "golden/otel.json").read_bytes()
    arguments = rb"""{\"n\": -3, \"all\": true, \"path\": \"notes.txt\"}"""
    data = data.replace(rb"""{\"path\": \"notes.txt\"}""", arguments)
    (plain,) = read_source(Source("t.json", data))
    trace = json.loads(data)
    for one_span in trace["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for attribute in one_span["attributes"]:
            if attribute["key"].endswith(("messages", "instructions")):
                text = attribute["value"]["stringValue"]
                attribute["value"] = write_typed_value(json.loads(text))
    (typed,) = read_source(Source("t.json", json.dumps(trace).encode()))
    assert typed.log == plain.log
    assert typed.messages[2].tool_calls[0].arguments == {"n": -3, "all": True, "path": "notes.txt"}


def test_spans_one_a_line_and_without_content():
    plain = {
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.conversation.id": "c",
    }
    spans = [
        {
            "context": {"trace_id": "t", "span_id": f"{n}"},
            "start_time": f"2026-01-01T00:00:0{n}Z",
            "attributes": plain,
        }
        for n in (0, 1)
    ]
    (s,) = read_source(Source("t.jsonl", lines(*spans)))
    assert [c.message.usage.prompt_tokens for c in s.calls] == [9, 9]
    assert not s.has_text


def test_openinference_numbers_its_messages():
    flat = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "hi",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "ls",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"path": "."}',
        "llm.token_count.prompt": 12,
    }
    (s,) = read_source(Source("t.jsonl", lines({"context": {"span_id": "s"}, "attributes": flat})))
    assert s.messages[0].text == "hi"
    assert s.call(0).message.tool_calls[0].arguments == {"path": "."}


def test_langchain_tells_cached_from_fresh():
    (s,) = read_source(Source("l.json", LANGCHAIN))
    u = s.call(0).message.usage
    assert (u.input_tokens, u.cache_read_tokens, u.cache_write_tokens) == (10, 60, 30)
    assert s.call(0).message.tool_calls[1].raw == "{broken"
    assert s.messages[4].is_error
    assert [m.role for m in s.view(-1)] == ["system", "assistant", "tool", "tool"]


@pytest.mark.parametrize("place", ["token_usage", "tokenUsage"])
def test_langchain_has_the_usage_in_the_response_metadata_under_two_names(place):
    """Where `usage_metadata` is missing; 100 tokens of the prompt include 60 from the cache."""
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 60},
    }
    metadata = {place: usage, "model": "m-2", "stop_reason": "end_turn"}
    reply = {"type": "ai", "content": "Hi.", "response_metadata": metadata}
    document = {"messages": [{"type": "human", "content": "Hello."}, reply]}
    (session,) = read_source(
        Source(
            "l.json",
            json.dumps(document).encode(),
        )
    )
    message = session.call(0).message
    assert (message.usage.input_tokens, message.usage.cache_read_tokens) == (40, 60)
    assert message.usage.output_tokens == 7
    assert (message.model, message.stop, session.model) == ("m-2", "stop", "m-2")


@pytest.mark.parametrize("name", MADE)
def test_every_made_log_is_known_by_content(name: str):
    for data in MADE[name]:
        assert name == detect_reader(Source("any.bin", data)).NAME
        assert get_reader(name).read(Source("any.bin", data))


def test_spans_out_of_order_are_sorted_by_time():
    document = json.loads(OTLP)
    spans = [span(3, [], [], 5, 0), span(1, [], [], 4, 0)]
    document["resourceSpans"][0]["scopeSpans"][0]["spans"] = spans
    (s,) = read_source(Source("t.json", json.dumps(document).encode()))
    assert [c.message.usage.prompt_tokens for c in s.calls] == [4, 5]


def test_spans_have_no_mark_for_failed_tools():
    session = ck.read(Path(__file__).parent / "golden" / "otel.json")
    assert session.details["cannot_tell"] == ["tool errors"]


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        ({"code": 2, "message": "overloaded"}, True),
        ({"code": "STATUS_CODE_ERROR", "message": "overloaded"}, True),
        ({"status_code": "ERROR", "description": "overloaded"}, True),
        ({"code": 1, "message": "fine"}, False),  # ok
        ({"code": 0}, False),  # unset
        ({}, False),
    ],
)
def test_a_span_whose_status_is_an_error_is_a_failed_call(status, failed):
    document = json.loads((Path(__file__).parent / "golden/otel.json").read_text())
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[-1]["status"] = status
    (s,) = read_source(Source("t.json", json.dumps(document).encode()))
    last = s.messages[-1]
    assert (last.is_error, last.error) == (failed, "overloaded" if failed else None)
    assert not any(m.is_error for m in s.messages[:-1])


def test_spans_without_a_conversation_are_a_session_for_each_trace():
    spans = []
    for n, trace in enumerate(("one", "two")):
        made = span(10 * n, [], [], 100, 0) | {
            "traceId": trace,
            "spanId": f"s{n}",
            "parentSpanId": "",
        }
        made["attributes"] = [a for a in made["attributes"] if a["key"] != "gen_ai.conversation.id"]
        spans.append(made)
    data = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    sessions = read_source(Source("a.json", json.dumps(data).encode()))
    assert sorted(s.id for s in sessions) == ["one", "two"]
