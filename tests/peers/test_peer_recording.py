"""SDKs and frameworks against a server of this machine: their calls are recorded, and rules hold their histories."""

from __future__ import annotations

import asyncio
import inspect
import json
from dataclasses import replace

import pytest
from agent.models.fake_provider_server import OUT, PROMPT, Play, wire

import ctxkit as ck
from ctxkit.policies import Above, Rules

pytestmark = pytest.mark.filterwarnings("ignore")  # they warn about themselves and each other
TURN = [Play(calls=(("double", {"x": 21}),)), Play("It is 42.")]
FILLER = "All of it is in the ledger of the region. " * 200
CLEAR = Rules(pruning="clear:keep_last=1", name="clear")
SHORT = Rules(policy="summary:keep_turns=1", trigger=Above(6_000), window=20_000)


def double(x: int) -> str:
    """Double a number."""
    return f"{2 * x} {FILLER} the-end"


def pydantic_agent(up, **more):
    agents = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=up.url, api_key="none")
    return agents.Agent(OpenAIChatModel("gpt-5", provider=provider), tools=[double], **more)


def streamed(agent, prompt, **more):
    async def go():
        async with agent.run_stream(prompt, **more) as result:
            async for _ in result.stream_text():
                pass
            return result.all_messages()

    return asyncio.run(go())


def langchain_agent(up, **more):
    pytest.importorskip("langchain_openai")
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="gpt-5", base_url=up.url, api_key="none", streaming=True, stream_usage=True
    )
    return create_agent(model, [double], **more)


def agents_run(up, prompt, **more):
    agents = pytest.importorskip("agents")
    import openai

    agents.set_tracing_disabled(True)
    model = agents.OpenAIResponsesModel(
        "gpt-5", openai.AsyncOpenAI(base_url=up.url, api_key="none")
    )
    agent = agents.Agent(
        "a", instructions="Be short.", tools=[agents.function_tool(double)], model=model
    )

    async def go():
        result = agents.Runner.run_streamed(agent, prompt, **more)
        async for _ in result.stream_events():
            pass
        return result.to_input_list()

    return asyncio.run(go())


def check(live, calls=2):
    session = live.session
    assert session.children == ()
    assert [
        (c.message.usage.prompt_tokens, c.message.usage.output_tokens) for c in session.calls
    ] == [(PROMPT, OUT)] * calls


def test_openai():
    openai = pytest.importorskip("openai")
    with wire("chat", Play("Yes.")) as up, ck.record("openai") as live:
        client = openai.OpenAI(base_url=up.url, api_key="none")
        messages = [{"role": "user", "content": "go"}]
        options = {"model": "gpt-5", "stream": True, "stream_options": {"include_usage": True}}
        said = "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(
            messages=messages, **options) if c.choices)  # fmt: skip
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "on"}]
        list(client.chat.completions.create(messages=messages, **options))
    check(live)
    assert live.session.edits == ()


def test_anthropic():
    anthropic = pytest.importorskip("anthropic")
    with wire("anthropic", Play("Yes.")) as up, ck.record("anthropic") as live:
        client = anthropic.Anthropic(base_url=up.url, api_key="none")
        asked = {
            "model": "claude-sonnet-4-5",
            "max_tokens": 50,
            "messages": [{"role": "user", "content": "go"}],
        }
        with client.messages.stream(**asked) as stream:
            stream.until_done()
    check(live, 1)


