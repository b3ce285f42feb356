"""What is read after a compaction is predicted by the session's others, or not at all."""

from __future__ import annotations

import random
import time
from statistics import median

import pytest
from builders import session, summarised, user
from cached_sessions import reply

import ctxkit as ck
from ctxkit.engine import (
    compute_compaction_read_error,
    predict_reads_after_compactions,
)


def cut_at(*reads: int, pause: float = 10.0):
    log, now = [user(time=0.0), reply(50_000, time=1.0)], 1.0
    for read in reads:
        now += pause
        log += [summarised(log[-1:]), user(time=now), reply(40_000, read, time=now + 1)]
    return session(*log, format="claude-code")


def test_each_is_predicted_by_the_middle_of_the_others():
    found = predict_reads_after_compactions(cut_at(12_000, 12_000, 30_000))
    assert [c.predicted for c in found] == [21_000, 21_000, 12_000]
    assert compute_compaction_read_error(found) == pytest.approx((9_000 + 9_000 + 18_000) / 120_000)


def test_thousands_are_predicted_in_little_time():
    reads = random.Random(0).choices(range(1, 30_000), k=4_000)
    cut = cut_at(*reads)
    predict_reads_after_compactions(cut_at(1, 2))
    begun = time.thread_time()
    found = predict_reads_after_compactions(cut)
    assert time.thread_time() - begun < 2
    others = (reads[:i] + reads[i + 1 :] for i in (0, 1, 1_999, 3_999))
    told = [found[i].predicted for i in (0, 1, 1_999, 3_999)]
    assert told == [round(median(rest)) for rest in others]


def test_nothing_stays_where_the_pause_outlasts_the_cache():
    assert [c.predicted for c in predict_reads_after_compactions(cut_at(0, 0, pause=400.0))] == [
        0,
        0,
    ]


def test_one_alone_is_predicted_by_nothing():
    (only,) = predict_reads_after_compactions(cut_at(12_000))
    assert only.predicted is None
    assert compute_compaction_read_error([only]) is None
    assert compute_compaction_read_error(()) is None


def test_a_score_has_it_and_other_reads_make_it_worse():
    same, other = cut_at(12_000, 12_000, 12_000), cut_at(12_000, 40_000, 0)
    assert ck.score(same, loss=False)["compaction_read_error"] == 0
    assert ck.score(other, loss=False)["compaction_read_error"] > 0.2


def test_pis_session_reads_nothing_after_either(real):
    found = predict_reads_after_compactions(real / "pi/before-compaction.jsonl")
    assert [(c.call, c.read, c.predicted) for c in found] == [(174, 0, 0), (303, 0, 0)]
