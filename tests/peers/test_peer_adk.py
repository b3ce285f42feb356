"""ADK's own compaction on the same messages: what a prompt is made of after it, by tokens and by invocations."""

import warnings
from types import SimpleNamespace

import pytest
from builders import assistant, session
from peers.scripted_conversations import alone, history, kept, messages, run

import ctxkit as ck
from ctxkit import presets
from ctxkit.policies import apply_policy
from ctxkit.tokens import ContextBudget, get_counter

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:.EXPERIMENTAL.:UserWarning")]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package warns about its own imports
    pytest.importorskip("google.adk", reason="needs jupyter-ctxkit[peers]: make test-peers")
    from google.adk.apps.app import EventsCompactionConfig
    from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
    from google.adk.apps.compaction import (
        _run_compaction_for_sliding_window,
        _run_compaction_for_token_threshold_config,
    )
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions, EventCompaction
    from google.adk.flows.llm_flows.context._compaction import _process_compaction_events
    from google.genai.types import Content, FunctionCall, FunctionResponse, Part

ROOM = ContextBudget(100_000, 0, get_counter("chars/4"))
SEEDS = range(20)


class Scripted(BaseEventsSummarizer):
    """Writes one word, over the time of the events it is given."""

    async def maybe_summarize_events(self, *, events):
        word = Content(role="model", parts=[Part(text="S")])
        span = {"start_timestamp": events[0].timestamp, "end_timestamp": events[-1].timestamp}
        done = EventCompaction(compacted_content=word, **span)
        return Event(author="model", id=f"S{events[-1].id}", actions=EventActions(compaction=done))


def theirs(lines):
    out, turn = [], ""
    for i, x in enumerate(lines):
        turn = x.id if x.role == "user" else turn
        parts = [Part(text=x.text)]
        if x.role == "tool":
            parts = [
                Part(
                    function_response=FunctionResponse(
                        id=x.of, name="bash", response={"result": x.text}
                    )
                )
            ]
        parts += [
            Part(function_call=FunctionCall(id=c, name="bash", args={"command": c}))
            for c in x.calls
        ]
        content = Content(role="model" if x.role == "assistant" else "user", parts=parts)
        author = "agent" if x.role == "assistant" else "user"
        out.append(
            Event(
                id=x.id, author=author, invocation_id=turn, timestamp=float(i + 1), content=content
            )
        )
    return out


def shown(events):
    """The ids of what a prompt is made of, a summary as `S`."""
    return ["S" if e.actions.compaction else e.id for e in _process_compaction_events(events)]


def compacting(**settings):
    return EventsCompactionConfig(summarizer=Scripted(), **settings)


@pytest.mark.parametrize("retained", [0, 1, 4, 9])
def test_the_same_events_stay_by_tokens(retained):
    rules = presets.adk(token_threshold=1, event_retention_size=retained, summariser=lambda p: "S")
    for seed in SEEDS:
        lines = alone(seed)
        talk = SimpleNamespace(id="talk", events=theirs(lines))

        async def append(session, event):
            session.events.append(event)

        config, service = (
            compacting(token_threshold=1, event_retention_size=retained),
            SimpleNamespace(),
        )
        service.append_event = append
        run(
            _run_compaction_for_token_threshold_config(
                config=config, session=talk, session_service=service, agent=None, agent_name=""
            )
        )
        assert kept(apply_policy(rules.policy, history(lines), ROOM)) == shown(talk.events), seed


@pytest.mark.parametrize(("interval", "overlap"), [(1, 0), (2, 1), (3, 1), (4, 2)])
def test_the_same_turns_are_summarised_by_invocations(interval, overlap):
    """from turn to turn, several summaries in a row; an overlap lets a summary read again what the one before holds"""
    rules = presets.adk(
        compaction_interval=interval, overlap_size=overlap, summariser=lambda p: "S"
    )
    app = SimpleNamespace(
        events_compaction_config=compacting(compaction_interval=interval, overlap_size=overlap)
    )
    app.root_agent = object()
    for seed in SEEDS:
        lines, talk = alone(seed), SimpleNamespace(id="talk", events=[])
        for event, after in zip(events := theirs(lines), [*events[1:], None], strict=True):
            talk.events.append(event)
            if after is not None and after.invocation_id != event.invocation_id:
                talk.events += run(every(_run_compaction_for_sliding_window(app, talk, None)))
        again = ck.replay(session(*messages(lines), assistant("end")), rules)
        last = ["S" if m.role == "summary" else m.id for m in again.view(-1)]
        assert last == shown(talk.events), seed


async def every(source):
    return [event async for event in source]
