"""Why a compaction fired, and what held one back, in the field's words."""

from __future__ import annotations

import pytest
from random_sessions import Fours, by_chance

import ctxkit as ck
from ctxkit.engine import make_log_from_session, run_rules
from ctxkit.policies import Rules, guards, triggers
from ctxkit.presets import GuardBypassedByTrigger


def summary(history, _budget):
    return history.summarise(history.safe(history.back(300)), 60, "full")


def fired(trigger, **more):
    log = make_log_from_session(by_chance(3, 40), Rules(counter=Fours()))
    done = run_rules(log, Rules(summary, trigger, counter=Fours(), **more))
    return {cut.trigger for cut in done.compactions}, done


@pytest.mark.parametrize(
    ("trigger", "word"),
    [
        (triggers.Above(2000), "window_size"),
        (triggers.TokensSpent(9000), "cumulative_budget"),
        (triggers.Turns(3), "turn_count"),
        (triggers.TurnTokensSpent(4000), "single_turn_limit"),
        (triggers.Never() | triggers.Turns(2), "turn_count"),
        (triggers.Above(500) & triggers.Turns(2), "window_size and turn_count"),
        (lambda history, _budget: history.tokens > 2000, "<lambda>"),
    ],
)
def test_the_part_that_decided_is_named(trigger, word):
    words, done = fired(trigger)
    assert words == {word}
    assert {edit.trigger for edit in done.edits} == {word}


def test_of_several_the_one_that_was_due_is_named():
    both = triggers.Above(4000) | triggers.Turns(2)
    words, done = fired(both)
    assert words == {"window_size", "turn_count"}
    for cut in done.compactions:
        assert (cut.before > 4000) == (cut.trigger == "window_size")


def test_what_holds_back_says_how_much_it_saw():
    thrash = guards.AntiThrash(min_savings=0.99, window=2)
    for guard in (thrash, GuardBypassedByTrigger(thrash, triggers.Never())):
        _, done = fired(triggers.Above(1000), guards=guard)
        assert {h.guard for h in done.blocked} == {"anti-thrash"}
        assert {h.why for h in done.blocked} == {"suppressed: anti-thrash: 2 of 2 below 99%"}


def test_presets_name_no_combination(real):
    talk = ck.read(real / "pi" / "before-compaction.jsonl")
    for name in ("fuseraft", "fased", "pi", "codex", "openhands", "opencode"):
        for edit in ck.replay(talk, f"{name}").edits:
            assert edit.trigger not in ("Either", "Both", "Not", ""), name
