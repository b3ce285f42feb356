"""Who writes the summary of a compaction by hand: who was asked for, else the session's model."""

from __future__ import annotations

import pytest
from builders import assistant, session, step, user
from stand_in_models import COUNT, agent, run

from ctxkit import presets
from ctxkit.policies import (
    Chain,
    Clear,
    ExtractiveSummariser,
    Fallback,
    FixedSizeSummariser,
    FunctionPolicy,
    Rules,
    Summary,
)
from ctxkit.presets import preset

WRITER = FixedSizeSummariser(3)
"""Stands for the session's model."""


def chosen(rules, policy=None, **more):
    compactor = agent(rules=rules).compactor
    compactor._summariser = WRITER
    return compactor.choose_policy(policy, **more)


def plain(history, budget):
    return history


@pytest.mark.parametrize(
    ("rules", "policy", "writes"),
    [
        (Rules(Summary()), None, WRITER),
        (Rules(Summary(), summariser="fixed:9"), None, FixedSizeSummariser(9)),
        (Rules(Summary(summariser=FixedSizeSummariser(9))), None, FixedSizeSummariser(9)),
        (Rules(), None, WRITER),
        (Rules(Summary(), summariser="fixed:9"), Summary(), WRITER),
        (Rules(Summary()), Rules(Summary()).policy, WRITER),
        (Rules(Summary()), Rules(Summary(), summariser="fixed:9").policy, FixedSizeSummariser(9)),
    ],
)
def test_who_writes(rules, policy, writes):
    assert chosen(rules, policy).summariser == writes


def test_a_draft_asks_no_model():
    assert isinstance(chosen(Rules(Summary()), draft=True).summariser, ExtractiveSummariser)
    rules = Rules(Summary(), summariser="fixed:9")
    assert chosen(rules, Summary(), draft=True).summariser == FixedSizeSummariser(9)


def test_parts_of_a_chain_are_lent_the_writer_and_told_the_focus():
    other = Rules(Fallback((plain, Summary())) | Clear()).policy
    ladder, clear = chosen(Rules(), other, focus="tests").parts
    assert ladder == Fallback((plain, Summary(summariser=WRITER, focus="tests")))
    assert clear == Clear()
    assert chosen(Rules(Chain((plain, Summary())))).parts[1].summariser == WRITER


def test_a_step_of_a_preset_is_lent_the_writer_too():
    policy = chosen(presets.claude_code(clear_tool_outputs=3), focus="tests")
    assert (policy.summariser, policy.focus) == (WRITER, "tests")


def test_a_function_by_hand_is_taken_as_it_is():
    assert chosen(Rules(Summary()), plain, focus="tests") == FunctionPolicy(plain)


@pytest.mark.parametrize("name", presets.names())
def test_any_preset_compacts_by_hand_between_two_calls(name):
    """also where its policy asks a trigger of its own, of a call that is not opened yet"""
    turns = [(user("x" * 900), *step(text="y" * 900), assistant("z" * 900)) for _ in range(30)]
    rules = preset(name).but(window=8_000, assumed=True, reserve=200, counter=COUNT)
    one = agent(at=session(*(m for turn in turns for m in turn)), rules=rules)
    edits = run(one.compact(fallback=Summary(keep_turns=1)))
    assert edits
    assert [e.id for e in one.session.edits] == [e.id for e in edits]
