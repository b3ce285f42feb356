"""GitHub Copilot CLI: streamed usage, subagents, truncations, totals."""

from __future__ import annotations

import json
from pathlib import Path

from synthetic_logs_current_layouts import COPILOT

import ctxkit as ck
from ctxkit.formats import Source, read_source

GOLDEN = Path(__file__).parent / "golden" / "copilot-cli.jsonl"


def test_what_was_streamed_is_the_usage_of_the_reply_before():
    (session,) = read_source(Source("events.jsonl", COPILOT))
    usage = session.calls[0].message.usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (5, 4, 2)
    assert session.calls[0].message.latency == 0.05


def test_a_log_under_another_name_is_called_by_it():
    without_start = COPILOT[COPILOT.index(b"\n") + 1 :]
    (session,) = read_source(Source("logs/one.jsonl", without_start))
    assert session.id == "one"


def test_subagents_are_children():
    (session,) = read_source(Source("events.jsonl", COPILOT))
    (child,) = session.children
    assert [m.text for m in child.messages] == ["look", "found"]
    assert child.parent == session.id == "s"


def test_a_subagent_has_the_name_of_its_start():
    """Newer versions give each event the id of its agent, older ones only that of the call."""
    start = {"toolCallId": "c1", "agentName": "explore"}
    answer = {"content": "found", "parentToolCallId": "c1"}
    for agent in ({"agentId": "a1"}, {}):
        events = [("subagent.started", start), ("assistant.message", answer)]
        records = [{"type": t, "id": t, "parentId": None, "data": d, **agent} for t, d in events]
        (session,) = read_source(Source("x.jsonl", "\n".join(map(json.dumps, records)).encode()))
        assert [(c.agent, c.messages[0].text) for c in session.children] == [("explore", "found")]


def test_a_truncation_is_a_mark_that_takes_nothing_it_cannot_name():
    (session,) = read_source(Source("events.jsonl", COPILOT))
    (edit,) = session.edits
    assert (edit.method, edit.targets) == ("truncation", ())
    assert session.context_window == 9000


def test_a_compactions_own_bill_and_the_totals_are_kept():
    session = ck.read(GOLDEN)
    (edit,) = session.edits
    assert (edit.tokens_before, edit.tokens_after) == (1315, 40)
    assert (edit.usage.input_tokens, edit.usage.cache_read_tokens, edit.usage.output_tokens) == (
        115,
        1200,
        20,
    )
    assert session.details["totals"]["modelMetrics"]["m-1"]["usage"]["inputTokens"] == 5990
    assert [c.message.usage.output_tokens for c in session.calls] == [21, 19, 15, 18, 6]
    assert session.calls[0].message.usage.input_tokens is None


def test_a_reply_in_pieces_is_one_and_a_cleared_context_is_left():
    events = [
        ("system.message", {"content": "be brief"}),
        ("user.message", {"content": "go"}),
        ("assistant.message", {"content": "One ", "chunkIndex": 0, "chunkCount": 2}),
        ("assistant.message", {"content": "two.", "chunkIndex": 1, "chunkCount": 2, "outputTokens": 4}),
        ("session.context_cleared", {"messagesCleared": 2}),
        ("user.message", {"content": "on"}),
        ("assistant.message", {"content": "Three.", "chunkIndex": 0, "chunkCount": 1}),
    ]  # fmt: skip
    rows = [
        {"type": k, "id": f"e{n}", "parentId": None, "data": d} for n, (k, d) in enumerate(events)
    ]
    (session,) = read_source(
        Source("events.jsonl", b"\n".join(json.dumps(r).encode() for r in rows))
    )
    assert [[p.text for p in c.message.parts] for c in session.calls] == [
        ["One ", "two."],
        ["Three."],
    ]
    assert session.calls[0].message.usage.output_tokens == 4
    assert [m.text for m in session.view()] == ["be brief", "on", "Three."]
