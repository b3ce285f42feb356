"""The LiteLLM adapter on a custom provider in this process: streaming, tools, usage, errors; no network, no key shown."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
from builders import assistant, call, result, system, user

from ctxkit._internal import redact
from ctxkit.agent import (
    ProviderModel,
    Request,
    RetryPolicy,
    anthropic_clearing,
    ignore_delta,
    load_litellm,
    openai_compaction,
)
from ctxkit.errors import ModelError
from ctxkit.formats import add_cache_marks, parse_chat_usage, to_chat_messages
from ctxkit.session import ToolSchema

TOOLS = (
    ToolSchema(name="look", parameters={"type": "object", "properties": {"x": {"type": "string"}}}),
)


@pytest.fixture(scope="module")
def litellm():
    """LiteLLM with a provider `ctxkit-test/` that answers from a list of scripted chunks or raises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = load_litellm()

        class Handler(module.CustomLLM):
            failures: list = []
            asked: list = []
            halts: list = []

            async def astreaming(self, *args, **kwargs):
                Handler.asked.append(kwargs)
                if Handler.failures:
                    raise Handler.failures.pop(0)
                yield {
                    "text": "Hello ",
                    "tool_use": None,
                    "is_finished": False,
                    "finish_reason": "",
                    "usage": None,
                    "index": 0,
                }
                for halt in Handler.halts:
                    await halt()
                tool = {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"x": "1"}'},
                    "index": 0,
                }
                usage = {
                    "prompt_tokens": 100,
                    "completion_tokens": 7,
                    "total_tokens": 107,
                    "prompt_tokens_details": {"cached_tokens": 60},
                }
                yield {
                    "text": "",
                    "tool_use": tool,
                    "is_finished": True,
                    "finish_reason": "tool_calls",
                    "usage": usage,
                    "index": 0,
                }

        handler = Handler()
        before = module.custom_provider_map
        module.custom_provider_map = [{"provider": "ctxkit-test", "custom_handler": handler}]
        module.utils.custom_llm_setup()
        yield Handler
        module.custom_provider_map = before


def ask(model, *messages, emit=ignore_delta):
    return asyncio.run(model(Request(messages=messages or (user("hi"),), tools=TOOLS), emit))


pytestmark = pytest.mark.filterwarnings("default")  # the libraries below warn about each other


def test_a_reply_streams_and_carries_usage_by_class(litellm):
    heard = []
    reply = ask(ProviderModel("ctxkit-test/one"), emit=heard.append)
    assert [(d.kind, d.text) for d in heard] == [
        ("text", "Hello "),
        ("tool_call", "look"),
        ("arguments", '{"x": "1"}'),
    ]
    assert reply.text == "Hello "
    assert reply.tool_calls[0].arguments == {"x": "1"}
    assert reply.stop == "tool"
    assert (reply.usage.input_tokens, reply.usage.cache_read_tokens, reply.usage.output_tokens) == (
        40,
        60,
        7,
    )
    assert reply.usage.prompt_tokens == 100


def test_a_rate_limit_is_waited_for_and_an_overflow_is_not(litellm):
    litellm.failures[:] = [
        RuntimeError("429 Too Many Requests"),
        RuntimeError("Rate limit reached"),
    ]
    heard = []
    patience = RetryPolicy(pause=0.001, chance=lambda: 0.0)
    assert (
        ask(ProviderModel("ctxkit-test/one", patience=patience), emit=heard.append).text == "Hello "
    )
    assert [d.text for d in heard if d.kind == "wait"] == [
        "ctxkit-test/one is over its rate limit; it is asked again in 0.001 s",
        "ctxkit-test/one is over its rate limit; it is asked again in 0.002 s",
    ]
    litellm.failures[:] = [RuntimeError("prompt is too long: 2 tokens > 1 maximum")]
    litellm.asked.clear()
    with pytest.raises(ModelError) as e:
        ask(ProviderModel("ctxkit-test/one", pause=0.001))
    assert e.value.overflow
    assert len(litellm.asked) == 1


