"""A summary is asked for behind the cached conversation where that is cheaper, and the edit says which way."""

from __future__ import annotations

import asyncio

import pytest
from builders import assistant, result, session, tool_call, user

from ctxkit import tokens
from ctxkit.agent import Agent
from ctxkit.policies import Above, Rules, Summary
from ctxkit.session import Message, Text, ToolCall, Usage

COUNT = tokens.get_counter("chars/4")
RULES = Rules(policy=Summary(keep_turns=1), trigger=Above(6_000), counter=COUNT, window=60_000)


def said(text="Noted.", *calls):
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=0)
    return Message(role="assistant", parts=(Text(text), *calls), stop="stop", usage=usage)


class Says:
    """A model that remembers what it was asked; to a summary it says what it was given for that."""

    notice, context_window = "", 60_000

    def __init__(self, name="anthropic/claude-sonnet-4-5", notes=()):
        self.name, self.asked, self._notes = name, [], list(notes)

    async def __call__(self, request, _emit):
        self.asked.append(request)
        asks = request.messages[-1].id in ("ask", "passage")
        return (
            self._notes.pop(0) if asks and self._notes else said("The notes." if asks else "Noted.")
        )

    @property
    def summaries(self):
        return [r for r in self.asked if r.messages[-1].id in ("ask", "passage")]


def past():
    """5,000 tokens of a conversation, most of it what the agent itself said."""
    calls = [tool_call("look", where=str(n)) for n in range(4)]
    steps = [m for c in calls for m in (assistant("word " * 900, c), result("row " * 20, c))]
    return session(user("Begin."), *steps, assistant("So far."))


def compacted(model, *, rules=RULES, pause=1.0, **more):
    now = [1_000.0]
    agent = Agent(past(), model=model, rules=rules, clock=lambda: now[0], **more)
    for n in range(2):
        now[0] += pause
        ended = asyncio.run(agent.turn(f"Go on {n}. " + "x" * 4_000))
        assert ended.ended == "answered", ended.why
    (edit,) = agent.session.edits
    return agent, edit


def test_the_summary_is_asked_for_behind_the_cached_conversation():
    model = Says()
    agent, edit = compacted(model)
    (call,) = model.summaries
    before = model.asked[model.asked.index(call) - 1]
    assert call.messages[: len(before.messages)] == before.messages
    assert call.tools == before.tools != ()
    assert "Call no tool" in call.messages[-1].text
    assert "begins with 'Go on 1. xx" in call.messages[-1].text
    assert edit.details["summary_calls"] == ["prefix"]
    assert edit.inserted[0].text.endswith("The notes.")
    assert "Call no tool" not in "".join(m.text for m in agent.session.messages)


@pytest.mark.parametrize(("named", "more"), [
    ("own/model-without-a-price", {}),
    ("anthropic/claude-sonnet-4-5", {"summary_model": Says("openai/gpt-5")}),
    ("anthropic/claude-sonnet-4-5", {"pause": 400.0}),
    ("anthropic/claude-sonnet-4-5", {"rules": RULES.but(window=8_000)}),
])  # fmt: skip
def test_elsewhere_it_has_a_prompt_of_its_own(named, more):
    model = Says(named)
    _, edit = compacted(model, **more)
    (call,) = (more.get("summary_model") or model).summaries
    assert [m.role for m in call.messages] == ["system", "user"]
    assert call.tools == ()
    assert edit.details["summary_calls"] == ["text"]


def test_a_model_that_calls_a_tool_instead_is_asked_the_other_way():
    model = Says(notes=[said("", ToolCall("c9", "look", {})), said("The notes.")])
    agent, edit = compacted(model)
    assert [len(r.tools) > 0 for r in model.summaries] == [True, False]
    assert edit.details["summary_calls"] == ["prefix", "text"]
    assert edit.usage.input_tokens == 20
    assert edit.inserted[0].text.endswith("The notes.")
    assert not any(c.id == "c9" for m in agent.session.messages for c in m.tool_calls)
