"""Real frameworks on a scripted LiteLLM provider are recorded as they run: streams, tools, cache counts, failures."""

from __future__ import annotations

import asyncio
import warnings
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec

import pytest

import ctxkit as ck
from ctxkit.agent import Recording, load_litellm
from ctxkit.agent.recorders import recorder

pytestmark = pytest.mark.filterwarnings("default")  # the libraries below warn about each other


@pytest.fixture(scope="module")
def provider():
    """LiteLLM with a provider `ctxkit-rec/` that says what its list holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        litellm = load_litellm()

    class Handler(litellm.CustomLLM):
        replies: list = []

        def _next(self, messages):
            said = Handler.replies.pop(0) if Handler.replies else {"content": "fine"}
            if isinstance(said, Exception):
                raise said
            usage = {"prompt_tokens": 10 * len(messages), "completion_tokens": 3, "total_tokens": 10 * len(messages) + 3,
                     "prompt_tokens_details": {"cached_tokens": 10 * (len(messages) - 1)}}  # fmt: skip
            return said, usage

        def completion(self, model, messages, *args, **kwargs):
            said, usage = self._next(messages)
            choice = {
                "index": 0,
                "finish_reason": "tool_calls" if "tool_calls" in said else "stop",
                "message": {"role": "assistant", **said},
            }
            return litellm.ModelResponse(id="x", choices=[choice], model=model, usage=usage)

        async def acompletion(self, model, messages, *args, **kwargs):
            return self.completion(model, messages)

        def streaming(self, model, messages, *args, **kwargs):
            said, usage = self._next(messages)
            for word in said["content"].split(" "):
                yield {
                    "text": word,
                    "tool_use": None,
                    "is_finished": False,
                    "finish_reason": "",
                    "usage": None,
                    "index": 0,
                }
            yield {
                "text": "",
                "tool_use": None,
                "is_finished": True,
                "finish_reason": "stop",
                "usage": usage,
                "index": 0,
            }

    before = litellm.custom_provider_map
    litellm.custom_provider_map = [{"provider": "ctxkit-rec", "custom_handler": Handler()}]
    litellm.utils.custom_llm_setup()
    Handler.litellm = litellm
    yield Handler
    litellm.custom_provider_map = before


MODEL = "ctxkit-rec/one"


def talk(provider, *prompts):
    messages = [{"role": "system", "content": "S"}]
    for p in prompts:
        messages.append({"role": "user", "content": p})
        reply = provider.litellm.completion(model=MODEL, messages=messages)
        messages.append(reply.choices[0].message)
    return messages


def test_a_plain_loop_is_one_session(provider):
    provider.replies[:] = [{"content": "one"}, {"content": "two"}]
    with ck.record("loop") as live:
        talk(provider, "a", "b")
    s = live.session
    assert s.id == "loop"
    assert [m.text for m in s.messages] == ["S", "a", "one", "b", "two"]
    assert [c.message.usage.prompt_tokens for c in s.calls] == [20, 40]
    assert s.calls[1].message.usage.cache_read_tokens == 30
    assert list(ck.frame(s, per="call")["prompt_tokens"]) == [20, 40]


def test_messages_given_as_objects_and_as_dictionaries_are_one_conversation(provider):
    litellm = provider.litellm
    plain = {"role": "user", "content": "a"}
    with ck.record("mixed") as live:
        reply = litellm.completion(MODEL, messages=[litellm.Message(**plain)]).choices[0].message
        more = [plain, reply, {"role": "user", "content": "b"}]
        litellm.completion(MODEL, messages=more)
    assert [len(s.calls) for s in live.sessions] == [2]


def test_after_the_block_nothing_is_recorded_and_litellm_is_as_it_was(provider):
    litellm = provider.litellm
    before = [
        list(litellm.callbacks),
        list(litellm.success_callback),
        list(litellm._async_success_callback),
    ]
    with ck.record("short") as live:
        talk(provider, "a")
    talk(provider, "b")
    assert len(live.session.calls) == 1
    assert [
        list(litellm.callbacks),
        list(litellm.success_callback),
        list(litellm._async_success_callback),
    ] == before


def test_a_stream_and_an_async_call_are_recorded_once_each(provider):
    provider.replies[:] = [{"content": "a stream of words"}, {"content": "async"}]
    with ck.record("both") as live:
        for _ in provider.litellm.completion(
            model=MODEL, messages=[{"role": "user", "content": "s"}], stream=True
        ):
            pass

        async def ask():
            await provider.litellm.acompletion(
                model=MODEL, messages=[{"role": "user", "content": "t"}]
            )
            await asyncio.sleep(0.2)

        asyncio.run(ask())
    texts = sorted(s.messages[-1].text for s in live.sessions)
    assert [t.replace(" ", "") for t in texts] == ["astreamofwords", "async"]


def test_a_shortened_history_is_seen_as_a_compaction(provider):
    provider.replies[:] = [{"content": f"reply {i}"} for i in range(4)]
    with ck.record("cut") as live:
        messages = talk(provider, "a", "b", "c")
        kept = [*messages[:2], *messages[-2:], {"role": "user", "content": "d"}]
        provider.litellm.completion(model=MODEL, messages=kept)
    s = live.session
    assert len(s.calls) == 4
    assert len(s.edits) == 1
    assert [m.text for m in s.view(-1)] == ["S", "a", "c", "reply 2", "d"]


def test_a_call_from_before_the_recording_that_is_told_late_is_left_out():
    live, asked = (
        Recording("late"),
        {"messages": [{"role": "user", "content": "old"}], "model": "one"},
    )
    now = datetime.now()  # noqa: DTZ005  LiteLLM's own times are naive
    answer = {
        "choices": [{"message": {"role": "assistant", "content": "said"}, "finish_reason": "stop"}]
    }
    old, new = (now - timedelta(seconds=60)).timestamp(), now.timestamp()
    live.end("1", asked, answer, (old, new), None)
    assert not live.session.calls
    live.end("2", asked, answer, (new, new), None)
    assert len(live.session.calls) == 1


def test_calls_told_out_of_order_are_put_into_the_order_in_which_they_were_asked():
    live, now = Recording("order"), datetime.now()  # noqa: DTZ005  LiteLLM's own times are naive
    talk = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "b"},
    ]
    for size, word in ((3, "two"), (1, "one")):
        answer = {
            "choices": [
                {"message": {"role": "assistant", "content": word}, "finish_reason": "stop"}
            ]
        }
        began = (now + timedelta(seconds=size)).timestamp()
        live.end(word, {"messages": talk[:size], "model": "one"}, answer, (began, began), None)
    assert [m.text for m in live.session.messages] == ["a", "one", "b", "two"]
    assert not live.session.edits


def test_a_failed_call_leaves_no_key(provider, monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", "planted-secret-1234")
    provider.replies[:] = [RuntimeError("denied for planted-secret-1234")]
    with ck.record("failed") as live, pytest.raises(Exception, match="denied"):
        talk(provider, "a")
    assert "planted-secret" not in repr(live.session.log)


def test_the_error_of_a_failed_call_is_cut_to_1000_characters(provider):
    provider.replies[:] = [RuntimeError("x" * 3_000)]
    with ck.record("failed") as live, pytest.raises(Exception, match=r"x{3000}"):
        talk(provider, "a")
    (error,) = [m.text for m in live.session.messages if m.role == "assistant"]
    assert len(error) == 1_000
    assert error.endswith("xxx")


@pytest.mark.skipif(not find_spec("smolagents"), reason="smolagents is not installed")
def test_smolagents_is_recorded_with_its_tools(provider):
    from smolagents import LiteLLMModel, ToolCallingAgent, tool

    @tool
    def double(x: int) -> int:
        """Double a number.

        Args:
            x: the number.
        """
        return 2 * x

    def ask(name, arguments, ident):
        return {
            "content": None,
            "tool_calls": [
                {
                    "id": ident,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
            ],
        }

    provider.replies[:] = [
        ask("double", '{"x": 21}', "c1"),
        ask("final_answer", '{"answer": "42"}', "c2"),
    ]
    with ck.record("smol") as live:
        answer = ToolCallingAgent(
            tools=[double], model=LiteLLMModel(model_id=MODEL), verbosity_level=0
        ).run("Double 21")
    s = live.session
    assert str(answer) == "42"
    assert [c.name for m in s.messages for c in m.tool_calls] == ["double", "final_answer"]
    assert "42" in s.view(1)[-1].text
    assert len(s.calls) == 2
    assert {t.name for t in s.tools} >= {"double", "final_answer"}


@pytest.mark.skipif(not find_spec("dspy"), reason="dspy is not installed")
def test_dspy_is_recorded(provider):
    import dspy

    provider.replies[:] = [{"content": "[[ ## answer ## ]]\nParis\n\n[[ ## completed ## ]]"}]
    with ck.record("dspy") as live, dspy.context(lm=dspy.LM(MODEL, cache=False)):
        answer = dspy.Predict("question -> answer")(question="Capital of France?").answer
    assert answer == "Paris"
    assert "Capital of France?" in live.session.messages[1].text
    assert live.session.calls[0].message.usage.prompt_tokens == 20


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [None, "no quota"])
def test_a_call_that_litellm_reports_took_from_its_start_to_its_end(is_async, error):
    litellm = load_litellm()
    messages = [{"role": "user", "content": "hi"}]
    response = litellm.completion("gpt-4o", messages, mock_response="yo")
    callback = recorder("mine")
    kwargs = {"litellm_call_id": "1", "model": "gpt-4o", "messages": messages, "exception": error}
    start = datetime.now(UTC) + timedelta(
        hours=1
    )  # what began before the recording is not its call
    times = start, start + timedelta(seconds=3.5)
    callback.log_pre_api_call("gpt-4o", messages, kwargs)
    name = f"log_{'failure' if error else 'success'}_event"
    report = getattr(callback, f"async_{name}" if is_async else name)
    reported = report(kwargs, response, *times)
    if is_async:
        asyncio.run(reported)
    (call,) = callback.recording.session.calls
    assert call.message.latency == pytest.approx(3.5, abs=0.001)
