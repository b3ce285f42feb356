"""What a base class's default says is asked of every part; what a subclass says instead is heard."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
from builders import assistant, user
from random_sessions import Fours, shown

import ctxkit as ck
from ctxkit.engine import run_rules
from ctxkit.errors import BadArguments
from ctxkit.policies import (
    BasePolicy,
    Chain,
    ExtractiveSummariser,
    Fallback,
    FixedSizeSummariser,
    FunctionPolicy,
    MessageLog,
    Rules,
    ScheduledPruning,
    Summary,
    UnprunedForecast,
    as_policy,
    guards,
    is_fully_scheduled,
    name_of,
    triggers,
    unwrap_function,
)
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(200, 50, Fours())
LOG = MessageLog.of([m for n in range(9) for m in (user("x" * 40), assistant("y" * 40))], Fours())


def nothing(h, budget):
    return h


def oldest(h, budget):
    """Leave out all but the newest four."""
    return h.drop(h.safe(max(len(h) - 4, 0)), "oldest")


def late(h, budget):
    return h.call >= 5


class Oldest(BasePolicy):
    def __call__(self, h, budget):
        return oldest(h, budget)


def cuts(policy, trigger=None, **more):
    return [
        c.call for c in run_rules(LOG, Rules(policy, trigger, counter=Fours(), **more)).compactions
    ]


# -- the defaults, and each of them said otherwise -------------------------------------------------


def test_a_part_says_nothing_unless_it_does():
    part = Oldest()
    assert (name_of(part), part.name, part.keeps) == ("Oldest", "", None)
    assert part.first(UnprunedForecast(shown(user()), ROOM), 3, 9) == 3
    assert part.using(FixedSizeSummariser(3)) is part.focused("tests") is part


class Waits(Oldest):
    def __init__(self, call):
        self.call, self.asked = call, []

    def __call__(self, h, budget):
        self.asked.append(h.call)
        return super().__call__(h, budget)

    def first(self, forecast, start, stop):
        return min(max(start, self.call), stop)


@pytest.mark.parametrize(
    ("joined", "first"),
    [
        (lambda p: p, 6),
        (lambda p: p | Waits(7), 6),
        (lambda p: Fallback((Waits(4), p)), 4),
        (lambda p: p | nothing, 0),
    ],
)
def test_a_policy_is_not_asked_before_the_call_that_it_names(joined, first):
    whole = joined(waits := Waits(6))
    run_rules(LOG, Rules(whole, counter=Fours()))
    assert whole.first(UnprunedForecast(shown(user()), ROOM), 0, 9) == first
    assert waits.asked[:1] in ([first], []), "it is asked first where the whole can do something"
    assert cuts(Waits(6), triggers.AtCalls((2, 7))) == [7]
    assert cuts(Waits(6), guards=guards.BaseGuard()) == [6, 7, 8]


def test_a_policy_is_lent_a_summariser_and_told_a_focus():
    @dataclass(frozen=True)
    class Writes(Oldest):
        summariser: object = None
        focus: str = ""

        def using(self, summariser):
            return replace(self, summariser=self.summariser or summariser)

        def focused(self, focus):
            return replace(self, focus=focus)

    rules = Rules(Writes(), summariser="fixed:90")
    assert rules.policy == Writes(FixedSizeSummariser(90))
    assert rules.bare == Writes()
    chain = (
        (Fallback((Writes(), nothing)) | Writes("own"))
        .using(FixedSizeSummariser(7))
        .focused("tests")
    )
    ladder, own = chain.parts
    assert own == Writes("own", "tests")
    assert ladder == Fallback((Writes(FixedSizeSummariser(7), "tests"), nothing))
    assert Summary().focused("tests").focus == "tests"


def test_a_policy_says_what_it_keeps_by_an_attribute_a_field_or_a_property():
    class Attribute(Oldest):
        keeps = 500

    @dataclass
    class Field(Oldest):
        keeps: int = 500

    class Property(Oldest):
        @property
        def keeps(self):
            return 500

    for part in (Attribute(), Field(), Property()):
        with pytest.raises(BadArguments, match="keeps 500 frees nothing"):
            Rules(part, triggers.Above(500))
        assert Rules(part, triggers.Above(501)).policy == part


def test_every_kind_says_its_name_by_an_attribute():
    class PartNamed(Oldest):
        name = "mine"

    class DueNamed(triggers.Always):
        name = "now"

    class GuardNamed(guards.BaseGuard):
        name = "gate"

        def first(self, past, forecast, start, stop):
            return min(max(start, 8), stop)

    rules = Rules(PartNamed(), DueNamed(), guards=GuardNamed(), counter=Fours())
    done = run_rules(LOG, rules)
    assert rules.label == "mine"
    assert [c.trigger for c in done.compactions] == ["now"]
    assert {h.guard for h in done.blocked} == {"gate"}
    assert [name_of(p) for p in (Oldest(), triggers.Always(), guards.BaseGuard())] == [
        "Oldest",
        "Always",
        "BaseGuard",
    ]


def test_a_part_may_keep_its_name_where_it_likes():
    class Given(Oldest):
        def __init__(self, name):
            self.name = name

    @dataclass(frozen=True, kw_only=True)
    class Frozen(Oldest):
        name: str

    assert Rules(Given("a") | Frozen(name="b")).label == "a | b"


# -- triggers --------------------------------------------------------------------------------------


def test_a_trigger_says_at_which_size_it_fires():
    class Keeps(Oldest):
        keeps = 100

    class Half(triggers.BaseTrigger):
        def first(self, forecast, start, stop):
            return forecast.above(self.tokens(forecast.budget), start, stop)

        def tokens(self, budget):
            return budget.limit / 2

    assert triggers.Always().tokens(ROOM) is None
    assert (triggers.Above(7).tokens(ROOM), triggers.Share(0.5, "budget").tokens(ROOM)) == (7, 75)
    with pytest.raises(BadArguments, match="at 100 tokens that keeps 100"):
        Rules(Keeps(), Half(), window=200)
    assert Rules(Keeps(), Half(), window=202).window == 202
    assert Rules(Keeps(), Half()).window is None


def test_a_trigger_that_says_its_parts_is_looked_into():
    from ctxkit.policies.compaction_and_pruning_rules import _first_spent_limit

    class Twice(triggers.BaseTrigger):
        def __init__(self, *parts):
            self.parts = parts

    assert _first_spent_limit((Twice(triggers.Always(), triggers.TokensSpent(9)),)) == 9
    assert _first_spent_limit((triggers.Above(3) | triggers.TokensSpent(9),)) == 9
    assert _first_spent_limit((~triggers.TokensSpent(9), triggers.as_trigger(late))) is None


def test_a_function_is_a_trigger_and_asked_at_each_call():
    assert cuts(oldest, late) == cuts(Oldest(), triggers.as_trigger(late)) == [5, 6, 7, 8]
    assert cuts(oldest, late & triggers.AtCalls((3, 7))) == [7]
    assert cuts(oldest, ~triggers.as_trigger(late)) == [2, 3, 4]
    assert (late | triggers.Never()) == triggers.Either((late, triggers.Never()))
    assert (
        name_of(triggers.as_trigger(late)),
        repr(triggers.as_trigger(late)),
        triggers.as_trigger(late),
    ) == (
        "late",
        repr(late),
        triggers.FunctionTrigger(late),
    )
    assert triggers.as_trigger(triggers.as_trigger(late)) is not triggers.as_trigger(late)
    warned = run_rules(LOG, Rules(oldest, triggers.Never(), warnings=late, counter=Fours())).warned
    assert warned == [(5, "late")]


def test_what_only_looks_like_a_trigger_is_told_what_to_derive_from():
    class Looks:
        def first(self, forecast, start, stop):
            return start

    with pytest.raises(
        BadArguments,
        match=r"has `first` but no `__call__`: derive .* from ctxkit.policies.triggers.BaseTrigger",
    ):
        Rules(oldest, Looks())
    with pytest.raises(BadArguments, match="The warning 3 cannot be called"):
        Rules(warnings=(3,))

    class Calls(Looks):
        def __call__(self, h, budget):
            return late(h, budget)

    assert cuts(oldest, Calls()) == [5, 6, 7, 8]


# -- guards ----------------------------------------------------------------------------------------


def test_a_guard_holds_back_and_refuses():
    class Refuses(guards.BaseGuard):
        def refuses(self, past, was, new):
            return "no" if was.call < 7 else None

    class Holds:  # no base: both methods are enough
        def first(self, past, forecast, start, stop):
            return min(max(start, 8), stop)

        def refuses(self, past, was, new):
            return None

    assert cuts(oldest, guards=guards.BaseGuard()) == cuts(oldest)
    assert cuts(oldest, guards=Refuses()) == [7, 8]
    assert cuts(oldest, guards=[Refuses(), Holds()]) == [8]
    with pytest.raises(BadArguments, match="is no guard"):
        Rules(oldest, guards=(guards.Smaller(), oldest))


# -- plain functions -------------------------------------------------------------------------------


def test_a_function_is_a_part_like_any_other():
    part = as_policy(oldest)
    assert part == FunctionPolicy(oldest) == Rules(oldest).policy == Rules(pruning=oldest).pruning
    assert (hash(part), repr(part), name_of(part)) == (
        hash(FunctionPolicy(oldest)),
        repr(oldest),
        "oldest",
    )
    assert part != FunctionPolicy(nothing)
    assert as_policy(part) is part
    assert unwrap_function(part) is unwrap_function(oldest) is oldest
    assert Rules(oldest) == Rules(oldest) != Rules(nothing)
    assert repr(oldest) in repr(Rules(oldest))
    assert cuts(oldest) == cuts(Oldest()) == cuts(Chain((oldest,)))


def test_a_policy_without_the_base_works_asked_at_each_call():
    class Duck:
        keeps, name = 10**6, "duck"

        def first(self, forecast, start, stop):
            raise AssertionError("it is no part: only its call counts")

        def __call__(self, h, budget):
            return oldest(h, budget)

    assert cuts(Duck(), triggers.Above(60)) == cuts(Oldest(), triggers.Above(60)) != []
    assert Rules(Duck(), triggers.Above(60)).label == "duck"
    assert [
        m.text
        for m in run_rules(LOG, Rules(pruning=Duck(), counter=Fours())).last_prompt().messages
    ] == [
        m.text
        for m in run_rules(LOG, Rules(pruning=Oldest(), counter=Fours())).last_prompt().messages
    ]


def test_a_policy_that_wants_to_be_lent_a_summariser_must_derive_from_the_base():
    class Wants:
        def using(self, summariser):
            return self

        def __call__(self, h, budget):
            return h

    with pytest.raises(
        BadArguments, match=r"Wants has a method `using`, .* from ctxkit.policies.BasePolicy"
    ):
        Rules(Wants())


def test_a_part_without_a_call_is_refused():
    with pytest.raises(BadArguments, match="cannot be called"):
        Rules(BasePolicy())


def test_schedules_are_those_of_classes_that_did_not_redefine_the_call():
    class Says(ScheduledPruning):
        def schedule(self, view, budget):
            pass

    class Calls(Says):
        def __call__(self, h, budget):
            return h

    assert is_fully_scheduled(Says())
    assert not any(
        map(
            is_fully_scheduled, (Calls(), FunctionPolicy(nothing), FunctionPolicy(Says()), Oldest())
        )
    )


def test_a_chain_whose_call_was_redefined_is_asked_by_its_call():
    class Backwards(Chain):
        def __call__(self, h, budget):
            return oldest(h, budget)

    one, other = (
        run_rules(LOG, Rules(pruning=p, counter=Fours())).prompts.tolist()
        for p in (Backwards((nothing,)), Oldest())
    )
    assert one == other


# -- rules -----------------------------------------------------------------------------------------


def test_rules_travel_and_are_frozen():
    rules = Rules(
        Summary(),
        triggers.Above(30_000) | late,
        nothing,
        guards.Smaller(),
        warnings=late,
        window=50_000,
    )
    again = pickle.loads(pickle.dumps(rules))
    assert again == rules
    assert replace(rules, window=60_000).guards == (guards.Smaller(),)
    assert (rules.bare, rules.policy) == (Summary(), Summary(summariser=ExtractiveSummariser()))
    with pytest.raises(AttributeError):
        rules.policy = nothing


def test_the_names_that_users_derive_from_are_on_the_face():
    assert ck.policies.BasePolicy is BasePolicy
    assert ck.policies.triggers.BaseTrigger is triggers.BaseTrigger
    assert ck.policies.guards.BaseGuard is guards.BaseGuard


class Patience(NamedTuple):
    """A guard that is a named tuple."""

    calls: int

    def first(self, past, forecast, start, stop):
        return max(start, self.calls)

    def refuses(self, past, was, new):
        return None


class Long(NamedTuple):
    """A trigger that is one."""

    tokens: int

    def __call__(self, history, budget):
        return history.tokens > self.tokens


def test_a_named_tuple_is_one_guard_and_one_warning():
    rules = Rules(nothing, Long(0), guards=Patience(3), warnings=Long(0), counter=Fours())
    assert rules.guards == (Patience(3),)
    assert len(run_rules(LOG, rules).warned) == 1
