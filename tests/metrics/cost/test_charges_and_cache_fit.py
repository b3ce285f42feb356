"""Charges of calls, bills and the fitted cache model, worked out by hand."""

from __future__ import annotations

import pytest
from builders import assistant, session, summarised, user

from ctxkit import prices, replay
from ctxkit.metrics import (
    PromptAndSharedPrefixSizes,
    ReplayCostModel,
    cache_misses,
    find_cache_misses,
    session_bill,
)
from ctxkit.metrics.cost.call_and_summary_charges import (
    CallCharge,
    SessionBill,
    SummaryBill,
    find_read_price,
    make_charge,
)
from ctxkit.metrics.cost.replay_cost_model import (
    UNLIMITED_TOKENS,
    CacheModelParameters,
    WrittenSummary,
    bill_modelled_reads,
    bill_replay,
)
from ctxkit.session import Usage

LISTED = prices.Price(
    input=10.0, output=50.0, cache_read=1.0, cache_write=12.0, cache_write_1h=20.0
)
"""A model's prices in dollars a token."""
USAGE = Usage(
    input_tokens=2,
    cache_read_tokens=3,
    cache_write_tokens=4,
    cache_write_1h_tokens=5,
    output_tokens=6,
)
LISTED_PROMPT = 2 * 10 + 3 * 1 + 4 * 12 + 5 * 20


def test_a_charge_has_each_class_of_tokens_and_its_dollars():
    usd = LISTED_PROMPT + 300.0
    charge = make_charge(7, USAGE, LISTED, usd, "derived")
    assert (charge.call, charge.fresh, charge.read, charge.write) == (7, 2, 3, 9)
    assert (charge.write_1h, charge.output, charge.prompt, charge.source) == (5, 6, 14, "derived")
    dollars = charge.fresh_usd, charge.read_usd, charge.write_usd, charge.output_usd
    assert dollars == pytest.approx((20, 3, 148, 300))
    assert (charge.table_input_usd, charge.table_output_usd) == (LISTED_PROMPT, 300)
    assert charge.list_price_usd == charge.usd == usd


def test_stated_dollars_are_split_as_the_table_would():
    charge = make_charge(0, USAGE, LISTED, (LISTED_PROMPT + 300.0) / 2, "recorded")
    dollars = charge.fresh_usd, charge.read_usd, charge.write_usd, charge.output_usd
    assert dollars == pytest.approx((10, 1.5, 74, 150))
    assert charge.list_price_usd == LISTED_PROMPT + 300


def test_without_a_table_dollars_are_split_by_the_ratios_of_claude():
    # fresh 1, read a tenth, write one and a quarter, output five: 2 + 0.3 + 11.25 + 30
    charge = make_charge(0, USAGE, None, 43.55, "recorded")
    dollars = charge.fresh_usd, charge.read_usd, charge.write_usd, charge.output_usd
    assert dollars == pytest.approx((2, 0.3, 11.25, 30))
    assert charge.list_price_usd is None


def test_a_call_without_a_price_has_tokens_and_no_dollars():
    charge = make_charge(0, USAGE, None, None, None)
    assert (charge.prompt, charge.output, charge.usd, charge.source) == (14, 6, None, None)
    assert charge.fresh_usd is charge.output_usd is charge.list_price_usd is None
    unpriced = make_charge(0, USAGE, LISTED, None, None)
    assert (unpriced.usd, unpriced.list_price_usd) == (None, LISTED_PROMPT + 300)


def test_what_a_log_does_not_count_has_no_listed_price():
    charge = make_charge(0, Usage(output_tokens=6), LISTED, 1.0, "recorded")
    assert (charge.table_input_usd, charge.table_output_usd) == (None, 300)
    charge = make_charge(0, Usage(input_tokens=2), LISTED, 1.0, "recorded")
    assert (charge.table_input_usd, charge.table_output_usd) == (20, None)


