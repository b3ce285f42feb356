"""OpenHands' own condenser on the same messages: which events are forgotten, and where the summary stands."""

import os
import warnings

import pytest
from peers.scripted_conversations import alone, history, kept

from ctxkit import presets
from ctxkit.policies import apply_policy
from ctxkit.tokens import ContextBudget, get_counter

pytestmark = pytest.mark.peers
os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package warns about its own imports
    pytest.importorskip(
        "openhands.sdk",
        reason="needs jupyter-ctxkit[peers-older] on Python 3.12 or later: make test-peers",
    )
    from openhands.sdk import LLM
    from openhands.sdk.context.condenser import LLMSummarizingCondenser
    from openhands.sdk.context.view import View
    from openhands.sdk.event import (
        ActionEvent,
        Condensation,
        CondensationRequest,
        MessageEvent,
        ObservationEvent,
    )
    from openhands.sdk.llm import Message, MessageToolCall, TextContent
    from openhands.sdk.tool.schema import Observation

ROOM = ContextBudget(100_000, 0, get_counter("chars/4"))
SEEDS = range(20)


class Quarters(LLM):
    """A model that is never asked: it counts a quarter of the characters of each message, as the kit does here."""

    def get_token_count(self, messages, tools=None, **_):
        texts = [c.text for m in messages for c in m.content]
        calls = [t for m in messages for c in m.tool_calls or () for t in (c.name, c.arguments)]
        return sum(map(ROOM.counter, [*texts, *calls]))


class Seen(Observation):
    """What a tool gave back."""


class Scripted(LLMSummarizingCondenser):
    """The condenser itself; its summary is one word."""

    def _generate_condensation(self, forgotten_events, summary_offset, max_event_str_length=None):
        ids = {e.id for e in forgotten_events}
        return Condensation(
            forgotten_event_ids=ids, summary="S", summary_offset=summary_offset, llm_response_id="r"
        )


def theirs(lines):
    return [event(x, lines) for x in lines]


def event(x, lines):
    text = [TextContent(text=x.text)]
    if x.role == "tool":
        action = next(f"a{y.id}" for y in lines if x.of in y.calls)
        seen = Seen(content=text)
        return ObservationEvent(
            id=x.id, observation=seen, action_id=action, tool_name="bash", tool_call_id=x.of
        )
    if x.calls:
        (call,) = x.calls
        said = MessageToolCall(
            id=call, name="bash", arguments=f'{{"command":"{call}"}}', origin="completion"
        )
        return ActionEvent(
            id=x.id,
            thought=text,
            tool_name="bash",
            tool_call_id=call,
            tool_call=said,
            llm_response_id=x.id,
        )
    role, source = ("user", "user") if x.role == "user" else ("assistant", "agent")
    return MessageEvent(id=x.id, source=source, llm_message=Message(role=role, content=text))


def condensed(lines, *, asked=False, **settings):
    """What the condenser leaves of the lines: their ids, the summary as `S`."""
    events = theirs(lines) + ([CondensationRequest()] if asked else [])
    view = View.from_events(events)
    model = Quarters(model="none", usage_id="peer", max_input_tokens=ROOM.limit)
    done = Scripted(llm=model, **settings).condense(view, agent_llm=model)
    if isinstance(done, Condensation):
        done = View.from_events([*events, done])
    return [
        "S" if type(e).__name__.startswith("CondensationSummary") else e.id for e in done.events
    ]


def ours(lines, **settings):
    return kept(
        apply_policy(
            presets.openhands(summariser=lambda p: "S", **settings).policy, history(lines), ROOM
        )
    )


@pytest.mark.parametrize(("size", "first"), [(10, 2), (16, 0), (24, 4), (40, 2)])
def test_the_same_events_are_forgotten_above_a_size(size, first):
    for seed in SEEDS:
        lines = alone(seed)
        if len(lines) > size:
            assert ours(lines, max_size=size, keep_first=first) == condensed(
                lines, max_size=size, keep_first=first
            )


@pytest.mark.parametrize("tokens", [40, 120, 300, 600, 1000])
def test_the_same_events_are_forgotten_above_so_many_tokens(tokens):
    for seed in SEEDS:
        lines = alone(seed)
        if history(lines).tokens > tokens:
            assert ours(lines, max_tokens=tokens) == condensed(lines, max_tokens=tokens), seed


@pytest.mark.parametrize("first", [0, 2, 60])
def test_the_same_events_are_forgotten_on_request(first):
    """with more to keep than there is, everything goes"""
    for seed in SEEDS:
        lines = alone(seed)
        assert ours(lines, keep_first=first) == condensed(lines, asked=True, keep_first=first), seed
