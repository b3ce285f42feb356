"""The noise floor falls with the tasks, and only a real difference lies beyond it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ctxkit.experiments import studies


def pair(factor: float = 1.0, n: int = 50, noise: float = 0.6):
    random = np.random.default_rng(2)
    base = random.lognormal(0, 1, n)
    now, before = (base * random.lognormal(0, noise, n) for _ in range(2))
    figures = {
        f"{f}_{w}": v
        for f in ("turns", "usd")
        for w, v in (("now", now * factor), ("before", before))
    }
    return pd.DataFrame(figures)


def test_it_falls_with_the_tasks_as_chance_does():
    found = studies.policy_ratios_and_noise_floors.estimate_noise_floors(
        [pair()], (25, 100)
    ).set_index(["figure", "tasks"])["floor"]
    assert found["usd", 25] / found["usd", 100] == pytest.approx(2, rel=0.3)
    told = studies.table("floors").set_index(["figure", "tasks"])["floor"]
    for figure in ("turns", "usd"):
        assert told[figure].is_monotonic_decreasing


def test_runs_without_noise_have_no_floor_and_a_difference_raises_it():
    assert (
        studies.policy_ratios_and_noise_floors.estimate_noise_floors([pair(noise=0.0)], (50,))[
            "floor"
        ].max()
        < 1e-9
    )
    quiet, loud = (
        studies.policy_ratios_and_noise_floors.estimate_noise_floors([pair(noise=n)], (50,))[
            "floor"
        ].max()
        for n in (0.1, 0.8)
    )
    assert quiet < loud / 3


def test_the_three_published_pairs_lie_near_the_floor_and_a_copy_is_no_run(trap):
    found = studies.policy_ratios_and_noise_floors.pair_first_and_second_runs(trap)
    assert sorted(name.split(" ")[0] for name, _ in found) == ["mask", "raw", "summary"]
    seen = studies.policy_ratios_and_noise_floors.measure_repeat_ratios(found).query(
        "figure == 'usd'"
    )
    assert seen["ratio"].tolist() == pytest.approx([1.0165, 0.91266, 1.1369], abs=1e-3)
    assert (np.abs(np.log(seen["ratio"])) < np.log(1.21)).all()
    assert ((seen["low"] < 1) & (seen["high"] > 1)).all()
