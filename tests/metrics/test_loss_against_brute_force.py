"""What was lost, from arrays, is what the definition says, message by message and call by call."""

from __future__ import annotations

import random
from functools import cache

import pytest
from builders import assistant, result, session, tool_call, user
from conftest import examples, sample
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics.loss_brute_force import by_definition, views_of

import ctxkit as ck
from ctxkit.engine import make_session_from_run, run_rules
from ctxkit.experiments import NamedRules, SessionRunner, SweepScoreOptions
from ctxkit.metrics import get_rules_run_visibility, get_session_visibility, loss_tables
from ctxkit.metrics.loss_analysis import ORACLE_MOMENTS, LossAnalysis
from ctxkit.policies import (
    FixedSizeSummariser,
    Rules,
    Summary,
    compaction_without_summary,
    triggers,
)

WORDS = [f"src/part{i}/file{k}.py" for i in range(5) for k in range(3)] + [
    f"file{k}.py" for k in range(3)
]
WORDS += [
    "https://example.org/a1",
    "12 ms",
    "#4711",
    "deadbeef01",
    "never delete the table",
    "Never delete the table of runs. Thank you",
    "the table of runs must not be deleted",
    "fin-import-7",
    "TODO: the rest",
    "word " * 150,
]


@cache
def bench(seed: int, n: int = 40) -> SessionRunner:
    """A session that reads and writes files and speaks of them again, at times in a message that nobody sees."""
    chance, log = (
        random.Random(seed),
        [user("Keep to src/part1/file1.py, always.", pinned=seed % 3 == 0)],
    )
    for i in range(n):
        say = " and ".join(chance.choices(WORDS, k=chance.randrange(1, 5)))
        if chance.random() < 0.25:
            log.append(user(say, visible=chance.random() < 0.8))
        asked = [
            tool_call(
                chance.choice(["read_file", "edit_file", "bash"]), path=chance.choice(WORDS[:18])
            )
        ]
        log.append(
            assistant(say, *asked[: chance.randrange(2)], time=9.0 * i, model="claude-sonnet-4-5")
        )
        if log[-1].tool_calls:
            log.append(result(" or ".join(chance.choices(WORDS, k=9)), asked[0]))
    return SessionRunner(session(*log, id=f"said{seed}"))


def said(passage):
    return "So far: src/part2/file2.py, 12 ms, archive of all."


POLICIES = [
    Summary(keep_tokens=n, summariser=s)
    for n in (200, 900)
    for s in (FixedSizeSummariser(90), said, None)
]
POLICIES += [
    compaction_without_summary.Window(keep_tokens=1500),
    compaction_without_summary.KeepTurns(keep_turns=2),
    ck.presets.openhands(max_size=20).policy,
]
POLICIES += [
    ck.presets.claude_code().policy,
    lambda h, _: h.drop(1, "offloaded") if len(h) > 20 else h,
]


PRUNINGS = [
    ck.presets.swe_agent_mask(n=3).pruning,
    ck.presets.anthropic_clear_tools(trigger=900).pruning,
]
PRUNINGS += [ck.presets.tyrum().pruning, ck.presets.ai().pruning]


def called(history, budget):
    """A pruning that says no schedule: the results of every third call stay, all others are hidden."""
    results = [p for p, m in enumerate(history) if m.role == "tool" and history.call % 3]
    return history.shorten(results, "[hidden]", "not now") if results else history


def found(own: SessionRunner, done) -> LossAnalysis:
    return LossAnalysis(own.base.memory, get_rules_run_visibility(own.base.memory, done))


