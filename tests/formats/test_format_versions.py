"""Other versions and shapes of the formats: what older and newer ones write, what exporters wrap around it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ctxkit.formats import Source, read_source
from ctxkit.session import Attachment, Edit, Thinking

if TYPE_CHECKING:
    from ctxkit.session import Session

TIME = "2026-01-01T00:00:00Z"


def read(data: Any) -> Session:
    """The one session of a document, or of lines where a list of them is given in a tuple."""
    text = "\n".join(map(json.dumps, data)) if isinstance(data, tuple) else json.dumps(data)
    (session,) = read_source(Source("s", text.encode()))
    return session


def told(session: Session) -> list[tuple[str, str]]:
    return [(m.role, m.text) for m in session.messages]


def view(session: Session) -> list[str]:
    return [m.text for m in session.view()]


# -- Codex -------------------------------------------------------------------------------------------------------------


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"timestamp": TIME, "type": "response_item", "payload": {"type": kind, **fields}}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"timestamp": TIME, "type": "event_msg", "payload": {"type": kind, **fields}}


META = {"timestamp": TIME, "type": "session_meta", "payload": {"id": "A"}}
ASKED = item("message", role="user", content=[{"type": "input_text", "text": "one"}])
SAID = item("message", role="assistant", content=[{"type": "output_text", "text": "two"}])


def test_codex_turns_that_were_taken_back_are_no_longer_shown():
    again = item("message", role="user", content="three")
    session = read(
        (META, ASKED, SAID, again, SAID, event("thread_rolled_back", num_turns=1), ASKED)
    )
    assert view(session) == ["one", "two", "one"]
    assert len(session.log) == 5


def test_codex_replacements_may_do_without_a_type():
    replacement = [
        {"role": "user", "content": "kept"},
        {"type": "compaction", "encrypted_content": "x" * 40},
    ]
    compacted = {
        "timestamp": TIME,
        "type": "compacted",
        "payload": {"replacement_history": replacement},
    }
    session = read((META, ASKED, SAID, compacted))
    assert view(session)[0] == "kept"
    assert not session.skipped


def test_the_first_codex_wrote_one_object():
    about = {"timestamp": TIME, "id": "A", "instructions": "be short"}
    session = read({"session": about, "items": [ASKED["payload"], SAID["payload"]]})
    assert (session.format, session.id) == ("codex", "A")
    assert told(session) == [("system", "be short"), ("user", "one"), ("assistant", "two")]


# -- Kimi --------------------------------------------------------------------------------------------------------------


def wire(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": 1767225600.0, "message": {"type": kind, "payload": payload}}


def test_the_older_wire_of_kimi_is_read_with_its_subagents():
    session = read(
        (
            {"type": "metadata", "protocol_version": "1.3"},
            wire("TurnBegin", user_input="go"),
            wire("StepBegin", n=1),
            wire("ContentPart", type="think", think="hm"),
            wire("ToolCall", type="function", id="c", function={"name": "Shell", "arguments": ""}),
            wire("ToolCallPart", arguments_part='{"a":'),
            wire("ToolCallPart", arguments_part="1}"),
            wire(
                "StatusUpdate", token_usage={"input_other": 5, "input_cache_read": 3, "output": 2}
            ),
            wire(
                "SubagentEvent",
                task_tool_call_id="c",
                event={"type": "ContentPart", "payload": {"type": "text"}},
            ),
            wire("ToolResult", tool_call_id="c", return_value={"is_error": True, "output": "no"}),
            wire("ApprovalRequest", id="x"),
        )
    )
    reply = session.messages[1]
    (call,) = reply.tool_calls
    assert (call.name, call.arguments, reply.usage.prompt_tokens) == ("Shell", {"a": 1}, 8)
    assert isinstance(reply.parts[0], Thinking)
    assert session.messages[2].is_error
    assert session.children[0].details["call_id"] == "c"
    assert session.skipped == {"ApprovalRequest": 1}


def test_a_result_of_the_older_wire_of_kimi_has_the_output_or_message_of_its_tool():
    call = wire("ToolCall", type="function", id="c", function={"name": "Shell", "arguments": "{}"})
    text = [{"type": "text", "text": "in parts"}, {"type": "sound"}]
    results = [
        wire("ToolResult", tool_call_id="c", return_value={"output": "out", "message": "ok"}),
        wire("ToolResult", id="c", return_value={"message": "denied", "is_error": True}),
        wire("ToolResult", tool_call_id="d", result="bare"),
        wire("ToolResult", tool_call_id="c", return_value={"output": text, "is_error": "no"}),
        wire("ToolResult", tool_call_id="c", return_value={"output": {"n": 1}}),
    ]
    head = {"type": "metadata", "protocol_version": "1.3"}
    session = read((head, wire("TurnBegin", user_input="go"), call, *results))
    assert [
        (m.text, m.tool, m.call_id, m.is_error) for m in session.messages if m.role == "tool"
    ] == [
        ("out", "Shell", "c", False),
        ("denied", "Shell", "c", True),
        ("bare", None, "d", False),
        ("in parts", "Shell", "c", False),
        ('{"n":1}', "Shell", "c", False),
    ]
    assert session.skipped == {"part: sound": 1}


def test_a_stored_context_of_kimi_is_read_and_its_marks_counted():
    call = {"type": "function", "id": "c", "function": {"name": "f", "arguments": "{}"}}
    session = read(
        (
            {"role": "_system_prompt", "content": "sys"},
            {"role": "_checkpoint", "id": 0},
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": [{"type": "think", "think": "hm"}],
                "tool_calls": [call],
            },
            {"role": "_usage", "token_count": 5},
            {"role": "tool", "tool_call_id": "c", "content": "done"},
        )
    )
    assert [m.role for m in session.messages] == ["system", "user", "assistant", "tool"]
    assert session.messages[3].tool == "f"
    assert session.skipped == {"_checkpoint": 1, "_usage": 1}


# -- Gemini CLI --------------------------------------------------------------------------------------------------------


def test_a_result_of_gemini_that_is_plain_text_is_kept():
    call = {"id": "c", "name": "f", "args": {}, "status": "success", "result": "plain"}
    spoken = {"id": "1", "timestamp": TIME, "type": "gemini", "content": "", "toolCalls": [call]}
    assert told(read((spoken,)))[-1] == ("tool", "plain")  # the header is missing, too


def test_requests_and_checkpoints_of_gemini_are_read():
    contents = [{"role": "user", "parts": [{"text": "q"}]}]
    request = {"contents": contents, "systemInstruction": {"parts": [{"text": "sys"}]}}
    session = read({**request, "tools": [{"functionDeclarations": [{"name": "f"}]}]})
    assert told(session) == [("system", "sys"), ("user", "q")]
    assert [t.name for t in session.tools] == ["f"]
    assert told(read({"history": [{"type": "user"}], "clientHistory": contents})) == [("user", "q")]


# -- OpenCode ----------------------------------------------------------------------------------------------------------


def export(*messages: tuple[dict[str, Any], list[dict[str, Any]]], **info: Any) -> dict[str, Any]:
    raw = [{"info": {"sessionID": "ses_1", **about}, "parts": parts} for about, parts in messages]
    return {"info": {"id": "ses_1", **info}, "messages": raw}


def user(n: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return {"id": f"msg_{n}", "role": "user", "time": {"created": 1.7e12 + n}}, [
        {"type": "text", "text": f"q{n}"}
    ]


def test_opencode_results_that_were_pruned_are_cleared_from_then_on():
    state = {"status": "completed", "output": "long", "time": {"compacted": 1.7e12 + 2}}
    reply = (
        {"id": "msg_1", "role": "assistant"},
        [{"type": "tool", "callID": "c", "tool": "f", "state": state}],
    )
    session = read(export(user(0), reply, user(3)))
    edit = next(e for e in session.log if isinstance(e, Edit))
    assert (edit.kind, edit.method) == ("replaced", "prune")
    assert "long" not in view(session)
    assert "long" in [m.text for m in session.messages]


def test_opencode_sessions_stand_where_the_user_went_back_to():
    session = read(export(user(0), user(1), user(2), revert={"messageID": "msg_1"}))
    assert view(session) == ["q0"]
    assert len(session.log) == 3


def test_each_step_of_an_older_opencode_message_is_a_call():
    ends = [
        {"type": "step-finish", "tokens": {"input": n, "output": 1}, "cost": 0.5} for n in (5, 9)
    ]
    parts = [
        {"type": "text", "text": "a"},
        ends[0],
        {"type": "step-start"},
        {"type": "text", "text": "b"},
        ends[1],
    ]
    session = read(export(({"id": "msg_1", "role": "assistant"}, parts)))
    assert [(m.text, m.usage.input_tokens) for m in session.messages] == [("a", 5), ("b", 9)]


# -- OpenHands ---------------------------------------------------------------------------------------------------------


def act(n: int, **fields: Any) -> dict[str, Any]:
    return {"id": n, "timestamp": TIME, "source": "agent", **fields}


def test_histories_of_openhands_show_pictures_and_tie_pairs():
    asked = act(
        0,
        action="message",
        args={"content": "q", "image_urls": ["data:image/png;base64,AA"]},
        source="user",
    )
    pair = [act(1, action="run", args={"command": "ls"}), act(-1, observation="run", content="out")]
    session = read({"trajectory": [asked, act(2, action="condensation_request", args={}), *pair]})
    assert isinstance(session.messages[0].parts[1], Attachment)
    (paired,) = read_source(
        Source("s", json.dumps({"instance_id": "i", "history": [pair]}).encode())
    )
    assert [m.call_id for m in paired.messages if m.role == "tool"] == ["action-1"]
    assert session.skipped == {"event: condensation_request": 1}


def test_events_of_openhands_one_a_line_are_one_conversation():
    said = [
        {"role": role, "content": [{"type": "text", "text": role}]}
        for role in ("user", "assistant")
    ]
    kinds = [
        {"kind": "MessageEvent", "id": m["role"], "timestamp": TIME, "source": "agent"}
        for m in said
    ]
    session = read(tuple({**k, "llm_message": m} for k, m in zip(kinds, said, strict=True)))
    assert told(session) == [("user", "user"), ("assistant", "assistant")]


# -- traces and dumps --------------------------------------------------------------------------------------------------


def generation(trace: str, given: Any, answer: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": trace,
        "traceId": trace,
        "type": "GENERATION",
        "startTime": TIME,
        "input": given,
        "output": answer,
        **more,
    }


def test_observations_of_langfuse_are_read_in_every_wrapping():
    one = generation(
        "t",
        [{"role": "user", "content": "q"}],
        {"role": "assistant", "content": "a"},
        promptTokens=5,
    )
    for shape in ([one], (one,), {"data": [one], "meta": {}}, {"id": "t", "observations": [one]}):
        session = read(shape)
        assert (session.id, told(session)) == ("t", [("user", "q"), ("assistant", "a")])
        assert session.messages[1].usage.input_tokens == 5
    both = json.dumps([one, generation("u", "q", "a")]).encode()
    assert [s.id for s in read_source(Source("s", both))] == ["t", "u"]


def test_generations_of_langchain_in_a_trace_are_replies():
    answer = {"generations": [[{"text": "a", "message": {"type": "ai", "content": "a"}}]]}
    assert told(read([generation("t", [{"role": "user", "content": "q"}], answer)]))[-1] == (
        "assistant",
        "a",
    )


def test_content_in_the_details_event_of_a_span_is_read():
    said = {
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "q"}]}]
    }
    span = {
        "attributes": {"gen_ai.operation.name": "chat"},
        "status": {"status_code": "ERROR", "description": "late"},
    }
    name = "gen_ai.client.inference.operation.details"
    session = read(
        (
            {
                "context": {"trace_id": "t", "span_id": "s"},
                **span,
                "events": [{"name": name, "attributes": said}],
            },
        )
    )
    assert told(session)[0] == ("user", "q")
    assert session.messages[1].error == "late"


def test_chunks_and_removals_of_langchain_are_what_they_say():
    def dumped(kind: str, **fields: Any) -> dict[str, Any]:
        return {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", kind],
            "kwargs": fields,
        }

    session = read(
        [dumped("HumanMessage", content="q", id="x"), dumped("RemoveMessage", id="x", content="")]
    )
    assert view(session) == []
    chunk = {"type": "AIMessageChunk", "data": {"content": "a"}}
    assert told(read([{"type": "human", "data": {"content": "q"}}, chunk]))[1] == ("assistant", "a")


def test_responses_in_a_mini_trajectory_are_replies():
    call = {"type": "function_call", "call_id": "c", "name": "bash", "arguments": "{}"}
    answer = {
        "object": "response",
        "output": [call],
        "usage": {"input_tokens": 5, "output_tokens": 1},
    }
    result = {"type": "function_call_output", "call_id": "c", "output": "done"}
    mark = {"trajectory_format": "mini-swe-agent-1.1", "info": {}}
    session = read({**mark, "messages": [{"role": "user", "content": "q"}, answer, result]})
    assert [m.role for m in session.messages] == ["user", "assistant", "tool"]
    assert session.messages[1].usage.input_tokens == 5


def test_a_start_of_aider_without_a_word_is_an_empty_session():
    (session,) = read_source(Source("s", b"\n# aider chat started at 2024-01-01 10:00:00\n\n"))
    assert session.log == ()
    assert session.started is not None


def test_tau2_runs_are_read_with_usage_and_without_the_users_tools():
    mine = {"id": "a", "name": "f", "arguments": {}, "requestor": "user"}
    messages = [
        {
            "role": "assistant",
            "content": "hi",
            "usage": {"prompt_tokens": 5, "completion_tokens": 1},
            "cost": 0.5,
        },
        {"role": "user", "content": "q", "turn_idx": 1},
        {"role": "user", "content": None, "tool_calls": [mine]},
        {
            "role": "tool",
            "tool_messages": [{"role": "tool", "id": "a", "content": "own", "requestor": "user"}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "b", "name": "g", "arguments": {}}],
        },
        {"role": "tool", "id": "b", "content": "no", "requestor": "assistant", "error": True},
    ]
    session = read(
        {"simulations": [{"task_id": "1", "messages": messages, "reward_info": {"reward": 1}}]}
    )
    assert view(session) == ["hi", "q", "", "no"]
    assert session.messages[0].usage.cost_usd == 0.5
    assert (session.messages[-1].is_error, session.messages[-1].tool) == (True, "g")
    assert session.details["reward"] == 1


def test_a_message_of_tau2_that_is_no_object_is_counted_and_the_others_are_read():
    hello = {"role": "assistant", "content": "hi"}
    nested = {"role": "tool", "tool_messages": ["text", {"role": "tool", "content": "ok"}]}
    messages = [7, hello, None, nested]
    session = read({"simulations": [{"task_id": "1", "messages": messages, "reward_info": {}}]})
    assert view(session) == ["hi", "ok"]
    assert (session.skipped, session.faults) == ({"message: no role": 3}, ())


def test_what_a_providers_tools_gave_is_kept_in_inspect_logs():
    used = {"type": "tool_use", "id": "t", "name": "search", "arguments": "{}", "result": "found"}
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": [used]}]
    sample = {"id": 1, "epoch": 1, "messages": messages}
    session = read({"status": "success", "eval": {"task": "t"}, "samples": [sample]})
    assert [(m.role, m.kind) for m in session.messages][-1] == ("tool", "server")
    assert session.messages[-1].text == "found"


# -- chat APIs ---------------------------------------------------------------------------------------------------------


def completion(said: str) -> dict[str, Any]:
    return {
        "model": "g",
        "choices": [{"message": {"role": "assistant", "content": said}}],
        "usage": {"prompt_tokens": 9},
    }


def test_a_talk_without_a_system_prompt_grows_as_one():
    one, two = ({"role": "user", "content": q} for q in ("q1", "q2"))
    answer = {"role": "assistant", "content": "a1"}
    session = read(
        (
            {"request": {"messages": [one]}, "response": completion("a1")},
            {"request": {"messages": [one, answer, two]}, "response": completion("a2")},
        )
    )
    assert view(session) == ["q1", "a1", "q2", "a2"]
    assert len(session.calls) == 2


def test_batches_are_unwrapped():
    asked = {"messages": [{"role": "user", "content": "q"}]}
    assert told(read(({"custom_id": "1", "url": "/v1/chat/completions", "body": asked},))) == [
        ("user", "q")
    ]
    assert told(read(({"custom_id": "1", "response": {"body": completion("a")}},))) == [
        ("assistant", "a")
    ]
    message = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "b"}],
        "stop_reason": "end_turn",
    }
    assert told(
        read(({"custom_id": "1", "result": {"type": "succeeded", "message": message}},))
    ) == [("assistant", "b")]


def test_refusals_pictures_and_providers_results_are_kept():
    refused = {"role": "assistant", "content": None, "refusal": "no"}
    assert told(read([{"role": "user", "content": "q"}, refused]))[-1] == ("assistant", "no")
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA"}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": [picture]}
    assert isinstance(read([call, output]).messages[-1].parts[0], Attachment)
    used = {"type": "server_tool_use", "id": "w", "name": "web_search", "input": {}}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "w",
        "content": [{"type": "web_search_result", "url": "u"}],
    }
    session = read(
        [{"role": "user", "content": "q"}, {"role": "assistant", "content": [used, found]}]
    )
    assert [(m.role, m.kind) for m in session.messages[1:]] == [
        ("assistant", ""),
        ("tool", "server"),
    ]
    assert session.messages[2].parts[0].chars
