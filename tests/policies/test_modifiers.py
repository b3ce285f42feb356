"""Switches on any rules, on a hand-made history."""

import pytest
from builders import assistant, user
from histories import CHARS, shown
from msgspec.structs import replace

from ctxkit import presets
from ctxkit.engine import RulesRun, advance_run
from ctxkit.errors import BadArguments
from ctxkit.policies import Above, History, MessageLog, Rules, Summary, rules_modifiers
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(100_000, 0, CHARS)


def rules(**more):
    return Rules(policy=Summary(keep_messages=2, apart=False), trigger=Above(10), **more)


def talk(n=6):
    return [
        m
        for i in range(n)
        for m in (user(f"ask {i} " + "x" * 80, id=f"u{i}"), assistant("y" * 80, id=f"a{i}"))
    ]


def twice(made):
    """Two compactions in a row, and what each summary was made of."""
    asked = []
    made = made.but(
        summariser=lambda p: asked.append([m.id for m in p.messages]) or f"S{len(asked)}"
    )
    rows = talk(8)
    log = MessageLog(CHARS)
    for m in rows[:9]:
        log.append(m)
    log.open()
    new = made.policy(History.start(log, log.calls - 1), ROOM)
    for m in rows[9:]:
        log.append(m)
    log.open()
    return asked, made.policy(new.at(log.calls - 1), ROOM)


def test_summaries_stay_and_new_ones_stand_behind_them():
    asked, new = twice(rules_modifiers.append_only(rules()))
    assert [m.text for m in new.messages][:2] == ["S1", "S2"]
    assert not set(asked[0]) & set(asked[1])
    rolled, rolling = twice(rules())
    assert [m.role for m in rolling.messages].count("summary") == 1
    assert len(rolled[1]) == len(asked[1]) + 1  # the earlier summary


def test_codex_keeps_requests_and_lets_summaries_stand_between_them():
    _, new = twice(rules_modifiers.append_only(presets.codex()))
    assert [m.id for m in new.messages if m.role == "user"] == [f"u{i}" for i in range(8)]
    assert sum(m.role == "summary" for m in new.messages) == 2


def test_the_first_request_stays_in_front():
    asked, new = twice(rules_modifiers.keep_first_request(rules()))
    assert new.messages[0].id == "u0"
    assert new.messages[1].role == "summary"
    assert all("u0" not in a for a in asked)


def test_both_at_once():
    asked, new = twice(rules_modifiers.append_only(rules_modifiers.keep_first_request(rules())))
    assert [m.role for m in new.messages][:3] == ["user", "summary", "summary"]
    assert len(asked) == 2


def test_one_prepares_and_another_commits():
    told = []
    made = rules_modifiers.draft_then_finish_summaries(
        rules(), lambda p: "a draft", lambda p: told.append(p.instructions) or "final"
    )
    new = made.policy(shown(talk(), counter=CHARS), ROOM)
    assert new.messages[0].text == "final"
    assert told[0].endswith("a draft")


def test_a_summariser_that_could_not_be_lent_is_refused():
    own = Rules(policy=Summary(keep_messages=2, summariser=lambda p: "own"), trigger=Above(10))
    for wrong in (own, presets.none(), Rules(policy=lambda h, budget: h, trigger=Above(10))):
        with pytest.raises(BadArguments, match="do not use another summariser"):
            rules_modifiers.draft_then_finish_summaries(wrong, lambda p: "a draft")


def test_what_was_prepared_can_be_prepared_again():
    prepare, commit = (lambda p: "a draft"), (lambda p: p.instructions)
    once = rules_modifiers.draft_then_finish_summaries(rules(), prepare, commit)
    assert rules_modifiers.draft_then_finish_summaries(once, prepare, commit) == once


@pytest.mark.parametrize(
    "policy", [rules_modifiers.append_only(rules()).bare, presets.lcm(context_threshold=0.001).bare]
)
def test_a_summary_that_was_lent_no_summariser_extracts(policy):
    new = policy(shown(talk(50), counter=CHARS), ROOM)
    assert "summary" in [m.role for m in new.messages]


def test_a_task_ends_where_a_new_request_comes():
    rows = [
        m
        for i in range(6)
        for m in (user(f"u{i}" + "x" * 90), assistant("y" * 90), assistant("z" * 90))
    ]
    inner = Summary(keep_messages=1, apart=False, summariser=lambda p: "S")
    plain = Rules(policy=inner, trigger=Above(350), window=400)
    log = MessageLog.of(rows, CHARS)
    early = rules_modifiers.add_task_boundary_trigger(plain, 0.4)
    cuts = [
        [c.call for c in advance_run(RulesRun(log, r), r, log.calls).compactions]
        for r in (plain, early)
    ]
    assert cuts[0][:1] != cuts[1][:1]
    opens = {log.first_calls[r] for r, m in enumerate(log.messages) if m.role == "user"}
    assert cuts[1][0] in opens


@pytest.mark.parametrize(
    "switch",
    [
        rules_modifiers.append_only,
        rules_modifiers.keep_first_request,
        rules_modifiers.add_task_boundary_trigger,
    ],
)
def test_rules_that_write_no_summary_are_refused(switch):
    with pytest.raises(BadArguments):
        switch(presets.none())


class Noted(Summary):
    """What a class adds to its summary, or does besides, below a call of its own."""

    def __call__(self, history, budget):
        new = super().__call__(history, budget)
        return new if new is history else new.insert(len(new), user("go on", id="more"))

    def write_summary(self, history, first):
        return f"{super().write_summary(history, first)} and more"


@pytest.mark.parametrize(
    "switch",
    [rules_modifiers.append_only, rules_modifiers.keep_first_request, rules_modifiers.leveled],
)
def test_what_a_summary_adds_stays_under_each_switch(switch):
    inner = Noted(keep_messages=2, apart=False, summariser=lambda p: "S")
    made = switch(Rules(policy=inner, trigger=Above(10)))
    new = made.policy(shown(talk(), counter=CHARS), ROOM)
    assert [m.text for m in new.messages if m.role == "summary"] == ["S and more"]
    assert new.messages[-1].text == "go on"


@pytest.mark.parametrize(("fan", "cuts"), [(2, 9), (3, 9), (3, 14), (4, 21)])
def test_summaries_of_one_level_become_one_of_the_next(fan, cuts):
    """P27: After so many compactions the levels that stand are the digits of their number."""
    asked = []

    def writer(passage):
        asked.append([m.role for m in passage.messages])
        return f"S{len(asked)}"

    made = rules_modifiers.leveled(rules(summariser=writer), fan)
    history = History.start(MessageLog(CHARS), 0)
    log, n = history.log, 0
    for _ in range(cuts):
        for m in talk(3):
            log.append(replace(m, id=f"{m.id}-{n}"))
            n += 1
        log.open()
        history = made.policy(history.at(log.calls - 1), ROOM)
    found = [m.details.get("level", 0) for m in history.messages if m.role == "summary"]
    digits = [cuts // fan**k % fan for k in range(3)] + [cuts // fan**3]
    assert found == sorted(found, reverse=True)
    assert [found.count(level) for level in range(4)] == digits
    merged = [roles for roles in asked if "summary" in roles]
    assert merged == [["summary"] * fan] * sum(cuts // fan**k for k in (1, 2, 3))


def test_levels_that_cannot_be_are_refused():
    with pytest.raises(BadArguments, match="fan of 2"):
        rules_modifiers.leveled(rules(), 1)
    with pytest.raises(BadArguments, match="no summary"):
        rules_modifiers.leveled(Rules(policy=lambda h, r: h, trigger=Above(10)))
