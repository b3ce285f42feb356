"""Recorded automatic compactions beside their preset's; a wrong window is seen."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, summarised, tool_call, user
from trust_presets import NEAR_CALLS, compare_with_preset

import ctxkit as ck
from ctxkit.session import Usage

LOGS = (
    "claude-code/entire-198393f2.jsonl",
    "claude-code/entire-7f78a542.jsonl",
    "pi/before-compaction.jsonl",
)


@pytest.fixture(scope="module")
def sessions(real):
    return [ck.read(real / name) for name in LOGS]


def test_three_of_four_come_within_two_calls_and_the_other_has_a_cause(sessions):
    found = [a for s in sessions for a in compare_with_preset(s)]
    assert [(a.rules, a.call, a.is_near) for a in found] == [
        ("claude_code", 6, True),
        ("claude_code", 97, True),
        ("pi", 173, False),
        ("pi", 303, True),
    ]
    assert "by hand" in found[2].cause
    assert [a.by_hand for a in found] == [False, False, True, False]
    assert all((a.cause == "") == a.is_near for a in found)


@pytest.mark.parametrize("window", [150_000, 400_000])
def test_a_wrong_window_is_seen(sessions, window):
    from msgspec.structs import replace

    wrong = [replace(s, context_window=window) for s in sessions]
    assert sum(a.is_near for s in wrong for a in compare_with_preset(s)) <= 1


def test_what_a_person_asked_for_is_left_out(sessions):
    assert [e.trigger for e in sessions[1].edits] == ["auto", "manual"]
    assert [a.compaction for a in compare_with_preset(sessions[1])] == [0]


def test_a_later_one_begins_with_what_the_earlier_left(sessions):
    """The preset makes its own first cut late; taken alone, the second is not moved by it."""
    second = compare_with_preset(sessions[2])[1]
    whole = list(ck.frame(ck.replay(sessions[2], "pi"), per="compaction")["call"])
    assert abs(second.preset_call - second.call) <= NEAR_CALLS
    assert all(abs(c - second.call) > NEAR_CALLS for c in whole)


def steps(n: int, reasoning: int = 0) -> list:
    log = []
    for i in range(n):
        asked = tool_call("shell", command=f"cat part{i}")
        used = Usage(input_tokens=5_000 * (i + 1), output_tokens=500, reasoning_tokens=reasoning)
        said = assistant("on", asked, usage=used, model="gpt-5.4")
        log += [said, result("word " * 4_500, asked)]
    return log


def rollout(reasoning: int, window: int = 258_400):
    """A Codex session of one turn that was compacted at 225,000 tokens, by what it reasoned."""
    log = [user("Mend the files, please."), *steps(45, reasoning // 45)]
    return session(*log, summarised(log), *steps(9), format="codex", context_window=window)


def test_codexs_compaction_inside_a_turn_comes_early_by_the_reasoning_that_is_not_sent():
    """Nine tenths of 272,000 is 244,800; the log says 95 % of the window, 258,400."""
    (found,) = compare_with_preset(rollout(12_000))
    assert (found.call, found.recorded_tokens, found.is_near) == (45, 225_000, False)
    assert found.cause.startswith("made inside a turn, so by the program itself")
    (untold,) = compare_with_preset(rollout(0))
    assert untold.cause == "the log does not show it"


def test_a_codex_window_is_the_share_of_it_that_the_log_shows():
    (found,) = compare_with_preset(
        rollout(0, window=235_000)
    )  # of 247,368; nine tenths are 222,632
    assert found.is_near
    (later,) = compare_with_preset(rollout(0, window=258_400))
    assert not later.is_near


def test_a_log_of_a_program_without_a_preset_has_none(real):
    assert compare_with_preset(ck.read(real / "kimi-cli/assistant_tools.jsonl")) == ()
    assert compare_with_preset(ck.samples.path("billing")) == ()


def talk(cut_at: int, then: int):
    """A session of Pi that is compacted before a call, and continues to a number of calls more."""
    log = [user("Mend the files, please."), *steps(cut_at)]
    return session(*log, summarised(log), *steps(then), format="pi", context_window=200_000)


def test_one_made_by_hand_is_told_by_larger_prompts_that_nothing_compacts():
    """At 100,000 tokens: the session's later prompts grow to 60,000, or to 150,000."""
    (unknown,) = compare_with_preset(talk(20, 12))
    assert (unknown.recorded_tokens, unknown.is_near, unknown.by_hand) == (100_000, False, False)
    (hand,) = compare_with_preset(talk(20, 30))
    assert (hand.recorded_tokens, hand.is_near, hand.by_hand) == (100_000, False, True)


def test_every_replay_goes_by_the_whole_window_of_a_codex_log():
    from ctxkit.engine import find_context_window

    assert find_context_window(rollout(0)) == 272_000
    assert find_context_window(talk(3, 3)) == 200_000