def test_dollars_of_a_call_without_tokens_are_fresh():
    charge = make_charge(0, Usage(), LISTED, 3.0, "recorded")
    assert (charge.fresh_usd, charge.read_usd, charge.write_usd) == (3.0, 0.0, 0.0)


def test_a_long_prompt_is_split_by_the_prices_of_its_tier():
    tiered = prices.Price(
        input=10.0,
        output=50.0,
        cache_read=1.0,
        tiers=(prices.PriceTier(13, input=20.0, output=100.0),),
    )
    usage = Usage(input_tokens=14, output_tokens=1)
    assert make_charge(0, usage, tiered, 380.0, "derived").output_usd == pytest.approx(100)
    usage = Usage(input_tokens=13, output_tokens=1)
    assert make_charge(0, usage, tiered, 180.0, "derived").output_usd == pytest.approx(50)


def test_a_call_reads_at_its_own_price_or_in_proportion_to_what_it_paid():
    paid = CallCharge(0, 2, 4, 0, 0, 0, 28.0, 20.0, 8.0, 0.0, 0.0, table_input_usd=24.0)
    assert find_read_price(paid, LISTED) == 2.0
    half = CallCharge(0, 2, 0, 0, 0, 0, 10.0, 10.0, 0.0, 0.0, 0.0, table_input_usd=20.0)
    assert find_read_price(half, LISTED) == 0.5
    unlisted = CallCharge(0, 2, 0, 4, 0, 0, 14.0, 4.0, 0.0, 10.0, 0.0)
    assert find_read_price(unlisted, None) == pytest.approx(0.1 * 14 / (2 + 5))
    assert find_read_price(CallCharge(0, 0, 0, 0, 0, 1, 1.0, 0.0, 0.0, 0.0, 1.0), LISTED) == 0.0


def charge(usd, source="derived", **more):
    return CallCharge(0, 1, 2, 4, 0, 8, usd, source=source, **more)


def test_a_bill_adds_up_and_a_part_without_a_price_leaves_its_sum_unknown():
    calls = charge(1.0, table_input_usd=0.5, table_output_usd=0.25), charge(2.0, "recorded", table_input_usd=1.0, table_output_usd=0.75)  # fmt: skip
    bill = SessionBill(calls, (SummaryBill(0, 1, 4.0, "estimated"),))
    assert (bill.calls_usd, bill.summaries_usd, bill.cost_usd, bill.priced_usd) == (3, 4, 7, 7)
    assert (bill.input_usd, bill.output_usd, bill.list_price_usd) == (1.5, 1.0, 6.5)
    assert (bill.source, bill.summaries_source) == ("estimated", "estimated")
    assert [bill.sum(n) for n in ("prompt", "fresh", "read", "write", "output")] == [14, 2, 4, 8, 16]  # fmt: skip
    assert (bill.unpriced_n, bill.unpriced_summaries_n) == (0, 0)
    partly = SessionBill((*calls, charge(None, None)), (SummaryBill(0, 1, None, None),))
    assert partly.calls_usd is partly.summaries_usd is partly.cost_usd is partly.source is None
    assert partly.input_usd is partly.list_price_usd is None
    assert (partly.priced_usd, partly.priced_calls_usd, partly.priced_summaries_usd) == (3, 3, 0)
    assert (partly.unpriced_n, partly.unpriced_summaries_n) == (1, 1)
    assert SessionBill((charge(None, None),)).priced_usd is None


def test_a_bill_without_calls_has_the_total_of_the_log():
    bill = SessionBill((), logged_usd=5.0)
    assert (bill.calls_usd, bill.cost_usd, bill.priced_usd, bill.source) == (5, 5, 5, "recorded")
    assert bill.input_usd is bill.output_usd is None
    assert SessionBill(()).cost_usd is None


def test_a_format_without_compactions_hides_what_summaries_cost():
    bill = SessionBill(
        (charge(1.0, table_input_usd=0.5, table_output_usd=0.25),), hides_summaries=True
    )
    assert (bill.summaries_usd, bill.cost_usd, bill.list_price_usd) == (None, 1.0, 0.75)
    assert (bill.source, bill.summaries_source) == ("derived", None)
    told = SessionBill((charge(1.0),), (SummaryBill(0, 1, 4.0, "recorded"),), hides_summaries=True)
    assert (told.summaries_usd, told.cost_usd) == (4.0, 5.0)


