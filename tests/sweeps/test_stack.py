"""Many runs at once are the engine's own runs, one by one: to the token, to the cut, to the dollar."""

from __future__ import annotations

import math
import random
from functools import cache

import numpy as np
import pytest
from builders import assistant, session, user
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sweeps_quick import wild
from test_sweeps_scores import talk

import ctxkit as ck
from ctxkit.engine import run
from ctxkit.messages import Message, Text, ToolCall, Usage
from ctxkit.policies import triggers, window
from ctxkit.policies.rules import Rules
from ctxkit.policies.summarisers import Fixed, Share
from ctxkit.policies.summary import Summary
from ctxkit.presets.moments import opens_turn
from ctxkit.sweeps.batches import Bench, Options, Setting
from ctxkit.sweeps.stack import Table, order_of
from ctxkit.sweeps.stack.figures import Runs
from ctxkit.sweeps.stack.holds import compensated
from ctxkit.sweeps.stack.rising import Rising
from ctxkit.sweeps.stack.rows import rows

T = triggers


def work(seed: int, n: int = 40):
    """A session with a system prompt, tools, late results, empty messages, pauses and failed calls."""
    chance, log, before, now = random.Random(seed), [], 0, 0.0
    if chance.random() < 0.7:
        log.append(Message(role="system", parts=(Text("rules " * chance.randrange(1, 900)),)))
    size = 4000
    for i in range(n):
        now += chance.choice([5.0, 5.0, 400.0])
        if i == 0 or chance.random() < 0.3:
            log.append(user("word " * chance.choice([0, 1, 40, 2000]), time=now))
        size += chance.randrange(0, 5000)
        asked = tuple(
            ToolCall(id=f"c{i}.{k}", name="read", arguments={"path": "a"}) for k in range(chance.randrange(3))
        )
        read = chance.choice([before, before, before, 0, max(before - 500, 0)])
        usage = Usage(input_tokens=0, cache_read_tokens=read, cache_write_tokens=size - read, output_tokens=9)
        stop = chance.choice([None, None, None, "length"])
        told = {"usage": usage, "model": "claude-sonnet-4-5", "time": now + 1, "latency": 1.0, "stop": stop}
        log.append(assistant("so " * chance.randrange(300), *asked, **told))
        for call in asked:
            text = Text("line " * chance.choice([0, 3, 50, 3000]))
            log.append(Message(role="tool", parts=(text,), call_id=call.id, tool="read", time=now + 1))
        before = size
    return session(*log, id=f"work{seed}")


def summaries(**more):
    return [Summary(**more, summariser=s) for s in (Fixed(300), Fixed(2500), Share(0.2, 3000, 50))]


DUE = [T.Above(30_000), T.Above(45_000, or_equal=True), T.Share(0.2), T.Share(0.22333), T.Count(9), T.Turns(3)]
DUE += [T.Count(12, ("assistant",)), T.Count(20, ("user", "tool", "summary")), T.Spent(200_000), T.Idle(300)]
DUE += [T.Both((T.Above(25_000), opens_turn)) | T.Overflow(recorded=True), T.Both((T.Count(15), opens_turn))]
DUE += [T.Above(21_000, estimated=True) | T.Turns(6), T.CutShort() | T.Above(60_000), T.Overflow() | T.Recorded()]
KEEP = [{"keep_tokens": 4000}, {"keep_tokens": 9000, "estimated": True}, {"keep_turns": 2}, {"keep_messages": 6}]
KEEP += [{"keep_share": 0.05}, {"keep_tokens": 6000, "split_turns": False}, {"keep_tokens": 0}]
KEEP += [{"keep_tokens": 2000, "must_shrink": False, "limit": 900, "split_limit": 200}, {"apart": False}]
POLICIES = [p for more in KEEP for p in summaries(**more)]
POLICIES += [window.Window(keep_tokens=n, estimated=e) for n in (9000, 25_000) for e in (False, True)]
POLICIES += [window.WindowShare(keep_share=0.1), window.Turns(keep_turns=3)]


@cache
def bench(seed: int) -> Bench:
    return Bench(wild(seed) if seed % 3 == 2 else work(seed))


def differing(sessions, all_rules, reuse=False):
    """What the stack says otherwise than single runs, and how many runs it took on."""
    options = Options(reuse=reuse)
    given = [Setting.of(str(i), r) for i, r in enumerate(all_rules)]
    benches = [s if isinstance(s, Bench) else Bench(s) for s in sessions]
    wrong, taken = [], 0
    for bench, made in zip(benches, rows(benches, given, options, least=1), strict=True):
        for setting, row in zip(given, made, strict=True):
            if row is not None:
                taken += 1
                one = bench.row(setting, options)
                wrong += [(bench.session.id, setting.rules, k, row.get(k), one.get(k)) for k in {*row, *one} if row.get(k) != one.get(k)]  # fmt: skip
    return wrong, taken


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sets(st.integers(0, 11), min_size=1, max_size=3))
def test_every_family_that_opts_in_gives_the_rows_of_the_engine(seed, sessions):
    chance = random.Random(seed)
    rules = [
        Rules(policy=p, trigger=chance.choice(DUE), window=chance.choice([None, 150_000]), estimator="chars/4")
        for p in chance.sample(POLICIES, 6)
        for _ in range(2)
    ]
    wrong, _ = differing(map(bench, sessions), rules, bool(seed % 2))
    assert wrong == []


