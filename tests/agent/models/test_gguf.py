"""Local models on a runtime with xllamacpp's interface: loaded once, freed, stopped, and streamed.

The stand-in keeps what the library's manual says: `handle_chat_completions(body, callback)` gives
chunks of Chat Completions to the callback, and ends where that returns True.
"""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time

import pytest
from builders import assistant, result, system, tool_call, user
from waiting import PATIENCE

from ctxkit import tokens
from ctxkit.agent import LiveSession, LocalModel, Request, Workspace, ignore_delta
from ctxkit.agent.models import gguf
from ctxkit.agent.models.gguf import extract_partial_answer
from ctxkit.errors import ModelError
from ctxkit.policies import Rules
from ctxkit.session import ToolSchema

LOOK = ToolSchema(
    name="look", parameters={"type": "object", "properties": {"path": {"type": "string"}}}
)


class Server:
    """Stands in for `xllamacpp.Server`."""

    made: list = []
    step: object = {
        "tool": "answer",
        "arguments": {"text": 'Hello \u00e4 \U0001f600, my "friend".'},
    }
    fails: object = None
    pause = 0.0
    finish_reason = "stop"

    def __init__(self, path, window, threads):
        self.words, self.at_once, self.most = 0, 0, 0
        self.idle = threading.Event()
        Server.made.append(self)

    def handle_chat_completions(self, body, callback):
        assert body["stream"] is True
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            if Server.fails:
                callback({"error": {"message": Server.fails}})
                return
            text = json.dumps(Server.step)
            for i in range(0, len(text), 3):
                time.sleep(Server.pause)
                self.words += 1
                if callback(
                    {
                        "choices": [
                            {
                                "index": 0,
                                "delta": {"content": text[i : i + 3]},
                                "finish_reason": None,
                            }
                        ]
                    }
                ):
                    return
            callback(
                {"choices": [{"index": 0, "delta": {}, "finish_reason": Server.finish_reason}]}
            )
            callback(
                json.dumps({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
            )
        finally:
            self.at_once -= 1
            self.idle.set()


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    monkeypatch.setattr("ctxkit.agent.models.gguf._load_server", Server)
    for name, value in (("made", []), ("fails", None), ("pause", 0.0)):
        monkeypatch.setattr(Server, name, value)
    monkeypatch.setattr(gguf, "_runtimes", {})


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "small.gguf"
    file.write_bytes(b"GGUF")
    return file


def ask(model, emit=ignore_delta):
    return asyncio.run(model(Request(messages=(user("hi"),), tools=(LOOK,)), emit))


def test_an_answer_streams_and_is_counted(path):
    heard = []
    reply = ask(LocalModel(path), heard.append)
    assert reply.text == 'Hello \u00e4 \U0001f600, my "friend".'
    assert "".join(d.text for d in heard) == reply.text
    assert len(heard) > 5
    assert (reply.usage.prompt_tokens, reply.usage.output_tokens) == (7, 3)


def test_a_tool_call_is_named_and_its_step_not_shown(path, monkeypatch):
    monkeypatch.setattr(Server, "step", {"tool": "look", "arguments": {"path": "a"}})
    heard = []
    reply = ask(LocalModel(path), heard.append)
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [("look", {"path": "a"})]
    assert [(d.kind, d.text) for d in heard] == [("tool_call", "look")]


def test_an_answer_that_the_limit_cuts_is_marked_so(path, monkeypatch):
    """The chunks before the last one, and the usage after it, have no reason: it stays."""
    assert ask(LocalModel(path)).stop == "stop"
    monkeypatch.setattr(Server, "finish_reason", "length")
    assert ask(LocalModel(path)).stop == "length"


def test_one_file_is_loaded_once_for_any_number_of_sessions(path):
    models = [LocalModel(path) for _ in range(3)]
    for model in models:
        ask(model)
    assert len(Server.made) == 1
    ask(LocalModel(path, context_window=1024))
    assert len(Server.made) == 2


def test_it_is_freed_with_its_last_user_and_loaded_again(path):
    one, two = LocalModel(path), LocalModel(path)
    ask(one), ask(two)
    one.close()
    one.close()
    assert [r.users for r in gguf._runtimes.values()] == [1]
    del two
    gc.collect()
    assert gguf._runtimes == {}
    ask(one)
    assert len(Server.made) == 2


def test_an_interrupt_stops_the_generation_and_the_next_call_does_not_wait_for_it(
    path, monkeypatch
):
    monkeypatch.setattr(Server, "pause", 0.02)
    monkeypatch.setattr(Server, "step", {"tool": "answer", "arguments": {"text": "x" * 3000}})
    model = LocalModel(path)

    async def interrupted():
        task = asyncio.ensure_future(model(Request(messages=(user("hi"),)), ignore_delta))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(Server.made[0].idle.wait, PATIENCE)

    begun = time.monotonic()
    asyncio.run(interrupted())
    assert Server.made[0].words < 100
    assert time.monotonic() - begun < PATIENCE


def test_calls_of_two_sessions_are_made_one_after_the_other(path, monkeypatch):
    monkeypatch.setattr(Server, "pause", 0.001)
    threads = [threading.Thread(target=ask, args=(LocalModel(path),)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE)
    assert Server.made[0].most == 1


def test_errors_leave_as_ours(path, monkeypatch):
    monkeypatch.setattr(Server, "fails", "the request exceeds the available context size")
    with pytest.raises(ModelError) as e:
        ask(LocalModel(path))
    assert e.value.overflow


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ""), ('{"tool": "ans', ""), ('{"tool": "answer", "arguments": {"text": "He', "He"),
        ('{"tool": "answer", "arguments": {"text": "a\\', "a"), ('{"tool": "answer", "arguments": {"text": "a\\u00', "a"),
        ('{"tool": "answer", "arguments": {"text": "a\\ud83d', "a"), ('{"tool": "look", "arguments": {"text": "He', ""),
        ('{"tool":"answer","arguments":{"text":"say \\"x\\""}}', 'say "x"'),
    ],
)  # fmt: skip
def test_what_is_said_so_far(text, said):
    assert extract_partial_answer(text) == said