# -- the fitted cache model


def call(prompt, read, *, write=None, hour=0, agent="", **more):
    write = prompt - read if write is None else write
    usage = Usage(
        input_tokens=prompt - read - write,
        cache_read_tokens=read,
        cache_write_tokens=write - hour,
        cache_write_1h_tokens=hour,
        output_tokens=100,
    )
    return assistant("ok", usage=usage, model="claude-sonnet-4-5", agent=agent or None, **more)


def talk(*replies):
    return session(*(m for reply in replies for m in (user(), reply)), model="claude-sonnet-4-5")


def fit(s):
    return CacheModelParameters.of(s, find_cache_misses(s))


def test_the_lag_is_the_mean_shortfall_of_hits():
    s = talk(call(10_000, 0), call(12_000, 9_990), call(14_000, 11_970), call(15_000, 100))
    assert fit(s) == CacheModelParameters(
        lag=20, floor=None, smallest=1_024, writes=True, hour=False
    )
    assert fit(talk(call(10_000, 0))).lag == 0


def test_a_small_prompt_that_was_read_says_what_is_cached():
    assert fit(talk(call(900, 0), call(950, 900))).smallest == 950
    assert fit(talk(call(900, 0), call(950, 0))).smallest == 1_024


def test_writes_are_billed_where_any_is_and_live_as_most_do():
    assert fit(talk(call(2_000, 0, write=0), call(3_000, 2_000, write=0))).writes is False
    assert fit(talk(call(2_000, 0, write=0), call(3_000, 2_000))).writes is True
    assert fit(talk(call(2_000, 0, hour=2_000), call(3_000, 2_000))).hour is True


def test_what_compactions_leave_cached_is_their_median():
    log, shown = [], []
    for i, read in enumerate((0, 3_000, 4_000, 9_000)):
        log += [summarised(shown)] if i else []
        shown = [user(), call(20_000, read)]
        log += shown
    assert fit(session(*log, model="claude-sonnet-4-5")).floor == 4_000


def test_modelled_reads_are_what_calls_share_less_the_lag_and_misses_as_recorded():
    s = talk(call(10_000, 0), call(12_000, 9_980), call(14_000, 11_980), call(15_000, 500))
    bill = bill_modelled_reads(s)
    assert [(c.read, c.write, c.fresh) for c in bill.charges] == [
        (0, 10_000, 0),
        (9_980, 2_020, 0),
        (11_980, 2_020, 0),
        (500, 14_500, 0),
    ]
    read, written = 22_460 * 0.3e-6, 28_540 * 3.75e-6
    assert bill.input_usd == pytest.approx(read + written)
    assert {c.source for c in bill.charges} == {"derived"}


def test_calls_of_another_agent_have_a_cache_of_their_own():
    s = talk(call(10_000, 0), call(3_000, 0, agent="helper"), call(12_000, 10_000))
    model = ReplayCostModel.of(s)
    assert model.last_cache_user == {0: -1, 1: -1, 2: 0}
    assert model.is_first_of_agent_and_model == (True, True, False)
    # what lies between is a prompt that shares 2,000 tokens with each of its neighbours
    prompts = PromptAndSharedPrefixSizes([10_000, 3_000, 12_000], [0, 2_000, 2_000])
    assert model.count_read_tokens(2, prompts) == 2_000
    assert (
        model.count_read_tokens(
            2, PromptAndSharedPrefixSizes([10_000, 3_000, 12_000], [0, 11_000, 11_000])
        )
        == 10_000
    )


