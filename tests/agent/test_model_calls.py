"""Calls of the model in a turn: what is counted of a prompt, which failures are repeated, and how they are stored."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256

import msgspec
import pytest
from builders import assistant, result, session, tool_call, user
from stand_in_models import ECHO, Says, agent, run, said

from ctxkit.agent import (
    Delta,
    Limits,
    PromptCharacterCounter,
    ReplyEventEmitter,
    count_payload_bytes,
    digest_tools,
    find_last_tools_digest,
)
from ctxkit.errors import ModelError
from ctxkit.session import Message, SizeOnly, Text, Thinking, ToolCall, ToolSchema, Usage

KEY = "sk-ant-api03-" + "Ab3xY9" * 15


def make_talk():
    call = ToolCall("c", "look", {"x": 1})
    raw = ToolCall("d", "look", {}, raw="{torn")
    thinking = (Thinking("Hmm", signature="sign"), Thinking("So"))
    reply = Message(role="assistant", id="a", parts=(*thinking, Text("word"), call, raw))
    return [user("12345", id="u"), reply, result("rows", call, id="r"), user("é", id="v")]


def count(counter, messages):
    report = counter.count(messages, seq=3, schema_chars=100, tokens=77)
    return report["msg_counts"], report["content_chars"], report["protected_data_blobs"]


def test_the_characters_of_a_prompt_by_kind():
    report = PromptCharacterCounter().count(make_talk(), seq=3, schema_chars=100, tokens=77)
    assert report == {
        "seq": 3,
        "msg_counts": {"user": 2, "assistant": 1, "tool": 1, "summary": 0},
        "content_chars": {
            "text": 5 + 4 + 1,
            "reasoning_text": 3 + 2,
            "reasoning_protected_data": 4,
            "fn_call_args": len('{"x":1}') + len("{torn"),
            "fn_results": 4,
            "content_total": 10 + 5 + 4 + 12 + 4,
            "tool_schema_est": 100,
            "grand_total": 35 + 100,
        },
        "protected_data_blobs": 1,
        "est_tokens": 77,
    }


def test_a_prompt_that_does_not_extend_the_one_before_is_counted_anew():
    counter, talk = PromptCharacterCounter(), make_talk()
    for prompt in (talk[:1], talk, talk[1:], [], [user("123456", id="u"), *talk[1:]], talk):
        assert count(counter, prompt) == count(PromptCharacterCounter(), prompt)
    system = Message(role="system", parts=(Text("abc"),))
    roles, chars, _ = count(counter, [system, Message(role="summary", parts=(Text("de"),))])
    assert roles == {"user": 0, "assistant": 0, "tool": 0, "summary": 1}
    assert chars["text"] == 5


def test_content_that_is_not_recorded_is_counted_as_its_description():
    message = Message(role="user", parts=(SizeOnly("image", 5_000),))
    _, chars, _ = count(PromptCharacterCounter(), [message])
    assert 0 < chars["text"] < 100


def test_the_bytes_of_a_payload():
    talk = make_talk()
    assert count_payload_bytes([]) == 0
    assert count_payload_bytes(talk[-1:]) == len('[{"type":"text","text":"é"}]'.encode())
    assert count_payload_bytes(talk) == sum(count_payload_bytes([m]) for m in talk)


def test_the_digest_of_tools_is_found_at_the_last_reply_that_has_one():
    tools = (ToolSchema(name="look", parameters={"b": 1, "a": 2}),)
    digest = digest_tools(tools)
    assert digest == sha256(msgspec.json.encode(tools, order="deterministic")).hexdigest()[:12]
    assert digest == digest_tools((ToolSchema(name="look", parameters={"a": 2, "b": 1}),))
    one = agent(said("one"), said("two"), tools=[ECHO])
    assert find_last_tools_digest(one.session.path) is None
    run(one.turn("go"))
    run(one.turn("go"))
    digests = [find_last_tools_digest([c.message]) for c in one.session.calls]
    assert digests == [digest_tools(tuple(t.schema for t in one.tools.values())), None]
    assert find_last_tools_digest(one.session.path) == digests[0]
    # it is in the log: another agent does not store it again, unless its tools differ
    again = agent(said("three"), at=one.session, tools=[ECHO])
    run(again.turn("go"))
    assert find_last_tools_digest([again.session.calls[-1].message]) is None
    other = agent(said("three"), at=one.session)
    run(other.turn("go"))
    assert find_last_tools_digest([other.session.calls[-1].message]) not in (None, digests[0])


def test_the_pieces_of_a_reply_are_emitted_and_bounded():
    events, checks = [], []
    emitter = ReplyEventEmitter(lambda *e: events.append(e), lambda: checks.append(1))
    for delta in (
        Delta("thinking", "Hm"),
        Delta("text", "It "),
        Delta("wait", "busy"),
        Delta("text", "is."),
    ):
        emitter(delta)
    assert emitter.words == "It is."
    assert events == [
        ("delta", {"kind": "thinking", "text": "Hm"}),
        ("delta", {"kind": "text", "text": "It "}),
        ("model_wait", {"why": "busy"}),
        ("delta", {"kind": "text", "text": "is."}),
    ]
    assert len(checks) == 4
    emitter(Delta("arguments", "x" * (1_000_000 - len("HmIt busyis."))))
    with pytest.raises(
        ModelError, match=r"^The reply has more than 1,000,000 characters; it was broken off\.$"
    ):
        emitter(Delta("text", "x"))


def take_turn(*replies, **more):
    events = []
    one = agent(*replies, heard=events, **more)
    return one, run(one.turn("go")), events


def payloads(events, kind):
    return [e.payload for e in events if e.kind == kind]


def test_a_call_whose_reply_broke_off_is_repeated_twice():
    broken = ModelError("It broke off.", again=True)
    one, outcome, events = take_turn(broken, broken, said("done"))
    assert (outcome.ended, outcome.text, outcome.spent.calls) == ("answered", "done", 3)
    assert (
        payloads(events, "model_error")
        == [{"error": "It broke off.", "overflow": False, "again": True}] * 2
    )
    failed = [c.message for c in one.session.calls][:2]
    assert [(m.error, m.stop, m.visible, m.model) for m in failed] == [
        ("It broke off.", "error", False, "test/says")
    ] * 2
    _, outcome, _ = take_turn(broken, broken, broken, said("done"))
    assert (outcome.ended, outcome.why, outcome.spent.calls) == ("error", "It broke off.", 3)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ModelError(f"refused {KEY}"), "refused [redacted]"),
        (ValueError(f"odd {KEY}"), "test/says: ValueError: odd [redacted]"),
        (RuntimeError("x" * 2_000), "test/says: RuntimeError: " + "x" * 1_000),
    ],
)
def test_other_failures_end_the_turn(error, why):
    one, outcome, events = take_turn(error, said("done"))
    assert (outcome.ended, outcome.why, outcome.spent.calls) == ("error", why, 1)
    assert one.session.calls[-1].message.error == why
    assert payloads(events, "model_error") == [{"error": why, "overflow": False, "again": None}]


@pytest.mark.parametrize(
    ("reply", "note"),
    [
        (said("It is."), ""),
        (said("  "), "the model gave an empty reply"),
        (said("", stop="content"), "the model gave an empty reply (it ended with content)"),
        (said("", stop="x" * 90), f"the model gave an empty reply (it ended with {'x' * 39}…)"),
        (said(Thinking("Hm.")), "the model thought, and gave no answer"),
    ],
)
def test_an_answer_without_text_is_noted(reply, note):
    _, outcome, _ = take_turn(reply)
    assert (outcome.ended, outcome.why) == ("answered", note)


def test_a_reply_that_is_not_used_is_billed():
    calls = [tool_call("echo", f"c{i}", x="1") for i in range(1_001)]
    usage = Usage(input_tokens=500, output_tokens=60)
    one, outcome, _ = take_turn(said(*calls, usage=usage), tools=[ECHO])
    assert outcome.why.startswith("test/says asked for 1,001 tool calls in one reply, and at most ")
    assert outcome.why.endswith(" are taken; none was run. Ask for smaller steps.")
    assert (outcome.spent.fresh, outcome.spent.output, outcome.spent.calls) == (500, 60, 1)
    assert not [m for m in one.session.messages if m.role == "tool"]


def test_the_end_at_a_limit_of_time_is_an_event():
    class Hangs(Says):
        async def __call__(self, request, emit):
            await asyncio.sleep(60)

    one, outcome, events = take_turn(model=Hangs(), limits=Limits(seconds=0.05), clock=lambda: 5.0)
    why = "stopped at the limit of 0.05 seconds"
    assert (outcome.ended, outcome.why) == ("limit", why)
    assert payloads(events, "limit_reached") == [{"limit": why}]
    assert payloads(events, "cancelled") == [{"chars": 0, "why": why}]
    assert payloads(events, "turn_end")[0]["ended"] == "limit"
    assert (one.session.calls[-1].message.error, one.session.calls[-1].message.stop) == (
        why,
        "aborted",
    )


def test_the_totals_of_a_turn():
    ticks = iter(range(100, 200))
    first = said(
        tool_call("echo", "c", x="1"),
        usage=Usage(input_tokens=5, cache_read_tokens=20, output_tokens=3),
    )
    _, outcome, events = take_turn(
        first, said("done"), tools=[ECHO], clock=lambda: float(next(ticks))
    )
    (end,) = payloads(events, "turn_end")
    assert {k: v for k, v in end.items() if k != "elapsed_ms"} == {
        "input_tokens": 35, "output_tokens": 4, "cached_input_tokens": 20, "tool_rounds": 2, "ended": "answered"}  # fmt: skip
    assert end["elapsed_ms"] == round(outcome.spent.seconds * 1000) > 0
    responses = payloads(events, "model_response")
    assert [(r["input_tokens"], r["output_tokens"], r["call_seq"]) for r in responses] == [
        (25, 3, 1),
        (10, 1, 2),
    ]
    assert payloads(events, "tool_call") == [{"tool_name": "echo", "args": {"x": "1"}}]
    assert payloads(events, "tool_result") == [
        {"tool_name": "echo", "result_chars": 3, "is_error": False}
    ]
    assert [p["call_seq"] for p in payloads(events, "model_call")] == [1, 2]
    assert [p["message_count"] for p in payloads(events, "model_call")] == [1, 3]
    assert json.dumps(payloads(events, "turn_start")) == '[{"content_chars": 2}]'


def test_a_window_that_an_overflow_named_is_remembered():
    overflow = ModelError(
        "prompt is too long: 30000 tokens > 20000 maximum", overflow=True, window=20_000
    )
    at = session(user("x" * 400), assistant(), user("y" * 400), assistant())
    one, outcome, _ = take_turn(overflow, said("done"), said("done"), at=at)
    assert outcome.context_window == 20_000
    again = agent(said("done"), at=one.session)
    assert again.gauge()[1] == 20_000
    other = Says(said("done"))
    other.name = "test/other"
    assert agent(model=other, at=one.session).gauge()[1] == 50_000
