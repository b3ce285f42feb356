"""Ratios of turns and dollars of published runs under two policies; noise floors; growth model."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.metrics.run_elongation_from_studies import (
    INTERVAL_LEVEL,
    estimate_elongation,
    get_study_model_family,
    load_studies,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from numpy.typing import NDArray


__all__ = [
    "DRAWS",
    "FLOOR_COLUMNS",
    "MASKED_LINE_TOKENS",
    "RATIO_COLUMNS",
    "SUMMARY_TOKENS",
    "TASKS",
    "RatioWithInterval",
    "bootstrap_ratio",
    "compare_policies",
    "cross_validate_elongation",
    "estimate_first_prompt_tokens",
    "estimate_noise_floors",
    "model_masked_prompts",
    "model_summarised_prompts",
    "model_unmanaged_prompts",
    "pair_first_and_second_runs",
    "pair_tasks",
    "predict_total_prompt_tokens",
]
__dir__ = make_dunder_dir(__all__)


RATIO_COLUMNS = {
    "before": "policy of the runs that are compared with: raw, mask, summary or hybrid",
    "after": "policy of the runs that are compared",
    "family": "of the models: gemini or qwen",
    "scaffold": "sweagent or openhands",
    "model": "the model",
    "setting": "of `after`: M turns kept whole, N turns summarised at once",
    "tasks": "tasks that both have, each run once",
    "turns": "turns after / turns before, over all tasks",
    "turns_low": "its 80 % interval over tasks",
    "turns_high": "the same",
    "turns_error": "standard error of its logarithm",
    "usd": "dollars after / dollars before",
    "usd_low": "its 80 % interval over tasks",
    "usd_high": "the same",
    "each": "median change of a task's turns, up or down, as a share of the larger",
    "bill": "from raw: tokens of all prompts predicted on the raw runs / recorded",
    "bill_low": "its 80 % interval over tasks",
    "bill_high": "the same",
    "prompt": "the same of the mean prompt, the part that turns are no part of",
}
"""Of the table `ratios`; `bill` rests on the growth model of
`experiments.studies.policy_ratios_and_noise_floors`.
"""
_MODEL_KEYS = ["scaffold", "model"]
_POLICY_ORDER = ("raw", "mask", "summary", "hybrid")
_MIN_TASKS = 50
"""Tasks of a side experiment: other windows of a mask; between managed runs they are left out."""


def compare_policies(runs: pd.DataFrame) -> pd.DataFrame:
    """Compare each pair of policies under which one model ran the same tasks.

    Args:
        runs: result of `published_runs_and_tables.read_published_runs`.

    Returns:
        One row per model and pair of policies, with the columns `RATIO_COLUMNS`.
    """
    import pandas as pd

    raw = runs[runs["policy"] == "raw"]
    firsts: dict[Any, float] = {
        s: estimate_first_prompt_tokens(g) for s, g in raw.groupby("scaffold")
    }
    rows: list[dict[str, Any]] = []
    by: Any
    for by, group in runs[~runs["repeat"]].groupby(_MODEL_KEYS, sort=True):
        scaffold, model = by
        for before, after, pairs in _pair_policies(group):
            head = {
                "before": before,
                "after": after[0],
                "family": get_study_model_family(str(model)),
            }
            rows.append(
                {**head, "scaffold": scaffold, "model": model, "setting": after[1]}
                | _measure_ratios(pairs, before, after, firsts[scaffold])
            )
    return pd.DataFrame(rows, columns=list(RATIO_COLUMNS))


def _pair_policies(group: pd.DataFrame) -> Iterator[tuple[str, tuple[str, str], pd.DataFrame]]:
    """Yield each pair of a model's runs once: policy before, policy and setting after, tasks."""
    groups: list[tuple[Any, pd.DataFrame]] = list(group.groupby(["policy", "setting"]))
    sets = sorted(groups, key=lambda s: _POLICY_ORDER.index(s[0][0]))
    for (before, first), (after, then) in combinations(sets, 2):
        managed = before[0] != "raw" and after[0] != "hybrid"
        if before[0] != after[0] and not (managed and min(len(first), len(then)) <= _MIN_TASKS):
            yield before[0], after, pair_tasks(first, then)