def test_a_replay_reads_no_more_than_a_call_that_missed_for_another_reason():
    s = talk(call(10_000, 0), call(12_000, 500), call(14_000, 12_000))
    model = ReplayCostModel.of(s)
    assert model.read_limits == (0, 500, UNLIMITED_TOKENS)
    assert model.limit_read(1, 400) == 400
    assert model.limit_read(1, 9_000) == 500
    assert model.limit_read(2, -5) == 0
    sent = PromptAndSharedPrefixSizes([10_000, 12_000, 1_023], [0, 10_000, 1_000])
    assert [model.count_read_tokens(n, sent) for n in range(3)] == [0, 500, 0]
    assert [model.is_billed_for_writes(2, n) for n in (1_023, 1_024)] == [False, True]
    assert model.output_tokens == 300


def test_a_hit_reads_the_shared_prefix_less_the_lag_and_at_most_the_prompt():
    lagging = ReplayCostModel.of(talk(call(10_000, 0), call(12_000, 9_980)))
    assert [lagging.count_hit_tokens(*of) for of in ((9_000, 10_000, 12_000), (10_000, 10_000, 12_000))] == [8_980, 9_980]  # fmt: skip
    leading = ReplayCostModel.of(talk(call(10_000, 0), call(12_000, 10_100)))
    assert leading.fit.lag == -100
    # the reply is read where all of the prompt before is shared, and not behind a change
    assert [leading.count_hit_tokens(*of) for of in ((9_000, 10_000, 12_000), (10_000, 10_000, 12_000), (10_000, 10_000, 10_050))] == [9_000, 10_100, 10_050]  # fmt: skip


def test_a_summary_is_billed_as_recorded_or_at_the_price_of_the_next_call():
    model = ReplayCostModel.of(talk(call(10_000, 0), call(12_000, 10_000)))
    written = WrittenSummary(1, source=8_000, prompt=10_000, summary=500)
    fresh = 8_000 * 3e-6 + 500 * 15e-6
    cached = 10_000 * 0.3e-6 + 500 * 15e-6
    assert model.summary_usd(written) == pytest.approx(fresh)
    assert model.summary_usd(written, reuse=True) == pytest.approx(cached)
    warm = WrittenSummary(1, source=8_000, prompt=10_000, summary=500, warm=True)
    assert model.summary_usd(warm) == pytest.approx(cached)
    assert model.summary_usd(WrittenSummary(1, 8_000, 10_000, 500, usd=7.0)) == 7.0
    assert model.summary_usd(WrittenSummary(1, 8_000, 10_000, None)) is None
    assert model.summaries_usd([written, warm]) == pytest.approx(fresh + cached)
    assert model.summaries_usd([written, WrittenSummary(1, 8_000, 10_000, None)]) is None
    assert model.summaries_usd([]) == 0
    assert model.at(99) == prices.price("claude-sonnet-4-5")


def test_a_replay_is_billed_by_each_models_prices_for_what_it_reads_writes_and_replies():
    sonnet, opus = "claude-sonnet-4-5", "claude-opus-4-5"
    usages = [(sonnet, 0, 10_000, 100), (sonnet, 10_000, 2_000, 200)]
    usages += [(opus, 0, 13_000, 50), (opus, 13_000, 1_000, 70)]
    replies = [
        assistant(model=name, usage=Usage(cache_read_tokens=read, cache_write_tokens=write, output_tokens=output))
        for name, read, write, output in usages
    ]  # fmt: skip
    log = [m for reply in (*replies, assistant(model=opus)) for m in (user(), reply)]
    model = ReplayCostModel.of(session(*log))
    sent = PromptAndSharedPrefixSizes([8_000, 9_000, 9_500, 4_000, 5_000], [0, 6_000, 0, 3_000, 0])
    bill = bill_replay(model, sent, 0.5)
    # the last call has no usage; the first ones of each model read nothing, as in the record
    assert bill[:5] == (8_000 + 9_000 + 9_500 + 4_000, 9_500, 6_000 + 3_000, 21_500, 0)
    sonnet_usd, opus_usd = 11_000 * 3.75 + 6_000 * 0.3, 10_500 * 6.25 + 3_000 * 0.5
    assert bill.input_usd == pytest.approx((sonnet_usd + opus_usd) * 1e-6)
    assert bill.output_usd == pytest.approx((300 * 15 + 120 * 25) * 1e-6)
    assert bill.summaries_usd == 0.5
    assert bill.cost_usd == pytest.approx(0.5 + bill.input_usd + bill.output_usd)
    assert model.output_tokens == 420
    names = [sonnet, sonnet, opus, opus, opus]
    assert [model.at(call) for call in range(5)] == [prices.price(name) for name in names]
    assert model.at(99) == prices.price(opus)
    unpriced = ReplayCostModel.of(session(*log, user(), assistant(model="nobody", usage=USAGE)))
    unknown = bill_replay(unpriced, PromptAndSharedPrefixSizes([1] * 6, [0] * 6))
    assert (unknown.input_usd, unknown.output_usd, unknown.cost_usd) == (None, None, None)
    assert unknown.summaries_usd == 0.0


