"""Calls of raw SDKs, as their HTTP clients send them to servers of this machine, become sessions."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import os
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from importlib.util import find_spec

import pytest
from agent.models.fake_provider_server import OUT, PROMPT, Play, wire

import ctxkit as ck
from ctxkit.agent import Recording, load_litellm
from ctxkit.agent.recorders.api_call_parsers import detect_api, parse_call, parse_response
from ctxkit.agent.recorders.api_call_recorder import HttpExchange

pytestmark = pytest.mark.filterwarnings("default")  # LiteLLM's libraries warn about each other
LIBRARIES = [n for n in ("httpx", "httpx2") if find_spec(n)]
TOOL = {
    "name": "double",
    "description": "Double.",
    "parameters": {"type": "object", "properties": {}},
}
PATHS = {
    "chat": "/chat/completions",
    "anthropic": "/v1/messages",
    "responses": "/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
    "ollama": "/api/chat",
}
CALL = Play(calls=(("double", {"x": 21}),))
TALK = [CALL, Play("It is 42.")]


def chat_bodies(system=None):
    said = [{"role": "system", "content": system}] if system else []
    said += [{"role": "user", "content": "Double 21."}]
    tools = [{"type": "function", "function": TOOL}]
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "double", "arguments": '{"x": 21}'},
    }
    more = [{"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"}]  # fmt: skip
    for messages in (said, said + more):
        yield {"model": "gpt-5", "messages": messages, "tools": tools, "stream": True}


def anthropic_bodies(system="Be short."):
    tools = [{"name": "double", "description": "Double.", "input_schema": TOOL["parameters"]}]
    first = {"type": "text", "text": "Double 21.", "cache_control": {"type": "ephemeral"}}
    call = {"type": "tool_use", "id": "t1", "name": "double", "input": {"x": 21}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "42"}
    plain = {"type": "text", "text": "Double 21."}
    for messages in ([{"role": "user", "content": [first]}],
                     [{"role": "user", "content": [plain]}, {"role": "assistant", "content": [call]},
                      {"role": "user", "content": [result]}]):  # fmt: skip
        yield {"model": "claude-sonnet-4-5", "system": system, "max_tokens": 9, "tools": tools, "messages": messages,
               "stream": True}  # fmt: skip


def responses_bodies(system="Be short."):
    said = [{"role": "user", "content": "Double 21."}]
    call = {"type": "function_call", "call_id": "c1", "name": "double", "arguments": '{"x": 21}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": "42"}
    for items in (said, [*said, call, result]):
        yield {"model": "gpt-5", "instructions": system, "input": items, "tools": [{"type": "function", **TOOL}],
               "stream": True}  # fmt: skip


def gemini_bodies(system="Be short."):
    said = [{"role": "user", "parts": [{"text": "Double 21."}]}]
    call = {"functionCall": {"name": "double", "args": {"x": 21}}, "thoughtSignature": "c2ln"}
    result = {"functionResponse": {"name": "double", "response": {"result": "42"}}}
    more = [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]
    for contents in (said, said + more):
        yield {"systemInstruction": {"parts": [{"text": system}]}, "contents": contents,
               "tools": [{"functionDeclarations": [TOOL]}]}  # fmt: skip


def ollama_bodies(system="Be short."):
    said = [{"role": "system", "content": system}, {"role": "user", "content": "Double 21."}]
    call = {"function": {"name": "double", "arguments": {"x": 21}}}
    more = [{"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_name": "double", "content": "42"}]  # fmt: skip
    for messages in (said, said + more):
        yield {
            "model": "own-model",
            "messages": messages,
            "tools": [{"type": "function", "function": TOOL}],
        }


BODIES = {
    "chat": chat_bodies,
    "anthropic": anthropic_bodies,
    "responses": responses_bodies,
    "gemini": gemini_bodies,
    "ollama": ollama_bodies,
}


def post(library, url, body, how="stream"):
    """Send a request as SDKs do, read all of the answer, and return it."""
    module = importlib.import_module(library)
    if how == "whole":
        with module.Client() as client:
            return client.post(url, json=body).content
    if how == "stream":
        with module.Client() as client:
            request = client.build_request("POST", url, json=body)
            response = client.send(request, stream=True)
            return b"".join(response.iter_bytes())

    async def ask():
        async with (
            module.AsyncClient() as client,
            client.stream("POST", url, json=body) as response,
        ):
            return b"".join([piece async for piece in response.aiter_bytes()])

    return asyncio.run(ask())


@pytest.mark.parametrize("how", ["stream", "whole", "async"])
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_talk_of_an_sdk_is_one_session_with_its_usage(library, kind, how):
    with wire(kind, *TALK) as up, ck.record("sdk") as live:
        got = [post(library, up.url + PATHS[kind], body, how) for body in BODIES[kind]()]
    assert b"42" in got[1]  # the program got every byte
    session = live.session
    assert session.children == ()
    assert [c.message.usage.prompt_tokens for c in session.calls] == [PROMPT, PROMPT]
    assert [c.message.usage.output_tokens for c in session.calls] == [OUT, OUT]
    assert [(c.name, c.arguments) for m in session.messages for c in m.tool_calls] == [
        ("double", {"x": 21})
    ]
    assert session.messages[-1].text.strip() == "It is 42."
    assert {t.name for t in session.tools} == {"double"}
    assert session.format == "live"
    shown = [m.role for m in session.view(1)]
    assert shown[-3:] == ["user", "assistant", "tool"]
    if kind != "responses":
        assert all(c.message.latency is not None for c in session.calls)


@pytest.mark.parametrize("library", LIBRARIES)
def test_afterwards_the_clients_are_as_they_were(library):
    module = importlib.import_module(library)
    before = module.Client.send, module.AsyncClient.send
    with wire("chat", *TALK) as up:
        with ck.record("one") as first, ck.record("two") as second:
            post(library, up.url + PATHS["chat"], next(chat_bodies()))
        post(library, up.url + PATHS["chat"], next(chat_bodies()))
    assert (module.Client.send, module.AsyncClient.send) == before
    assert len(first.session.calls) == len(second.session.calls) == 1


def test_a_conversation_without_a_system_prompt_is_one_session():
    said, bodies = [], []
    for i in range(4):
        said.append({"role": "user", "content": f"question {i}"})
        bodies.append({"model": "gpt-5", "messages": list(said)})
        said.append({"role": "assistant", "content": "Yes. "})
    with wire("chat", Play("Yes.")) as up, ck.record("plain") as live:
        for body in bodies:
            post("httpx", up.url + PATHS["chat"], body)
    assert live.session.children == ()
    assert [c.message.usage is not None for c in live.session.calls] == [True] * 4
    assert live.session.edits == ()


@pytest.mark.parametrize("kind", BODIES)
def test_a_recording_has_no_key_of_prompts_tools_and_replies(kind):
    key = "sk-ant-api03-" + "Ab3xY9" * 15
    body = next(BODIES[kind](f"Be short. {key}"))
    planted = json.dumps(body).replace("Double 21.", f"Double 21. {key}")
    planted = planted.replace('"Double."', f'"Double. {key}"')  # of the tool
    assert planted.count(key) == 3
    with wire(kind, Play(f"It is {key}.")) as up, ck.record("keys") as live:
        post("httpx", up.url + PATHS[kind], json.loads(planted))
    session = live.session
    assert key not in repr(session)
    assert [m.text.strip() for m in session.messages] == [
        "Be short. [redacted]",
        "Double 21. [redacted]",
        "It is [redacted].",
    ]
    (tool,) = session.tools
    assert (tool.name, tool.description) == ("double", "Double. [redacted]")
    assert tool.parameters == TOOL["parameters"]


def test_prompts_of_one_text_each_are_conversations_of_their_own():
    asked = ["Double 21.", "Divide 42.", "Double 21.", "Divide 42.", "Divide 42."]
    with wire("responses", *[Play("42.")] * 5) as up, ck.record("texts") as live:
        for text in asked:
            post("httpx", up.url + PATHS["responses"], {"model": "gpt-5", "input": text})
    assert [(s.messages[0].text, len(s.calls)) for s in live.sessions] == [
        ("Double 21.", 2),
        ("Divide 42.", 3),
    ]


@pytest.mark.parametrize("kind", BODIES)
def test_two_agents_are_two_sessions(kind):
    if kind == "chat":
        both = [*chat_bodies("You plan."), next(chat_bodies("You work."))]
    else:
        both = [*BODIES[kind]("You plan."), next(BODIES[kind]("You work."))]
    with wire(kind, Play("ok")) as up, ck.record("team") as live:
        for body in both:
            post("httpx", up.url + PATHS[kind], body)
    assert len(live.session.calls) == 2
    assert [len(c.calls) for c in live.session.children] == [1]


def test_a_history_cut_short_without_a_system_prompt_is_an_edit_of_the_same_session():
    ask = [{"role": "user", "content": "start"}]
    more = [*ask, {"role": "assistant", "content": "Yes. "}, {"role": "user", "content": "go on"}]
    cut = [
        *ask,
        {"role": "user", "content": "summary of all"},
        {"role": "user", "content": "and now"},
    ]
    with wire("chat", Play("Yes.")) as up, ck.record("cut") as live:
        for messages in (ask, more, cut):
            post("httpx", up.url + PATHS["chat"], {"model": "m", "messages": messages})
    assert live.session.children == ()
    assert len(live.session.calls) == 3
    assert len(live.session.edits) == 1


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("kind", BODIES)
def test_a_stream_left_early_is_kept_as_far_as_it_was_read(kind, closed):
    import httpx

    with wire(kind, Play("one two three four five six")) as up, ck.record("left") as live:
        client = httpx.Client()
        request = client.build_request("POST", up.url + PATHS[kind], json=next(BODIES[kind]()))
        response = client.send(request, stream=True)
        pieces = response.iter_raw(chunk_size=None)
        first = next(pieces)
        if closed:
            response.close()
        began = time.monotonic()
    assert first
    assert time.monotonic() - began < 3
    (call,) = live.session.calls
    assert call.message.text == "" or "one" in call.message.text


def slow_chat(pieces):
    """A stream of Chat Completions whose connection stays open."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    for word in pieces:
        chunk = {"choices": [{"index": 0, "delta": {"content": word}}], "model": "m"}
        head += f"data: {json.dumps(chunk)}\n\n".encode()
    return head


