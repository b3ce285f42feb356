# ruff: noqa: C408  settings read best as keywords, twins of a rule in one line
"""Rules: what fits together, what is refused and with which words."""

from __future__ import annotations

import pytest
from builders import user
from random_sessions import Fours, shown

from ctxkit.errors import BadArguments, ModelError
from ctxkit.policies import (
    BasePolicy,
    Chain,
    Fallback,
    FixedSizeSummariser,
    FunctionPolicy,
    MessageLog,
    Rules,
    Summary,
    as_rules,
    guards,
    triggers,
)


def nothing(h, budget):
    return h


class Drops(BasePolicy):
    def __init__(self, n):
        self.n = n

    def __call__(self, h, budget):
        return h.drop(self.n, "oldest")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(policy=3), "policy 3 cannot be called"),
        (dict(trigger=triggers.Above(3)), "without a policy compacts nothing"),
        (dict(guards=guards.Smaller()), "without a policy compacts nothing"),
        (dict(policy=nothing, guards=(triggers.Above(3),)), "is no guard"),
        (dict(policy=nothing, window=0), "window of 0 tokens"),
        (dict(policy=nothing, window=100, reserve=100), "leaves no room"),
        (dict(policy=nothing, cache_life=0), "cache that lives 0"),
        (dict(policy=nothing, counter="char/4"), "No counter is called"),
        (dict(policy=nothing, summariser=3), "cannot be called with a passage"),
        (dict(policy=nothing, summariser="extractiv"), "Did you mean 'extractive'"),
    ],
)
def test_rules_that_cannot_work_are_refused(settings, words):
    with pytest.raises(BadArguments, match=words):
        Rules(**settings)


def test_a_trigger_must_lie_above_what_is_kept():
    class Keeps(Drops):
        keeps = 20_000

    with pytest.raises(BadArguments, match="must lie above what is kept"):
        Rules(Keeps(1), triggers.Above(20_000))
    with pytest.raises(BadArguments, match="at 10,000 tokens that keeps 20,000"):
        Rules(Keeps(1), triggers.Share(0.5), window=20_000)
    Rules(Keeps(1), triggers.Above(20_001))


@pytest.mark.parametrize(
    "part",
    [
        lambda: triggers.Above(-1),
        lambda: triggers.Share(0),
        lambda: triggers.Share(0.5, "budgets"),
        lambda: triggers.Count(0),
        lambda: triggers.Count(1, ("humans",)),
        lambda: triggers.Turns(0),
        lambda: triggers.TokensSpent(0),
        lambda: triggers.TurnTokensSpent(float("nan")),
        lambda: guards.AntiThrash(2),
        lambda: guards.AntiThrash(by="bytes"),
        lambda: guards.MinProgress(1),
        lambda: guards.GraceAfterCompaction(-1),
        lambda: guards.CompactionCountLimit(0),
        lambda: guards.CompactionCountLimit(1, "day"),
        guards.MinGrowthSinceCompaction,
        lambda: FixedSizeSummariser(0),
        lambda: Fallback(()),
        lambda: Chain((1,)),
    ],
)
def test_parts_that_cannot_work_are_refused(part):
    with pytest.raises(BadArguments):
        part()


def test_the_sentence_names_the_setting_of_a_trigger_or_a_guard():
    with pytest.raises(
        BadArguments, match="CompactionCountLimit needs run or turn for per, not 'day'"
    ):
        guards.CompactionCountLimit(1, "day")
    with pytest.raises(BadArguments, match="TokensSpent needs a number above 0 for limit, not nan"):
        triggers.TokensSpent(float("nan"))
    assert triggers.TokensSpent(float("inf")).limit == float("inf")


def test_but_names_the_nearest_setting():
    rules = Rules(nothing)
    assert rules.but(reserve=5).reserve == 5
    with pytest.raises(BadArguments, match="Did you mean 'trigger'"):
        rules.but(triger=3)


