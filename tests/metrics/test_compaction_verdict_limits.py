"""Each limit of the verdict on a compaction, at the last value on one side and the first on the other.

In the sessions here a compaction is preceded by a prompt and its reply of 10 tokens, and followed by a question of 10.
"""

from __future__ import annotations

from itertools import accumulate
from types import SimpleNamespace

import pytest
from builders import assistant, session, summarised, usage, user
from metrics.test_thrash import said

import ctxkit as ck
from ctxkit.metrics import (
    CombinedCompactionBeforeCall,
    PromptAndSharedPrefixSizes,
    compaction_formulas,
    compaction_outcomes,
    judge_compactions,
    summarise_verdicts,
    thrash,
)
from ctxkit.session import Edit

BEFORE, AFTER = 99_990, 50_010
"""Prompts around a compaction from 100,000 to 50,000 tokens."""


def cycles(*prompts: tuple[int, ...], free: bool = False):
    """Return a session with a compaction between two cycles of prompts; a free one costs no model call."""
    log, shown = [], []
    for i, cycle in enumerate(prompts):
        if i and free:
            log.append(Edit(kind="hidden", id=f"e{i}", targets=tuple(m.id for m in shown)))
        elif i:
            log.append(summarised(shown))
        shown = [] if i else shown
        for prompt in cycle:
            shown += [user("x" * 40), said(prompt)]
            log += shown[-2:]
    return session(*log)


def test_sizes_are_those_of_the_prompt_without_and_with_the_compaction():
    (one,) = thrash(cycles((BEFORE,), (AFTER,))).outcomes
    assert (one.before, one.after, one.savings) == (100_000, 50_000, 0.5)


@pytest.mark.parametrize(("largest", "calls"), [(75_000, 1), (74_999, None)])
def test_a_prompt_of_three_quarters_of_its_size_is_full_again(largest, calls):
    (one,) = thrash(cycles((BEFORE,), (AFTER, largest))).outcomes
    assert one.rebound_calls == calls


def test_a_compaction_is_back_only_before_the_next_one():
    first, second = thrash(cycles((BEFORE,), (AFTER,), (80_000,))).outcomes
    assert (first.rebound_calls, second.call) == (None, 2)
    assert first.interval == 1


@pytest.mark.parametrize(("more", "refill"), [(2, None), (3, 0.5)])
def test_refill_counts_calls_before_the_next_compaction(more, refill):
    prompts = (BEFORE,), (AFTER, *[75_000] * more), (AFTER,)
    assert thrash(cycles(*prompts)).outcomes[0].refill_3 == refill


def test_ten_calls_later_the_freed_half_is_in_use_again():
    summary = thrash(cycles((BEFORE,), (AFTER, *range(52_000, 62_000, 1_000), 75_000)))
    assert summary.outcomes[0].refill_10 == 11_000 / 50_000
    assert summary.refilled_share == 11_000 / 50_000


@pytest.mark.parametrize(("after", "streak"), [(90_001, 1), (89_999, 0)])
def test_a_tenth_is_progress_and_less_is_none(after, streak):
    assert thrash(cycles((BEFORE,), (after + 10,))).no_progress_streak == streak


def test_three_compactions_in_a_row_without_progress_are_thrash():
    poor = [(BEFORE,), (99_990,), (99_990,), (99_990,)]
    two, three = (thrash(cycles(*poor[:n], free=True)) for n in (3, 4))
    assert (two.no_progress_streak, three.no_progress_streak) == (2, 3)
    assert three.is_thrashing is True


