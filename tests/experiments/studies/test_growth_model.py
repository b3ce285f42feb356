"""The growth model keeps its own promises, and its summaries fall where the published ones fell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.experiments.studies.policy_ratios_and_noise_floors import (
    MASKED_LINE_TOKENS,
    SUMMARY_TOKENS,
    estimate_first_prompt_tokens,
    model_masked_prompts,
    model_summarised_prompts,
    model_unmanaged_prompts,
    predict_total_prompt_tokens,
)

TURNS, SIZE = st.integers(1, 200), st.floats(MASKED_LINE_TOKENS, 4_000)


@given(TURNS, SIZE, SIZE, SIZE, st.integers(1, 100))
def test_a_mask_takes_more_the_less_it_keeps(turns, first, reply, result, keep):
    some = model_masked_prompts(turns, first, reply, result, keep)
    assert (some <= model_unmanaged_prompts(turns, first, reply + result) + 1e-6).all()
    assert (some <= model_masked_prompts(turns, first, reply, result, keep + 1) + 1e-6).all()
    all_kept = model_masked_prompts(turns, first, reply, result, turns)
    assert np.allclose(all_kept, model_unmanaged_prompts(turns, first, reply + result))


@given(TURNS, SIZE, SIZE, st.integers(1, 30), st.integers(1, 60))
def test_summaries_bound_what_stands(turns, first, step, keep, chunk):
    prompts = model_summarised_prompts(turns, first, step, keep, chunk)
    assert (prompts <= first + SUMMARY_TOKENS + step * (keep + chunk) + 1e-6).all()
    assert (
        prompts[: keep + chunk] == model_unmanaged_prompts(turns, first, step)[: keep + chunk]
    ).all()


def test_a_run_that_is_not_managed_is_predicted_as_it_was():
    raw = pd.DataFrame({"turns": [30, 1], "tokens": [30 * 5_000, 900], "output": [80, 10]})
    whole = predict_total_prompt_tokens(raw, "mask", "M=1000", first=1_000.0)
    assert whole.tolist() == pytest.approx([150_000, 900])
    assert (
        predict_total_prompt_tokens(raw, "hybrid", "N=21 M=10", 1_000.0)[0]
        <= predict_total_prompt_tokens(raw, "mask", "M=10", 1_000.0)[0]
    )


def test_published_summaries_are_as_many_as_the_model_says(trap):
    told = trap[(trap["scaffold"] == "sweagent") & (trap["policy"] == "summary")]
    expected = np.maximum(told["turns"] - 1 - 10, 0) // 21
    assert (expected == told["summaries"]).mean() > 0.7
    assert (np.abs(expected - told["summaries"]) <= 1).mean() > 0.9
    wrong = np.maximum(told["turns"] - 1 - 10, 0) // 7
    assert (wrong == told["summaries"]).mean() < 0.5
    firsts = {
        s: estimate_first_prompt_tokens(g)
        for s, g in trap[trap["policy"] == "raw"].groupby("scaffold")
    }
    assert 1_000 < firsts["sweagent"] < firsts["openhands"] < 20_000