def test_a_session_that_is_closed_frees_the_model(path, tmp_path):
    rules = Rules(counter=tokens.get_counter("chars/4"))
    with LiveSession("s", model=LocalModel(path), rules=rules, clock=time.time, tools=[],
                     workspace=Workspace(tmp_path)) as live:  # fmt: skip
        assert asyncio.run(live.turn("go")).ended == "answered"
        assert len(gguf._runtimes) == 1
    assert gguf._runtimes == {}


@pytest.fixture
def bodies(monkeypatch):
    """The bodies of the requests that reach the server."""
    received = []
    answer = Server.handle_chat_completions
    monkeypatch.setattr(
        Server,
        "handle_chat_completions",
        lambda self, body, callback: (received.append(body), answer(self, body, callback))[1],
    )
    return received


def test_a_request_allows_the_steps_of_the_tools_and_an_answer(path, bodies):
    before = time.time()
    reply = ask(LocalModel(path))
    assert before <= reply.time <= time.time()
    assert 0 <= reply.latency <= time.time() - before + 0.1
    (body,) = bodies
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0, 1, 512)
    step_format = body["response_format"]
    assert (step_format["type"], step_format["json_schema"]["strict"]) == ("json_schema", True)
    look, last = step_format["json_schema"]["schema"]["anyOf"]
    for step, name, arguments in (
        (look, "look", {"path": {"type": "string"}}),
        (last, "answer", {"text": {"type": "string", "maxLength": 600}}),
    ):
        # a runtime writes the fields in this order, and the reader of a stream expects the tool first
        assert list(step["properties"]) == step["required"] == ["tool", "arguments"]
        assert step["additionalProperties"] is False
        assert step["properties"]["tool"] == {"const": name}
        inner = step["properties"]["arguments"]
        assert (inner["type"], inner["properties"]) == ("object", arguments)
        assert inner["additionalProperties"] is False
    assert last["properties"]["arguments"]["required"] == ["text"]
    # a limit of the request takes the place of 512; a schema that allows other arguments does not
    free = ToolSchema(name="free", parameters={**LOOK.parameters, "additionalProperties": True})
    limited = Request(messages=(user("hi"),), tools=(free,), max_output_tokens=40)
    asyncio.run(LocalModel(path)(limited, ignore_delta))
    step = bodies[1]["response_format"]["json_schema"]["schema"]["anyOf"][0]
    assert bodies[1]["max_tokens"] == 40
    assert step["properties"]["arguments"]["additionalProperties"] is False


def test_a_talk_is_sent_as_steps_and_results(path, bodies):
    """Each step is one object, also of several calls in one reply; results are the user's."""
    look = [tool_call("look", path=p) for p in ("a", "b")]
    talk = (
        system("Be brief."),
        user("Look at both."),
        assistant("I look.", *look),
        result("one", look[0]),
        result("two", look[1]),
        assistant("Both are there."),
        system("Be exact."),
        user("Thanks."),
    )
    asyncio.run(LocalModel(path)(Request(messages=talk, tools=(LOOK,)), ignore_delta))
    first, *rest = bodies[0]["messages"]
    assert first["role"] == "system"
    assert first["content"].startswith("Be brief.\n\nBe exact.\n\n")
    assert "\n- look(path): \n- answer(text): " in first["content"]
    assert [(m["role"], m["content"]) for m in rest] == [
        ("user", "Look at both."),
        ("assistant", '{"tool":"look","arguments":{"path":"a"}}'),
        ("assistant", '{"tool":"look","arguments":{"path":"b"}}'),
        ("user", "Result of look:\none"),
        ("user", "Result of look:\ntwo"),
        ("assistant", '{"tool":"answer","arguments":{"text":"Both are there."}}'),
        ("user", "Thanks."),
    ]