@contextmanager
def hanging(data):
    """Serve bytes and hold the connection open until the end of the block."""
    import socket
    import threading

    server, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve():
        connection, _ = server.accept()
        connection.recv(65536)
        connection.sendall(data)
        over.wait(20)
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        over.set()
        server.close()


def test_of_a_stream_left_in_the_middle_the_words_that_came_are_kept():
    import httpx

    with hanging(slow_chat(["one ", "two "])) as url, ck.record("left") as live:
        response = (client := httpx.Client()).send(
            client.build_request("POST", url + PATHS["chat"], json=next(chat_bodies())), stream=True
        )
        lines = response.iter_lines()
        while "two" not in next(lines):
            pass
    (call,) = live.session.calls
    assert call.message.text == "one two "
    assert call.message.usage is None


def test_a_litellm_stream_left_early_is_kept_too_and_costs_no_five_seconds():
    litellm = load_litellm()
    with hanging(slow_chat(["one ", "two "])) as url:
        began = time.monotonic()
        with ck.record("left") as live:
            stream = litellm.completion(model="openai/m", api_base=url, api_key="none", stream=True,
                                        messages=[{"role": "user", "content": "go"}])  # fmt: skip
            next(iter(stream))
            began = time.monotonic()
        assert time.monotonic() - began < 3
    (call,) = live.session.calls
    assert call.message.text.startswith("one")