def test_google_genai():
    genai = pytest.importorskip("google.genai")
    with wire("gemini", *TURN) as up, ck.record("gemini") as live:
        client = genai.Client(api_key="none", http_options={"base_url": up.url})
        chat = client.chats.create(model="gemini-2.5-pro", config={
            "tools": [double], "system_instruction": "Be short.",
            "automatic_function_calling": {"disable": True},
        })  # fmt: skip
        [called] = [
            c
            for piece in chat.send_message_stream("Double 21.")
            for c in piece.function_calls or ()
        ]
        answer = genai.types.Part.from_function_response(
            name=called.name, response={"result": double(21)}
        )
        assert "42" in "".join(p.text or "" for p in chat.send_message_stream(answer))
    check(live)
    assert [m.role for m in live.session.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert live.session.edits == ()


@pytest.mark.parametrize("stream", [True, False])
def test_ollama(stream):
    ollama = pytest.importorskip("ollama")
    with wire("ollama", *TURN) as up, ck.record("ollama") as live:
        client, messages = ollama.Client(host=up.url), [{"role": "user", "content": "Double 21."}]
        for _ in TURN:
            if stream:
                said = [
                    p.message
                    for p in client.chat("own-model", messages, tools=[double], stream=True)
                ]
                calls = [c for m in said for c in m.tool_calls or ()]
                text = "".join(m.content or "" for m in said)
                reply = {"role": "assistant", "content": text, "tool_calls": calls}
                messages += [ollama.Message(**reply)]
            else:
                up.plays[0] = replace(up.plays[0], raw=whole(up.plays[0]))
                reply = client.chat("own-model", messages, tools=[double]).message
                calls = reply.tool_calls or ()
                messages += [reply]
            messages += [
                {"role": "tool", "tool_name": c.function.name, "content": "42"} for c in calls
            ]
    check(live)
    assert [m.role for m in live.session.messages] == ["user", "assistant", "tool", "assistant"]
    assert live.session.edits == ()


def whole(play):
    """What Ollama answers where no stream was asked for."""
    from agent.models.fake_provider_server import ollama as lines

    *said, last = (json.loads(x) for x in b"".join(lines(play, {})).splitlines())
    text = "".join(x["message"]["content"] for x in said)
    calls = [c for x in said for c in x["message"].get("tool_calls", ())]
    message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    return json.dumps({**last, "message": message}).encode()


def test_pydantic_ai():
    pytest.importorskip("pydantic_ai")
    with wire("chat", *TURN) as up, ck.record("pydantic-ai") as live:
        streamed(pydantic_agent(up), "Double 21.")
    check(live)


def test_langchain_openai():
    pytest.importorskip("langchain_openai")
    with wire("chat", *TURN) as up, ck.record("langchain") as live:
        langchain_agent(up).invoke({"messages": [("user", "Double 21.")]})
    check(live)


def test_openai_agents():
    pytest.importorskip("agents")
    with wire("responses", *TURN) as up, ck.record("agents") as live:
        agents_run(up, "Double 21.")
    check(live)


# -- rules in their loops, as the guide writes them ---------------------------------------------------


def paired(body):
    """Every result follows its call, in Chat Completions and Responses."""
    said = body.get("messages") or body.get("input")
    calls = [c["id"] for m in said for c in m.get("tool_calls") or ()]
    calls += [m["call_id"] for m in said if m.get("type") == "function_call"]
    results = [m["tool_call_id"] for m in said if m.get("role") == "tool"]
    results += [m["call_id"] for m in said if m.get("type") == "function_call_output"]
    return calls == results


def full(body):
    """Number of results whose end is still there."""
    return str(body).count("the-end")


def turns(kind, take, n=4):
    """Take turns that call a tool each; return what the server was asked."""
    with wire(kind, *TURN * n) as up:
        up.plays.append(Play("over"))
        take(up, n)
    return up.asked


def with_pydantic_ai(rules):
    """In the form that this version takes: pydantic-ai 1 as `history_processors`, 2 as a capability."""

    def take(up, n):
        agents = pytest.importorskip("pydantic_ai")
        processor = ck.history_processor(rules)
        if "history_processors" in inspect.signature(agents.Agent.__init__).parameters:
            agent = pydantic_agent(up, history_processors=[processor])
        else:
            from pydantic_ai.capabilities import ProcessHistory

            agent = pydantic_agent(up, capabilities=[ProcessHistory(processor)])
        history = None
        for _ in range(n):
            history = streamed(agent, "Double 21.", message_history=history)

    return "chat", take


def with_langchain(rules):
    def take(up, n):
        pytest.importorskip("langchain_openai")
        from langchain.agents.middleware import wrap_model_call
        from langchain_core.messages import convert_to_messages, convert_to_openai_messages

        context = ck.Context(rules)

        @wrap_model_call
        def kept(request, handler):
            shorter = context.fit(convert_to_openai_messages(request.messages))
            return handler(request.override(messages=convert_to_messages(shorter)))

        agent, messages = langchain_agent(up, middleware=[kept]), []
        for _ in range(n):
            messages = agent.invoke({"messages": [*messages, ("user", "Double 21.")]})["messages"]

    return "chat", take


def with_agents(rules):
    def take(up, n):
        agents = pytest.importorskip("agents")
        from agents.run import CallModelData, ModelInputData

        context = ck.Context(rules)

        def kept(data: CallModelData) -> ModelInputData:
            return ModelInputData(context.fit(data.model_data.input), data.model_data.instructions)

        items, config = [], agents.RunConfig(call_model_input_filter=kept)
        for _ in range(n):
            items = agents_run(
                up, [*items, {"role": "user", "content": "Double 21."}], run_config=config
            )

    return "responses", take


WITH = {"pydantic-ai": with_pydantic_ai, "langchain": with_langchain, "agents": with_agents}


@pytest.mark.parametrize("name", WITH)
def test_old_results_are_cleared_and_stay_with_their_calls(name):
    asked = turns(*WITH[name](CLEAR))
    assert len(asked) == 8
    assert all(paired(body) for body in asked)
    assert [full(body) for body in asked] == [0, 1, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("name", WITH)
def test_what_is_old_becomes_a_summary(name):
    asked = turns(*WITH[name](SHORT))
    assert len(asked) == 8
    assert all(paired(body) for body in asked)
    assert max(map(full, asked)) < 4
    assert len(str(asked[-1])) < len(FILLER) * 4
