"""What a run lost, from arrays, is what the definition says of the replay, message by message."""

from __future__ import annotations

import random
from functools import cache

import pytest
from builders import assistant, result, session, tool_call, user
from hypothesis import given, settings
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.engine import run
from ctxkit.policies import triggers, window
from ctxkit.policies.rules import Rules
from ctxkit.policies.summarisers import Fixed
from ctxkit.policies.summary import Summary
from ctxkit.replays import session_of
from ctxkit.sweeps.batches import Bench, Options, Setting
from ctxkit.sweeps.scores import row_of

WORDS = [f"src/part{i}/file{k}.py" for i in range(5) for k in range(3)] + [f"file{k}.py" for k in range(3)]
WORDS += [
    "https://example.org/a1",
    "12 ms",
    "#4711",
    "deadbeef01",
    "never delete the table",
    "TODO: the rest",
    "word " * 150,
]


@cache
def bench(seed: int, n: int = 40) -> Bench:
    """A session that reads and writes files and speaks of them again, at times in a message that nobody sees."""
    chance, log = random.Random(seed), [user("Keep to src/part1/file1.py, always.", pinned=seed % 3 == 0)]
    for i in range(n):
        say = " and ".join(chance.choices(WORDS, k=chance.randrange(1, 5)))
        if chance.random() < 0.25:
            log.append(user(say, visible=chance.random() < 0.8))
        asked = [tool_call(chance.choice(["read_file", "edit_file", "bash"]), path=chance.choice(WORDS[:18]))]
        log.append(assistant(say, *asked[: chance.randrange(2)], time=9.0 * i, model="claude-sonnet-4-5"))
        if log[-1].tool_calls:
            log.append(result(" or ".join(chance.choices(WORDS, k=9)), asked[0]))
    return Bench(session(*log, id=f"said{seed}"))


def said(passage):
    return "So far: src/part2/file2.py, 12 ms, archive of all."


POLICIES = [Summary(keep_tokens=n, summariser=s) for n in (200, 900) for s in (Fixed(90), said, None)]
POLICIES += [window.Window(keep_tokens=1500), window.Turns(keep_turns=2), ck.presets.openhands(max_size=20).policy]
POLICIES += [ck.presets.claude_code().policy, lambda h, _: h.drop(1, "offloaded") if len(h) > 20 else h]


def differing(bench: Bench, rules: Rules) -> dict:
    """What a row says otherwise than the definition does of the replay."""
    done = run(bench.log(rules), rules, bench.limit)
    row = bench.row(Setting.of("x", rules), Options(loss=True))
    slow = row_of(session_of(bench.session, done), bench.base, done, loss=True) | {"rules": "x"}
    return {
        k: (row.get(k), v)
        for k, v in slow.items()
        if row.get(k) != (v if v is None or isinstance(v, str) else pytest.approx(v))
    }


@settings(max_examples=30)
@given(st.integers(0, 9), st.sampled_from(POLICIES), st.sampled_from([1800, 2600]))
def test_the_columns_of_loss_are_those_of_the_replay(seed, policy, limit):
    assert differing(bench(seed), Rules(policy=policy, trigger=triggers.Above(limit))) == {}


def test_the_definition_itself_is_not_asked_where_cuts_take_the_oldest(monkeypatch):
    rules = Rules(policy=POLICIES[0], trigger=triggers.Above(1800))
    expected = bench(1).row(Setting.of("x", rules), Options(loss=True))
    monkeypatch.setattr("ctxkit.sweeps.batches.row_of", None)
    assert bench(1).row(Setting.of("x", rules), Options(loss=True)) == expected
    assert expected["cuts_n"] > 1
    assert expected["needed_lost_n"] > 0


def test_what_is_hidden_by_a_pruning_is_left_to_the_definition():
    rules = ck.presets.anthropic_clear_tools(trigger=1500)
    assert bench(2).lost(run(bench(2).log(rules), rules, None)) is None
    assert differing(bench(2), rules) == {}


def test_a_real_session(real):
    own = Bench(ck.read(real / "pi/before-compaction.jsonl"))
    for rules in ck.grid("pi", context_window=[100_000], keep_recent_tokens=[20_000], summariser=["fixed", None]):
        assert differing(own, rules) == {}