@pytest.mark.parametrize("how", ["sync", "stream", "async"])
def test_a_call_of_litellm_is_recorded_once(how):
    litellm = load_litellm()
    asked = {
        "model": "openai/m",
        "api_key": "none",
        "messages": [{"role": "user", "content": "go"}],
    }
    whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "usage": {
        "prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes. "}}],
    }  # fmt: skip
    play = Play("Yes.") if how == "stream" else Play(raw=json.dumps(whole).encode())
    with wire("chat", play) as up, ck.record("once") as live:
        if how == "async":
            asyncio.run(litellm.acompletion(**asked, api_base=up.url))
        else:
            found = litellm.completion(**asked, api_base=up.url, stream=how == "stream")
            if how == "stream":
                list(found)
    assert live.session.children == ()
    assert [m.text.strip() for m in live.session.messages] == ["go", "Yes."]
    assert live.session.product == "litellm"


def test_a_recording_of_nothing_says_so():
    with pytest.warns(UserWarning, match="'empty' saw no call"), ck.record("empty"):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with wire("chat", Play("Yes.")) as up, ck.record("some"):
            post("httpx", up.url + PATHS["chat"], next(chat_bodies()))


@pytest.mark.parametrize("kind", BODIES)
def test_a_refused_call_is_kept_as_an_error_without_keys(kind, monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", "planted-secret-1234")
    with (
        wire(kind, Play(status=429, said="slow down, planted-secret-1234")) as up,
        ck.record("no") as live,
    ):
        post("httpx", up.url + PATHS[kind], next(BODIES[kind]()), "whole")
    (call,) = live.session.calls
    assert "slow down" in repr(call.message)
    assert call.message.stop == "error"
    assert "planted-secret" not in repr(live.session.log)


def test_a_server_that_is_not_there_is_an_error_for_both():
    import httpx

    with ck.record("off") as live, pytest.raises(httpx.ConnectError):
        post("httpx", "http://127.0.0.1:9" + PATHS["chat"], next(chat_bodies()))
    assert "ConnectError" in repr(live.session.calls[0].message)


def test_the_error_of_a_request_without_a_response_is_cut_to_1000_characters():
    import httpx

    def fail(_):
        raise httpx.ConnectError("x" * 3_000)

    with (
        ck.record("off") as live,
        httpx.Client(transport=httpx.MockTransport(fail)) as client,
        pytest.raises(httpx.ConnectError),
    ):
        client.post("http://127.0.0.1" + PATHS["chat"], json=next(chat_bodies()))
    assert live.session.calls[0].message.text == "ConnectError: " + "x" * 986  # 14 + 986 characters


def test_other_requests_pass_unheard():
    with wire("chat", Play(raw=b"{}")) as up, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with ck.record("x") as live:
            assert post("httpx", up.url + "/embeddings", {"input": "words"}, "whole") == b"{}"
            assert post("httpx", up.url + PATHS["chat"], {"other": 1}, "whole") == b"{}"
    assert live.empty
    assert ["saw no call" in str(w.message) for w in said] == [True]


def test_a_packed_stream_is_unpacked():
    from ctxkit.agent.recorders.api_call_recorder import HttpExchange

    said = b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'
    heard = HttpExchange("openai", "", {}, 0.0, False, data=[gzip.compress(said)], encoding="gzip")
    assert heard.bytes == said


@pytest.mark.parametrize(
    "data", [b"", b"data: {", b"\xff\xfe", b"[]", b"data: [1]\n\n", b"null", b"<html>"]
)
@pytest.mark.parametrize("kind", ["openai", "anthropic", "openai-responses", "gemini", "ollama"])
def test_whatever_a_server_sends_is_some_reply(kind, data):
    for status in (200, 500):
        _, _, answer = parse_call(
            kind, "http://x/models/m:generateContent", {}, data, status=status
        )
        assert isinstance(answer, dict)


@pytest.mark.parametrize("together", [True, False])
def test_of_several_replies_to_one_request_the_first_is_kept(together):
    """A request with `n: 2` streams the pieces of both, as events of their own or not."""

    def piece(index, text, i, arguments):
        call = {"index": 0, "id": f"c{i}", "function": {"name": "double", "arguments": arguments}}
        return {"index": index, "delta": {"content": text, "tool_calls": [call]}}

    ends = [{"index": i, "delta": {}, "finish_reason": r} for i, r in enumerate(["stop", "length"])]
    pairs = [
        (piece(0, "It is ", 0, '{"x": '), piece(1, "They are ", 1, '{"y": ')),
        (piece(0, "42.", 0, "21}"), piece(1, "many.", 1, "7}")),
        ends,
    ]
    events = [list(p) for p in pairs] if together else [[c] for p in pairs for c in p]
    data = "".join(f"data: {json.dumps({'choices': choices})}\n\n" for choices in events)
    _, _, answer = parse_call("openai", "http://x/chat/completions", {}, data.encode())
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("It is 42.", "stop")
    assert [c["function"] for c in choice["message"]["tool_calls"]] == [
        {"name": "double", "arguments": '{"x": 21}'}
    ]


def test_what_geminis_and_ollamas_apis_say_is_kept():
    """Thoughts, several calls of one tool, pictures, cached tokens, an error in the middle."""
    call = {"functionCall": {"name": "double", "args": {"x": 1}}}
    answers = [{"functionResponse": {"name": "double", "response": {"result": n}}} for n in "ab"]
    body = {"contents": [
        {"parts": [{"text": "see"}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}}]},
        {"role": "model", "parts": [call, call]}, {"role": "user", "parts": answers},
    ]}  # fmt: skip
    parts = [{"text": "Hm.", "thought": True}, {"text": "So "}, {"text": "it is."}, call]
    usage = {"promptTokenCount": 90, "cachedContentTokenCount": 60, "candidatesTokenCount": 7,
             "thoughtsTokenCount": 5}  # fmt: skip
    candidate = {"content": {"parts": parts}, "finishReason": "STOP"}
    data = json.dumps([{"candidates": [candidate], "usageMetadata": usage}]).encode()
    kind, asked, said = parse_call(
        "gemini", "http://x/v1beta/models/g-2:generateContent", body, data
    )
    assert (kind, asked["model"]) == ("openai", "g-2")
    first, called, *results = asked["messages"]
    assert first["content"] == "see\n[image/png]"
    ids = [c["id"] for c in called["tool_calls"]]
    assert ids == [r["tool_call_id"] for r in results]
    message = said["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("So it is.", "Hm.")
    assert message["tool_calls"][0]["id"] not in ids
    assert said["choices"][0]["finish_reason"] == "tool_calls"
    assert said["usage"]["completion_tokens"] == 12
    assert said["usage"]["prompt_tokens_details"] == {"cached_tokens": 60}
    line = json.dumps({"message": {"content": "half"}}).encode()
    _, _, said = parse_call(
        "ollama", "http://x/api/chat", {}, line + b'\n{"error": "out of memory"}\n'
    )
    assert said["choices"][0]["finish_reason"] == "error"
    assert "out of memory" in str(said)


def test_only_conversations_are_calls():
    assert detect_api("https://x/v1/chat/completions?api-version=1", {"messages": []}) == "openai"
    assert detect_api("https://x/v1/messages/count_tokens", {"messages": []}) is None
    assert detect_api("https://x/v1/responses", [1]) is None
    assert detect_api("https://x/v1beta/models/m:countTokens", {"contents": []}) is None


RAW = """
import sys, httpx, ctxkit as ck
with ck.record("raw") as live:
    httpx.post(sys.argv[1], json={"model": "m", "messages": [{"role": "user", "content": "go"}]})
assert "litellm" not in sys.modules
assert [c.message.text.strip() for c in live.session.calls] == ["Yes."], live.session.log
with ck.record("late") as live:
    import litellm
    litellm.completion("openai/m", [{"role": "user", "content": "go"}], mock_response="No.")
assert [c.message.text for c in live.session.calls] == ["No."], live.session.log
assert not litellm.callbacks
assert not [f for f in sys.meta_path if type(f).__module__.startswith("ctxkit")]
"""


def test_litellm_is_not_imported_for_others_and_heard_where_it_is_imported_later():
    with wire("chat", Play("Yes.")) as up:
        told = [sys.executable, "-c", RAW, up.url + PATHS["chat"]]
        done = subprocess.run(
            told, capture_output=True, text=True, check=False,
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "no_proxy": "*"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("ollama", {"message": {"content": {"a": 1}}}),
        ("gemini", {"usageMetadata": {"promptTokenCount": "many"}}),
        ("openai", 'data: {"choices": [{"delta": "x"}]}'),
        ("anthropic", 'data: {"type": "message_start", "message": "x"}'),
    ],
)
def test_an_answer_of_another_service_does_not_break_the_program(kind, answer):
    data = answer if isinstance(answer, str) else json.dumps(answer)
    said = [{"role": "user", "content": "hi", "parts": [{"text": "hi"}]}]
    body = {"model": "m", "messages": said, "contents": said}
    live = Recording("x")
    heard = HttpExchange(
        kind, "http://h/x", body, 1.0, litellm=False, data=[data.encode()], status=200
    )
    live.add_exchange(heard, None)
    (call,) = live.session.calls
    assert call.message.is_error or call.message.stop == "error"


