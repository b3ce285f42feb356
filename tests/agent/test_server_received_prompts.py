"""What a server received at each call is what a live session, its event and its frames say."""

from __future__ import annotations

import json

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from msgspec.structs import replace
from random_sessions import small
from stand_in_models import ECHO, Says, agent, run, said

import ctxkit as ck
from ctxkit.agent import ProviderModel
from ctxkit.metrics import count_groups_by_call
from ctxkit.presets import names
from ctxkit.session import SizeOnly, Text, ToolCall

pytestmark = pytest.mark.filterwarnings("default")
TURNS = 4


FEW = {"ai": "chat", "fuseraft": "anthropic", "openai_server": "anthropic", "none": "chat"}
"""What is always tried, and on which format: prunings, a compaction without words, what is trimmed to fit."""


def talk():
    """Return what a model says in some turns: calls with results of all sizes, two at once, then words."""
    for turn in range(TURNS):
        for n in range(3):
            sizes = (40 * n, 900) if n == 1 else (300 * (turn + n),)
            calls = tuple(("echo", {"x": f"{turn}.{n}.{i} " * s}) for i, s in enumerate(sizes))
            yield Play(text="I look." if n else "", calls=calls, usage="counted")
        yield Play(text=f"Answer {turn}.{' word' * 30}", usage="counted")


def received(kind, body):
    """Return the results, the texts and the arguments of calls that a body holds, each in order."""
    results, texts, calls = [], [], []
    if kind == "anthropic":
        texts += [b["text"] for b in body.get("system", ())]
    for message in body["messages"]:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        for block in blocks:
            if message["role"] == "tool":
                results.append(block["text"])
            elif block["type"] == "text":
                texts.append(block["text"])
            elif block["type"] == "tool_use":
                calls.append(block["input"])
            elif block["type"] == "tool_result":
                inner = block["content"]
                parts = [inner] if isinstance(inner, str) else [b["text"] for b in inner]
                results.append("".join(parts))
        calls += [json.loads(c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
    return results, [t for t in texts if t], calls


def shown(items):
    """Return the same of what a session says that it sent; what no log keeps has a word in its place."""
    results = [i.message.text for i in items if i.message.role == "tool"]
    texts, calls = [], []
    for item in items:
        for part in item.message.parts:
            if isinstance(part, Text) and item.message.role != "tool" and part.text:
                texts.append(part.text)
            elif isinstance(part, SizeOnly):
                texts.append(f"[{part.kind} not kept in the log]")
            elif isinstance(part, ToolCall):
                calls.append(part.arguments)
    return results, texts, calls


def held(kind, session, heard, bodies):
    told = [e.payload for e in heard if e.kind == "inner_call_context"]
    stacked = count_groups_by_call(session).groups
    assert len(told) == len(bodies) == len(session.calls) >= 4 * TURNS
    prompts = ck.frame(session, per="call")["prompt_tokens"]
    for call, (body, event) in enumerate(zip(bodies, told, strict=True)):
        items = session.sent(call)
        messages = [i for i in items if i.message.kind != "fixed"]
        results, texts, calls = received(kind, body)
        said = shown(messages)
        assert (said[0], said[2]) == (results, calls)
        if kind == "chat":
            assert "\n".join(said[1]) == "\n".join(
                texts
            )  # a message's texts are sent as lines of one
        else:  # replies in a row are one, and end with a word
            assert "".join("".join(said[1]).split()) == "".join("".join(texts).split())
        assert event["content_chars"]["fn_results"] == sum(map(len, results))
        assert event["content_chars"]["text"] == sum(map(len, said[1]))
        assert sum(event["msg_counts"].values()) + 1 == len(messages)  # it counts no instructions
        assert event["est_tokens"] == sum(i.tokens for i in items)
        assert all(i.tokens == i.raw_tokens for i in messages if i.changed_by is None)
        made, usage = ck.report(session, call), session.calls[call].message.usage
        billed = event["est_tokens"] if usage is None else usage.prompt_tokens  # it overflowed
        assert made.prompt_tokens == billed == sum(p.tokens for p in made.parts)
        assert usage is None or prompts[call] == billed
        assert [m.parts for m in session.view(call)] == [i.message.parts for i in messages]
        assert sum(p.chars or 0 for p in made.parts if p.group == "tool results") == sum(
            map(len, results)
        )
        assert sum(tokens[call] for tokens in stacked.values()) == made.prompt_tokens
    frame = ck.frame(session, per="message")
    asked = {m.message.id for m in session.sent(-1)}
    assert set(frame["id"][frame["sent_tokens"] > 0]) <= {i.split("~")[0] for i in asked}
    score = ck.score(session, loss=False)
    assert score["prompt_tokens"] == prompts.sum()
    assert not ck.frame(session, per="compaction")["kind"].eq("unmarked").any()
    return {i.changed_by for call in range(len(bodies)) for i in session.sent(call) if i.pruned}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if FEW.get(name) == kind else pytest.mark.long)
        for kind in ("chat", "anthropic")
        for name in names()
    ],
)
def test_a_server_received_what_is_shown(name, kind, tmp_path):
    heard = []
    with wire(kind, *talk()) as up:
        options = {"api_base": up.url, "api_key": "none"}
        model = ProviderModel(
            FORMATS[kind][0], context_window=50_000, options=options, cache_marks=False
        )
        notes = Says(*[said("What was done: notes.")] * 99)
        one = agent(model=model, rules=small(name), tools=[ECHO], heard=heard, summary_model=notes)
        one.instruct("Be brief.")
        for turn in range(TURNS):
            run(one.turn(f"go on {turn}"))
    changed = held(kind, one.session, heard, up.asked)
    tools = tuple(t.schema for t in one.tools.values())  # a session in a workspace holds them
    ck.write(replace(one.session, tools=tools), tmp_path / "session.jsonl")
    assert held(kind, ck.read(tmp_path / "session.jsonl"), heard, up.asked) == changed
    trimmed = {by for by in changed if by.startswith("trimmed to fit")}
    assert None not in changed
    assert name == "none" or changed - trimmed or one.session.edits
    assert "NoneType" not in changed
