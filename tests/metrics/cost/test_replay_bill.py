"""The bill of a run from sums over stretches is that of its calls one by one."""

from __future__ import annotations

import random

import pytest
from builders import assistant, session, user
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.engine import compute_shared_tokens, make_log_from_session, run_rules
from ctxkit.experiments import SessionRunner, score_run
from ctxkit.metrics import PromptAndSharedPrefixSizes, ReplayCostModel, RunPromptSizes
from ctxkit.metrics.cost.replay_cost_model import LogPrefixSums, TokenSumsByPriceTier, bill_replay
from ctxkit.policies import Above, Clear, FixedSizeSummariser, Rules, Summary
from ctxkit.session import Usage


def wild(seed: int, n: int = 60):
    """A session with misses, pauses, failed calls and, at times, writes that live an hour."""
    chance, log, before = random.Random(seed), [], 0
    hour, size = chance.random() < 0.3, chance.choice([300, 3000, 3000])
    most = chance.choice([4000, 4000, 16_000])
    model = chance.choice(["claude-sonnet-4-5", "gemini-2.5-pro"])
    for i in range(n):
        size += chance.randrange(50, most)
        log.append(user("word " * chance.randrange(1, 3000), time=100.0 * i))
        if chance.random() < 0.1:
            log.append(assistant("", is_error=True, time=100.0 * i + 5))
            continue
        read = chance.choice([before, before, before, before, 0, 2000, max(before - 700, 0)])
        rest = size - min(read, size)
        u = Usage(
            input_tokens=0, cache_read_tokens=min(read, size), output_tokens=50,
            cache_write_tokens=0 if hour else rest, cache_write_1h_tokens=rest if hour else 0,
        )  # fmt: skip
        wait = chance.choice([1.0, 1.0, 900.0])
        log.append(assistant("ok", usage=u, model=model, time=100.0 * i + wait, latency=1.0))
        before = size
    return session(*log, id=f"wild{seed}")


def each_call(bench, done):
    """The bill with every call added by itself."""
    sent = PromptAndSharedPrefixSizes(done.prompts.tolist(), compute_shared_tokens(done).tolist())
    return bill_replay(bench.base.sheet, sent)


def agree(bench, done):
    whole, one_by_one = bill_replay(bench.base.sheet, RunPromptSizes(done)), each_call(bench, done)
    assert whole == pytest.approx(one_by_one)
    assert whole[:5] == one_by_one[:5]
    return whole


def agree_with_calls(sheet, done):
    sent, tally = RunPromptSizes(done), TokenSumsByPriceTier(sheet)
    tally.add_calls(sent, range(len(sent)))
    priced = None not in [sheet.prices[m] for m in sheet.models]
    whole, one_by_one = bill_replay(sheet, sent), tally.bill(0.0, priced=priced)
    assert whole == pytest.approx(one_by_one)
    assert whole[:5] == one_by_one[:5]
    return whole


@given(
    st.integers(0, 40),
    st.sampled_from([20_000, 30_000, 60_000, 10**6]),
    st.sampled_from([500, 3000, 9000]),
)
def test_a_stretch_is_billed_as_its_calls(seed, window, keep):
    bench = SessionRunner(wild(seed))
    rules = ck.presets.pi(
        context_window=window, reserve_tokens=4000, keep_recent_tokens=keep, summariser="fixed:800"
    )
    agree(bench, run_rules(bench.log(rules), rules, 200_000))


@given(st.integers(0, 40), st.randoms(use_true_random=False), st.sampled_from([500, 3000, 9000]))
def test_prompts_that_shrink_are_billed_as_their_calls(seed, chance, keep):
    """The part of a prompt outside its messages changes from call to call."""
    bench = SessionRunner(wild(seed))
    most = chance.choice([900, 2000, 20_000])
    fixed = [chance.choice([0, 1500, chance.randrange(most)]) for _ in bench.session.calls]
    tokens = [chance.randrange(1, chance.choice([9, 9, most])) for _ in bench.session.messages]
    rules = Rules(
        Summary(keep_tokens=keep, summariser=FixedSizeSummariser(800)), Above(26_000), window=30_000
    )
    log = make_log_from_session(bench.session, rules, tokens=tokens, fixed=fixed)
    agree_with_calls(bench.base.sheet, run_rules(log, rules))


def test_prompts_that_shrink_are_summed_up(monkeypatch):
    bench = SessionRunner(wild(3))
    fixed = [3000 + 2500 * (n % 3 == 0) for n in range(len(bench.session.calls))]
    log = make_log_from_session(bench.session, Rules(), fixed=fixed, tokens=[40] * 120)
    assert not log.tokens.rising
    done = run_rules(log, Rules())
    expected = agree(bench, done)
    monkeypatch.setattr(TokenSumsByPriceTier, "add_calls", None)
    assert bill_replay(bench.base.sheet, RunPromptSizes(done)) == expected