def differing(own: SessionRunner, rules: Rules) -> dict:
    """What the columns say otherwise than the definition."""
    done = run_rules(own.log(rules), rules, own.limit)
    lost = found(own, done)
    moments = lost.visibility.change_calls.tolist()
    flagged = {time // 2 for time in lost.visibility.stored_elsewhere[:, 1].tolist()}
    told, slow = (
        loss_tables.make_loss_columns(lost),
        by_definition(own.session, views_of(done), moments, flagged),
    )
    return {
        k: (told[k], v)
        for k, v in slow.items()
        if told[k] != (v if v is None else pytest.approx(v))
    }


@settings(max_examples=examples(25))
@given(st.integers(0, 9), st.sampled_from(POLICIES), st.sampled_from([1800, 2600]))
def test_what_compactions_lost_is_what_the_definition_says(seed, policy, limit):
    assert differing(bench(seed), Rules(policy=policy, trigger=triggers.Above(limit))) == {}


@settings(max_examples=examples(25))
@given(
    st.integers(0, 9), st.sampled_from([*PRUNINGS, called]), st.sampled_from([None, *POLICIES[:3]])
)
def test_what_prunings_hid_is_what_the_same_definition_says(seed, pruning, policy):
    trigger = triggers.Above(1800) if policy is not None else None
    assert differing(bench(seed), Rules(policy=policy, trigger=trigger, pruning=pruning)) == {}


@settings(max_examples=examples(15))
@given(st.integers(0, 9), st.sampled_from(POLICIES))
def test_the_edits_of_a_replay_say_what_its_run_does(seed, policy):
    own, rules = bench(seed), Rules(policy=policy, trigger=triggers.Above(1800))
    done = run_rules(own.log(rules), rules, own.limit)
    again = LossAnalysis(
        own.base.memory,
        get_session_visibility(own.base.memory, make_session_from_run(own.session, done)),
    )
    assert loss_tables.make_loss_columns(again) == pytest.approx(
        loss_tables.make_loss_columns(found(own, done)), nan_ok=True
    )


def test_a_rule_said_by_a_schedule_and_by_a_function_loses_the_same():
    masked = ck.presets.swe_agent_mask(n=3)

    def plain(history, budget):
        return history if not history.call else masked.pruning(history, budget)

    one, other = (
        loss_tables.make_loss_columns(found(bench(3), run_rules(bench(3).log(r), r, None)))
        for r in (masked, Rules(pruning=plain))
    )
    assert one == other
    assert one["needed_lost_n"] > 0


def test_a_real_session(real):
    own = SessionRunner(ck.read(real / "pi/before-compaction.jsonl"))
    for rules in ck.grid(
        "pi",
        context_window=[100_000],
        keep_recent_tokens=[20_000],
        summariser=sample(["fixed", None], 1),
    ):
        assert differing(own, rules) == {}


def test_a_row_of_a_sweep_and_a_score_of_the_replay_say_the_same():
    own, rules = bench(1), Rules(policy=POLICIES[0], trigger=triggers.Above(1800))
    row = own.row(NamedRules.of("x", rules), SweepScoreOptions(loss=True))
    score = ck.score(ck.replay(own.session, rules))
    assert row["compactions_n"] > 1
    assert row["needed_lost_n"] > 0
    assert {
        k: score[k]
        for k in loss_tables.make_loss_columns(
            found(own, run_rules(own.log(rules), rules, own.limit))
        )
    } == {
        k: row[k]
        for k in loss_tables.make_loss_columns(
            found(own, run_rules(own.log(rules), rules, own.limit))
        )
    }


def test_the_work_does_not_grow_with_the_cuts():
    """Beyond the cuts at which the best set of messages is looked for, more cuts are no more work."""
    import sys

    def work(more: int) -> tuple[int, int]:
        own = bench(5, 300)
        rules = Rules(
            policy=compaction_without_summary.Window(keep_tokens=1500),
            trigger=triggers.Above(1500 + more),
        )
        done = run_rules(own.log(rules), rules, own.limit)
        lost, n = found(own, done), 0

        def count(*_):
            nonlocal n
            n += 1

        sys.setprofile(count)
        try:
            loss_tables.make_loss_columns(lost)
        finally:
            sys.setprofile(None)
        return len(done.compactions), n

    (many, much), (few, little) = work(100), work(1200)
    assert many > 3 * few > 3 * ORACLE_MOMENTS
    assert much < 1.2 * little
