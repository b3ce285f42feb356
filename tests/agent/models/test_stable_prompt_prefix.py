"""What leaves for a provider begins, call for call, like the call before: on each format, under each preset."""

from __future__ import annotations

import asyncio
import json
from itertools import count, pairwise

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from conftest import sample

from ctxkit import tokens
from ctxkit.agent import Agent, ProviderModel, tool
from ctxkit.formats import MISSING_RESULT, to_chat_messages
from ctxkit.policies import Rules
from ctxkit.presets import names, preset
from ctxkit.session import Session

pytestmark = pytest.mark.filterwarnings("default")  # LiteLLM's libraries warn about each other


def look(where: str) -> str:
    """Look somewhere."""
    return f"at {where}: " + "a line of what is there\n" * (20 + 15 * (len(where) % 3))


PLAYS = [
    Play("", calls=(("look", {"where": "a"}),)),
    Play("I look on.", calls=(("look", {"where": "bb"}), ("look", {"where": "c" * 3}))),
    Play("", calls=(("look", {"where": "dddd"}),)),
    Play("That is what is there: nothing of note."),
]


class Told:
    """A provider that remembers the messages of each request."""

    def __init__(self, inner):
        self.inner, self.requests = inner, []
        self.name, self.notice, self.context_window = inner.name, inner.notice, inner.context_window

    async def __call__(self, request, emit):
        self.requests.append(request)
        return await self.inner(request, emit)


def talked(kind, rules, turns):
    """Talk for some turns; return the requests as messages and as bodies, and the session."""
    plays = [play for _ in range(turns) for play in PLAYS]
    with wire(kind, *plays) as up:
        name, ticks = FORMATS[kind][0], count(1_800_000_000)
        model = Told(ProviderModel(name, options={"api_base": up.url, "api_key": "none"}, attempts=1,
                              context_window=50_000))  # fmt: skip
        agent = Agent(Session(id="s"), model=model, rules=rules, tools=[tool(look)],
                      summary_model=quick(), clock=lambda: float(next(ticks)))  # fmt: skip
        for n in range(turns):
            ended = asyncio.run(agent.turn(f"Question {n}: what is there?"))
            assert ended.ended == "answered", ended.why
        return model.requests, up.asked, agent.session


def quick():
    from ctxkit.agent import ScriptedModel

    return ScriptedModel((), name="s", counter=tokens.get_counter("chars/4"), clock=lambda: 0.0)


def bodies(kind, body):
    """The messages of a body one by one, without marks, as they are written."""
    own = {"anthropic": "messages", "gemini": "contents", "responses": "input"}.get(
        kind, "messages"
    )
    return [json.dumps(bare(m), sort_keys=True) for m in flat(body[own])]


def flat(messages):
    """Blocks instead of messages: formats join messages of one role into one."""
    for m in messages:
        blocks = m.get("content", m.get("parts"))
        if isinstance(blocks, list) and blocks:
            yield from ({"role": m.get("role"), "block": b} for b in blocks)
            rest = {k: v for k, v in m.items() if k not in ("content", "parts")}
            if set(rest) - {"role"}:
                yield rest
        else:
            yield m


def bare(value):
    if isinstance(value, dict):
        return {k: bare(v) for k, v in value.items() if k != "cache_control"}
    return [bare(v) for v in value] if isinstance(value, list) else value


def shared(a, b):
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_a_call_begins_like_the_one_before(kind):
    requests, asked, session = talked(kind, Rules(counter="chars/4"), 3)
    assert len(asked) == len(requests) == 12
    assert not session.edits
    for before, now in pairwise(asked):
        was, new = bodies(kind, before), bodies(kind, now)
        assert new[: len(was)] == was
        assert bare(before.get("tools")) == bare(now.get("tools"))
        assert before.get("system") == now.get("system")


def small(name):
    """A preset in a window of 12,000 tokens, so that it acts in a few turns."""
    return preset(name).but(window=12_000, assumed=True, reserve=3_000, counter="chars/4")


def pieces(kind, messages):
    """Into how many pieces messages are split on the wire."""
    chats = [
        c
        for c in to_chat_messages(messages)
        if c["content"] != MISSING_RESULT and c["role"] != "system"
    ]
    if kind != "anthropic":
        return len(chats)
    return sum(bool(c["content"]) + len(c.get("tool_calls") or ()) for c in chats)


@pytest.mark.parametrize("kind", ["anthropic", pytest.param("chat", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", sample(names(), 3))
def test_the_wire_breaks_nothing_that_the_rules_kept(kind, name):
    requests, asked, session = talked(kind, small(name), 6)
    assert len(asked) == len(requests)
    broken = 0
    for i in range(1, len(asked)):
        before, now = requests[i - 1].messages, requests[i].messages
        kept = shared(before, now)
        broken += kept < len(before)
        was, new = bodies(kind, asked[i - 1]), bodies(kind, asked[i])
        assert shared(was, new) >= pieces(kind, now[:kept]), i
    if small(name).pruning is None:
        assert broken <= len({e.time for e in session.edits})
