"""What a provider's model is asked through LiteLLM, option by option, and what is made of the answer and of errors.

An object in place of LiteLLM records the calls, so that no server and no library is needed.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from builders import call, result, system, user

from ctxkit.agent import (
    Delta,
    ProviderModel,
    Request,
    RetryPolicy,
    anthropic_clearing,
    openai_compaction,
)
from ctxkit.agent.models import litellm_provider
from ctxkit.errors import ModelError
from ctxkit.session import ToolSchema, Usage

CLAUDE, GPT = "anthropic/claude-sonnet-4-5", "openai/gpt-5"
LOOK = ToolSchema(name="look", description="Looks.", parameters={"type": "object"})
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def make_chunk(content=None, thought=None, calls=None, usage=None):
    delta = SimpleNamespace(content=content, reasoning_content=thought, tool_calls=calls)
    return SimpleNamespace(choices=[SimpleNamespace(delta=delta)], usage=usage)


class Stream:
    def __init__(self, chunks):
        self._chunks = iter(chunks)

    def __aiter__(self):
        return self

    async def __anext__(self):
        for chunk in self._chunks:
            if isinstance(chunk, BaseException):
                raise chunk
            return chunk
        raise StopAsyncIteration


class Library:
    """What `ProviderModel` uses of LiteLLM."""

    custom_provider_map = None

    def __init__(self, *answers, missing=(), model_info=None):
        self.answers, self.missing, self.model_info = list(answers), list(missing), model_info
        self.requests = []

    def validate_environment(self, _name):
        return {"missing_keys": self.missing}

    def get_model_info(self, _name):
        if self.model_info is None:
            raise ValueError("not in the table")
        return self.model_info

    async def acompletion(self, **options):
        self.requests.append(options)
        answer = self.answers.pop(0) if self.answers else [make_chunk("It is.")]
        if isinstance(answer, BaseException):
            raise answer
        usage = SimpleNamespace(prompt_tokens=7, completion_tokens=3)
        return Stream([*answer, SimpleNamespace(choices=[], usage=usage)])

    def stream_chunk_builder(self, chunks, messages):
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        data = {"choices": [choice], "usage": USAGE}
        return SimpleNamespace(choices=[1], model_dump=lambda warnings: data)


@pytest.fixture
def ask(monkeypatch):
    """Ask a model once; return its reply, the requests, and the deltas."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def ask_once(name, *answers, request=None, missing=(), model_info=None, **more):
        library, deltas = Library(*answers, missing=missing, model_info=model_info), []
        monkeypatch.setattr(litellm_provider, "load_litellm", lambda: library)
        monkeypatch.setattr(litellm_provider, "check_api_key", lambda *_: None)
        model = ProviderModel(name, **more)
        reply = asyncio.run(model(request or Request(messages=(user("Look."),)), deltas.append))
        return reply, library.requests, [d for d in deltas if d.text != "LiteLLM is being imported"]

    return ask_once


BASE = {"stream": True, "stream_options": {"include_usage": True}, "num_retries": 0}


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        (GPT, {}, BASE),
        (GPT, {"options": {"temperature": 0.5, "stream": False}}, {**BASE, "temperature": 0.5}),
        (GPT, {"options": {"reasoning_effort": "high"}}, {**BASE, "reasoning_effort": "high"}),
        (GPT, {"options": {"api_base": "http://h"}}, {**BASE, "api_base": "http://h", "api_key": "none"}),
        (GPT, {"options": {"api_base": "http://h", "api_key": "k"}}, {**BASE, "api_base": "http://h", "api_key": "k"}),
        ("other/m", {"options": {"api_base": "http://h"}}, {**BASE, "api_base": "http://h"}),
        (GPT, {"server_edits": [1]}, {**BASE, "context_management": [1], "allowed_openai_params": ["context_management"],
                                      "model": "openai/responses/gpt-5"}),
        ("openai/responses/gpt-5", {"server_edits": [1]},
         {**BASE, "context_management": [1], "allowed_openai_params": ["context_management"]}),
        (CLAUDE, {"server_edits": {}}, {**BASE, "context_management": {}, "allowed_openai_params": ["context_management"]}),
        # the answer needs room beside the thinking
        (CLAUDE, {"options": {"thinking": {"type": "enabled", "budget_tokens": 5_000}}},
         {**BASE, "thinking": {"type": "enabled", "budget_tokens": 5_000}, "max_tokens": 32_000}),
        (CLAUDE, {"options": {"thinking": {"budget_tokens": 40_000}}},
         {**BASE, "thinking": {"budget_tokens": 40_000}, "max_tokens": 41_024}),
        (CLAUDE, {"options": {"reasoning_effort": "high"}, "model_info": {"max_output_tokens": 64_000}},
         {**BASE, "reasoning_effort": "high", "max_tokens": 64_000}),
        (CLAUDE, {"options": {"reasoning_effort": "high", "max_tokens": 100}},
         {**BASE, "reasoning_effort": "high", "max_tokens": 4_096 + 1_024}),
        (CLAUDE, {"options": {"thinking": {"type": "disabled"}, "max_tokens": 9_000}},
         {**BASE, "thinking": {"type": "disabled"}, "max_tokens": 9_000}),
    ],
)  # fmt: skip
def test_the_options_of_a_request(ask, name, more, expected):
    _, (request,), _ = ask(name, **more)
    messages = request.pop("messages")
    assert request == {"model": name, **expected}
    assert [m["role"] for m in messages] == ["user"]
    assert ("cache_control" in repr(messages)) is (name == CLAUDE)


