"""A replay is told to be as long as real runs were: by studies, or by a share of one's own."""

from __future__ import annotations

import csv
from importlib import resources
from math import exp, log, sqrt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics import run_elongation_from_studies


@pytest.fixture(scope="module")
def runs():
    rules = ["none", ck.presets.pi(summariser="fixed"), "strands", "swe_agent_mask"]
    return ck.compare(ck.read(ck.samples.path()), rules, progress=False)


def test_only_runs_with_summaries_get_longer_by_a_share(runs):
    was, now = runs.loc["pi"], run_elongation_from_studies.elongate_runs(runs, 0.15).loc["pi"]
    for name in ("calls_n", "prompt_tokens", "output_tokens", "input_usd", "output_usd"):
        assert now[name] == pytest.approx(1.15 * was[name], abs=0.5), name
    parts = was["input_usd"] + was["output_usd"]
    assert now["cost_usd"] == pytest.approx(1.15 * parts + was["summaries_usd"])
    assert (now["source"], now["peak_tokens"]) == ("estimated", was["peak_tokens"])
    rest = run_elongation_from_studies.elongate_runs(runs, 0.15).drop("pi")
    pd.testing.assert_frame_equal(rest, pd.DataFrame(runs).drop("pi"))


@pytest.mark.parametrize(
    ("end", "cost"),
    [("elongation_low", "real_run_low_usd"), ("elongation_high", "real_run_high_usd")],
)
def test_each_row_is_as_long_as_its_own_studies_say(runs, end, cost):
    now = run_elongation_from_studies.elongate_runs(runs, factor_column=end)
    for name, row in runs.iterrows():
        if name != "recorded":
            assert now.loc[name, "cost_usd"] == pytest.approx(row[cost])
            assert now.loc[name, "calls_n"] == round(row["calls_n"] * row[end])
    assert now.loc["recorded"].equals(pd.DataFrame(runs).loc["recorded"])
    assert now.loc["swe_agent_mask", "calls_n"] != runs.loc["swe_agent_mask", "calls_n"]


def test_no_share_changes_nothing_and_nonsense_is_refused(runs):
    pd.testing.assert_frame_equal(
        run_elongation_from_studies.elongate_runs(runs, 0), pd.DataFrame(runs)
    )
    with pytest.raises(BadArguments, match="0 or more"):
        run_elongation_from_studies.elongate_runs(runs, -0.1)
    with pytest.raises(BadArguments, match="sweep or compare"):
        run_elongation_from_studies.elongate_runs(pd.DataFrame({"a": [1]}))
    with pytest.raises(BadArguments, match="elongation_low"):
        run_elongation_from_studies.elongate_runs(runs, factor_column="cost_usd")


def test_the_policy_and_the_model_choose_the_distribution():
    assert run_elongation_from_studies.get_study_model_family("gemini-3-pro") == "gemini"
    assert (
        run_elongation_from_studies.get_study_model_family("claude-opus-4-5")
        == run_elongation_from_studies.get_study_model_family(None)
        == "other"
    )
    for after in ("mask", "summary", "hybrid", "other"):
        found = run_elongation_from_studies.estimate_elongation(after)
        assert found.low < found.factor < found.high
        assert run_elongation_from_studies.estimate_elongation(after, after).factor == 1.0
    assert run_elongation_from_studies.estimate_elongation("summary", "raw", "qwen").studies == 3
    assert run_elongation_from_studies.estimate_elongation("summary", "raw", "other").studies == 6
    assert run_elongation_from_studies.estimate_elongation("raw") == (1.0, 1.0, 1.0, 0)
    there, back = (
        run_elongation_from_studies.estimate_elongation("summary", "mask"),
        run_elongation_from_studies.estimate_elongation("mask", "summary"),
    )
    assert there.factor == pytest.approx(1 / back.factor)
    assert there.low == pytest.approx(1 / back.high)


def test_each_study_has_the_columns_of_its_row_in_the_file():
    file = resources.files("ctxkit.metrics") / "elongation.csv"
    lines = [line for line in file.read_text("utf-8").splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines, delimiter=";"))
    studies = [study._asdict() for study in run_elongation_from_studies.load_studies()]
    assert [{k: str(v) for k, v in study.items()} for study in studies] == [
        {**row, "ratio": str(float(row["ratio"])), "error": str(float(row["error"]))}
        for row in rows
    ]


def test_the_interval_holds_eight_of_ten_models_that_were_left_out():
    told = [
        s
        for s in run_elongation_from_studies.load_studies()
        if s.before == "raw" and s.after in ("mask", "summary")
    ]
    held = []
    for s in told:
        rest = tuple(
            x
            for x in run_elongation_from_studies.load_studies()
            if (x.scaffold, x.model) != (s.scaffold, s.model)
        )
        found = run_elongation_from_studies.estimate_elongation(s.after, "raw", "other", rest)
        held.append(found.low <= s.ratio <= found.high)
    assert 0.7 <= np.mean(held) <= 0.9
    noise = [s._replace(ratio=s.ratio * 2.0) for s in told]  # a policy that doubled every run
    found = [
        run_elongation_from_studies.estimate_elongation(s.after, "raw", "other") for s in noise
    ]
    wrong = [f.low <= s.ratio <= f.high for f, s in zip(found, noise, strict=True)]
    assert np.mean(wrong) < 0.5


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=9), st.floats(0.01, 0.5))
def test_pooled_studies_lie_within_their_interval_and_agree_with_the_plain_mean(logs, error):
    found = run_elongation_from_studies.pool_studies([(y, error) for y in logs])
    assert found.factor == pytest.approx(exp(np.mean(logs)))  # equal errors: equal weights
    assert found.low <= found.factor <= found.high
    spread = max(np.var(logs, ddof=1), error**2)
    t = log(found.high / found.factor) / sqrt(spread * (1 + 1 / len(logs)) - error**2 + 1e-12)
    assert 1.2 < t < 3.2


