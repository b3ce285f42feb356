"""The numbers that rules and settings take, at the last that is refused and the first that is not."""

from __future__ import annotations

import pytest
from builders import assistant, step, user
from random_sessions import Fours

from ctxkit.errors import BadArguments
from ctxkit.policies import History, MessageLog, Rules, UnprunedForecast, rules_modifiers, triggers
from ctxkit.policies.compaction_without_summary import ProviderCompaction
from ctxkit.tokens import ContextBudget

KEEPS = "summary:keep_tokens=500"


@pytest.mark.parametrize(
    ("taken", "refused", "why"),
    [
        ({"window": 1}, {"window": 0}, "A window of 0 tokens"),
        ({"window": 100, "reserve": 99}, {"window": 100, "reserve": 100}, "A reserve of 100"),
        ({"reserve": 0}, {"reserve": -1}, "A reserve of -1"),
        ({"cache_life": 0.1}, {"cache_life": 0}, "A cache that lives 0 seconds"),
        (
            {"policy": KEEPS, "trigger": triggers.Above(501)},
            {"policy": KEEPS, "trigger": triggers.Above(500)},
            "at 500 tokens that keeps 500 frees nothing",
        ),
        ({"policy": KEEPS}, {"trigger": triggers.Above(501)}, "without a policy"),
    ],
)
def test_rules_refuse_a_number_that_leaves_nothing(taken, refused, why):
    Rules(**taken)
    with pytest.raises(BadArguments, match=why):
        Rules(**refused)


def test_the_fixed_part_and_the_reserve_must_leave_something_of_a_window_that_is_set():
    log = MessageLog.of([user()], Fours(), fixed=60)
    assert Rules(window=100, reserve=39).context_budget(log).prompt_limit == 61
    with pytest.raises(BadArguments, match="fixed part of the prompt \\(60 tokens\\)"):
        Rules(window=100, reserve=40).context_budget(log)
    assumed = Rules(window=100, reserve=40, assumed=True)
    assert assumed.context_budget(log, 77).limit == 100
    assert Rules().context_budget(log, 77).limit == 77
    assert Rules().context_budget(log).limit == Rules().unknown_window


# -- sums over calls


TURNS = [
    *(user("x" * 400), *step(text="y" * 400, path="a")),  # two calls of a turn
    assistant("z" * 400),
    *(user("x" * 400), assistant("z" * 400), user("x" * 400), assistant("z" * 400)),
]
LOG = MessageLog.of(TURNS, Fours())
PROMPTS = [LOG.tokens.C[n] for n in range(4)]


def first_due(trigger, start=0, window=10_000):
    forecast = UnprunedForecast(History.start(LOG, 0), ContextBudget(window, 0, Fours()))
    return trigger.first(forecast, start, 4)


def test_a_turn_has_spent_the_prompts_of_its_calls_and_the_one_before_counts_at_its_start():
    first, second, third, _fourth = PROMPTS
    turn = first + second
    assert [first_due(triggers.TurnTokensSpent(n)) for n in (first - 1, first)] == [1, 2]
    # at the first call of the next turn nothing of it is spent: the sum is that of the turn before
    assert [first_due(triggers.TurnTokensSpent(n)) for n in (turn - 1, turn)] == [2, 3]
    assert [first_due(triggers.TurnTokensSpent(n), 3) for n in (third - 1, third)] == [3, 4]


def test_what_was_spent_is_the_sum_of_the_prompts_before():
    sums = [sum(PROMPTS[:n]) for n in range(1, 4)]
    assert [first_due(triggers.TokensSpent(n)) for n in sums] == [1, 2, 3]
    assert [first_due(triggers.TokensSpent(n + 1)) for n in sums] == [2, 3, 4]
    assert [first_due(triggers.TokensSpent(n, agent="main")) for n in sums] == [1, 2, 3]
    assert first_due(triggers.TokensSpent(1, agent="nobody")) == 4


def test_messages_are_counted_by_role():
    assert [first_due(triggers.Count(n)) for n in (1, 2, 3, 5, 6, 8)] == [0, 1, 1, 2, 3, 4]
    users = [first_due(triggers.Count(n, roles=("user",))) for n in (1, 2, 3, 4)]
    assert users == [0, 2, 3, 4]
    both = [first_due(triggers.Count(n, roles=("user", "assistant"))) for n in (2, 4, 6, 7)]
    assert both == [1, 2, 3, 4]


def test_a_task_ends_where_the_user_asks_again_and_the_prompt_is_over_the_share():
    second, third, fourth = PROMPTS[1:]
    half = [
        first_due(rules_modifiers.TaskBoundaryTrigger(0.5), window=2 * n)
        for n in (third - 1, third, fourth - 1)
    ]
    assert half == [2, 3, 3]
    assert first_due(rules_modifiers.TaskBoundaryTrigger(0.5), window=2 * fourth) == 4
    assert (
        first_due(rules_modifiers.TaskBoundaryTrigger(0.5), window=2 * second - 2) == 2
    )  # the second call is no request
    assert (
        first_due(rules_modifiers.TaskBoundaryTrigger(0.5), window=2) == 2
    )  # nor does the first one end a task
    assert first_due(rules_modifiers.TaskBoundaryTrigger(0.5), 3, window=2) == 3


def test_rules_that_compact_nothing_have_no_boundary():
    rules = rules_modifiers.add_task_boundary_trigger(Rules(KEEPS, triggers.Above(8_000)))
    assert rules.trigger == rules_modifiers.TaskBoundaryTrigger(0.5) | triggers.Above(8_000)
    for nothing in (Rules(), Rules(pruning="clear")):
        with pytest.raises(BadArguments, match="compact nothing"):
            rules_modifiers.add_task_boundary_trigger(nothing)


# -- the provider's own compaction


def test_a_provider_acts_above_its_threshold():
    history = History.start(MessageLog.of(TURNS, Fours()), 4)
    budget = ContextBudget(10_000, 0, Fours())
    size = history.tokens
    for provider in ("openai", "anthropic"):
        for threshold, acts in ((size, False), (size - 1, True)):
            native = ProviderCompaction(
                provider=provider, threshold=threshold, keep_last=0, item_tokens=1
            )
            assert (native(history, budget) is not history) is acts
    assert ProviderCompaction().limit(budget) == 100_000
    assert ProviderCompaction(provider="openai").limit(budget) == 7_000


def test_openai_keeps_the_newest_requests_behind_an_item_of_the_named_size():
    history = History.start(MessageLog.of(TURNS, Fours()), 4)
    native = ProviderCompaction(provider="openai", threshold=1, keep_last=2, item_tokens=7)
    new = native(history, ContextBudget(10_000, 0, Fours()))
    assert [m.role for m in new.messages] == ["summary", "user", "assistant", "user", "assistant"]
    assert new.item(0).tokens == 7
    assert new.messages[1:] == tuple(TURNS[4:])
    large = ProviderCompaction(provider="openai", threshold=1, keep_last=2, item_tokens=1_000)
    assert large(history, ContextBudget(10_000, 0, Fours())) is history