def judge(*intervals: int, cost: float = 0.15):
    """Return the verdicts on compactions from 100,000 to 50,000 tokens that come so many calls apart.

    At 0.30 dollars a million cached tokens each saves 0.015 dollars a call.
    """
    calls = list(accumulate(intervals, initial=1))
    compactions = [
        CombinedCompactionBeforeCall(c, 100_000, 50_000, 9, 5, 7, unchanged_front_tokens=50_000)
        for c in calls
    ]
    prompts = PromptAndSharedPrefixSizes([50_000] * (calls[-1] + 1))
    cost_model = SimpleNamespace(
        at=lambda _call: ck.prices.price("claude-sonnet-4-5"),
        read_limits=(2**62,) * len(prompts),  # the record never missed
        has_cache=True,
        fit=SimpleNamespace(writes=True, hour=False),
    )
    return judge_compactions(compactions, prompts, cost_model, [cost] * len(calls))


@pytest.mark.parametrize(("calls", "not_paid_back"), [(9, True), (10, False)])
def test_a_summary_is_paid_back_at_the_call_that_saves_the_last_of_its_price(calls, not_paid_back):
    first, last = judge(calls)
    assert (first.pays_after, first.interval) == (10.0, calls)
    assert first.not_paid_back is not_paid_back
    assert (last.interval, last.not_paid_back) == (None, None)


@pytest.mark.parametrize(
    ("intervals", "not_paid_back", "share", "is_thrashing"),
    [
        ((20, 5), 1, 1 / 2, False),  # a half is not most
        ((20, 5, 5), 2, 1 / 3, True),
        ((5,), 1, 0.0, False),  # one alone says nothing
        ((5, 5), 2, 0.0, True),
        ((20,), 0, 1.0, False),
    ],
)
def test_a_session_thrashes_where_most_are_not_paid_back(
    intervals, not_paid_back, share, is_thrashing
):
    columns = summarise_verdicts([0.5] * len(intervals), judge(*intervals))
    assert columns["not_paid_back_n"] == not_paid_back
    assert columns["paid_back_share"] == pytest.approx(share)
    assert columns["is_thrashing"] is is_thrashing


def test_where_no_price_is_known_one_compaction_is_not_unpaid_and_two_are_unknown():
    assert summarise_verdicts([0.5], judge(cost=None))["not_paid_back_n"] == 0
    columns = summarise_verdicts([0.5] * 2, judge(3, cost=None))
    assert (columns["not_paid_back_n"], columns["paid_back_share"]) == (None, None)


def test_a_spiral_is_of_prompts_above_the_limit():
    cached = assistant("ok", usage=usage(fresh=2, read=5, write=5))
    replies = (said(10), said(11), cached, said(10), said(11), assistant("ok"), said(11))
    s = session(*[m for reply in replies for m in (user(), reply)])
    assert [
        compaction_outcomes.measure_longest_run_over_limit(s, limit) for limit in (9, 10, 11, 12)
    ] == [5, 2, 1, 0]


def test_headroom_is_the_free_share_and_a_trigger_of_nothing_is_refused():
    assert ck.metrics.compaction_formulas.compute_headroom_share(8, 6) == 0.25
    assert ck.metrics.compaction_formulas.compute_headroom_share(1, 2) == -1.0
    with pytest.raises(ck.errors.BadArguments, match="above 0, not 0"):
        ck.metrics.compaction_formulas.compute_headroom_share(0, 0)


def test_an_append_only_session_grows_by_what_was_added():
    append_only = compaction_formulas.estimate_append_only_prompts
    assert append_only([], []) == []
    assert append_only([100, 100, 130, 50, 60], [7, 8, 9, 10, 11]) == [
        100,
        100 + 7 + 300,  # not larger: the reply and the assumed growth
        407 + 30,
        437 + 9 + 300,
        746 + 10,
    ]
    with pytest.raises(ck.errors.BadArguments, match="2 and 1 do not match"):
        append_only([1, 2], [1])


def test_amplification_is_what_append_only_sends_over_what_was_sent():
    s = session(*[m for n in (1_000, 2_000, 500) for m in (user(), said(n))])
    assert compaction_formulas.get_append_only_token_multiple(s) == (1_000 + 2_000 + 2_310) / 3_500
    assert compaction_formulas.get_append_only_token_multiple(session(user(), said(0))) is None
