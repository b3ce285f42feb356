"""Intervals are calibrated on developers left out, and by predictions that knew as much."""

from __future__ import annotations

from statistics import fmean
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

from ctxkit.engine import load_training_counts
from ctxkit.engine.cache_model import interval_calibration
from ctxkit.engine.cache_model.interval_calibration import (
    calibrate_stretch,
    compute_interval_stretch,
)
from ctxkit.engine.cache_model.miss_rate_estimator import MissRateEstimator


def draw_developers(seed, n=24, sessions=8):
    """Errors of developers who differ more from each other than their own sessions do."""
    rng = np.random.default_rng(seed)
    middles = rng.normal(0.0, 1.0, n)
    errors = (middles[:, None] + rng.normal(0.0, 0.5, (n, sessions))).ravel()
    return errors, [str(i) for i in range(n) for _ in range(sessions)]


def share_held(errors, stretch):
    return float(((errors >= -stretch[0]) & (errors <= stretch[1])).mean())


def test_four_in_five_of_developers_never_seen_are_held():
    """Drawn sixty times: the errors of a further hundred developers of the same kind."""
    held = []
    for seed in range(60):
        stretch = calibrate_stretch(*draw_developers(seed))
        held.append(share_held(draw_developers(1000 + seed, n=100)[0], stretch))
    assert fmean(held) == pytest.approx(interval_calibration.COVERAGE, abs=0.03)


def test_fitted_alone_the_factors_hold_less(monkeypatch):
    """Why developers are left out: what covers 80 % of those at hand covers less of others."""
    monkeypatch.setattr(interval_calibration, "_COVERAGES", np.array([0.8]))
    held = []
    for seed in range(60):
        stretch = calibrate_stretch(*draw_developers(seed))
        held.append(share_held(draw_developers(1000 + seed, n=100)[0], stretch))
    assert fmean(held) < 0.78


def test_one_developer_with_many_logs_does_not_set_the_factors():
    errors, owners = draw_developers(3)
    many = np.concatenate([errors, np.zeros(2000)])
    low, high = calibrate_stretch(many, [*owners, *["many"] * 2000])
    assert low + high > 0.4 * sum(calibrate_stretch(errors, owners))
    assert share_held(many, (low, high)) > 0.95


def test_a_record_far_above_stretches_the_upper_end_alone():
    errors = np.array([-0.6, 0.2, 3.0, 2.8, 2.9])
    low, high = calibrate_stretch(errors, list("abcde"))
    assert low == interval_calibration.MIN_STRETCH
    assert high >= 2.8


def test_a_record_far_below_stretches_the_lower_end_alone():
    errors = np.array([0.6, -0.2, -3.0, -2.8, -2.9])
    low, high = calibrate_stretch(errors, list("abcde"))
    assert high == interval_calibration.MIN_STRETCH
    assert low >= 2.8


@pytest.mark.parametrize("evidence", ["alone", "folder", "known"])
def test_each_kind_of_evidence_is_calibrated_by_its_own_errors(evidence):
    row = next(r for r in load_training_counts() if r.past and r.past.teachers > 4)
    others = [r for r in load_training_counts() if r.owner != row.owner]

    def spoil(name):
        return [
            replace(r, past=replace(r.past, **{name: replace(r.past.get_bill(name), below=1e-3)}))
            if r.past
            else r
            for r in others
        ]

    true = compute_interval_stretch(MissRateEstimator(others, row), row.calls, evidence)
    for name in ("alone", "folder", "known"):
        spoilt = compute_interval_stretch(MissRateEstimator(spoil(name), row), row.calls, evidence)
        assert (spoilt != true) == (name == evidence)


def test_four_developers_that_taught_a_kind_are_near(monkeypatch):
    asked = []

    def select(*_, is_near):
        asked.append(is_near)
        return []

    monkeypatch.setattr(interval_calibration, "select_calibration_sessions", select)
    for teachers in (3, 4):
        rates = SimpleNamespace(teachers=teachers, training=[], target=None)
        assert compute_interval_stretch(rates, 40, "alone") is None
    assert asked == [False, True]


def test_the_errors_of_three_developers_are_too_few():
    row = next(r for r in load_training_counts() if r.past and r.tool == "codex" and not r.subagent)
    others = [r for r in load_training_counts() if r.owner != row.owner and r.tool == "codex"]
    few = sorted({r.owner for r in others if r.past and not r.subagent})[:3]
    rates = MissRateEstimator([r for r in others if r.owner in few], row)
    assert compute_interval_stretch(rates, row.calls, "alone") is None
