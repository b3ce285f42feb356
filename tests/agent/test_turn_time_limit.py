"""A turn ends at its limit of seconds whatever floods it: chunks, calls, results, memory."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from contextlib import suppress
from importlib import import_module

import pytest
from agent.models.fake_provider_server import FORMATS, Play, endless, wire
from builders import session
from stand_in_models import COUNT, ECHO, USAGE, Says, agent, run, said
from waiting import HANG

from ctxkit.agent import (
    AcpReplyBuilder,
    Agent,
    Delta,
    Limits,
    LiveSession,
    MemoryStore,
    ProviderModel,
    Request,
    SessionMemory,
    TurnState,
    Workspace,
    ignore_delta,
    tool,
)
from ctxkit.agent.model_calls import MAX_REPLY_CHARS, MAX_TOOL_CALLS
from ctxkit.agent.turn_limits_and_token_budgets import TurnTimeExceeded
from ctxkit.policies import Rules
from ctxkit.session import ToolCall

pytestmark = pytest.mark.filterwarnings("default")  # the libraries below warn about each other
SLACK = 30.0
"""Seconds by which a turn may be late on a busy machine; what floods or hangs does so for longer."""


def turn_of(model, seconds=1.0, tools=(), **more):
    """Take a turn with real seconds; give the agent, its outcome and how late it was."""
    made = Agent(session(), model=model, rules=Rules(counter=COUNT), clock=time.time,
                 tools=tools, limits=Limits(seconds=seconds), **more)  # fmt: skip
    began = time.monotonic()
    outcome = run(made.turn("go"))
    return made, outcome, time.monotonic() - began - seconds


def is_held(outcome, late):
    return outcome.ended == "limit" and "limit of" in outcome.why and late < SLACK


def results(made):
    return [m for m in made.session.messages if m.role == "tool"]


class Floods(Says):
    """A model that emits for minutes without ever waiting."""

    async def __call__(self, request, emit):
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            emit(Delta("wait", "busy"))
        return said("done")


# -- chunks ------------------------------------------------------------------------------------------


def piece(delta):
    return b"data: " + json.dumps(
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "own-model",
         "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    ).encode() + b"\n\n"  # fmt: skip


HEAD = piece({"role": "assistant", "content": ""})
CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "echo", "arguments": "{"}}
MORE = {"index": 0, "function": {"arguments": " "}}
KINDS = {
    "empty": piece({"content": ""}),
    "thinking": piece({"reasoning_content": "hm "}),
    "arguments": piece({"tool_calls": [MORE]}),
    "calls": piece({"tool_calls": [CALL]}),
    "comments": b": wait\n\n",
}


def flooded(kind, play, seconds=0.5):
    """Take a turn of half a second, or more, with a server that floods; LiteLLM is warm."""
    with wire(kind, Play("Hello."), play) as up:
        options = {"api_base": up.url, "api_key": "none"}
        model = ProviderModel(FORMATS[kind][0], context_window=50_000, options=options)
        request = Request(messages=session().messages or (said("x"),))
        run(model(request, ignore_delta))
        made, outcome, late = turn_of(model, seconds, tools=[ECHO])
    assert is_held(outcome, late), (outcome.why, late)
    return made


@pytest.mark.parametrize("kind", FORMATS)
def test_a_flood_of_words_ends_at_the_limit_and_what_was_said_is_kept(kind):
    for seconds in (0.5, 2, 10, 60):  # where nothing was heard yet, it gets more time
        lost = flooded(kind, endless(kind), seconds).session.log[-1]
        assert lost.error == f"stopped at the limit of {seconds} seconds"
        if lost.text:
            break
    assert "w0w1w2" in lost.text.replace(" ", "")


@pytest.mark.parametrize("chunks", KINDS)
def test_a_flood_of_chunks_without_a_word_ends_at_the_limit(chunks):
    flooded("chat", Play(raw=HEAD + piece({"tool_calls": [CALL]}), flood=KINDS[chunks] * 200))


def test_a_model_that_emits_without_waiting_is_ended():
    _, outcome, late = turn_of(Floods(), 0.5)
    assert is_held(outcome, late)


def test_a_model_that_emits_from_elsewhere_is_ended_by_the_loop(caplog):
    class Beside(Says):
        async def __call__(self, request, emit):
            loop, over = asyncio.get_running_loop(), threading.Event()

            def work():
                while not over.wait(0.01):
                    loop.call_soon_threadsafe(emit, Delta("text", "word "))
                    emit(Delta("wait", "from a thread"))

            try:
                await asyncio.to_thread(work)
            finally:
                over.set()

    _, outcome, late = turn_of(Beside(), 0.5)
    assert is_held(outcome, late)
    assert "Exception in callback" not in caplog.text


@pytest.mark.parametrize("kind", FORMATS)
def test_the_loop_has_its_turn_at_every_chunk(kind):
    turns, seen = 0, []

    async def tick():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def heard():
        ticking = asyncio.ensure_future(tick())
        await model(Request(messages=(said("x"),)), lambda _: seen.append(turns))
        ticking.cancel()

    with wire(kind, Play(" ".join(map(str, range(400))))) as up:
        options = {"api_base": up.url, "api_key": "none"}
        model = ProviderModel(FORMATS[kind][0], context_window=50_000, options=options)
        run(heard())
    assert len(set(seen)) >= 400  # another one at each word


@pytest.mark.parametrize(
    "slow", ["ctxkit.agent.models.litellm_provider.load_litellm", "litellm.stream_chunk_builder"]
)
def test_what_litellm_does_at_a_stretch_is_done_beside_the_loop(slow, monkeypatch):
    module, name = slow.rsplit(".", 1)
    does, on_loop = getattr(import_module(module), name), []

    def noted(*args, **more):
        with suppress(RuntimeError):
            on_loop.append(asyncio.get_running_loop())
        called.append(name)
        return does(*args, **more)

    called = []
    monkeypatch.setattr(slow, noted)
    with wire("chat", Play("Hello.")) as up:
        options = {"api_base": up.url, "api_key": "none"}
        model = ProviderModel(FORMATS["chat"][0], context_window=50_000, options=options)
        assert run(model(Request(messages=(said("x"),)), ignore_delta)).text.strip() == "Hello."
    assert called
    assert on_loop == []


def test_a_reply_without_an_end_is_broken_off():
    class Long(Says):
        async def __call__(self, request, emit):
            for _ in range(MAX_REPLY_CHARS // 100_000 + 1):
                emit(Delta("text", "word " * 20_000))
            pytest.fail("it was heard to its end")

    outcome = run(agent(model=Long()).turn("go"))
    assert (outcome.ended, "1,000,000 characters; it was broken off" in outcome.why) == ("error", 1)
    whole = run(agent(said("word " * 200_001)).turn("go"))
    assert (whole.ended, "it was broken off" in whole.why) == ("error", True)
    assert run(agent(said("word " * 200_000)).turn("go")).ended == "answered"


# -- calls and their results -------------------------------------------------------------------------


def asks(n):
    calls = [ToolCall(f"c{i}", "work", {"n": i}) for i in range(n)]
    return said(*calls, stop="tool")


def test_many_calls_end_at_the_limit_and_each_has_a_result():
    ran = []

    async def work(n: int) -> str:
        """Keep the loop busy."""
        ran.append(n)
        time.sleep(0.01)  # noqa: ASYNC251  that is the point
        return "done"

    made, outcome, late = turn_of(Says(asks(MAX_TOOL_CALLS)), 1.0, [tool(work)])
    assert is_held(outcome, late)
    assert len(ran) < MAX_TOOL_CALLS == len(results(made))
    assert [m.is_error for m in results(made)] == [
        n >= len(ran) - 1 for n in range(MAX_TOOL_CALLS)
    ] or ([m.is_error for m in results(made)] == [n >= len(ran) for n in range(MAX_TOOL_CALLS)])
    assert "Stopped at the limit of 1 seconds" in results(made)[-1].text


def test_of_a_reply_with_too_many_calls_none_is_run():
    ran = []

    def work(n: int) -> str:
        """Note that it ran."""
        ran.append(n)
        return "done"

    made = agent(asks(MAX_TOOL_CALLS + 1), tools=[tool(work)])
    outcome = run(made.turn("go"))
    assert (outcome.ended, ran) == ("error", [])
    assert "asked for 1,001 tool calls in one reply, and at most 1,000 are taken" in outcome.why
    assert outcome.spent.tokens == USAGE.prompt_tokens + USAGE.output_tokens  # it is billed
    assert run(made.turn("on")).ended == "answered"
    few = agent(asks(MAX_TOOL_CALLS), tools=[tool(work)], approve=lambda _: False)
    assert run(few.turn("go")).ended == "answered"


def test_a_huge_result_does_not_hold_the_turn_while_it_is_redacted(tmp_path, monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(
        "ctxkit.agent.artifact_store.redact",
        lambda text: over.wait(HANG) and text,
    )

    def work(n: int) -> str:
        """Say much."""
        return "password=abc word " * 20_000

    model = Says(asks(1))
    with LiveSession("one", model=model, rules=Rules(counter=COUNT), clock=time.time,
                     workspace=Workspace(tmp_path), tools=[tool(work)],
                     limits=Limits(seconds=1.0)) as live:  # fmt: skip
        began = time.monotonic()
        outcome = run(live.turn("go"))
        late = time.monotonic() - began - 1
        over.set()
        assert is_held(outcome, late)
        assert "Stopped at the limit" in live.session.messages[-1].text


# -- memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hangs", ["before", "after"])
def test_a_memory_that_hangs_counts_for_the_limit(tmp_path, monkeypatch, hangs):
    class Hangs:
        async def before(self, agent, prompt):
            await asyncio.sleep(HANG if hangs == "before" else 0)
            return "Remember."

        async def after(self, agent, history, turns):
            await asyncio.sleep(HANG if hangs == "after" else 0)
            return True

    class Slow(Says):
        async def __call__(self, request, emit):
            await asyncio.sleep(0.1)
            return await super().__call__(request, emit)

    monkeypatch.setattr("ctxkit.agent.live_session.MEMORY_GRACE", 0.3)
    memory = SessionMemory(MemoryStore([tmp_path / "home"], tmp_path), [Hangs()])
    heard = []
    with LiveSession("one", model=Slow(), rules=Rules(counter=COUNT), clock=time.time,
                     workspace=Workspace(tmp_path), memory=memory, limits=Limits(seconds=0.5),
                     listener=heard.append) as live:  # fmt: skip
        live.inject("memory")
        began = time.monotonic()
        outcome = run(live.turn("go"))
        assert time.monotonic() - began - 0.5 < SLACK
        assert outcome.ended == ("limit" if hangs == "before" else "answered")
        failed = [e.payload["error"] for e in heard if e.kind == "memory_failed"]
        assert len(failed) == 1
        said_so = "did not answer in what the limit of the turn left"
        seconds = float(re.search(rf"{said_so} \((\S+) s\)", failed[0])[1])
        assert seconds == 0.5 if hangs == "before" else 0.3 <= seconds <= 0.4


# -- agents of other programs ------------------------------------------------------------------------


def test_calls_of_an_agent_without_an_end_are_replies_of_a_bounded_size():
    builder, replies = AcpReplyBuilder("acp/x"), []
    for n in range(2_500):
        replies += builder.update_call(
            {"toolCallId": f"c{n}", "title": "Run it", "kind": "execute"}
        )
    replies += builder.end()
    calls = [len(m.tool_calls) for m in replies if m.role == "assistant"]
    assert calls == [1_000, 1_000, 500]
    assert sum(m.role == "tool" for m in replies) == 2_500


def test_a_turn_ends_when_its_deadline_expires_with_a_result_waiting():
    """`asyncio.wait_for` may swallow the cancellation where its result is there, too."""

    async def run():
        turn = TurnState(task=asyncio.current_task())
        with pytest.raises((TurnTimeExceeded, TimeoutError)):
            await listen(turn)
        assert turn.late
        await asyncio.sleep(0)  # nothing is left that cancels what comes next

    async def listen(turn):
        async with asyncio.timeout(0.05) as turn.deadline:
            waiting = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(flood, waiting)
            await asyncio.wait_for(waiting, 10)
            assert turn.deadline.expired()
            turn.check_deadline()

    def flood(waiting):
        time.sleep(0.1)  # the loop is kept busy past the deadline
        waiting.set_result("a chunk")

    asyncio.run(run())