def test_no_key_leaves_in_an_error(litellm, monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", "planted-value-123456")
    litellm.failures[:] = [
        RuntimeError(
            "bad planted-value-123456 and Authorization: Bearer abcdefghijk sk-abcdefghijklmnop"
        )
    ]
    with pytest.raises(ModelError) as e:
        ask(ProviderModel("ctxkit-test/one"))
    said = str(e.value) + repr(e.value)
    assert "planted-value" not in said
    assert "abcdefghijk" not in said


def test_a_missing_key_is_named_before_any_network(litellm, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(
        ModelError, match=r"^anthropic/claude-sonnet-4-5 needs a key: set .*ANTHROPIC_API_KEY"
    ):
        ask(ProviderModel("anthropic/claude-sonnet-4-5"))


def test_messages_become_chat_dictionaries():
    asked = call("look", x=1)
    chat = to_chat_messages([system("S"), user("U"), asked, result("R", asked), assistant("A")])
    assert [m["role"] for m in chat] == ["system", "user", "assistant", "tool", "assistant"]
    assert chat[2]["content"] is None
    assert chat[2]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"x": 1}'}
    assert chat[3]["tool_call_id"] == asked.tool_calls[0].id


def test_cache_marks_stand_on_the_system_prompt_and_the_last_two():
    marked = add_cache_marks(to_chat_messages([system("S"), user("1"), assistant("2"), user("3")]))
    assert ["cache_control" in m["content"][-1] for m in marked] == [True, False, True, True]
    assert {tuple(sorted(m["content"][-1].keys() - {"cache_control"})) for m in marked} == {
        ("text", "type")
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ({"prompt_tokens": 10, "completion_tokens": 2}, (10, None, None, 2)),
        (
            {
                "prompt_tokens": 100,
                "cache_read_input_tokens": 70,
                "cache_creation_input_tokens": 20,
                "completion_tokens": 1,
            },
            (10, 70, 20, 1),
        ),
    ],
)
def test_usage_is_disjoint(given, expected):
    u = parse_chat_usage(given)
    assert (
        u and (u.input_tokens, u.cache_read_tokens, u.cache_write_tokens, u.output_tokens)
    ) == expected


def test_server_edits_have_the_providers_shape():
    assert anthropic_clearing(keep=5)["edits"][0]["keep"] == {"type": "tool_uses", "value": 5}
    assert openai_compaction(threshold=9)[0]["compact_threshold"] == 9


def test_loading_leaves_the_users_token_cache_alone(monkeypatch, tmp_path):
    """LiteLLM names a folder of its own when it is first imported, as this one does."""
    switches = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1",
                "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True"}  # fmt: skip
    for name in switches:
        monkeypatch.setenv(name, "")  # what it was comes back afterwards
        monkeypatch.delenv(name)
    (tmp_path / "litellm.py").write_text("import os; os.environ['TIKTOKEN_CACHE_DIR'] = 'its own'")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "litellm", None)  # what was imported comes back afterwards
    del sys.modules["litellm"]
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "mine")
    assert load_litellm().suppress_debug_info is True
    assert os.environ["TIKTOKEN_CACHE_DIR"] == "mine"
    assert {n: os.environ[n] for n in switches} == switches
    for name in switches:
        monkeypatch.setenv(name, "my own")
    load_litellm()
    assert {os.environ[n] for n in switches} == {"my own"}
    assert redact("token ghp_abcdefghijklmnop!") == "token [redacted]!"


def test_a_provider_that_falls_silent_is_given_up(litellm, monkeypatch):
    async def forever():
        await asyncio.sleep(3600)

    monkeypatch.setattr(litellm, "halts", [forever])
    with pytest.raises(ModelError, match=r"said nothing for 0\.2 s"):
        ask(ProviderModel("ctxkit-test/one", silence=0.2))


def test_a_rate_limit_in_the_middle_of_a_stream_is_not_said_twice(litellm, monkeypatch):
    async def limited():
        raise RuntimeError("429 Too Many Requests")

    heard = []
    monkeypatch.setattr(litellm, "halts", [limited])
    with pytest.raises(ModelError):
        ask(ProviderModel("ctxkit-test/one", pause=0.001), emit=heard.append)
    assert [d.text for d in heard] == ["Hello "]


def test_a_local_server_needs_no_key(litellm, monkeypatch):
    monkeypatch.delenv("OLLAMA_API_BASE", raising=False)
    ProviderModel("ollama_chat/qwen3:4b")._check_key(load_litellm())


@pytest.mark.parametrize(
    ("name", "keys", "options", "sent"),
    [
        ("openai/m", {}, {"api_base": "http://127.0.0.1:1"}, "none"),
        ("openai/m", {"OPENAI_API_KEY": "x"}, {"api_base": "http://127.0.0.1:1"}, None),
        ("openai/m", {"OPENAI_API_KEY": "x"}, {}, None),
        ("openai/m", {"OPENAI_API_KEY": ""}, {}, None),
        ("openai/m", {"OPENAI_API_KEY": ""}, {"api_base": "http://127.0.0.1:1"}, "none"),
        ("openai/m", {}, {"api_base": "http://127.0.0.1:1", "api_key": "y"}, "y"),
        ("anthropic/m", {}, {"api_base": "http://127.0.0.1:1"}, None),
        ("anthropic/m", {"ANTHROPIC_API_KEY": "x"}, {}, None),
    ],
)
def test_a_server_of_openais_protocol_without_a_key_gets_a_placeholder(
    litellm, monkeypatch, name, keys, options, sent
):
    asked = []

    async def refuse(**arguments):
        asked.append(arguments)
        raise RuntimeError("no server")

    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in keys.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(load_litellm(), "acompletion", refuse)
    with pytest.raises(ModelError, match="no server"):
        ask(ProviderModel(name, options=options, attempts=1))
    assert [arguments.get("api_key") for arguments in asked] == [sent]
