"""The growth model keeps its own promises, and its summaries fall where the published ones fell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit import studies

TURNS, SIZE = (
    st.integers(1, 200),
    st.floats(studies.policy_ratios_and_noise_floors.MASKED_LINE_TOKENS, 4_000),
)


@given(TURNS, SIZE, SIZE, SIZE, st.integers(1, 100))
def test_a_mask_takes_more_the_less_it_keeps(turns, first, reply, result, keep):
    some = studies.policy_ratios_and_noise_floors.model_masked_prompts(
        turns, first, reply, result, keep
    )
    assert (
        some
        <= studies.policy_ratios_and_noise_floors.model_unmanaged_prompts(
            turns, first, reply + result
        )
        + 1e-6
    ).all()
    assert (
        some
        <= studies.policy_ratios_and_noise_floors.model_masked_prompts(
            turns, first, reply, result, keep + 1
        )
        + 1e-6
    ).all()
    all_kept = studies.policy_ratios_and_noise_floors.model_masked_prompts(
        turns, first, reply, result, turns
    )
    assert np.allclose(
        all_kept,
        studies.policy_ratios_and_noise_floors.model_unmanaged_prompts(
            turns, first, reply + result
        ),
    )


@given(TURNS, SIZE, SIZE, st.integers(1, 30), st.integers(1, 60))
def test_summaries_bound_what_stands(turns, first, step, keep, chunk):
    prompts = studies.policy_ratios_and_noise_floors.model_summarised_prompts(
        turns, first, step, keep, chunk
    )
    assert (
        prompts
        <= first
        + studies.policy_ratios_and_noise_floors.SUMMARY_TOKENS
        + step * (keep + chunk)
        + 1e-6
    ).all()
    assert (
        prompts[: keep + chunk]
        == studies.policy_ratios_and_noise_floors.model_unmanaged_prompts(turns, first, step)[
            : keep + chunk
        ]
    ).all()


def test_a_run_that_is_not_managed_is_predicted_as_it_was():
    raw = pd.DataFrame({"turns": [30, 1], "tokens": [30 * 5_000, 900], "output": [80, 10]})
    whole = studies.policy_ratios_and_noise_floors.predict_total_prompt_tokens(
        raw, "mask", "M=1000", first=1_000.0
    )
    assert whole.tolist() == pytest.approx([150_000, 900])
    assert (
        studies.policy_ratios_and_noise_floors.predict_total_prompt_tokens(
            raw, "hybrid", "N=21 M=10", 1_000.0
        )[0]
        <= studies.policy_ratios_and_noise_floors.predict_total_prompt_tokens(
            raw, "mask", "M=10", 1_000.0
        )[0]
    )


def test_published_summaries_are_as_many_as_the_model_says(trap):
    told = trap[(trap["scaffold"] == "sweagent") & (trap["policy"] == "summary")]
    expected = np.maximum(told["turns"] - 1 - 10, 0) // 21
    assert (expected == told["summaries"]).mean() > 0.7
    assert (np.abs(expected - told["summaries"]) <= 1).mean() > 0.9
    wrong = np.maximum(told["turns"] - 1 - 10, 0) // 7
    assert (wrong == told["summaries"]).mean() < 0.5
    firsts = {
        s: studies.policy_ratios_and_noise_floors.estimate_first_prompt_tokens(g)
        for s, g in trap[trap["policy"] == "raw"].groupby("scaffold")
    }
    assert 1_000 < firsts["sweagent"] < firsts["openhands"] < 20_000


def test_prompts_grow_by_whole_results_and_lines_of_masked_ones():
    model = studies.policy_ratios_and_noise_floors
    # replies of 10 tokens, results of 20, the last two whole, others lines of 12
    masked = model.model_masked_prompts(5, 100.0, 10.0, 20.0, 2)
    assert masked.tolist() == [100, 130, 160, 182, 204]
    # three turns are summarised whenever five are complete
    summarised = model.model_summarised_prompts(9, 100.0, 10.0, 2, 3)
    assert summarised.tolist() == [100, 110, 120, 130, 140, 920, 930, 940, 920]
    assert model.model_unmanaged_prompts(3, 100.0, 30.0).tolist() == [100, 130, 160]


def test_a_hybrid_sends_the_smaller_prompt_of_each_call():
    model = studies.policy_ratios_and_noise_floors
    # nine calls from 100 tokens by 500 each, of which 400 are the reply
    raw = pd.DataFrame({"turns": [9], "tokens": [9 * 100 + 36 * 500], "output": [400]})
    mask = model.model_masked_prompts(9, 100.0, 400.0, 100.0, 2)
    summary = model.model_summarised_prompts(9, 100.0, 500.0, 2, 3)
    totals = {
        policy: model.predict_total_prompt_tokens(raw, policy, "N=3 M=2", 100.0).tolist()
        for policy in ("mask", "summary", "hybrid")
    }
    assert totals["mask"] == [pytest.approx(mask.sum())]
    assert totals["summary"] == [pytest.approx(summary.sum())]
    assert totals["hybrid"] == [pytest.approx(np.minimum(mask, summary).sum())]
    assert totals["hybrid"] < min(totals["mask"], totals["summary"])


def test_a_first_prompt_is_among_the_smallest_mean_prompts():
    raw = pd.DataFrame({"tokens": range(2_000, 12_001, 100), "turns": 2})  # means 1,000 to 6,000
    assert studies.policy_ratios_and_noise_floors.estimate_first_prompt_tokens(raw) == 1_050
