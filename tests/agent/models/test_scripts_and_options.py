"""Scripted replies: what is streamed and billed; options in the name of a model; servers that state a window."""

from __future__ import annotations

import asyncio

import pytest
from builders import assistant, call, result, system, user

from ctxkit import tokens
from ctxkit.agent import SCRIPT_OVER, Delta, ProviderModel, Request, ScriptedModel, make_model
from ctxkit.agent.models.model_factory import fetch_context_window
from ctxkit.agent.models.scripted_and_lookup_models import PromptLookupModel, split_replies_by_turn
from ctxkit.errors import BadArguments, ModelError
from ctxkit.session import Message, Text, Thinking, ToolCall, Usage

COUNT = tokens.get_counter("chars/4")


def make_scripted(*turns, clock=lambda: 7.0, **more):
    return ScriptedModel(turns, name="test", counter=COUNT, clock=clock, **more)


def ask(model, *messages, turn=0, step=0):
    deltas = []
    reply = asyncio.run(model(Request(messages=messages, turn=turn, step=step), deltas.append))
    return reply, [(d.kind, d.text) for d in deltas]


def test_a_reply_is_streamed_part_by_part():
    parts = (Thinking("Hm."), Text("one two\nthree"), ToolCall("c", "look", {"x": 1}))
    model = make_scripted((Message(role="assistant", parts=parts, stop="tool"),))
    reply, deltas = ask(model, user("x" * 40))
    assert deltas == [
        ("thinking", "Hm."),
        ("text", "one two\n"),
        ("text", "three"),
        ("tool_call", "look"),
    ]
    assert (reply.parts, reply.model, reply.time, reply.stop) == (
        parts,
        "scripted/test",
        7.0,
        "tool",
    )
    assert reply.usage == Usage(input_tokens=0, cache_read_tokens=0, cache_write_tokens=10,
                                output_tokens=COUNT.message(reply))  # fmt: skip
    assert model.notice == "scripted model: no LLM was called"
    _, deltas = ask(make_scripted((assistant("one two"),), pause=0.001), user())
    assert deltas == [("text", "one "), ("text", "two ")]
    assert Delta("text", "x").kind == "text"


def test_a_script_reports_that_it_has_no_more_replies():
    model = make_scripted((assistant("one"),), ())
    assert [model.reply(turn, 0).text for turn in range(3)] == ["one", "Done.", SCRIPT_OVER]
    assert (model.reply(0, 1).text, model.reply(0, 1).stop, model.reply(2, 0).stop) == (
        "Done.",
        "stop",
        "stop",
    )


def test_a_prompt_may_fill_the_window_of_a_script():
    model = make_scripted((assistant("one"),), context_window=10)
    assert ask(model, user("x" * 40))[0].text == "one"
    with pytest.raises(ModelError, match=r"^prompt is too long: 11 tokens > 10 maximum$") as error:
        ask(model, user("x" * 44))
    assert error.value.overflow


def test_the_cache_of_a_script_ends_after_its_life():
    now = [0.0]
    model = make_scripted((assistant("one"),), clock=lambda: now[0], cache_life=60.0)
    prompt = user("x" * 40)
    reads = []
    for now[0] in (0.0, 59.9, 119.9, 179.8):
        reads.append(ask(model, prompt)[0].usage.cache_read_tokens)
    assert reads == [0, 10, 0, 10]  # 60 seconds are too long


def test_a_conversation_as_a_script():
    note = Message(
        role="assistant",
        parts=(Text("b"), ToolCall("c", "look", {})),
        usage=Usage(input_tokens=5),
        id="x",
    )
    log = [
        system(),
        assistant("a"),
        user(),
        note,
        result("r"),
        assistant("c"),
        user(),
        user(),
        assistant("d"),
        user(),
    ]
    turns = split_replies_by_turn(log)
    assert [[m.text for m in turn] for turn in turns] == [["a"], ["b", "c"], ["d"]]
    assert turns[1][0] == Message(role="assistant", parts=note.parts, stop="tool")
    assert turns[1][1].stop == "stop"
    assert split_replies_by_turn([user(), call()])[0][0].stop == "tool"
    assert split_replies_by_turn([user()]) == ()


def get(name, **more):
    return make_model(name, counter=COUNT, clock=lambda: 0.0, **more)