def _measure_ratios(
    pairs: pd.DataFrame, before: str, after: tuple[str, str], first: float
) -> dict[str, Any]:
    turns_now, turns = pairs["turns_now"].to_numpy(), pairs["turns_before"].to_numpy()
    turns_ratio = bootstrap_ratio(turns_now, turns)
    usd = bootstrap_ratio(pairs["usd_now"].to_numpy(), pairs["usd_before"].to_numpy())
    out: dict[str, Any] = {"tasks": len(pairs)}
    out |= dict(zip(("turns", "turns_low", "turns_high", "turns_error"), turns_ratio, strict=True))
    out |= dict(zip(("usd", "usd_low", "usd_high"), usd[:3], strict=True))
    out["each"] = _median_task_change(turns_now, turns)
    if before != "raw":
        return out
    raw = pairs.rename(columns={f"{c}_before": c for c in ("turns", "tokens", "output")})
    predicted, real = (
        predict_total_prompt_tokens(raw, *after, first),
        pairs["tokens_now"].to_numpy(),
    )
    out |= dict(
        zip(("bill", "bill_low", "bill_high"), bootstrap_ratio(predicted, real)[:3], strict=True)
    )
    out["prompt"] = (predicted.sum() / turns.sum()) / (real.sum() / turns_now.sum())
    return out


def _median_task_change(now: NDArray[Any], before: NDArray[Any]) -> float:
    return float(np.median(np.abs(now - before) / np.maximum(now, before)))


def cross_validate_elongation() -> pd.DataFrame:
    """Cross-validate the elongation factors by leaving out one model at a time.

    Returns:
        One row per model and policy: `measured` (turns after / turns before), `expected` with `low`
        and `high` (80 % interval from the studies of the other models), and `held` (whether the
        interval contains the measured ratio).

    Example:
        >>> from ctxkit.experiments import studies
        >>> len(studies.policy_ratios_and_noise_floors.cross_validate_elongation())
        13
    """
    import pandas as pd

    rows = []
    for study in load_studies():
        if study.before != "raw" or study.after == "hybrid":
            continue
        rest = [s for s in load_studies() if (s.scaffold, s.model) != (study.scaffold, study.model)]
        elongation = estimate_elongation(study.after, "raw", "other", tuple(rest))
        rows.append(
            {"after": study.after, "scaffold": study.scaffold, "model": study.model}
            | {"measured": study.ratio, "expected": elongation.factor}
            | {"low": elongation.low, "high": elongation.high}
            | {"held": elongation.low <= study.ratio <= elongation.high}
        )
    return pd.DataFrame(rows)


FLOOR_COLUMNS = {
    "figure": "turns or usd",
    "tasks": "tasks that both runs have",
    "floor": "80 of 100 pairs of totals of the same policy lie within this share of each other",
}
TASKS = (1, 5, 10, 25, 50, 100, 200, 500)
_FIGURES = ("turns", "usd")
_FLOOR_SEED = 1729