def test_policies_are_joined_in_order():
    joined = Rules(Drops(1)) | Drops(2) | Rules(pruning=nothing, window=900, name="b")
    assert [p.n for p in joined.policy.parts] == [1, 2]
    assert (joined.window, joined.name, joined.pruning) == (900, "b", FunctionPolicy(nothing))
    h = shown(*(user(str(n)) for n in range(5)))
    assert [m.text for m in (Drops(1) | Drops(2))(h, None).messages] == ["3", "4"]
    assert (nothing | Drops(2))(h, None).messages == (Drops(2) | nothing)(h, None).messages


def test_triggers_of_two_rules_are_joined_and_guards_too():
    a = Rules(nothing, triggers.Above(5), guards=guards.Smaller())
    b = Rules(nothing, triggers.Turns(2), guards=guards.GraceAfterCompaction(1))
    assert (a | b).trigger == triggers.Above(5) | triggers.Turns(2)
    assert len((a | b).guards) == 2


def test_a_ladder_takes_the_first_that_helps():
    def fails(h, budget):
        raise ModelError("No answer.")

    h = shown(*(user("x" * 40) for _ in range(5)))
    assert len(Fallback((nothing, fails, Drops(2), Drops(4)))(h, None)) == 3
    with pytest.raises(ModelError, match="No answer"):
        Fallback((nothing, fails))(h, None)
    budget = Rules(window=25).context_budget(MessageLog(Fours()))
    assert len(Fallback((Drops(1), Drops(2), Drops(3), Drops(4)), fits=True)(h, budget)) == 2


def test_a_summariser_is_handed_to_those_that_take_one():
    class Wants(BasePolicy):
        def __init__(self, summariser=None):
            self.summariser = summariser

        def __call__(self, h, budget):
            return h

        def using(self, summariser):
            return Wants(self.summariser or summariser)

    rules = Rules(Wants() | Wants("own") | nothing, summariser="fixed:90")
    assert [getattr(p, "summariser", None) for p in rules.policy.parts] == [
        FixedSizeSummariser(90),
        "own",
        None,
    ]
    other = (rules | Wants()).but(summariser="fixed:7")
    assert [getattr(p, "summariser", None) for p in other.policy.parts] == [
        FixedSizeSummariser(7),
        "own",
        None,
        FixedSizeSummariser(7),
    ]
    assert rules.but(window=900).policy.parts[0].summariser == FixedSizeSummariser(90)


def test_rules_are_made_of_a_function_or_words():
    assert as_rules(nothing).policy == FunctionPolicy(nothing)
    assert as_rules(as_rules(nothing)).label == "nothing"
    assert as_rules(Rules()).label == "none"


def test_a_room_needs_space_beside_what_cannot_be_changed():
    with pytest.raises(BadArguments, match="fixed part of the prompt"):
        Rules(nothing, window=1000).context_budget(MessageLog(Fours(), fixed=1000))
    assert Rules(nothing).context_budget(MessageLog(Fours()), 128_000).limit == 128_000


def test_a_window_that_nobody_asked_for_is_no_bound():
    log = MessageLog(Fours(), fixed=1000)
    assert Rules(nothing, window=1000, assumed=True).context_budget(log).prompt_limit == 1000
    assert Rules(nothing, reserve=900).context_budget(log, 1000).prompt_limit == 100
    with pytest.raises(BadArguments, match="fixed part of the prompt"):
        Rules(nothing, window=1000, assumed=True).but(window=900).context_budget(log)


def test_a_policy_that_keeps_nothing_needs_no_trigger_above_the_default():
    assert Summary(keep_tokens=0).keeps == 0
    assert Rules(Summary(keep_tokens=0), triggers.Above(100)).trigger.limit == 100


class Unspeakable:
    def __repr__(self):
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (Unspeakable(), "a value of type Unspeakable is neither"),
        (10**5_000, "a value of type int is neither"),
        (["a\nb"] * 1_000, r"… is neither"),
    ],
    ids=["no repr", "endless", "long"],
)
def test_what_are_no_rules_is_named_in_one_line(odd, words):
    with pytest.raises(BadArguments, match=words) as told:
        as_rules(odd)
    assert len(str(told.value)) < 200
    assert "\n" not in str(told.value)
