"""What docs/trust.md claims of the cache can fail: fed noise, each figure says so."""

from __future__ import annotations

from statistics import fmean, median

import pytest
from trust_training import (
    count_tokens_named_by_chance,
    predict_leave_one_out,
    select_distinct_sessions,
)

import ctxkit as ck
from ctxkit.engine.cache_model.call_features import find_miss_cause, has_reliable_times
from ctxkit.engine.cache_model.control_reads import with_random_reads, with_shuffled_reads
from ctxkit.engine.cache_model.miss_rates import load_counts
from ctxkit.engine.cache_model.prediction import predict_input_cost
from ctxkit.metrics.cache_misses import find_cache_misses
from ctxkit.metrics.cost.cache_fit import closure_error


@pytest.fixture(scope="module")
def judged(real):
    found = predict_leave_one_out(
        select_distinct_sessions(ck.read_all(real, progress=False)), load_counts()
    )
    return [(s, p) for s, p in found if p.error is not None]


def off(judged, name="error"):
    return [abs(getattr(p, name)) for _, p in judged if getattr(p, name) is not None]


def nine(values):
    return sorted(values)[int(0.9 * (len(values) - 1))]


def test_the_dollars_are_predicted_better_than_by_the_lifetime_alone(judged):
    assert len(judged) >= 8
    assert median(off(judged)) <= 0.06
    assert median(off(judged)) < median(off(judged, "lifetime_error"))
    assert nine(off(judged)) < nine(off(judged, "lifetime_error"))
    assert median(off([x for x in judged if len(x[1].reads) >= 16], "second_half_error")) <= 0.06


def test_no_read_of_a_session_changes_what_is_predicted_of_it(judged):
    for s, p in judged:
        assert predict_input_cost(with_random_reads(s)).reads == p.reads, s.id


def test_no_session_teaches_itself(judged):
    """Teachers that hold the session twice over change nothing: it is left out by its id."""
    s, p = judged[0]
    assert (
        predict_input_cost(s, [*load_counts(), *(t for t in load_counts() if t.session == s.id)])
        == p
    )


@pytest.mark.parametrize("seed", range(2))
def test_shuffled_and_random_splits_are_seen(judged, seed):
    true = fmean(p.read_split_error for _, p in judged)
    shuffled = [
        predict_input_cost(with_shuffled_reads(s, seed)).read_split_error for s, _ in judged
    ]
    made_up = [predict_input_cost(with_random_reads(s, seed)).read_split_error for s, _ in judged]
    assert fmean(shuffled) >= 3 * true
    assert fmean(made_up) >= 10 * true


def test_random_splits_are_off_in_dollars_where_the_books_still_close(judged):
    """The reason for all this: the closure of the books cannot fail."""
    spoilt = [with_random_reads(s) for s, _ in judged]
    assert median(abs(predict_input_cost(s).error) for s in spoilt) > 0.3
    assert median(abs(closure_error(s)) for s in spoilt) < 0.01


def test_the_interval_holds_most_records_and_few_random_ones(judged):
    held = fmean(p.low <= 0 <= p.high for _, p in judged)
    by_chance = fmean(
        (q := predict_input_cost(with_random_reads(s))).low <= 0 <= q.high for s, _ in judged
    )
    assert 0.6 <= held <= 1.0
    assert by_chance <= 0.3


def test_lost_tokens_have_causes_and_misses_put_elsewhere_have_none(judged):
    lost = [
        m
        for s, _ in judged
        for m in find_cache_misses(s)
        if m is not None and m.kind != "cold_start"
    ]
    named = sum(m.lost for m in lost if m.kind != "unexplained") / sum(m.lost for m in lost)
    pairs = [count_tokens_named_by_chance(s, seed) for s, _ in judged for seed in range(20)]
    assert named >= 0.5
    assert sum(n for _, n in pairs) / sum(n for n, _ in pairs) < 0.1


def test_claude_codes_losses_with_a_clock_have_causes(real):
    found = select_distinct_sessions(ck.read_all(real / "claude-code", progress=False))
    lost = [
        m
        for s in found
        if has_reliable_times(s)
        for m in find_cache_misses(s)
        if m is not None and m.kind != "cold_start"
    ]
    assert sum(m.lost for m in lost if m.kind != "unexplained") / sum(m.lost for m in lost) >= 0.8


def test_pis_unexplained_misses_stay_unexplained(real):
    """What the log does not show is no cause: 8 starts of turns read nothing."""
    found = [
        m for m in find_cache_misses(ck.read(real / "pi/before-compaction.jsonl")) if m is not None
    ]
    assert sum(m.kind == "unexplained" for m in found) == 8


def test_a_cause_is_never_told_the_read(judged):
    from ctxkit.engine.cache_model.call_features import get_call_features

    s = judged[0][0]
    assert [*map(find_miss_cause, get_call_features(s))] == [
        *map(find_miss_cause, get_call_features(with_random_reads(s)))
    ]