def pair_first_and_second_runs(runs: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the settings that were run twice over the same tasks, paired by task.

    A second run that equals the first in every row is a copy (mask, M=72) and left out.
    """
    out = []
    sets = dict(iter(runs.groupby(["scaffold", "model", "policy", "setting", "repeat"])))
    for key, again in sets.items():
        if not key[-1]:
            continue
        pairs = pair_tasks(sets[*key[:-1], False], again)
        if not (pairs["usd_now"] == pairs["usd_before"]).all():
            out.append((f"{key[2]} {key[3]}".strip(), pairs))
    return out


def estimate_noise_floors(
    pairs: list[pd.DataFrame], tasks: tuple[int, ...] = TASKS
) -> pd.DataFrame:
    """Estimate the noise floor of totals over numbers of tasks (see `FLOOR_COLUMNS`).

    Bootstrap under the null hypothesis of equal policies: tasks are resampled with replacement, and
    for each task chance decides which of its two runs counts as the second.

    Args:
        pairs: the two runs of each setting: the frames that `pair_first_and_second_runs` returns.
        tasks: numbers of tasks.
    """
    import pandas as pd

    random = np.random.default_rng(_FLOOR_SEED)
    rows = [
        {
            "figure": f,
            "tasks": n,
            "floor": _estimate_floor([_figure_of_both_runs(p, f) for p in pairs], n, random),
        }
        for f in _FIGURES
        for n in tasks
    ]
    return pd.DataFrame(rows, columns=list(FLOOR_COLUMNS))


def measure_repeat_ratios(pairs: list[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Return the ratio of second to first run for each setting, with 80 % intervals."""
    import pandas as pd

    rows = []
    for name, pair in pairs:
        for figure in _FIGURES:
            now, before = (pair[f"{figure}_{x}"].to_numpy() for x in ("now", "before"))
            ratio = bootstrap_ratio(now, before)
            rows.append({"policy": name, "figure": figure, "tasks": len(pair), **ratio._asdict()})
    return pd.DataFrame(rows).drop(columns="error")


def _figure_of_both_runs(pairs: pd.DataFrame, figure: str) -> Any:
    return pairs[[f"{figure}_before", f"{figure}_now"]].to_numpy()


def _estimate_floor(settings: list[Any], tasks: int, random: np.random.Generator) -> float:
    logs = []
    for both in settings:
        # resample tasks with replacement, then swap the two runs of a task with probability 1/2
        drawn = both[random.integers(0, len(both), (DRAWS, tasks))]
        turned = random.random((DRAWS, tasks, 1)) < 0.5
        totals = np.where(turned, drawn[..., ::-1], drawn).sum(axis=1)
        logs.append(np.abs(np.log(totals[:, 0] / totals[:, 1])))
    return float(np.exp(np.quantile(np.concatenate(logs), INTERVAL_LEVEL)) - 1)


# Growth model of a published run. The runs have totals alone, so a run is taken to grow evenly: its
# prompt at call `t` is `first + (t - 1) (reply + result)`, where `reply` is its own mean output,
# `first` the smallest prompts of that scaffold, and `result` follows from its own mean prompt. On
# the same calls (open loop, as in a replay) - a mask of the last `M` results makes each older one a
# line of `MASKED_LINE_TOKENS` tokens; - a summary removes the oldest `N` turns whenever `M + N`
# turns are complete, and puts
#   `SUMMARY_TOKENS` tokens in the place of all that was removed so far.

MASKED_LINE_TOKENS = 12
"""Tokens of the line in the place of a masked result."""
SUMMARY_TOKENS = 800
"""Tokens of a summary."""
_FIRST_PROMPT_QUANTILE = 0.01
"""Quantile of the mean prompts that estimates the size of a first prompt."""


def estimate_first_prompt_tokens(raw: pd.DataFrame) -> float:
    """Return the tokens of a first prompt: the 1 % quantile of the runs' mean prompts."""
    return float((raw["tokens"] / raw["turns"]).quantile(_FIRST_PROMPT_QUANTILE))


def model_unmanaged_prompts(turns: int, first: float, step: float) -> NDArray[Any]:
    """Return the prompt tokens of each call without context management.

    Args:
        turns: number of calls.
        first: tokens of the first prompt.
        step: tokens that each call adds.
    """
    grown: NDArray[Any] = step * np.arange(turns)
    return first + grown


def model_masked_prompts(
    turns: int, first: float, reply: float, result: float, last_results: int
) -> NDArray[Any]:
    """Return the prompt tokens of each call where all but the last results are masked.

    Args:
        turns: number of calls.
        first: tokens of the first prompt.
        reply: tokens of each reply.
        result: tokens of each tool result.
        last_results: newest results that are not masked.
    """
    before: NDArray[Any] = np.arange(turns)
    whole = np.minimum(before, last_results)
    out: NDArray[Any] = (
        first + reply * before + result * whole + MASKED_LINE_TOKENS * (before - whole)
    )
    return out


def model_summarised_prompts(
    turns: int, first: float, step: float, last_turns: int, chunk: int
) -> NDArray[Any]:
    """Return the prompt tokens of each call where chunks of turns are summarised.

    `chunk` turns are summarised each time that `chunk` + `last_turns` are whole.

    Args:
        turns: number of calls.
        first: tokens of the first prompt.
        step: tokens that each call adds.
        last_turns: newest turns that stay.
        chunk: turns that a summary replaces at a time.
    """
    before: NDArray[Any] = np.arange(turns)
    # number of summaries made so far; each replaces the one before
    times: NDArray[Any] = np.maximum(before - last_turns, 0) // chunk
    out: NDArray[Any] = first + SUMMARY_TOKENS * (times > 0) + step * (before - chunk * times)
    return out


def predict_total_prompt_tokens(
    raw: pd.DataFrame, policy: str, setting: str, first: float
) -> NDArray[Any]:
    """Predict for each unmanaged run the total prompt tokens under a policy, with equal calls.

    Args:
        raw: runs without management, as `read_published_runs` returns them.
        policy: mask, summary or hybrid (the smaller of both prompts at each call).
        setting: such as ``"N=21 M=10"``.
        first: tokens of the first prompt.
    """
    numbers = {k: int(v) for k, v in re.findall(r"([NM])=(\d+)", setting)}
    last_turns, chunk = numbers["M"], numbers.get("N", 0)

    def total(turns: int, tokens: int, reply: float) -> float:
        # Linear growth with the run's own mean prompt: mean = start + step * (turns - 1) / 2.
        start = min(first, tokens / turns)
        step = 2 * (tokens / turns - start) / max(turns - 1, 1)
        reply_tokens = min(reply, step)
        mask = model_masked_prompts(turns, start, reply_tokens, step - reply_tokens, last_turns)
        if policy == "mask":
            return float(mask.sum())
        short = model_summarised_prompts(turns, start, step, last_turns, chunk)
        return float((short if policy == "summary" else np.minimum(short, mask)).sum())

    rows = zip(raw["turns"].tolist(), raw["tokens"].tolist(), raw["output"].tolist(), strict=True)
    return np.array([total(*row) for row in rows])


DRAWS = 2_000
"""Bootstrap resamples for an interval."""
_RATIO_SEED = 1729


class RatioWithInterval(NamedTuple):
    """Ratio of two totals, its 80 % interval, and the standard error of its logarithm."""

    ratio: float
    low: float
    high: float
    error: float


# Ratio estimator over paired tasks with a percentile bootstrap: tasks are resampled with
# replacement, both runs of a task together, and the 80 % interval is taken from the quantiles of
# the log ratio. The seed is fixed, so that tables are reproducible. Cost: draws times tasks.
def bootstrap_ratio(
    now: NDArray[Any], before: NDArray[Any], draws: int = DRAWS
) -> RatioWithInterval:
    """Return sum(now) / sum(before) with a percentile bootstrap interval over tasks.

    Args:
        now: one figure per task.
        before: figures of the other run, in the same order.
        draws: number of resamples.
    """
    random = np.random.default_rng(_RATIO_SEED)
    drawn = random.integers(0, len(now), (draws, len(now)))
    # the ratio of sums is skewed, its logarithm nearly normal
    logs = np.log(now[drawn].sum(axis=1) / before[drawn].sum(axis=1))
    low, high = np.exp(np.quantile(logs, [(1 - INTERVAL_LEVEL) / 2, (1 + INTERVAL_LEVEL) / 2]))
    return RatioWithInterval(
        float(now.sum() / before.sum()), float(low), float(high), float(logs.std())
    )


def pair_tasks(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Return the tasks of both runs: columns `x_before` of the first, `x_now` of the other.

    Args:
        before: one row per task of the first run.
        now: one row per task of the other run; tasks that only one run has are left out.
    """
    return before.merge(now, on="task", suffixes=("_before", "_now"), validate="one_to_one")