def test_stretches_are_summed_up_where_it_matters(monkeypatch):
    bench = SessionRunner(wild(3))
    rules = ck.presets.pi(
        context_window=30_000, reserve_tokens=4000, keep_recent_tokens=3000, summariser="fixed"
    )
    done = run_rules(bench.log(rules), rules, 200_000)
    assert len(done.compactions) > 2
    by_hand = []
    monkeypatch.setattr(
        TokenSumsByPriceTier, "add_calls", lambda self, sent, calls: by_hand.append(calls)
    )
    monkeypatch.setattr(
        ReplayCostModel, "count_read_tokens", lambda self, call, sent: by_hand.append(call) or 0
    )
    sheet = bench.base.sheet
    bill_replay(sheet, RunPromptSizes(done))
    seams = {cut.call for cut in done.compactions if sheet.billed[cut.call]}
    assert seams <= set(by_hand) < set(range(60))


def test_the_first_call_reads_what_others_left_whole():
    """Reads fall short of the prompt before by whole blocks; what another session left does not."""
    log = []
    for size in range(3000, 33_000, 1500):
        read = size - 1700 if log else 2900
        usage = Usage(
            input_tokens=0, cache_read_tokens=read, cache_write_tokens=size - read, output_tokens=50
        )
        log += [user("word " * 900), assistant("ok", usage=usage, model="claude-sonnet-4-5")]
    bench = SessionRunner(session(*log))
    done, sheet = run_rules(bench.log(Rules()), Rules(), 200_000), bench.base.sheet
    assert (sheet.fit.lag, sheet.count_read_tokens(0, RunPromptSizes(done))) == (200, 2900)
    assert agree(bench, done).read == sum(m.usage.cache_read_tokens for m in log[1::2])


def test_a_record_without_a_cache_split_is_summed_up_as_its_calls(monkeypatch):
    log = []
    for size in range(4500, 64_500, 1500):
        usage = Usage(input_tokens=size, output_tokens=50)
        log += [user("word " * 900), assistant("ok", usage=usage, model="claude-sonnet-4-5")]
    bench = SessionRunner(session(*log))
    rules = ck.presets.pi(
        context_window=40_000, reserve_tokens=4000, keep_recent_tokens=3000, summariser="fixed"
    )
    done = run_rules(bench.log(rules), rules, 200_000)
    assert done.compactions
    found = agree(bench, done)
    assert (found.read, found.write, found.fresh) == (0, 0, found.prompts)
    monkeypatch.setattr(TokenSumsByPriceTier, "add_calls", None)
    assert bill_replay(bench.base.sheet, RunPromptSizes(done)) == found


def change_models(talk, chance):
    """The session with replies of several models, the one of its prices among them."""
    names = ["claude-sonnet-4-5", "claude-opus-4-5", "gemini-2.5-pro", "of-no-price"]
    names = names[: chance.randrange(2, 5)]
    return replace(
        talk,
        log=tuple(replace(m, model=chance.choice(names)) if m.model else m for m in talk.log),
    )


@given(st.integers(0, 40), st.randoms(use_true_random=False), st.sampled_from([20_000, 60_000]))
def test_several_models_are_billed_as_their_calls(seed, chance, limit):
    bench = SessionRunner(change_models(wild(seed), chance))
    rules = Rules(Summary(keep_tokens=3000, summariser=FixedSizeSummariser(800)), Above(limit))
    agree_with_calls(bench.base.sheet, run_rules(bench.log(rules), rules))


def test_each_of_several_models_is_summed_up(monkeypatch):
    bench = SessionRunner(change_models(wild(3), random.Random(1)))
    rules = ck.presets.none()
    done = run_rules(bench.log(rules), rules, None)
    assert len(LogPrefixSums.of(bench.base.sheet, done.log)) > 1
    expected = agree_with_calls(bench.base.sheet, done)
    assert expected.prompts > 0
    monkeypatch.setattr(TokenSumsByPriceTier, "add_calls", None)
    assert bill_replay(bench.base.sheet, RunPromptSizes(done)) == expected


def test_pis_session(real):
    bench = SessionRunner(ck.read(real / "pi/before-compaction.jsonl"))
    for window in (60_000, 100_000, 200_000):
        rules = ck.presets.pi(context_window=window, summariser="fixed")
        agree(bench, run_rules(bench.log(rules), rules, None))


def test_two_rules_that_send_the_same_cost_the_same():
    """Old results masked for each call, or cleared for good at each call."""
    for talk in (wild(3), ck.read(ck.samples.path("billing"))):
        bench, clear = SessionRunner(talk), Clear(keep_last=3)
        masked, cleared = (
            run_rules(bench.log(rules), rules, 200_000)
            for rules in (Rules(pruning=clear), Rules(clear))
        )
        assert masked.prompts.tolist() == cleared.prompts.tolist()
        assert masked.fresh_tokens.tolist() == cleared.fresh_tokens.tolist()
        a, b = (score_run(bench.base, done, "x")["cost_usd"] for done in (masked, cleared))
        assert a == pytest.approx(b)
    assert cleared.compactions