def test_models_by_name():
    assert get(" scripted/tour ").context_window == 16_000
    lookup = get("scripted/ports")
    assert (type(lookup), lookup.name, lookup.context_window) == (
        PromptLookupModel,
        "scripted/ports",
        16_000,
    )
    provider = get(
        'openai/m?temperature=0.5&stop=a b&seed=&json={"a": 1}&attempts=2&context_window=900',
        top_p=1,
    )
    assert isinstance(provider, ProviderModel)
    assert provider._options == {
        "temperature": 0.5,
        "stop": "a b",
        "seed": "",
        "json": {"a": 1},
        "top_p": 1,
    }
    assert (provider.name, provider.context_window, provider._retry_policy.attempts) == (
        "openai/m",
        900,
        2,
    )
    assert get("openai/m?temperature=0.5", temperature=1)._options == {"temperature": 1}
    assert get("openai/m").context_window is None
    assert get("openai/gpt-4o?num_ctx=512").context_window == 512
    assert get("openai/gpt-4o").context_window == 128_000


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", r"^Name a model, for instance scripted/tour or anthropic/claude-sonnet-4-5\.$"),
        ("scripted/tuor", r"^There is no script 'tuor'; there are .*, ports, mine\..*tour"),
        *((f"openai/m?{key}=x", r"^A key does not belong in a model's name: set the provider's environment")
          for key in ("api_key", "API_KEY", "key", "Token")),
    ],
)  # fmt: skip
def test_names_that_are_refused(name, error):
    with pytest.raises(BadArguments, match=error):
        get(name, scripts={"mine": None})
    assert get("openai/m?max_tokens=5")._options == {"max_tokens": 5}


@pytest.mark.parametrize(
    ("props", "models", "window"),
    [
        ({"default_generation_settings": {"n_ctx": 4_096}}, {"data": [{"id": "m", "n_ctx": 512}]}, 4_096),
        ({"default_generation_settings": {"n_ctx": 255}}, {"data": [{"id": "m", "n_ctx": 256}]}, 256),
        ({"default_generation_settings": 5}, {"data": [{"id": "m", "n_ctx": 10_000_001}]}, None),
        ({}, {"data": [{"id": "m", "n_ctx": 10_000_000}]}, 10_000_000),
        ({}, {"data": [{"id": "m", "n_ctx": True}, {"id": "o", "n_ctx": 512}]}, None),
        ({}, {"data": ["m", {"id": "o", "n_ctx": 512}]}, 512),  # the only one
        ({}, {"data": [{"id": "o", "n_ctx": 512}, {"id": "m", "meta": {"n_ctx": 900}}]}, 900),
        ({}, {"data": [{"id": "m", "n_ctx": 800, "max_model_len": 900, "meta": {"max_model_len": 700}}]}, 900),
        ({}, {"data": [{"id": "p", "n_ctx": 512}, {"id": "o", "n_ctx": 512}]}, None),
        ({}, {"data": None}, None),
        ({}, {}, None),
    ],
)  # fmt: skip
def test_the_window_that_a_server_states(monkeypatch, props, models, window):
    asked = []

    def fetch(url):
        asked.append(url)
        return props if url.endswith("/props") else models

    monkeypatch.setattr("ctxkit.agent.models.model_factory._fetch_json", fetch)
    assert fetch_context_window("http://127.0.0.1:8080/v1/", "m") == window
    assert asked[0] == "http://127.0.0.1:8080/props"
    assert asked[1:] in ([], ["http://127.0.0.1:8080/v1/models"])


def test_only_servers_nearby_are_asked(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "ctxkit.agent.models.model_factory._fetch_json", lambda url: asked.append(url) or {}
    )
    for host in ("localhost", "127.0.0.1:1", "10.0.0.5", "192.168.1.2", "[::1]:80"):
        assert fetch_context_window(f"http://{host}/v1", "m") is None
        assert asked
        asked.clear()
    for address in (
        "http://example.org/v1",
        "http://8.8.8.8/v1",
        "http:///v1",
        "http://[::/v1",
        "",
    ):
        assert fetch_context_window(address, "m") is None
    assert asked == []


def test_a_lookup_model_requests_a_question():
    model = PromptLookupModel(counter=COUNT, clock=lambda: 0.0)
    reply, _ = ask(model, user("Hello."))
    assert reply.text == "Ask me for the sum of the ports of some services."
    assert (model.name, model.context_window) == ("scripted/ports", None)
    question = user("What is the sum of the ports of archive and zone?")
    reply, _ = ask(model, question, turn=2, step=1)
    assert reply.tool_calls == (ToolCall("read_2_1", "read_file", {"path": "etc/archive.toml"}),)
    assert reply.stop == "tool"