def test_studies_of_other_errors_are_weighed_by_error_and_spread():
    """DerSimonian and Laird by hand: weights 100 and 25, Q = 3.2, a variance of 2.2 / 40 between."""
    found = run_elongation_from_studies.pool_studies([(0.0, 0.1), (0.4, 0.2)])
    weights = 1 / (0.01 + 0.055), 1 / (0.04 + 0.055)
    assert found.factor == pytest.approx(exp(0.4 * weights[1] / sum(weights)))
    half_width = log(found.high / found.factor)
    assert half_width == pytest.approx(log(found.factor / found.low))
    alone = run_elongation_from_studies.pool_studies([(0.0, 0.1), (0.4, 0.2)], is_unchanged=True)
    assert alone.factor == 1
    assert log(alone.high) / half_width == pytest.approx(
        sqrt((0.11 + 1 / sum(weights)) / (0.055 + 1 / sum(weights)))
    )


def test_studies_without_an_error_are_pooled_too():
    assert run_elongation_from_studies.pool_studies([(0.1, 0.0)]).factor == pytest.approx(exp(0.1))
    exact = run_elongation_from_studies.pool_studies([(0.1, 0.0), (0.1, 0.0)])
    assert exact.low == pytest.approx(exact.high, rel=1e-4)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (
            {"summaries": True, "pruned": False, "compactions": 2, "hidden_message_counts": (9, 4)},
            "summary",
        ),
        (
            {"summaries": True, "pruned": True, "compactions": 2, "hidden_message_counts": (9, 4)},
            "hybrid",
        ),
        (
            {"summaries": False, "pruned": True, "compactions": 0, "hidden_message_counts": (4, 4)},
            "mask",
        ),
        (
            {
                "summaries": False,
                "pruned": False,
                "compactions": 3,
                "hidden_message_counts": (9, 4),
            },
            "other",
        ),
        (
            {"summaries": False, "pruned": True, "compactions": 0, "hidden_message_counts": (0, 0)},
            "raw",
        ),
        (
            {
                "summaries": False,
                "pruned": True,
                "compactions": 0,
                "hidden_message_counts": (None, None),
            },
            None,
        ),
    ],
)
def test_a_policy_is_known_by_what_it_did(told, kind):
    assert run_elongation_from_studies.classify_policy(**told) == kind


def test_a_difference_below_the_floor_is_not_told_apart():
    record = 10.0
    assert (
        run_elongation_from_studies.compare_cost_with_record((10.0, 10.0), record) == "within noise"
    )
    assert (
        run_elongation_from_studies.compare_cost_with_record((8.5, 8.5), record)
        == run_elongation_from_studies.compare_cost_with_record((11.9, 11.9), record)
        == "within noise"
    )
    assert (
        run_elongation_from_studies.compare_cost_with_record(
            (5.0, record / (1 + run_elongation_from_studies.NOISE_FLOOR) - 0.01), record
        )
        == "cheaper"
    )
    assert (
        run_elongation_from_studies.compare_cost_with_record(
            (5.0, record / (1 + run_elongation_from_studies.NOISE_FLOOR) + 0.01), record
        )
        == "within noise"
    )
    assert (
        run_elongation_from_studies.compare_cost_with_record(
            (record * (1 + run_elongation_from_studies.NOISE_FLOOR) + 0.01, 30.0), record
        )
        == "dearer"
    )


@pytest.mark.parametrize(
    ("studies_n", "t"),
    # Student's t for 80 % with as many degrees of freedom as studies less one; then the normal one
    [(1, 3.078), (2, 3.078), (3, 1.886), (4, 1.638), (13, 1.356), (14, 1.282), (40, 1.282)],
)
def test_the_interval_of_equal_studies_is_that_of_students_t(studies_n, t):
    pooled = run_elongation_from_studies.pool_studies([(log(1.5), 0.1)] * studies_n)
    assert (pooled.factor, pooled.studies) == (pytest.approx(1.5), studies_n)
    half_width = t * 0.1 / sqrt(studies_n)  # nothing varies between them
    assert log(pooled.high) == pytest.approx(log(1.5) + half_width)
    assert log(pooled.low) == pytest.approx(log(1.5) - half_width)


@pytest.mark.parametrize(
    ("family", "of_family_n", "factor", "studies_n"),
    [
        ("qwen", 3, 2.0, 3),  # three of its own are enough
        ("qwen", 2, None, 5),
        ("gemini", 3, None, 6),  # it has none of its own
    ],
)
def test_studies_of_the_family_count_alone_where_there_are_three(
    family, of_family_n, factor, studies_n
):
    study = run_elongation_from_studies.ElongationStudy(
        "raw", "mask", "qwen", "s", "m", 9, 2.0, 0.1
    )
    others = (study._replace(family="other", ratio=1.0),) * 3
    found = run_elongation_from_studies.estimate_elongation(
        "mask", "raw", family, (*(study,) * of_family_n, *others)
    )
    assert found.studies == studies_n
    if factor is None:
        assert 1.0 < found.factor < 2.0
    else:
        assert found.factor == pytest.approx(factor)