def test_a_prompt_above_the_edge_of_a_tier_has_its_prices():
    """Gemini 2.5 Pro: 1.25 and 10 dollars a million tokens up to 200,000, then 2.5 and 15."""
    usages = [Usage(input_tokens=n, cache_read_tokens=0, output_tokens=100) for n in (9, 10)]
    log = [m for u in usages for m in (user(), assistant(model="gemini-2.5-pro", usage=u))]
    model = ReplayCostModel.of(session(*log))
    for sizes, input_usd, output_usd in (
        ((200_000, 200_000), 400_000 * 1.25, 200 * 10),
        ((200_000, 200_001), 200_000 * 1.25 + 200_001 * 2.5, 100 * 10 + 100 * 15),
    ):
        bill = bill_replay(model, PromptAndSharedPrefixSizes(sizes, (0, 0)))
        assert (bill.read, bill.write, bill.fresh, bill.peak) == (0, 0, sum(sizes), sizes[1])
        assert bill.input_usd == pytest.approx(input_usd * 1e-6)
        assert bill.output_usd == pytest.approx(output_usd * 1e-6)
    silent = [m for n in (9, 10) for m in (user(), assistant(model="gemini-2.5-pro", usage=Usage(input_tokens=n)))]  # fmt: skip
    model = ReplayCostModel.of(session(*silent))
    bill = bill_replay(model, PromptAndSharedPrefixSizes((9, 10), (0, 0)), None)
    assert (bill.output_usd, bill.summaries_usd, model.output_tokens) == (None, None, None)


def test_the_explained_share_is_of_missed_tokens_without_first_calls():
    misses = [
        cache_misses.CacheMiss(0, "cold_start", 900, 0, None),
        None,
        cache_misses.CacheMiss(1, "compaction", 300, 100, None),
        cache_misses.CacheMiss(2, "unexplained", 700, 100, 5.0),
        cache_misses.CacheMiss(3, "ttl_expiry", 100, 300, 900.0),
    ]
    assert [m.missed_tokens for m in misses if m] == [900, 200, 600, 0]
    assert [m.paused for m in misses if m] == [False, False, False, True]
    assert cache_misses.measure_explained_share(misses) == 200 / 800
    assert cache_misses.measure_explained_share(misses[:2]) is None


@pytest.mark.parametrize(
    ("model", "read", "write"), [("gpt-5", 9_000, None), ("claude-sonnet-4-5", 9_000, 1_000)]
)
def test_a_replay_states_writes_only_where_its_provider_bills_them(model, read, write):
    usages = [Usage(input_tokens=0 if write else prompt - cached, cache_read_tokens=cached,
                    cache_write_tokens=prompt - cached if write else None, output_tokens=1)
              for prompt, cached in ((9_000, 0), (10_000, read))]  # fmt: skip
    log = session(*(m for u in usages for m in (user(), assistant(usage=u, model=model))))
    last = session_bill.get_billed_usages(replay(log, "none"))[1]
    assert (last.cache_read_tokens, last.cache_write_tokens) == (read, write)
    assert last.input_tokens == (0 if write else 1_000)
