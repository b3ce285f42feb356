"""Recorded automatic compactions beside their preset's; a wrong window is seen."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit.sweeps.alone import NEAR, alone

LOGS = (
    "claude-code/entire-198393f2.jsonl",
    "claude-code/entire-7f78a542.jsonl",
    "pi/before-compaction.jsonl",
)


@pytest.fixture(scope="module")
def sessions(real):
    return [ck.read(real / name) for name in LOGS]


def test_three_of_four_come_within_two_calls_and_the_other_has_a_cause(sessions):
    found = [a for s in sessions for a in alone(s)]
    assert [(a.rules, a.call, a.near) for a in found] == [
        ("claude_code", 6, True),
        ("claude_code", 97, True),
        ("pi", 173, False),
        ("pi", 303, True),
    ]
    assert "by hand" in found[2].cause
    assert all((a.cause == "") == a.near for a in found)


@pytest.mark.parametrize("window", [150_000, 400_000])
def test_a_wrong_window_is_seen(sessions, window):
    from msgspec.structs import replace

    wrong = [replace(s, context_window=window) for s in sessions]
    assert sum(a.near for s in wrong for a in alone(s)) <= 1


def test_what_a_person_asked_for_is_left_out(sessions):
    assert [e.trigger for e in sessions[1].edits] == ["auto", "manual"]
    assert [a.compaction for a in alone(sessions[1])] == [0]


def test_a_later_one_begins_with_what_the_earlier_left(sessions):
    """The preset makes its own first cut late; taken alone, the second is not moved by it."""
    second = alone(sessions[2])[1]
    whole = list(ck.frame(ck.replay(sessions[2], "pi"), per="compaction")["call"])
    assert abs(second.due - second.call) <= NEAR
    assert all(abs(c - second.call) > NEAR for c in whole)


def test_a_log_of_a_program_without_a_preset_has_none(real):
    assert alone(ck.read(real / "kimi-cli/assistant_tools.jsonl")) == ()
    assert alone(ck.samples.path("billing")) == ()
