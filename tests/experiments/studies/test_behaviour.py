"""Turns and dollars of real runs under policies; permuted policies must show nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ctxkit.errors import BadArguments
from ctxkit.experiments import studies

MODEL = "gemini_2.5_flash-agent-t_0.8-"
NAMES = {
    "raw": f"{MODEL}baseline_raw.0-verified-500",
    "mask": f"{MODEL}baseline_N_1_M_10.0-verified-500",
    "summary": f"{MODEL}turn-summaries-t_0-N_21_M_10_openhands.0-verified-500",
}


def made(tmp_path, times: dict[str, float], tasks: int = 300):
    random = np.random.default_rng(5)
    base = random.integers(5, 90, tasks)
    rows = []
    for policy, factor in times.items():
        turns = np.maximum(1, (base * factor * random.lognormal(0, 0.3, tasks)).round()).astype(int)
        rows += [
            {
                "experiment": NAMES[policy],
                "instance_id": f"task-{i}",
                "cost": t * 0.01,
                "summary_count": 0,
                "turn_count": t,
                "mean_completion_tokens": 50,
                "mean_prompt_tokens": 1_000 + 50 * t,
                "outcome": 0,
                "scaffold": "sweagent",
            }
            for i, t in enumerate(turns.tolist())
        ]
    path = tmp_path / "runs.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return studies.published_runs_and_tables.read_published_runs(path)


def permuted(frame: pd.DataFrame) -> pd.DataFrame:
    """The same runs, the policy of each task's runs drawn again."""
    random = np.random.default_rng(11)
    kept = frame[~frame["repeat"] & frame["policy"].isin(["raw", "mask", "summary"])]
    kept = kept[kept["setting"].isin(["", "M=10", "N=21 M=10"])]
    out = []
    for _, group in kept.groupby(["scaffold", "model", "task"], sort=False):
        order = random.permutation(len(group))
        out.append(group.assign(**{c: group[c].to_numpy()[order] for c in ("policy", "setting")}))
    return pd.concat(out)


def test_a_policy_that_doubles_the_turns_is_found(tmp_path):
    found = studies.policy_ratios_and_noise_floors.compare_policies(
        made(tmp_path, {"raw": 1.0, "mask": 2.0, "summary": 1.0})
    )
    rows = found.set_index(["before", "after"])
    assert rows.loc[("raw", "mask"), "turns_low"] < 2 < rows.loc[("raw", "mask"), "turns_high"]
    assert (
        rows.loc[("raw", "summary"), "turns_low"] < 1 < rows.loc[("raw", "summary"), "turns_high"]
    )
    assert rows.loc[("mask", "summary"), "turns"] == pytest.approx(0.5, abs=0.05)
    assert rows.loc[("raw", "mask"), "usd"] == pytest.approx(rows.loc[("raw", "mask"), "turns"])


def test_the_bill_of_a_mask_is_predicted_from_the_raw_runs(tmp_path):
    """Tasks of 1 call, which give the first prompt, and of 21, of which a mask hides ten results."""
    tokens_and_turns = {"raw": [(1_000, 1), (6_000, 21)], "mask": [(500, 1), (4_000, 30)]}
    rows = [
        {"experiment": NAMES[policy], "instance_id": f"t{i}-{copy}", "scaffold": "sweagent",
         "cost": 0.01 * turns, "summary_count": 0, "turn_count": turns, "outcome": 0,
         "mean_completion_tokens": 50, "mean_prompt_tokens": tokens}
        for policy, runs in tokens_and_turns.items()
        for i, (tokens, turns) in enumerate(runs)
        for copy in range(2)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "runs.csv", index=False)
    runs = studies.published_runs_and_tables.read_published_runs(tmp_path / "runs.csv")
    (row,) = studies.policy_ratios_and_noise_floors.compare_policies(runs).to_dict("records")
    # (6,000 - 1,000) / 10 = 500 tokens a call, 50 of the reply and 450 of the result; at calls 12
    # to 21 one to ten results are lines of 12 tokens
    predicted = 1_000 + 21 * 6_000 - 55 * (450 - 12)
    recorded = 500 + 30 * 4_000
    assert row["bill"] == pytest.approx(predicted / recorded)
    assert row["prompt"] == pytest.approx((predicted / 22) / (recorded / 31))
    assert (row["before"], row["after"], row["setting"]) == ("raw", "mask", "M=10")
    assert (row["tasks"], row["family"]) == (4, "gemini")
    assert row["turns"] == pytest.approx(31 / 22) == row["usd"]
    assert row["each"] == pytest.approx((0 + 9 / 30) / 2)  # the median of 0, 0, 0.3 and 0.3


