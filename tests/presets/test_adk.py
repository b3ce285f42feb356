"""ADK: compaction by tokens, by invocations, and none unless set."""

import pytest
from builders import assistant, session, step, usage, user
from histories import ROOM, ids, shown

import ctxkit as ck
from ctxkit import presets
from ctxkit.errors import BadArguments


def test_nothing_is_compacted_unless_a_pair_is_set():
    assert presets.adk().policy is None


@pytest.mark.parametrize(
    "alone", ["token_threshold", "event_retention_size", "compaction_interval", "overlap_size"]
)
def test_settings_come_in_pairs(alone):
    """_validate_trigger_params"""
    with pytest.raises(BadArguments, match="set together"):
        presets.adk(**{alone: 3})


def test_by_tokens_the_last_events_stay():
    rules = presets.adk(token_threshold=100, event_retention_size=3, summariser=lambda p: "S")
    h = shown([(assistant if i % 2 else user)("x" * 200, id=f"m{i}") for i in range(9)])
    assert rules.trigger(h, ROOM)
    assert ids(rules.policy(h, ROOM))[1:] == ["m6", "m7", "m8"]


def test_a_retained_result_keeps_its_call():
    """_safe_token_compaction_split_index: the split moves earlier"""
    rules = presets.adk(token_threshold=10, event_retention_size=2, summariser=lambda p: "S")
    h = shown(user("u" * 400), assistant("a" * 400), *step("bash", "y"), user("next"))
    assert [m.role for m in rules.policy(h, ROOM).messages] == [
        "summary",
        "assistant",
        "tool",
        "user",
    ]


def test_by_tokens_it_acts_inside_an_invocation_too():
    """CompactionRequestProcessor: before each call of the model"""
    rules = presets.adk(token_threshold=10, event_retention_size=1)
    assert rules.trigger(shown(user("u" * 400), *step("bash", "y")), ROOM)


def test_by_interval_it_waits_for_the_end_of_an_invocation():
    """interval 3: due with the fourth turn, which alone stays"""
    rules = presets.adk(compaction_interval=3, overlap_size=1, summariser=lambda p: "S")
    rows = [
        m for i in range(4) for m in (user("u" * 99, id=f"u{i}"), assistant("a" * 99, id=f"a{i}"))
    ]
    assert ids(rules.policy(shown(rows[:-1]), ROOM))[1:] == ["u3"]
    assert not rules.trigger(shown(rows[:5]), ROOM)
    assert not rules.trigger(shown(rows[:6]), ROOM)
    assert rules.trigger(shown(rows[:7]), ROOM)


def test_by_interval_summaries_stand_side_by_side():
    """_process_compaction_events: ranges that overlap but do not contain each other both stay"""
    rules = presets.adk(compaction_interval=2, overlap_size=1, summariser=lambda p: "S")
    rows = [m for i in range(7) for m in (user("u" * 99), assistant("a" * 99, usage=usage(100)))]
    roles = [m.role for m in ck.replay(session(*rows), rules).view(-1)]
    assert roles == ["summary", "summary", "summary", "user"]
