"""OpenCode: what is usable of a window, the tail that stays, pruning."""

import pytest
from builders import assistant, step, user
from histories import CHARS, shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.presets.systems.opencode import OpenCodeSummary
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(100_000, 0, CHARS)


@pytest.mark.parametrize(
    ("settings", "usable"),
    [
        ({"context_window": 200_000, "limit_output": 64_000}, 168_000),
        ({"context_window": 200_000, "limit_output": 8000}, 192_000),
        ({"context_window": 400_000, "limit_input": 272_000, "limit_output": 128_000}, 252_000),
        ({"context_window": 400_000, "limit_input": 272_000, "reserved": 10_000}, 262_000),
    ],
)
def test_usable_is_the_window_less_the_reply(settings, usable):
    """overflow.ts: context less min(output, 32,000); with an input limit, that less 20,000 or `reserved`"""
    rules = presets.opencode(**settings)
    h = shown(user("abcd" * usable))
    budget = rules.context_budget(h.log)
    assert budget.prompt_limit == usable
    assert rules.trigger(h, budget)
    assert not rules.trigger(shown(user("abcd" * (usable - 1))), budget)


def tail(history, **settings):
    new = OpenCodeSummary(keep_turns=2, summariser=lambda p: "SUMMARY", **settings)(history, ROOM)
    return texts(new)[1:]


def test_two_turns_stay_where_they_fit():
    h = shown([user("u" * 40), assistant("a" * 400)] * 4)
    assert len(tail(h, tail_tokens=300)) == 4


def test_a_turn_that_does_not_fit_goes():
    h = shown(user("u" * 40), assistant("a" * 4000), user("v" * 40), assistant("b" * 40))
    assert tail(h, tail_tokens=300) == ["v" * 40, "b" * 40]


def test_of_a_newest_turn_that_is_too_long_its_end_stays():
    h = shown(
        user("u"),
        assistant("a" * 400),
        user("v"),
        *(s for i in range(6) for s in step("bash", "y" * 400, command=str(i))),
    )
    kept = tail(h, tail_tokens=300)
    assert kept == ["bash", "y" * 400, "bash", "y" * 400]


def test_pruning_spares_two_turns_and_the_newest_40_000_tokens():
    """prune(): beyond 40,000 tokens of output, only where more than 20,000 are freed, never the tool `skill`"""
    rows = [
        user("1"),
        *step("bash", "x" * 100_000),
        *step("skill", "s" * 100_000),
        *step("bash", "y" * 100_000),
        *step("bash", "z" * 100_000),
    ]
    h = shown(*rows, user("2"), assistant("a"), user("3"), assistant("b"))
    new = OpenCodeSummary(keep_turns=2).prune_outputs(h)
    assert [len(t) for t in texts(new)[2:9:2]] == [33, 100_000, 33, 100_000]
    assert OpenCodeSummary(keep_turns=2, prune_minimum=60_000).prune_outputs(h) is h


def test_a_pruning_happens_at_the_start_of_a_turn():
    rules = presets.opencode(context_window=200_000, prune=True)
    budget = rules.context_budget(shown(user("u")).log)
    assert rules.trigger(shown(user("u")), budget)
    assert not rules.trigger(shown(user("u"), assistant("a")), budget)
    with pytest.raises(BadArguments, match="no room"):
        presets.opencode(context_window=20_000)
