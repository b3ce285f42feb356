"""What leaves for a provider and how its stream is read, on servers of this machine that speak its protocol."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from agent.models.canned_response_server import anthropic_events, openai_response, server
from builders import result, user
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.agent import ProviderModel, Request, anthropic_clearing, ignore_delta, openai_compaction
from ctxkit.session import Session, Thinking, ToolSchema

pytestmark = pytest.mark.filterwarnings("default")  # the libraries below warn about each other

TOOLS = (
    ToolSchema(name="look", parameters={"type": "object", "properties": {"x": {"type": "string"}}}),
)
CLAUDE = "anthropic/claude-sonnet-4-5"
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
SEALED = {"type": "redacted_thinking", "data": "c2VhbGVk"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"x": "1"}}
ON = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def ask(url, *messages, name=CLAUDE, options=(), **more):
    model = ProviderModel(
        name, options={"api_base": url, "api_key": "none", **dict(options)}, **more
    )
    return asyncio.run(model(Request(messages=messages, tools=TOOLS), ignore_delta))


def after(reply):
    """What is sent after a reply of Anthropic's that calls a tool: the blocks of the reply, and the whole body."""
    with server(anthropic_events({"type": "text", "text": "Done."})) as (url, asked):
        ask(url, user("hi"), reply, result("ok", reply), options=ON)
    ((_, _, body),) = asked
    blocks = body["messages"][1]["content"]
    return [{k: v for k, v in b.items() if k != "cache_control"} for b in blocks], body


def thinking_reply():
    with server(anthropic_events(THOUGHT, SEALED, CALL, stop="tool_use")) as (url, _):
        return ask(url, user("hi"), options=ON)


@pytest.fixture(scope="module")
def reply():
    return thinking_reply()


def test_signed_and_sealed_thinking_goes_back_before_the_call(reply):
    assert reply.parts[:2] == (
        Thinking("Hm.", "c2lnbmVk", 8),
        Thinking("", "c2VhbGVk", 8, redacted=True),
    )
    blocks, body = after(reply)
    assert blocks == [THOUGHT, SEALED, CALL]
    assert body["thinking"] == ON["thinking"]


def test_it_goes_back_also_from_the_disk(reply, tmp_path):
    kept = Session(id="s", log=(user("hi", id="u"), replace(reply, id="a")))
    ck.write(kept, tmp_path / "s.jsonl", format="native")
    again = ck.read(tmp_path / "s.jsonl")
    assert again.messages[1].parts == reply.parts
    assert after(again.messages[1])[0] == [THOUGHT, SEALED, CALL]


@pytest.mark.parametrize("changed", [{"model": "anthropic/claude-opus-4-1"}, {"parts": ()}])
def test_without_the_models_own_thinking_it_is_not_asked_to_think(reply, changed):
    parts = (
        tuple(p for p in reply.parts if not isinstance(p, Thinking))
        if "parts" in changed
        else reply.parts
    )
    blocks, body = after(replace(reply, **{**changed, "parts": parts}))
    assert blocks == [CALL]
    assert "thinking" not in body


def test_anthropics_clearing_is_asked_for_with_its_header():
    with server(anthropic_events({"type": "text", "text": "Done."})) as (url, asked):
        ask(url, user("hi"), server_edits=anthropic_clearing(trigger=9_000))
    ((path, headers, body),) = asked
    assert path == "/v1/messages"
    assert "context-management-2025-06-27" in headers["anthropic-beta"]
    assert body["context_management"]["edits"][0]["trigger"] == {
        "type": "input_tokens",
        "value": 9_000,
    }


def test_openais_compaction_is_asked_for_where_it_exists():
    with server(openai_response("Done.")) as (url, asked):
        reply = ask(
            f"{url}/v1",
            user("hi"),
            name="openai/gpt-5",
            server_edits=openai_compaction(threshold=50_000),
        )
    ((path, _, body),) = asked
    assert path == "/v1/responses"
    assert body["context_management"] == [{"type": "compaction", "compact_threshold": 50_000}]
    assert (reply.text, reply.model, reply.usage.cache_read_tokens) == ("Done.", "openai/gpt-5", 10)


@pytest.mark.parametrize("name", [CLAUDE, "gemini/gemini-2.5-pro", "openai/gpt-5"])
def test_the_schemas_of_tools_stay_as_they_are(name: str):
    """LiteLLM takes `additionalProperties` out of what goes to Gemini, in the dictionary that it was given."""
    parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = (ToolSchema(name="look", parameters=dict(parameters)),)
    with server([{"type": "none"}]) as (url, asked):
        model = ProviderModel(name, options={"api_base": url, "api_key": "none", "num_retries": 0})
        with contextlib.suppress(ck.ModelError):
            asyncio.run(model(Request(messages=(user("hi"),), tools=tools), ignore_delta))
    assert asked
    assert tools[0].parameters == parameters
