"""Requests and responses of each API as its reader takes them, compared whole."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from ctxkit.agent.recorders.api_call_parsers import (
    detect_api,
    make_failed_response,
    parse_call,
    parse_response,
)

GEMINI_URL = "https://x/v1beta/models/g-2:streamGenerateContent?alt=sse"


def encode_events(*events):
    """Return server-sent events."""
    return "".join(f"event: e\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def name_call(name, arguments):
    """Return the id of the first call of a tool with some arguments, as the comment defines it."""
    text = f"{name}\0{json.dumps(arguments, sort_keys=True)}"
    return "call_" + sha256(text.encode()).hexdigest()[:8]


def chat_call(ident, name, arguments):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_gemini_request_and_its_stream():
    body = {
        "system_instruction": {"parts": [{"text": "Be short."}, {"text": "Be kind."}]},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "Look."},
                    {"fileData": {"mimeType": "video/mp4", "fileUri": "f"}},
                    {"inlineData": {"data": "AA=="}},
                    {"other": 1},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "Hm. ", "thought": True},
                    {"text": "I look."},
                    {"functionCall": {"id": "own", "name": "see", "args": {"b": 1, "a": "é"}}},
                    {"functionCall": {"name": "hear"}},
                    {"functionCall": {"name": "see", "args": {}}},
                    {"functionCall": "not one"},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "own", "name": "see", "response": {"r": "ü"}}},
                    {"functionResponse": {"name": "hear", "response": {"r": 2}}},
                    {"text": "And?"},
                ],
            },
            "no content",
        ],
        "tools": [
            {"functionDeclarations": [{"name": "see", "description": "Sees.", "parameters": {"type": "object"}}]},
            {"functionDeclarations": [{"name": "hear", "parametersJsonSchema": {"type": "string"}}, {"name": "smell"}]},
            {"googleSearch": {}},
        ],
    }  # fmt: skip
    stream = encode_events(
        {"candidates": [{"content": {"parts": [{"text": "It "}]}}, {"content": {"parts": [{"text": "Other"}]}}],
         "usageMetadata": {"promptTokenCount": 1}, "modelVersion": "g-2-001"},
        {"candidates": [{"content": {"parts": [{"text": "is."}]}, "finishReason": "MAX_TOKENS"}],
         "usageMetadata": {"promptTokenCount": 90, "toolUsePromptTokenCount": 4, "candidatesTokenCount": 7,
                           "thoughtsTokenCount": 5, "cachedContentTokenCount": 60}},
        {"candidates": []},
    )  # fmt: skip
    kind, request, response = parse_call("gemini", GEMINI_URL, body, stream)
    hear, see = name_call("hear", None), name_call("see", {})
    assert kind == "openai"
    assert request == {
        "model": "g-2",
        "messages": [
            {"role": "system", "content": "Be short.\nBe kind."},
            {"role": "user", "content": "Look.\n[video/mp4]\n[file]\n"},
            {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "Hm. ",
                "tool_calls": [
                    chat_call("own", "see", '{"b": 1, "a": "é"}'),
                    chat_call(hear, "hear", "{}"),
                    chat_call(see, "see", "{}"),
                ],
            },
            {"role": "tool", "tool_call_id": "own", "content": '{"r": "ü"}'},
            {"role": "tool", "tool_call_id": hear, "content": '{"r": 2}'},
            {"role": "user", "content": "And?"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "see", "description": "Sees.", "parameters": {"type": "object"}}},
            {"type": "function", "function": {"name": "hear", "description": "", "parameters": {"type": "string"}}},
            {"type": "function", "function": {"name": "smell", "description": "", "parameters": {}}},
        ],
    }  # fmt: skip
    assert response == {
        "model": "g-2-001",
        "usage": {
            "prompt_tokens": 94,  # the prompt and what tools of the server added
            "completion_tokens": 12,  # the answer and the thoughts
            "prompt_tokens_details": {"cached_tokens": 60},
            "completion_tokens_details": {"reasoning_tokens": 5},
        },
        "choices": [
            {"message": {"role": "assistant", "content": "It is."}, "finish_reason": "length"}
        ],
    }


@pytest.mark.parametrize(
    ("stop", "expected"), [("STOP", "stop"), ("SAFETY", "safety"), (None, None)]
)
def test_a_gemini_reply_without_counts(stop, expected):
    """A system instruction may be one text; a reply of another model version names none."""
    body = {"systemInstruction": "Be short.", "contents": []}
    candidate = {"content": {"parts": [{"text": ""}]}, "finishReason": stop}
    event = {"candidates": [candidate], "usageMetadata": {"totalTokenCount": 3}}
    _, request, response = parse_call("gemini", GEMINI_URL, body, json.dumps(event).encode())
    assert request == {
        "model": "g-2",
        "messages": [{"role": "system", "content": "Be short."}],
        "tools": [],
    }
    assert response == {
        "model": "g-2",
        "usage": None,
        "choices": [{"message": {"role": "assistant", "content": None}, "finish_reason": expected}],
    }
    counted = {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 0}}
    _, _, response = parse_call("gemini", GEMINI_URL, body, json.dumps(counted).encode())
    assert (response["usage"]["prompt_tokens"], response["usage"]["completion_tokens"]) == (0, 0)


def test_an_ollama_request_and_its_stream():
    tools = [{"type": "function", "function": {"name": "see"}}]
    call = {"function": {"name": "see", "arguments": {"x": 1}}}
    body = {
        "model": "own",
        "tools": tools,
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "Look.", "tool_calls": [call]},
            {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [
                call, call, {"id": "own", "function": {"name": "hear", "arguments": {}}}, {"function": "none"}]},
            {"role": "tool", "tool_name": "hear", "content": "a"},
            {"role": "tool", "name": "see", "content": "b"},
            {"role": "tool", "tool_name": "other", "content": "c"},
            {"role": "tool", "tool_name": "see", "content": "d"},
            {"role": "tool", "tool_name": "see", "tool_call_id": "given", "content": None},
        ],
    }  # fmt: skip
    lines = [
        {"model": "own:1", "message": {"role": "assistant", "content": "It ", "thinking": "So"}},
        {"model": "own:1", "message": {"content": "is.", "thinking": "…", "tool_calls": [call]}},
        {"model": "own:2", "message": None, "done_reason": "stop", "prompt_eval_count": 40, "eval_count": 0},
    ]  # fmt: skip
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    kind, request, response = parse_call("ollama", "http://x/api/chat", body, data)
    see = name_call("see", {"x": 1})
    assert kind == "openai"
    assert request == {
        "model": "own",
        "tools": tools,
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "Look."},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "Hm.",
                "tool_calls": [
                    chat_call(see, "see", '{"x": 1}'),
                    chat_call(f"{see}_2", "see", '{"x": 1}'),
                    chat_call("own", "hear", "{}"),
                ],
            },
            {"role": "tool", "tool_call_id": "own", "content": "a"},
            {"role": "tool", "tool_call_id": see, "content": "b"},
            # no call of that name is open: the first open one
            {"role": "tool", "tool_call_id": f"{see}_2", "content": "c"},
            {"role": "tool", "tool_call_id": "call_see", "content": "d"},  # none is open at all
            {"role": "tool", "tool_call_id": "given", "content": ""},
        ],
    }
    assert response == {
        "model": "own:2",
        "usage": {"prompt_tokens": 40, "completion_tokens": 0},
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "content": "It is.",
                    "reasoning_content": "So…",
                    "tool_calls": [chat_call(f"{see}_3", "see", '{"x": 1}')],
                },
                "finish_reason": "tool_calls",
            }
        ],
    }


def test_an_ollama_stream_that_was_cut_has_no_counts():
    """It ends before its last line; half of a line is skipped."""
    data = b'{"model": "own", "message": {"content": "It "}}\n{"mess'
    body = {"model": "asked", "messages": "x"}
    _, request, response = parse_call("ollama", "http://x/api/chat", body, data)
    assert request == {"model": "asked", "messages": [], "tools": []}
    assert response == {
        "model": "own",
        "usage": None,
        "choices": [{"message": {"role": "assistant", "content": "It "}, "finish_reason": None}],
    }


def test_a_stream_of_chat_completions():
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "see", "arguments": '{"x"'},
    }
    more = {"index": 0, "function": {"arguments": ": 1}"}}
    stream = encode_events(
        {"id": "r1", "model": "m", "created": 5, "object": "chunk",
         "choices": [{"index": 0, "delta": {"role": "assistant", "content": "It "}}]},
        {"id": "", "choices": [{"delta": {"content": "is.", "reasoning_content": "So", "refusal": None}}]},
        {"choices": [{"delta": {"tool_calls": [call]}}]},
        {"choices": [{"delta": {"tool_calls": [more]}, "finish_reason": "tool_calls"}]},
        {"choices": [{"finish_reason": None}]},
        {"choices": [], "usage": {"prompt_tokens": 3}},
    ) + b"data: [DONE]\n\n"  # fmt: skip
    response = parse_response("openai", stream)
    (choice,) = response.pop("choices")
    assert response == {"id": "r1", "model": "m", "created": 5, "usage": {"prompt_tokens": 3}}
    calls = choice["message"].pop("tool_calls")
    assert choice == {
        "message": {"role": "assistant", "content": "It is.", "reasoning_content": "So"},
        "finish_reason": "tool_calls",
    }
    assert [(c["id"], c["function"]) for c in calls] == [
        ("c1", {"name": "see", "arguments": '{"x": 1}'})
    ]


def test_a_stream_of_anthropic():
    start = {"id": "m1", "model": "claude", "usage": {"input_tokens": 9, "output_tokens": 1}}
    deltas = [
        (0, {"type": "thinking_delta", "thinking": "Hm"}),
        (0, {"type": "thinking_delta", "thinking": "."}),
        (0, {"type": "signature_delta", "signature": "s"}),
        (1, {"type": "text_delta", "text": "It "}),
        (1, {"type": "text_delta", "text": "is."}),
        (1, {"type": "other_delta", "text": "no"}),
        (1, {"type": "text_delta", "text": 5}),
        (2, {"type": "input_json_delta", "partial_json": '{"x"'}),
        (2, {"type": "input_json_delta", "partial_json": ": 1}"}),
        (3, {"type": "input_json_delta", "partial_json": '{"y'}),
        (4, {"type": "text_delta", "text": "without a start"}),
    ]
    blocks = [
        {"type": "thinking", "thinking": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "t1", "name": "see", "input": {}},
        {"type": "tool_use", "id": "t2", "name": "see", "input": {"old": 1}},
    ]
    stream = encode_events(
        {"type": "message_start", "message": start},
        *({"type": "content_block_start", "index": i, "content_block": b} for i, b in enumerate(blocks)),
        *({"type": "content_block_delta", "index": i, "delta": d} for i, d in deltas),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"},
         "usage": {"input_tokens": None, "output_tokens": 20}},
        {"type": "message_stop"},
    )  # fmt: skip
    assert parse_response("anthropic", stream) == {
        "type": "message",
        "role": "assistant",
        "id": "m1",
        "model": "claude",
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 9, "output_tokens": 20},
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "It is."},
            {"type": "tool_use", "id": "t1", "name": "see", "input": {"x": 1}},
            {"type": "tool_use", "id": "t2", "name": "see", "input": {}},  # its input was cut
            {"text": "without a start"},
        ],
    }
    assert parse_response("anthropic", encode_events({"type": "ping"})) == {
        "type": "message",
        "role": "assistant",
        "stop_reason": None,
        "usage": None,
        "content": [],
    }


ITEM = {"type": "message", "content": [{"type": "output_text", "text": "It is."}]}
CREATED = {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}}
DONE = {"type": "response.output_item.done", "item": ITEM}


def text_delta(text):
    return {"type": "response.output_text.delta", "delta": text}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # the final event has everything, or lacks the items that came before it
        (
            [CREATED, DONE, {"type": "response.completed", "response": {"id": "r2", "output": [1]}}],
            {"id": "r2", "output": [1]},
        ),
        (
            [CREATED, text_delta("It"), DONE, {"type": "response.failed", "response": {"id": "r2"}}],
            {"id": "r2", "output": [ITEM]},
        ),
        (
            [CREATED, {"type": "response.incomplete", "response": {"output": []}}, DONE],
            {"output": []},
        ),
        # a stream that was cut has the items and the words so far
        (
            [CREATED, text_delta("It "), text_delta("is."), DONE, text_delta("And "), text_delta("more")],
            {
                "id": "r1",
                "status": "incomplete",
                "output": [
                    ITEM,
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "And more"}],
                    },
                ],
            },
        ),
        ([CREATED, text_delta("It is."), DONE], {"id": "r1", "status": "incomplete", "output": [ITEM]}),
        (
            [CREATED, {"type": "error", "message": "overloaded"}],
            make_failed_response("openai-responses", "overloaded"),
        ),
        (
            [CREATED, {"type": "error"}],
            make_failed_response("openai-responses", "the stream broke off"),
        ),
    ],
)  # fmt: skip
def test_a_stream_of_responses(events, expected):
    assert parse_response("openai-responses", encode_events(*events)) == expected


def test_a_failed_response_of_each_api():
    assert make_failed_response("openai", "why") == {
        "choices": [
            {
                "message": {"role": "assistant", "content": None, "refusal": "why"},
                "finish_reason": "error",
            }
        ]
    }
    assert make_failed_response("anthropic", "why") == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "why"}],
        "stop_reason": "error",
    }
    assert make_failed_response("openai-responses", "why") == {
        "status": "failed",
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "why"}],
            }
        ],
    }


LONG = "x" * 1_500


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini", "ollama"])
@pytest.mark.parametrize(
    ("data", "status", "error", "expected"),
    [
        (b"{}", 200, "no route", "no route"),
        (b'{"error": {"message": "too many"}}', 429, "", "too many"),
        (b'{"error": "too many"}', 429, "", "too many"),
        (b'{"message": "too many"}', 429, "", "too many"),
        (json.dumps({"error": LONG}).encode(), 500, "", LONG[:1_000]),
        (b'{"error": {"code": 5}}', 400, "", "HTTP 400"),
        (b"<html>", 503, "", "HTTP 503"),
        (b'data: {"error": {"message": "broke"}}\n\n', 200, "", "broke"),
    ],
)
def test_the_reason_of_a_failure(kind, data, status, error, expected):
    reader = "anthropic" if kind == "anthropic" else "openai"
    api, _, response = parse_call(kind, GEMINI_URL, {}, data, status=status, error=error)
    assert (api, response) == (reader, make_failed_response(reader, expected))


def test_the_api_is_recognised_by_the_end_of_the_path():
    messages = [{"role": "user"}]
    paths = {
        "/v1/chat/completions": ("openai", {"messages": messages}),
        "/v1/messages/": ("anthropic", {"messages": messages}),
        "/v1/responses?x=1": ("openai-responses", {"input": "hi"}),
        "/v1beta/models/m:generateContent": ("gemini", {"contents": messages}),
        "/v1beta/models/m:streamGenerateContent": ("gemini", {"contents": messages}),
        "/api/chat": ("ollama", {"messages": messages}),
    }
    for path, (kind, body) in paths.items():
        assert detect_api(f"https://x{path}", body) == kind
        assert detect_api(f"https://x{path}", dict.fromkeys(body)) is None
        assert detect_api(f"https://x{path}", {"other": messages}) is None
