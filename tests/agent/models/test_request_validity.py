"""A server that refuses what the documentation says is refused takes whatever leaves for it."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from agent.models.provider_request_checks import bind, find_fault
from agent.models.test_stable_prompt_prefix import quick, small
from conftest import ALL, sample

from ctxkit.agent import Agent, ProviderModel, tool
from ctxkit.engine import prompt_checks_and_repairs
from ctxkit.policies import Rules
from ctxkit.presets import names
from ctxkit.session import Session

pytestmark = pytest.mark.filterwarnings("default")  # LiteLLM's libraries warn about each other


def look(where: str) -> str:
    """Look somewhere."""
    return f"at {where}: " + "a line of what is there\n" * 160


CALLS = (("a",), ("bb", "ccc"), ("dddd",), ())
MODEL = {**{k: v[0] for k, v in FORMATS.items()}, "anthropic": "anthropic/claude-opus-5-5"}
CASES = (
    [(kind, name) for kind in FORMATS for name in names()]
    if ALL
    else [*zip(FORMATS, sample(names(), len(FORMATS)), strict=True)]
)
"""Every format under every preset; in the suite each format under another one."""


def make_plays(kind, turns):
    """Replies that think, with as many calls as `CALLS` says, billed by what was asked."""
    usage = "counted" if kind in ("chat", "anthropic") else "none"
    return [
        Play("Done." if not calls else "", calls=tuple(("look", {"where": w}) for w in calls),
             thinks=True, usage=usage)
        for _ in range(turns) for calls in CALLS
    ]  # fmt: skip


def talk(kind, rules, turns=5):
    """Talk for some turns; return why requests were refused, the requests and the session."""
    plays, ticks = make_plays(kind, turns), count(1_800_000_000)
    with wire(kind, *plays, find_fault=find_fault) as up:
        model = ProviderModel(MODEL[kind], options={"api_base": up.url, "api_key": "none"}, attempts=1,
                         context_window=50_000)  # fmt: skip
        agent = Agent(Session(id="s"), model=model, rules=rules, tools=[tool(look)],
                      summary_model=quick(), clock=lambda: float(next(ticks)))  # fmt: skip
        for n in range(turns):
            asyncio.run(agent.turn(f"Question {n}: what is there?"))
        return up.refused, up.asked, agent.session


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_nothing_that_leaves_is_refused(kind, name):
    refused, asked, _ = talk(kind, small(name), turns=4)
    assert not refused
    assert len(asked) >= 16


def test_without_the_guard_signed_thinking_is_refused(monkeypatch):
    """Else the test above would hold whatever the guard did."""
    monkeypatch.setattr(
        prompt_checks_and_repairs.PromptRepairer, "apply", lambda _self, prompt: tuple(prompt)
    )
    refused, _, session = talk("anthropic", small("pi"))
    assert session.edits
    assert any("Invalid `signature`" in why for why in refused)


def test_thinking_is_sent_back_as_long_as_nothing_before_it_changed():
    _, asked, session = talk("anthropic", Rules(counter="chars/4"))
    sent = [b for m in asked[-1]["messages"] if m["role"] == "assistant" for b in m["content"]]
    assert sum(b["type"] == "thinking" for b in sent) == 19
    assert not session.edits


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([{"role": "assistant", "content": "Hi."}], "first message"),
        ([{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}] * 5}], "maximum of 4"),
        ([{"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}], "without"),
        ([{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}], "unexpected"),
        ([{"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "thinking", "signature": "y"}]}], "Invalid"),
    ],
)  # fmt: skip
def test_the_stand_in_refuses_what_is_documented(messages, why):
    assert why in find_fault("anthropic", {"messages": messages})
    whole = {"messages": [{"role": "user", "content": "x"}]}
    block = {"type": "thinking", "signature": bind(whole)}
    again = {"messages": [*whole["messages"], {"role": "assistant", "content": [block]}]}
    assert find_fault("anthropic", again) is None


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"role": "developer", "content": "x"}, "role"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}]}, "content"),
        ({"role": "assistant", "content": None}, "content"),
        ({"role": "user", "content": "x", "images": [{"url": "y"}]}, "images"),
        ({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "ls", "arguments": "{}"}}]}, "arguments"),
        ({"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": {}}}]}, "name"),
    ],
)  # fmt: skip
def test_the_stand_in_refuses_what_ollama_cannot_read(message, why):
    assert why in find_fault("ollama", {"model": "m", "messages": [message]})
    call = {"function": {"name": "ls", "arguments": {"where": "a"}}}
    read = [{"role": "user", "content": "x", "images": ["aGk="]},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "y", "tool_name": "ls"}]  # fmt: skip
    assert find_fault("ollama", {"model": "m", "messages": read}) is None
