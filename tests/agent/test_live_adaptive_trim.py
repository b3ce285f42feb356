"""Where a prompt does not fit whatever the rules did, a live session does what `AdaptiveTrim` does in a replay."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from builders import assistant, result, session, tool_call, user

from ctxkit import presets, tokens
from ctxkit.agent import Agent, LiveContext
from ctxkit.errors import ModelError
from ctxkit.policies import AdaptiveTrim, Chain, Rules, apply_policy
from ctxkit.session import Message, Text

COUNT = tokens.get_counter("chars/4")


def said():
    """A read whose file is written later, another read, and a word."""
    read = tool_call("read_file", path="a.py")
    write = tool_call("write_file", path="a.py", content="new")
    other = tool_call("read_file", path="b.py")
    return session(
        user("go"), assistant("", read), result("r" * 9_000, read), assistant("", other),
        result("s" * 9_000, other), assistant("", write), result("Wrote it.", write), user("on"),
    )  # fmt: skip


def lengths(messages):
    return [len(m.text) for m in messages if m.role == "tool"]


def test_a_consumed_read_keeps_as_much_live_as_in_a_replay():
    context = LiveContext(said(), Rules(counter=COUNT))
    context.prepare(1.0)
    history = context.run.last_prompt()
    for stage, part in enumerate(AdaptiveTrim().steps):
        assert (
            context.trim(stage).messages == apply_policy(part, history, context.run.budget).messages
        )
    assert lengths(context.trim(0).messages) == [565, 4065, 9]
    assert lengths(context.trim(1).messages) == [565, 565, 9]
    assert not lengths(context.trim(2).messages)
    assert not any(m.tool_calls for m in context.trim(2).messages)


@pytest.mark.parametrize(("rules", "stages"), [
    (Rules(counter=COUNT), [4000, 500, 0]),
    (Rules(pruning=AdaptiveTrim(stages=(1000, 100), consumed_chars=50), counter=COUNT), [1000, 100, 0]),
    (Rules(pruning=Chain.of(AdaptiveTrim(stages=(700,), consumed_chars=70)), counter=COUNT), [700, 0]),
    (presets.fuseraft().but(policy=None, trigger=None, guards=(), counter=COUNT), [4000, 500, 0]),
])  # fmt: skip
def test_the_stages_are_those_of_the_rules_where_they_name_some(rules, stages):
    heard = []

    class Full:
        name, notice, context_window = "own", "", 100_000

        async def __call__(self, request, _emit):
            if any(lengths(request.messages)):
                raise ModelError("prompt is too long", overflow=True)
            return Message(role="assistant", parts=(Text("Done."),), stop="stop")

    ticks = count(1)
    # no compaction takes the results away: the first turn is the one in which they came
    agent = Agent(
        said(), model=Full(), rules=rules, clock=lambda: float(next(ticks)), listener=heard.append
    )

    async def never(*_args, **_more):
        return False

    agent.compactor.force = never
    assert asyncio.run(agent.turn("again")).ended == "answered"
    assert [e.payload["chars"] for e in heard if e.kind == "context_exceeded_recovery"] == stages


@pytest.mark.parametrize(("read", "written", "is_consumed"), [
    ("a.py", "./a.py", True), ("./a.py", "a.py", True), ("././A.py", "a.py", True),
    ("a.py", "b/a.py", False), ("../a.py", "a.py", False), (".a.py", "a.py", False),
])  # fmt: skip
def test_a_read_is_consumed_by_a_write_of_the_same_path_in_another_spelling(
    read, written, is_consumed
):
    asked, wrote = (
        tool_call("read_file", path=read),
        tool_call("write_file", path=written, content="new"),
    )
    at = session(user("go"), assistant("", asked), result("r" * 9_000, asked), assistant("", wrote),
                 result("Wrote it.", wrote), user("on"))  # fmt: skip
    context = LiveContext(at, Rules(counter=COUNT))
    context.prepare(1.0)
    assert lengths(context.trim(0).messages)[0] == (565 if is_consumed else 4065)
