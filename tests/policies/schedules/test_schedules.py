"""One contract for every pruning with a schedule: at once = call by call = the call on the log as of then."""

from __future__ import annotations

from itertools import pairwise

import pytest
from conftest import ALL, examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from late_result_messages import among_others, grown, ids_again, late_talk
from policy_contract import kinds, made_of
from random_sessions import Fours
from scheduled_prunings import BY_ID, PARTS, HideAndGiveBack

from ctxkit.policies import (
    EarlierTurnsFilter,
    History,
    MessageLog,
    Schedule,
    ScheduledPruning,
    apply_policy,
    is_fully_scheduled,
)
from ctxkit.tokens import ContextBudget

SEEDS = st.integers(0, 10**6)
EACH = 1 if ALL else 2
"""Of the calls of a talk by chance, which are made anew from the log as of then: every second in the suite."""


def test_every_schedule_is_held_to_the_contract():
    """a class that says a schedule, a policy or a preset's, must be in an entry of `PARTS`"""
    held = {kind for parts in PARTS.values() for kind in made_of(parts)}
    members = kinds(ScheduledPruning, "policies", "presets") - {EarlierTurnsFilter}
    assert {kind for kind in members if kind.__call__ is ScheduledPruning.__call__} <= held
    assert all(is_fully_scheduled(part) for parts in PARTS.values() for part in parts)


def said(messages):
    """What is sent, whatever the ids of what is new."""
    return [(m.role, m.parts, m.call_id) for m in messages]


def called(parts, history, budget):
    for part in parts:
        history = apply_policy(part, history, budget)
    return history


def holds(parts, messages, limit, each=1):
    """At once = call by call; and both = the call on the log as of then, at each `each`-th call."""
    whole, budget = MessageLog.of(messages, Fours()), ContextBudget(limit, 0, Fours())
    once = Schedule(History.start(whole), parts, budget).extend(whole.calls)
    steps = None
    for call, live in grown(whole, whole.calls):
        if steps is None:
            steps = Schedule(History.start(live), parts, budget)
        at_once, in_steps = once.prompt_at(call), steps.extend(call + 1).prompt_at(call)
        assert said(at_once.messages) == said(in_steps.messages), call
        assert at_once.tokens == in_steps.tokens == steps.top.total(call, 0) + in_steps.fixed
        if call % each == 0 or call == whole.calls - 1:
            own = called(parts, History.start(live, call), budget)
            assert said(in_steps.messages) == said(own.messages), call
            assert in_steps.tokens == own.tokens


@pytest.mark.parametrize("name", PARTS)
def test_at_once_is_call_by_call_is_the_call_on_the_log_as_of_then(name):
    parts = PARTS[name]

    @settings(max_examples=examples(6))
    @given(SEEDS, st.sampled_from([0.0, 0.15, 0.4]), st.sampled_from([2_000, 6_000, 40_000]))
    def check(seed, late, limit):
        holds(parts, late_talk(seed, 24, late=late), limit, EACH)

    check()


OF_HISTORY = [n for n, parts in PARTS.items() if any(p.filters_history for p in parts)]


@pytest.mark.parametrize("name", [*OF_HISTORY, "prune all"])
def test_among_others_in_turns_of_many_kinds(name):
    """what others say, injected inputs, turns by number, agents in one log"""

    @settings(max_examples=examples(6))
    @given(SEEDS, st.booleans(), st.sampled_from([0.0, 0.3]))
    def check(seed, numbered, late):
        talk = late_talk(seed, 24, late=late)
        holds(PARTS[name], among_others(talk, seed, numbered=numbered), 6_000, EACH)

    check()


def test_a_turn_whose_first_reply_is_left_out_has_no_input():
    talk = among_others(late_talk(2552, 24, late=0.3), 2552)
    holds(PARTS["tail behind what comes back"], talk, 6_000)


@pytest.mark.parametrize("name", BY_ID)
def test_ids_that_are_used_again(name):
    parts = PARTS[name]

    @settings(max_examples=examples(6))
    @given(SEEDS, st.sampled_from([0.0, 0.2]))
    def check(seed, late):
        holds(parts, ids_again(late_talk(seed, 24, late=late)), 6_000, EACH)

    check()