@pytest.mark.parametrize("quirks", [False, True])
def test_pis_grid_is_done_at_once_and_to_the_dollar(quirks):
    rules = ck.grid(
        ck.presets.pi, context_window=[45_000, 60_000, 90_000], reserve_tokens=4000, quirks=quirks,
        keep_recent_tokens=[500, 6000, 20_000], summariser=["fixed"] if quirks else ["fixed:900", "share:0.1"],
    )  # fmt: skip
    wrong, taken = differing([work(1), work(2, 90), talk(40)], rules)
    assert wrong == []
    assert taken > 0.6 * 3 * len(rules)


@pytest.mark.parametrize(
    "keep", [("messages", 8), ("tokens", 5000), ("fraction", 0.04)], ids=lambda k: f"{k[0]}-{k[1]}"
)
def test_langchains_words_for_how_much_are_understood(keep):
    due = [("tokens", 30_000), ("messages", 14), [("fraction", 0.2), ("messages", 50)]]
    rules = ck.grid(
        ck.presets.langchain_summary, trigger=due, keep=[keep], summariser=["fixed", "fixed:60", "fixed:900"]
    )
    wrong, taken = differing([work(4, 80), work(5, 80), talk(40)], rules)
    assert wrong == []
    assert taken > 12


def test_figures_are_those_of_a_run_whatever_the_life_of_the_cache():
    from ctxkit.engine import log_of

    all_rules = [Rules(policy=p, trigger=T.Above(30_000), cache_life=100.0) for p in summaries(keep_tokens=5000)[:2]]
    logs = [log_of(work(n), all_rules[0]) for n in (11, 12, 13)]
    runs = Runs(Table(logs), [order_of(r) for r in all_rules], np.arange(3), np.full(3, 200_000))
    found = [(r.total, r.fresh, r.peak, len(r.cuts)) for log in logs for r in (run(log, x, None) for x in all_rules)]
    assert [tuple(map(int, one)) for one in zip(*runs.bill(), strict=True)] == found
    assert sum(one[3] for one in found) > 6


class Mine(Summary):
    """A policy of one's own: what it does, the stack cannot know."""


def test_what_the_stack_cannot_do_exactly_does_not_opt_in():
    pi = ck.presets.pi
    taken = [pi(summariser="fixed"), pi(summariser="share:0.1"), ck.presets.none(), pi(enabled=False)]
    assert None not in map(order_of, taken)
    left = [
        pi(),
        pi(summariser="recorded"),
        pi(summariser="share:0.1", quirks=True),
        ck.presets.fuseraft(summariser="fixed"),
    ]
    left += [Rules(policy=Mine(summariser=Fixed())), Rules(policy=lambda h, _: h), pi(summariser=lambda _: 100)]
    left += [Rules(policy=Summary(summariser=Fixed()), trigger=lambda h, _: True), ck.presets.anthropic_clear_tools()]
    left += [Rules(policy=Summary(summariser=Fixed()), trigger=T.Above(9) & T.Turns(2))]
    assert [order_of(r) for r in left] == [None] * len(left)


def test_a_log_that_does_not_fit_is_left_to_the_engine():
    pinned = talk(30)
    pinned = session(*[m if i != 9 else user("never forget", pinned=True) for i, m in enumerate(pinned.messages)])
    rules = ck.grid(
        "pi", context_window=[50_000, 60_000], keep_recent_tokens=range(2000, 7000, 500), summariser="fixed"
    )
    assert differing([pinned], rules) == ([], 0)
    frames = ck.sweep([pinned, talk(30)], rules), [ck.sweep(s, rules) for s in (pinned, talk(30))]
    assert len(frames[0]) == 40
    assert frames[0]["prompt_tokens"].tolist() == [n for f in frames[1] for n in f["prompt_tokens"]]


def test_a_window_that_cannot_hold_the_prompt_is_a_row_with_its_error():
    rules = ck.grid("pi", context_window=[9000, 60_000], reserve_tokens=2000, keep_recent_tokens=range(500, 3000, 500), summariser="fixed")  # fmt: skip
    runs = ck.sweep(talk(30), rules)
    assert runs["error"].notna().tolist() == [r.parameters["context_window"] == 9000 for r in rules]


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=80), st.lists(st.integers(-9, 10**5), min_size=13, max_size=40)
)
def test_rising_numbers_are_searched_as_numpy_does(steps, keys):
    values, keys = np.cumsum(steps), np.array(keys)
    for side in ("left", "right"):
        assert Rising(values).find(keys, side).tolist() == np.searchsorted(values, keys, side).tolist()


def test_sums_are_corrected_as_python_has_done_it_since_3_12():
    values = np.array([1e16, 1.0, -1e16, 0.1, 0.2, 0.3, 0.7])
    assert compensated(values, np.array([0, 3, 3, 6, 7])).tolist() == [1.0, 0.0, math.fsum([0.1, 0.2, 0.3]), 0.7]


def test_real_sessions_at_once(real):
    sessions = [ck.read(real / "pi/before-compaction.jsonl")]
    rules = ck.grid(
        "pi",
        context_window=[60_000, 100_000, 200_000],
        keep_recent_tokens=[5000, 20_000],
        summariser=["fixed", "share:0.2"],
    )
    wrong, taken = differing(sessions, rules)
    assert (wrong, taken) == ([], 12)