def test_tools_and_the_limit_of_a_request(ask):
    request = Request(messages=(user("Look."),), tools=(LOOK,), max_output_tokens=50)
    _, (sent,), _ = ask(GPT, request=request, options={"max_tokens": 900})
    assert sent["max_tokens"] == 50
    assert [t["function"]["name"] for t in sent["tools"]] == ["look"]
    assert sent["_skip_mcp_handler"] is True
    _, (sent,), _ = ask(GPT)
    assert not {"max_tokens", "tools", "_skip_mcp_handler"} & set(sent)


def test_thinking_is_off_where_earlier_calls_have_none_that_is_signed(ask):
    step = call("look", "c1")
    talk = (system(), user(), step, result("rows", step), user())
    options = {"thinking": {"budget_tokens": 2_000}, "reasoning_effort": "low", "temperature": 1}
    _, (sent,), _ = ask(CLAUDE, request=Request(messages=talk, tools=(LOOK,)), options=options)
    assert not {"thinking", "reasoning_effort", "max_tokens"} & set(sent)
    assert sent["temperature"] == 1
    _, (sent,), _ = ask(GPT, request=Request(messages=talk, tools=(LOOK,)), options=options)
    assert sent["reasoning_effort"] == "low"


def test_cache_marks_may_be_left_out(ask):
    _, (sent,), _ = ask(CLAUDE, cache_marks=False)
    assert "cache_control" not in repr(sent)


def test_a_reply_is_streamed_and_read(ask):
    function = SimpleNamespace(name="look", arguments='{"x": 1}')
    later = SimpleNamespace(name=None, arguments="")
    calls = [SimpleNamespace(index=0, id="c1", function=f) for f in (function, later, None)]
    chunks = [make_chunk("It "), make_chunk("is.", "Hm."), make_chunk("", calls=calls)]
    reply, _, deltas = ask(GPT, chunks)
    assert [(d.kind, d.text) for d in deltas if d.kind != "wait"] == [
        ("text", "It "),
        ("thinking", "Hm."),
        ("text", "is."),
        ("tool_call", "look"),
        ("arguments", '{"x": 1}'),
    ]
    assert (reply.text, reply.model, reply.latency >= 0, reply.time > 0) == (
        "It is.",
        GPT,
        True,
        True,
    )
    assert [(c.id, c.arguments) for c in reply.tool_calls] == [("c1", {"x": 1})]
    assert reply.usage == Usage(input_tokens=7, output_tokens=3, reasoning_tokens=2)
    assert ask(CLAUDE)[0].usage.reasoning_tokens is None  # LiteLLM's own count


class Failed(Exception):
    def __init__(self, text, status=None, retry_after=None):
        super().__init__(text)
        self.status_code = status
        self.litellm_response_headers = {"retry-after": retry_after} if retry_after else None


def make_policy(waits, **more):
    async def sleep(seconds):
        waits.append(seconds)

    return RetryPolicy(sleep=sleep, chance=lambda: 0.0, **more)


