"""ATIF: a step is a reply and its results; terminus-2's summary is an edit; copied steps have no usage."""

from __future__ import annotations

import json

import ctxkit as ck
from ctxkit.formats import Source, read_source
from ctxkit.session import Attachment, Text


def read(*steps: dict, **more):
    document = {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": {"name": "a"},
        "steps": list(steps),
        **more,
    }
    (session,) = read_source(Source("x.json", json.dumps(document).encode()))
    return session


def test_prompt_tokens_hold_the_cache(real):
    s = ck.read(real / "atif/multi_tool_trajectory.json")
    m = s.call(0).message
    assert (m.usage.input_tokens, m.usage.cache_read_tokens, m.usage.cost_usd) == (
        1_338,
        512,
        0.0021,
    )
    assert m.latency == 2.84
    assert len(m.tool_calls) == 3
    assert [r.tool for r in s.path[2:5]] == ["financial_search", "financial_search", "news_search"]


def test_the_hand_off_takes_the_place_of_what_was_said(real):
    s = ck.read(real / "atif/harbor_terminus2_summarization.json")
    (edit,) = s.edits
    assert edit.details["sessions"][0].endswith("summarization-1-summary")
    assert [m.role for m in s.view(3)] == ["user", "summary"]
    assert edit.inserted[0].text.startswith("Here are the answers")


def test_an_image_has_the_path_and_type_of_its_source():
    images = [
        {"type": "image", "source": {"media_type": "image/jpeg", "path": "images/a.jpg"}},
        {"type": "image", "source": {"path": "b.png"}},
    ]
    asked = {"source": "user", "message": [*images, {"type": "text", "text": "go"}]}
    session = read(asked, {"source": "agent", "message": "hi"})
    assert session.messages[0].parts == (
        Attachment("image/jpeg", url="images/a.jpg"),
        Attachment("image/png", url="b.png"),
        Text("go"),
    )


def test_a_run_that_goes_on_elsewhere_ends_in_its_compaction(real):
    s = ck.read(real / "atif/harbor_terminus2_continuation.json")
    assert s.details["continued"] == "trajectory.cont-1.json"
    assert len(s.edits) == 1


def test_copied_steps_carry_no_usage(real):
    s = ck.read(real / "atif/harbor_terminus2_sub_summary.json")
    assert [c.message.kind for c in s.calls] == ["copied", "copied", ""]
    assert [c.message.usage is None for c in s.calls] == [True, True, False]


def test_embedded_trajectories_are_children():
    inner = {"session_id": "t", "steps": [{"source": "agent", "message": "hi"}]}
    s = read({"source": "user", "message": "go"}, subagent_trajectories=[inner])
    assert [(c.id, c.parent, len(c.calls)) for c in s.children] == [("t", "s", 1)]


def test_nesting_is_bounded():
    inner: dict = {"steps": []}
    for _ in range(60):
        inner = {"steps": [], "subagent_trajectories": [inner]}
    s, depth = read(subagent_trajectories=[inner]), 0
    while s.children:
        s, depth = s.children[0], depth + 1
    assert depth == 16
    assert s.faults


def test_why_a_reply_ended_is_said_in_our_words():
    metrics = {"extra": {"finish_reason": "tool_calls"}}
    step = {"step_id": 1, "source": "agent", "message": "x", "metrics": metrics}
    assert read(step).calls[0].message.stop == "tool"
