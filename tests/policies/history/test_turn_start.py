"""Where the turn under way begins, as a log is written."""

from __future__ import annotations

import pytest
from builders import assistant, result, tool_call, user
from histories import CHARS

from ctxkit.policies import MessageLog
from ctxkit.session import CORRECTION_KIND, INJECTED_KIND, OTHER_AGENT_CALL_KIND, OTHER_AGENT_KIND


def works(agent=None, turn=None):
    """A reply that calls a tool, and its result."""
    asked = tool_call()
    return assistant("", asked, agent=agent, turn=turn), result(of=asked, turn=turn)


def log_of(messages):
    flat = [m for each in messages for m in (each if isinstance(each, tuple) else (each,))]
    return MessageLog.of(flat, CHARS)


def first(*messages):
    """The row with which the turn of the coming call begins."""
    log = log_of(messages)
    coming = log.turn_first(log.calls)
    assert log.turn_first(log.open()) == coming
    assert log.turn_firsts == sorted(log.turn_firsts)
    return coming


@pytest.mark.parametrize(
    ("begins", "messages"),
    [
        (0, [user()]),
        (1, [user(), user()]),
        (0, [user(), works(), works()]),
        (3, [user(), works(), user("no, stop")]),
        (0, [user(), works(), user("a reminder", kind=INJECTED_KIND), works()]),
        (0, [user(), works(), assistant("is cut", stop="length")]),
        (0, [user(), works(), assistant("failed", is_error=True), works()]),
    ],
)
def test_a_turn_begins_with_its_last_input_before_a_reply(begins, messages):
    assert first(*messages) == begins


@pytest.mark.parametrize(
    ("begins", "messages"),
    [
        (4, []),
        (4, [user()]),
        (4, [works(), works()]),
        (4, [user("a reminder", kind=INJECTED_KIND), works()]),
        (5, [user("a reminder", kind=INJECTED_KIND), user(), works()]),
    ],
)
def test_a_reply_that_calls_no_tool_ends_a_turn(begins, messages):
    assert first(user(), works(), assistant("done"), *messages) == begins


def test_numbers_of_turns_count_where_they_are_said():
    begun = [user(turn=0), assistant("is cut", stop="length", turn=0), user("go on", turn=0)]
    assert first(*begun, works(turn=0)) == 0
    assert first(*begun, works(turn=1)) == 3
    corrected = [user(turn=0), works(turn=0), user("no", kind=CORRECTION_KIND, turn=1)]
    assert first(*corrected, user(turn=1), works(turn=1)) == 4


def test_another_agent_begins_a_turn_of_its_own():
    assert first(user(), works("A"), works("A"), works()) == 0
    assert first(user(), works("A"), works("B"), works()) == 3
    assert first(user(), works("A"), user("to B", kind=INJECTED_KIND), works("B"), works()) == 3


def test_what_others_say_and_late_results_are_history_at_once():
    late = tool_call()
    log = log_of([
        user(), assistant("", late), user("meanwhile"), works(), user("x", kind=OTHER_AGENT_KIND, agent="B"),
        result(of=late), user("y", kind=OTHER_AGENT_CALL_KIND, agent="B"), works(),
    ])  # fmt: skip
    assert log.turn_first(log.calls) == 2
    assert log.turn.past_at_once == [5, 6, 7]


def test_a_call_without_an_input_begins_a_turn_once():
    """what is said behind its failure belongs to the same turn or to a later one, never an earlier"""
    log = log_of([user(turn=0), works(turn=0), assistant("done", turn=0)])
    log.open()
    log.append(assistant("failed", visible=False, is_error=True))
    log.append(user("again", turn=0))
    assert log.turn_first(log.open()) == 4