@pytest.mark.parametrize("name", PARTS)
def test_behind_a_part_that_hides_and_gives_back(name):
    """what went away before a part comes back to it, and results come late"""
    parts = (HideAndGiveBack(), *PARTS[name])

    @settings(max_examples=3 if ALL else 1)
    @given(SEEDS, st.sampled_from([0.0, 0.4]), st.sampled_from([2_000, 40_000]))
    # in these talks a later read is hidden, so that an older one comes back
    @example(4, 0.0, 2_000)
    @example(15, 0.4, 40_000)
    def check(seed, late, limit):
        holds(parts, late_talk(seed, 24, late=late), limit, EACH)

    check()


def test_the_part_before_hides_and_gives_back():
    whole = MessageLog.of(late_talk(4, 24, late=0.4), Fours())
    schedule = Schedule(
        History.start(whole), (HideAndGiveBack(),), ContextBudget(9_000, 0, Fours())
    ).extend(whole.calls)
    shown = [{m.id for m in schedule.prompt_at(call).messages} for call in range(whole.calls)]
    hidden = {i for was, now in pairwise(shown) for i in was - now}
    back = {i for was, now in pairwise(shown) for i in now - was if i in hidden}
    assert len(back) > 5
    assert {m.role for m in whole.messages if m.id in back} == {"assistant", "tool"}


class BatchRecorder(ScheduledPruning):
    """Changes nothing; appends each batch of calls that it is asked about to `batches`."""

    def __init__(self, batches):
        self.batches = batches

    def schedule(self, view, _budget):
        self.batches.append((view.start, view.stop))


class OddCallsBy(ScheduledPruning):
    """Prunes every other call by one part."""

    def __init__(self, part):
        self.part = part

    def schedule(self, view, _budget):
        view.stages((None, self.part), lambda call, _size: call % 2)


def test_a_part_is_asked_about_each_call_once():
    """Also where several stages stand behind it, and where prompts are read again and again."""
    whole, first, stage = MessageLog.of(late_talk(4, 24), Fours()), [], []
    parts = (BatchRecorder(first), OddCallsBy(BatchRecorder(stage)))
    schedule = Schedule(History.start(whole), parts, ContextBudget(9_000, 0, Fours()))
    for stop in (10, 10, 24, 24):
        schedule.extend(stop).prompt_at(stop - 1)
    assert first == stage == [(0, 10), (10, 24)]


BACK = [("clear", 0), ("clear at_least", 0), ("pairs", 7), ("uses", 0), ("uses with inputs", 2)]


@pytest.mark.parametrize(("name", "seed"), BACK)
def test_results_that_come_back(name, seed):
    """a call's id is used again, so a part before shows its result again, now among the newest"""
    holds((*PARTS["prune twice"], *PARTS[name]), ids_again(late_talk(seed, 24)), 6_000)


def test_lines_of_results_that_come_back():
    parts = [part for name in ("prune twice", "prune", "digest") for part in PARTS[name]]
    holds(parts, ids_again(late_talk(753034, 24, late=0.4)), 40_000)


def test_a_late_result_that_is_hidden_parts_what_it_parts():
    """nothing comes for the second part at that call, and yet a cut is safe no more"""
    log, budget = MessageLog.of(late_talk(441313, 24), Fours()), ContextBudget(6_000, 0, Fours())
    head = History.start(log, 5).summarise(5, "so far: little")
    schedule = Schedule(head, PARTS["text and turn age"], budget).extend(log.calls)
    for call in range(5, log.calls):
        own = called(PARTS["text and turn age"], head.at(call), budget)
        assert said(schedule.prompt_at(call).messages) == said(own.messages), call


@pytest.mark.parametrize("name", PARTS)
def test_behind_a_head(name):
    """A schedule that begins behind an edited head gives what the call gives of the same history."""
    parts = PARTS[name]

    @settings(max_examples=examples(4))
    @given(SEEDS, st.integers(3, 15))
    def check(seed, first):
        log, budget = MessageLog.of(late_talk(seed, 24), Fours()), ContextBudget(6_000, 0, Fours())
        head = History.start(log, first)
        head = head.summarise(len(head) // 2, "so far: little", "by chance")
        head = head.shorten({len(head) - 1: "!"}, None, "by chance")
        schedule = Schedule(head, parts, budget)
        for call in range(first, log.calls):
            sent = schedule.prompt_at(call)
            if call % EACH == 0 or call == log.calls - 1:
                own = called(parts, head.at(call), budget)
                assert said(sent.messages) == said(own.messages), call
                assert sent.tokens == own.tokens

    check()
