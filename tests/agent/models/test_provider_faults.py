"""Every fault in every format ends in a sentence, a retry or a repaired call."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from agent.models.fake_provider_server import FORMATS, OUT, PROMPT, WRITERS, Play, wire
from stand_in_models import ECHO, agent, run

from ctxkit.agent import Limits, ProviderModel, RetryPolicy
from ctxkit.session import Message

pytestmark = pytest.mark.filterwarnings("default")  # the libraries below warn about each other

WELL = Play("All is well.")
LONG = "The answer is: do not delete the production database."
CALL = Play(calls=(("echo", {"x": "1"}),))
LIMIT = Play(status=429, said="Rate limit reached for requests", headers=(("retry-after", "21"),))


class Held:
    """A turn with a server: its outcome, the waits, what was told and what was asked."""

    def __init__(self, kind, *plays, turns=2, for_ever=False, **options):
        self.waits, self.heard = [], []

        async def sleep(seconds):
            self.waits.append(seconds)

        with wire(kind, *plays, *([] if for_ever else [WELL])) as self.wire:
            patience = RetryPolicy(sleep=sleep, chance=lambda: 0.0)
            own = {"api_base": self.wire.url, "api_key": "none", **options}
            model = ProviderModel(
                FORMATS[kind][0], context_window=50_000, patience=patience, options=own
            )
            self.agent = agent(model=model, tools=[ECHO], heard=self.heard)
            self.outcomes = [run(self.agent.turn("go"))]
            self.first = len(self.wire.asked)
            self.wire.plays[:] = self.wire.plays if not for_ever else [WELL]
            self.outcomes += [run(self.agent.turn("and on")) for _ in range(turns - 1)]

    @property
    def outcome(self):
        return self.outcomes[0]

    @property
    def replies(self):
        return [
            m for m in self.agent.session.log if isinstance(m, Message) and m.role == "assistant"
        ]

    @property
    def results(self):
        return [m for m in self.agent.session.log if isinstance(m, Message) and m.role == "tool"]


def every(*kinds):
    return pytest.mark.parametrize("kind", kinds or FORMATS)


def lives(held):
    """The session continues: the turn after the fault reaches the server and is answered."""
    assert len(held.wire.asked) > held.first
    assert held.outcomes[1].ended == "answered"
    assert held.outcomes[1].text.strip() == "All is well."


PASSING = {
    "500": Play(status=500, said="The server had an error while processing your request"),
    "503": Play(status=503, said="Service Unavailable"),
    "529": Play(status=529, said="Overloaded"),
    "429": LIMIT,
    "reset": Play(reset=True),
    "page": Play(page=True),
    "cut": Play(LONG, cut=True),
    "nothing": Play(raw=b"\n"),
}


@every()
@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_asked_again_and_answered(kind, fault):
    held = Held(kind, PASSING[fault], turns=1)
    assert held.outcome.ended == "answered"
    assert held.outcome.text.strip() == "All is well."
    assert held.first == 2 or (fault == "reset" and held.first == 3)  # a client may try once more


@every()
def test_a_rate_limit_is_waited_for_as_long_as_the_server_says(kind):
    held = Held(kind, LIMIT, LIMIT, turns=1)
    assert held.waits == [21.0, 21.0]
    said = [e.payload["why"] for e in held.heard if e.kind == "model_wait"]
    said = [w for w in said if "LiteLLM is being imported" not in w]  # once a process
    assert len(said) == 2
    assert all("over its rate limit" in w and "21 s" in w for w in said)


@every()
def test_an_overload_is_no_rate_limit(kind):
    said = [
        e.payload["why"]
        for e in Held(kind, PASSING["529"], turns=1).heard
        if e.kind == "model_wait"
    ]
    assert said
    assert all("is overloaded" in w for w in said)


@every()
@pytest.mark.parametrize("fault", ["500", "reset", "page", "cut", "nothing"])
def test_what_does_not_pass_ends_in_a_sentence_and_the_session_goes_on(kind, fault):
    held = Held(kind, PASSING[fault], for_ever=True)
    assert held.outcome.ended == "error"
    expected = {"500": "had an error", "reset": "connection|had an error|reached", "page": "web page|stream|broke",
                "cut": "broke", "nothing": "stream|broke"}[fault]  # fmt: skip
    assert any(w in held.outcome.why for w in expected.split("|")), held.outcome.why
    assert all(m.is_error and not m.visible for m in held.replies[:-1])
    lives(held)


@every()
def test_the_words_of_a_cut_stream_are_kept_and_never_sent_again(kind):
    held = Held(kind, Play(LONG, cut=True), for_ever=True)
    assert held.outcome.ended == "error"
    assert "do not delete" not in json.dumps(held.wire.asked)
    if kind != "responses":  # LiteLLM raises there before it gives the words out
        assert any("The answer is:" in m.text for m in held.replies)
    lives(held)


@every("chat", "anthropic", "gemini")
def test_a_refusal_is_said_once_and_is_no_answer(kind):
    held = Held(kind, Play("I must", stop="content_filter"))
    assert held.outcome.ended == "error"
    assert "refused to answer" in held.outcome.why
    assert held.first == 1
    lives(held)


@every()
def test_401_is_one_request_and_a_sentence(kind):
    held = Held(kind, Play(status=401, said="Incorrect API key provided"))
    assert (held.outcome.ended, held.first, held.waits) == ("error", 1, [])
    lives(held)


@every()
def test_a_wait_that_is_too_long_is_named(kind):
    """A server that asks for a day is given up at once, and the day is said."""
    full = Play(status=429, said="slow down", headers=(("retry-after", "86400"),))
    held = Held(kind, full)
    assert (held.outcome.ended, held.first, held.waits) == ("error", 1, [])
    assert "ask again in 86,400 s" in held.outcome.why
    lives(held)


@every()
def test_a_limit_of_the_turn_ends_a_wait(kind):
    """The server asks for 21 s, the turn has one."""
    with wire(kind, LIMIT) as up:
        own = {"api_base": up.url, "api_key": "none"}
        model = ProviderModel(FORMATS[kind][0], context_window=50_000, options=own)
        began = time.monotonic()
        outcome = run(
            agent(model=model, limits=Limits(seconds=1.5), clock=time.monotonic).turn("go")
        )
    assert outcome.ended == "limit"
    assert time.monotonic() - began < 12
    assert len(up.asked) <= 1


@every("chat", "responses", "anthropic")
@pytest.mark.parametrize(
    "broken",
    [
        '{"x": "1", "y',
        "[1, 2]",
        "x=1",
        '"x"',
        '{"x": NaN}',
        '{"x": ' + "[" * 1500 + "]" * 1500 + "}",
    ],
)
def test_malformed_arguments_go_back_as_an_empty_object(kind, broken):
    held = Held(kind, Play(calls=(("echo", broken),)))
    assert held.outcome.ended == "answered"
    assert "no JSON object" in held.results[0].text
    assert json.dumps(broken)[1:-1] not in json.dumps(held.wire.asked[1])
    lives(held)


@every()
def test_a_call_is_run_and_its_result_sent(kind):
    held = Held(kind, CALL)
    assert [m.text for m in held.results] == ["<1>"]
    assert held.outcome.ended == "answered"
    lives(held)


@every()
def test_calls_without_arguments_are_run(kind):
    held = Held(kind, Play(calls=(("echo", {}),)))
    assert [m.text for m in held.results] == ["<>"]
    lives(held)


@every("chat")
def test_calls_without_ids_are_run(kind):
    held = Held(kind, Play(calls=(("echo", {"x": "1"}), ("echo", {"x": "2"})), ids=False))
    assert [m.text for m in held.results] == ["<1>", "<2>"]
    lives(held)


@every("chat", "ollama")
@pytest.mark.parametrize("ids", [True, False])
def test_calls_at_one_index_are_taken_apart(kind, ids):
    calls = (("echo", {"x": "1"}), ("echo", {}), ("echo", {"x": "3"}))
    held = Held(kind, Play(calls=calls, apart=True, ids=ids))
    assert [m.text for m in held.results] == ["<1>", "<>", "<3>"]
    lives(held)


@every("chat", "anthropic")
def test_a_promise_of_calls_without_calls_is_asked_again(kind):
    held = Held(kind, Play("I look first.", stop="tool_calls"), turns=1)
    assert (held.outcome.ended, held.outcome.text.strip()) == ("answered", "All is well.")
    assert "sent no call" in held.replies[0].error


@every("chat", "anthropic", "gemini", "ollama")
def test_a_call_without_a_name_or_of_an_unknown_tool_is_told_so(kind):
    held = Held(kind, Play(calls=(("launch_rocket", {"to": "moon"}),)))
    assert "There is no tool" in held.results[0].text
    lives(held)
    assert Held("chat", Play(calls=(("", {}),))).outcomes[1].ended == "answered"


@every()
def test_usage_that_was_told_is_recorded(kind):
    usage = Held(kind, turns=1).replies[0].usage
    assert (usage.prompt_tokens, usage.output_tokens) == (PROMPT, OUT)


@every()
@pytest.mark.parametrize("usage", ["none", "zero"])
def test_usage_that_was_not_told_is_missing_and_counted_here(kind, usage):
    held = Held(kind, Play("All is well.", usage=usage), turns=1)
    assert held.replies[0].usage is None
    assert held.outcome.spent.unbilled > 0


ODD = {
    "chat": b'"prompt_tokens": 1219',
    "responses": b'"input_tokens": 1219',
    "anthropic": b'"input_tokens": 1219',
    "gemini": b'"promptTokenCount": 1219',
    "ollama": b'"prompt_eval_count": 1219',
}


@every()
@pytest.mark.parametrize("told", ["-5", "99999999999999999999"])
def test_usage_that_cannot_be_tells_nothing(kind, told):
    """Nothing below zero is recorded, and no sum that no window holds is taken for an overflow."""
    said = b"".join(WRITERS[kind](WELL, {}))
    assert ODD[kind] in said
    held = Held(kind, Play(raw=said.replace(ODD[kind], ODD[kind][:-4] + told.encode())), turns=1)
    assert (held.outcome.ended, held.first) == ("answered", 1)
    assert held.replies[0].usage is None
    assert held.outcome.spent.unbilled > 0


BREAKS = {
    "chat": b'data: {"error": {"message": "Overloaded", "code": 500}}\n\n',
    "responses": b'event: error\ndata: {"type": "error", "code": "server_error", "message": "Overloaded"}\n\n',
    "anthropic": b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}\n\n',
    "gemini": b'data: {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}\r\n\r\n',
    "ollama": b'{"error": "model runner has unexpectedly stopped"}\n',
}


@every()
@pytest.mark.parametrize("after", ["words", "nothing"])
def test_an_error_in_the_stream_is_asked_again_and_answered(kind, after):
    words = b"".join(WRITERS[kind](Play(LONG, cut=True), {})) if after == "words" else b""
    held = Held(kind, Play(raw=words + BREAKS[kind]), turns=1)
    assert (held.outcome.ended, held.outcome.text.strip()) == ("answered", "All is well.")
    assert held.first == 2
    assert "do not delete" not in json.dumps(held.wire.asked)


@every()
@pytest.mark.parametrize(
    "data", [b"\xff\xfe\x00\n\n", b"data: null\n\ndata: []\n\ndata: 5\n\n", b"{}\n[]\n"]
)
def test_what_is_no_stream_of_the_format_ends_in_a_sentence(kind, data):
    held = Held(kind, Play(raw=data), for_ever=True)
    assert held.outcome.ended == "error"
    assert held.outcome.why
    assert "Traceback" not in held.outcome.why
    lives(held)


def test_thinking_leaves_room_for_the_answer():
    held = Held("anthropic", turns=1, reasoning_effort="low")
    (body,) = held.wire.asked
    assert body["max_tokens"] >= 32_000
    assert body["thinking"]["budget_tokens"] < body["max_tokens"]


def test_a_claudes_reasoning_tokens_are_missing_since_it_tells_none():
    assert Held("anthropic", turns=1).replies[0].usage.reasoning_tokens is None


def test_an_address_that_nobody_serves_is_named():
    with wire("chat", WELL) as gone:
        url = gone.url
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    model = ProviderModel("openai/m", context_window=50_000, options={"api_base": url, "api_key": "none"},
                     patience=RetryPolicy(sleep=sleep, chance=lambda: 0.0))  # fmt: skip
    outcome = run(agent(model=model).turn("go"))
    assert outcome.ended == "error"
    assert f"cannot be reached at {url}" in outcome.why
    assert waits == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(("kind", "word", "ended", "said"), [
    ("gemini", "MALFORMED_FUNCTION_CALL", "error", "wrote a tool call that it could not send"),
    ("gemini", "SAFETY", "error", "refused to answer (its finish reason is SAFETY)"),
    ("gemini", "OTHER", "error", "(its finish reason is OTHER)"),
    ("anthropic", "refusal", "error", "refused to answer (its finish reason is refusal)"),
    ("anthropic", "model_context_window_exceeded", "answered", "cut by its limit of length"),
    ("responses", "content_filter", "error", "refused to answer (its finish reason is content_filter)"),
    ("responses", "length", "answered", "cut by its limit of length"),
    ("chat", "error", "error", "broke the reply off with an error of its own"),
])  # fmt: skip
@pytest.mark.parametrize("text", ["", "Some words."])
def test_each_end_is_said_in_the_servers_own_word(kind, word, ended, said, text):
    held = Held(kind, Play(text, stop=word), for_ever=True, turns=1)
    assert held.outcome.ended == ended
    assert said in held.outcome.why
    assert len(held.outcome.why) < 200


@every()
def test_a_whole_reply_without_a_word_is_said_to_be_empty(kind):
    held = Held(kind, Play(""), turns=1)
    assert (held.outcome.ended, held.outcome.why) == ("answered", "the model gave an empty reply")


def test_a_reply_of_thoughts_alone_is_not_said_to_be_empty():
    import asyncio

    from ctxkit.agent import Agent
    from ctxkit.policies import Rules
    from ctxkit.session import Message, Session, Thinking

    class Thinks:
        name, notice, context_window = "own", "", 10_000

        async def __call__(self, _request, _emit):
            return Message(role="assistant", parts=(Thinking("Hm."),), stop="stop")

    agent = Agent(Session(id="s"), model=Thinks(), rules=Rules(), clock=lambda: 1.0)
    assert asyncio.run(agent.turn("go")).why == "the model thought, and gave no answer"


@pytest.mark.parametrize("kind", FORMATS)
def test_what_happens_before_a_call_is_sent_is_not_the_models_time(kind, monkeypatch):
    from ctxkit.agent import load_litellm

    litellm = load_litellm()
    asked = litellm.acompletion

    async def late(**options):
        await asyncio.sleep(1.5)  # as long as the first call of a kernel imports
        return await asked(**options)

    Held(kind, WELL, turns=1)  # so that the call below is not the first one
    monkeypatch.setattr(litellm, "acompletion", late)
    [call] = Held(kind, WELL, turns=1).agent.session.calls
    assert 0 < call.message.latency < 1.4