@pytest.mark.parametrize("said", [5, None, {"role": "user"}])
def test_messages_of_another_shape_are_no_call(said):
    assert detect_api("http://h/api/chat", {"messages": said}) is None
    assert detect_api("http://h/api/chat", {"messages": []}) == "ollama"


@pytest.mark.parametrize("kind", ["openai", "anthropic", "openai-responses", "gemini", "ollama"])
@pytest.mark.parametrize("said", [[], ["hi"], "hi", [None]])
def test_calls_of_another_service_do_not_hide_the_others(kind, said):
    live = Recording("x")
    odd = {"messages": said, "input": said, "contents": said}
    asked = {"messages": [{"role": "user", "content": "hi"}]}
    answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": "ok"}}]}).encode()
    for k, body, data in ((kind, odd, b"{}"), ("openai", asked, answer)):
        heard = HttpExchange(k, "http://h/x", body, 1.0, litellm=False, data=[data], status=200)
        live.add_exchange(heard, None)
    assert ["hi", "ok"] in [[m.text for m in s.messages] for s in live.sessions]


@pytest.mark.parametrize(("status", "is_failed"), [(399, False), (400, True)])
def test_a_response_fails_from_status_400_on(status, is_failed):
    body = b'{"choices": [], "error": {"message": "no such model"}}'
    response = parse_response("openai", body, status)
    assert ("choices" in response and response["choices"] == []) is not is_failed