def test_a_passing_failure_is_retried_and_reported(ask):
    waits = []
    reply, requests, deltas = ask(
        GPT, Failed("busy", 429, "7"), Failed("Overloaded", 529), patience=make_policy(waits)
    )
    assert (reply.text, len(requests), waits) == ("It is.", 3, [7.0, 2.0])
    assert [d for d in deltas if d.kind == "wait"][-2:] == [
        Delta("wait", "openai/gpt-5 is over its rate limit; it is asked again in 7 s"),
        Delta("wait", "openai/gpt-5 is overloaded; it is asked again in 2 s"),
    ]


@pytest.mark.parametrize(
    ("answer", "more", "error", "fields"),
    [
        (Failed("Bad key\nTraceback: x", 401), {}, "openai/gpt-5: Bad key", {}),
        (Failed("x" * 2_000, 400), {}, "openai/gpt-5: " + "x" * 1_000, {}),
        (Failed("prompt is too long: 30000 tokens > 20000 maximum", 400), {},
         "openai/gpt-5: prompt is too long: 30000 tokens > 20000 maximum", {"overflow": True, "window": 20_000}),
        (Failed("busy", 429), {"attempts": 1}, "openai/gpt-5 is over its rate limit; ask again later. It said: busy", {}),
        (Failed("busy", 429, "7200"), {}, "openai/gpt-5 is over its rate limit; ask again in 7,200 s. It said: busy", {}),
        (Failed("Connection error.", 500), {"attempts": 1, "options": {"api_base": "http://h"}},
         "openai/gpt-5 cannot be reached at http://h; ask again later. It said: Connection error.", {}),
        (Failed("finish_reason: error", 400), {}, "openai/gpt-5 broke the reply off with an error of its own.", {"again": True}),
        ([make_chunk("It "), Failed("Connection reset by peer", 500)], {},
         "openai/gpt-5 broke the connection off; ask again later. It said: Connection reset by peer", {"again": True}),
        (TimeoutError(), {"silence": 5.0}, "openai/gpt-5 said nothing for 5 s; it was given up.", {}),
        (ModelError("own"), {}, "own", {}),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence(ask, answer, more, error, fields):
    patience = make_policy([], attempts=more.pop("attempts", 7))
    with pytest.raises(ModelError) as raised:
        ask(GPT, answer, patience=patience, **more)
    e = raised.value
    assert str(e) == error
    expected = {"overflow": False, "again": False, "window": None, **fields}
    assert (e.overflow, e.again, e.window) == tuple(
        expected[k] for k in ("overflow", "again", "window")
    )


def test_without_an_attempt_no_request_is_sent(ask):
    with pytest.raises(
        ModelError, match=r"^openai/gpt-5: no attempt was allowed; set attempts to 1 or more\.$"
    ):
        ask(GPT, attempts=0)


def test_the_keys_that_litellm_lacks_are_named(ask, monkeypatch):
    missing = ["OTHER_API_BASE", "OTHER_API_KEY"]
    with pytest.raises(
        ModelError, match=r"^other/m needs a key: set the environment variable OTHER_API_KEY\.$"
    ):
        ask("other/m", missing=missing)
    for more in ({"options": {"api_key": "k"}}, {"options": {"api_base": "http://h"}}):
        assert ask("other/m", missing=missing, **more)[0].text == "It is."
    assert ask("other/m", missing=missing[:1])[0].text == "It is."
    monkeypatch.setattr(Library, "custom_provider_map", [{"provider": "other"}])
    assert ask("other/m", missing=missing)[0].text == "It is."
    with pytest.raises(ModelError, match="needs a key"):
        ask("another/m", missing=missing)


def test_edits_of_the_server():
    assert anthropic_clearing() == {
        "edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 100_000},
                   "keep": {"type": "tool_uses", "value": 3}}]}  # fmt: skip
    (edit,) = anthropic_clearing(trigger=5, keep=0, clear_at_least=0, exclude=("look",))["edits"]
    assert edit == {
        "type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 5},
        "keep": {"type": "tool_uses", "value": 0}, "clear_at_least": {"type": "input_tokens", "value": 0},
        "exclude_tools": ["look"]}  # fmt: skip
    assert openai_compaction(threshold=7) == [{"type": "compaction", "compact_threshold": 7}]


def test_what_is_known_of_a_model_without_asking_it():
    model = ProviderModel(CLAUDE, context_window=9)
    assert (repr(model), model.notice, model.context_window) == (
        f"ProviderModel('{CLAUDE}')",
        "",
        9,
    )
    assert model.pictures is True
    assert ProviderModel(CLAUDE, pictures=False).pictures is False
    assert ProviderModel("own/m").pictures is None