def test_a_repeat_is_a_run_over_50_tasks_of_a_setting_that_ran_over_all(tmp_path):
    small = "gemini-2.5-flash_maxiter_250-observation_masking-M_{}-verified_50"
    names = [NAMES["mask"], small.format(10), small.format(72)]
    row = {"instance_id": "t", "cost": 0.1, "summary_count": 0, "turn_count": 2,
           "mean_completion_tokens": 50, "mean_prompt_tokens": 900, "outcome": 0}  # fmt: skip
    rows = [{"experiment": name, **row, "scaffold": "openhands"} for name in names]
    pd.DataFrame(rows).to_csv(tmp_path / "runs.csv", index=False)
    frame = studies.published_runs_and_tables.read_published_runs(tmp_path / "runs.csv")
    assert frame["setting"].tolist() == ["M=10", "M=10", "M=72"]
    assert frame["repeat"].tolist() == [False, True, False]  # of M=72 there is one run alone


def test_permuted_policies_show_nothing(tmp_path):
    frame = permuted(made(tmp_path, {"raw": 1.0, "mask": 2.0, "summary": 1.0}))
    found = studies.policy_ratios_and_noise_floors.compare_policies(frame).set_index(
        ["before", "after"]
    )
    assert found.loc[("raw", "mask"), "turns"] == pytest.approx(1, abs=0.12)


@pytest.mark.long
def test_published_policies_differ_and_permuted_ones_do_not(trap):
    real, noise = (
        studies.policy_ratios_and_noise_floors.compare_policies(trap),
        studies.policy_ratios_and_noise_floors.compare_policies(permuted(trap)),
    )
    pairs = [f[(f["before"] == "raw") & (f["tasks"] > 50)] for f in (real, noise)]
    doubled = pairs[0].query("scaffold == 'openhands' and setting == 'M=10'")["turns"].item()
    assert doubled > 2
    assert pairs[1]["turns"].between(0.85, 1.18).all()
    assert pairs[0]["usd"].median() < 0.6
    assert pairs[1]["usd"].between(0.8, 1.25).all()


def test_runs_that_failed_before_they_began_are_left_out(trap, published):
    raw = pd.read_csv(published / "complexity-trap/experiment_instance_costs_combined.csv")
    gone = (raw["turn_count"] == 0) | (raw["mean_prompt_tokens"] == 0)
    assert len(trap) == len(raw) - gone.sum()
    assert raw.loc[gone, "turn_count"].max() <= 1
    flash = raw[raw["experiment"] == NAMES["mask"]]
    assert (flash["mean_prompt_tokens"] == 0).sum() == 36


def test_names_of_experiments():
    assert studies.published_runs_and_tables.parse_experiment_name(NAMES["summary"])[1:3] == (
        "summary",
        "N=21 M=10",
    )
    hybrid = (
        "local-Qwen3-Coder_480B-agent-summary_N_43_M_10_obs_masking_M_10_combined.0-verified-50"
    )
    assert studies.published_runs_and_tables.parse_experiment_name(hybrid) == (
        "qwen3-coder-480b",
        "hybrid",
        "N=43 M=10",
        False,
    )
    wide = "gemini-2.5-flash_maxiter_250_N_v0.43.0-no-hint-observation_masking-M_72-verified_50-x"
    assert studies.published_runs_and_tables.parse_experiment_name(wide) == (
        "gemini-2.5-flash",
        "mask",
        "M=72",
        True,
    )
    with pytest.raises(BadArguments, match="no model or policy"):
        studies.published_runs_and_tables.parse_experiment_name("gpt-7-raw")


def test_an_interval_shrinks_with_tasks_and_holds_the_truth():
    random = np.random.default_rng(1)

    def draw(n: int):
        """Two runs of tasks that are large or small in both."""
        before = random.lognormal(0, 0.5, n)
        return before, 1.5 * before * random.lognormal(0, 0.2, n) / np.exp(0.2**2 / 2)

    wide = []
    for n in (25, 400):
        before, now = draw(n)
        found = studies.policy_ratios_and_noise_floors.bootstrap_ratio(now, before)
        assert found.low < found.ratio < found.high
        wide.append(found.high / found.low)
    assert wide[1] < 1 + (wide[0] - 1) / 2
    held = 0
    for _ in range(120):
        before, now = draw(80)
        found = studies.policy_ratios_and_noise_floors.bootstrap_ratio(now, before, draws=200)
        held += found.low < 1.5 < found.high
    # 96 of 120 are expected, with a standard deviation of 4.4
    assert 86 <= held <= 106


def test_models_that_were_left_out_fall_into_the_interval():
    left = studies.policy_ratios_and_noise_floors.cross_validate_elongation()
    assert len(left) == 13
    assert 0.7 <= left["held"].mean() <= 0.9
    assert studies.table("ratios")["family"].isin(["gemini", "qwen"]).all()