def test_a_program_that_closes_a_stream_closes_its_connection():
    """The stream around it passes the pieces on, and notes the end of the call once."""
    import httpx

    class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
        closed = 0

        def __iter__(self):
            yield from (b"data: [DONE]", b"\n\n")

        async def __aiter__(self):
            for piece in self:
                yield piece

        def close(self):
            self.closed += 1

        async def aclose(self):
            self.closed += 1

    streams = Pieces(), Pieces()
    transports = [
        httpx.MockTransport(lambda _, s=s: httpx.Response(200, stream=s)) for s in streams
    ]
    url, body = "http://h" + PATHS["chat"], next(chat_bodies())

    async def ask():
        async with (
            httpx.AsyncClient(transport=transports[1]) as client,
            client.stream("POST", url, json=body) as response,
        ):
            return [piece async for piece in response.aiter_raw()]

    with ck.record("closed") as live:
        with (
            httpx.Client(transport=transports[0]) as client,
            client.stream("POST", url, json=body) as response,
        ):
            assert [*response.iter_raw()] == [b"data: [DONE]", b"\n\n"]
        assert len(live.session.calls) == 1  # it ends with its stream, not with the block
        assert asyncio.run(ask()) == [b"data: [DONE]", b"\n\n"]
        assert len(live.session.calls) == 2
    assert [s.closed > 0 for s in streams] == [True, True]
    assert len(live.session.calls) == 2


def test_reports_of_calls_before_the_recording_are_ignored():
    live = Recording("late")
    parameters = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
    answer = {"choices": [{"message": {"role": "assistant", "content": "Yes."}}]}
    live.end("early", parameters, answer, (live.since - 0.001, live.since + 1), None)
    assert live.empty
    live.end("first", parameters, answer, (live.since, live.since + 1), None)
    live.end("first", parameters, answer, (live.since, live.since + 1), None)  # reported twice
    assert [c.message.text for c in live.session.calls] == ["Yes."]
