"""The appendices: the cache model, more about loss, sweeps at size."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ctxkit.course.exercises import exercise, guess
from ctxkit.course.marking import as_pair, mark_choice, mark_number, score_guess
from ctxkit.course.sample_data import facts_kept, load_sample, replay_sample
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    import pandas as pd

_YES_NO = ("yes", "no")
_CENT = 0.01


def _require_table(answer: Any, column: str, name: str) -> pd.DataFrame:
    if not hasattr(answer, "columns") or column not in answer.columns:
        raise BadArguments(f"Give the table `{name}`, too, behind your answer.")
    table: pd.DataFrame = answer
    return table


@guess(
    "a1",
    "What the provider said of its reads is taken off the sample; sizes, times and events stay. By "
    "how many per cent is the bill of its prompts off, that a cache model predicts?",
    "That is one log, and a kind one: docs/trust.md has many.",
)
def _guess_prediction_error(answer: Any) -> str:
    return score_guess(answer, 100 * _measure_prediction_error(), "%")


@cache
def _measure_prediction_error() -> float:
    from ctxkit.engine.cache_model.prediction import predict_input_cost

    return abs(predict_input_cost(load_sample()).error or 0.0)


@guess(
    "a2",
    "Never compacted, all fifteen facts are there; under `codex` twelve are. In how many of 100 "
    "cases would chance alone make a difference like that?",
    "Three facts that went one way are three tosses of a coin.",
)
def _guess_chance_cases(answer: Any) -> str:
    return score_guess(answer, 100 * _measure_chance(), "cases")


@cache
def _measure_chance() -> float:
    from ctxkit.metrics.retention_checks import mcnemar

    facts = (list(facts_kept(replay_sample(name)).values()) for name in ("none", "codex"))
    # McNemar's test: only facts that one of both kept and the other lost count
    return mcnemar(*facts).p


@guess(
    "a3",
    "Under `fuseraft` a session costs a dollar less than without management, on the mean of six. "
    "In how many of the six does it save more than a cent?",
    "A mean does not say who carries it.",
)
def _guess_saving_sessions(answer: Any) -> str:
    costs = _sweep_fuseraft().pivot_table(index="session", columns="rules", values="cost_usd")
    return score_guess(answer, int((costs["none"] - costs["fuseraft"] > _CENT).sum()), "sessions")


@cache
def _sweep_fuseraft() -> pd.DataFrame:
    """Return the six samples without management and under `fuseraft`."""
    from ctxkit.experiments.sweep_runs import sweep
    from ctxkit.formats import samples

    runs: pd.DataFrame = sweep(samples.paths(), ["none", "fuseraft"], loss=False, progress=False)
    return runs


@exercise(
    "a1-a",
    "Does the order of `none` and `pi` by dollars survive a bad cache model: 'yes' or 'no'? Give "
    "the table `costs`, too.",
    "So a cache model is part of the answer, not of the decoration.",
    hint="Which of the two is cheaper in the first column, and which in the last?",
    is_choice=True,
)
def _judge_order_stability(answer: Any, costs: Any = None) -> str:
    table = _require_table(costs, "never forgets", "costs")
    # first and last column: a cache that never forgets, and one that misses as recorded
    ends = [
        float(table[c]["none"]) < float(table[c]["pi"]) for c in ("never forgets", "misses carried")
    ]
    right = "yes" if ends[0] == ends[1] else "no"
    why = "Look at `none` and `pi` in the first column and in the last one."
    return mark_choice(answer, right, _YES_NO, dict.fromkeys(_YES_NO, why))


@exercise(
    "a1-b",
    "From which number of calls in the table on does headroom's rule gain, on a warm prompt? Give "
    "the table `gain`, too.",
    "It lies behind the number of calls that the rule asks for.",
    hint="The first number of the index at which the column is above nothing.",
)
def _judge_gain_start(answer: Any, gain: Any = None) -> str:
    warm = _require_table(gain, "headroom, warm", "gain")["headroom, warm"]
    return mark_number(answer, float(warm[warm > 0].index[0]), within=0)


@exercise(
    "a2-a",
    "After two compactions: what share of the items that the first one took is still in sight?",
    "Some that survived the first summary did not survive the second.",
    hint="The row of the first cohort after two compactions, column `retained`.",
)
def _judge_retained_share(answer: Any) -> str:
    table = _measure_drift()
    row = table[(table["cohort"] == 0) & (table["compactions_n"] == 2)].iloc[0]
    slips = {"That is after one compaction.": float(table["retained"].iloc[0])}
    return mark_number(answer, float(row["retained"]), within=0.05, slips=slips)


@cache
def _measure_drift() -> pd.DataFrame:
    from ctxkit.metrics.loss import drift

    return drift(load_sample())


@exercise(
    "a2-b",
    "Of how many facts was the meaning kept and a value lost, at the second compaction? Give the "
    "table `told`, too.",
    "A sentence about the right thing without the right name: the loss that reads best.",
    hint="Rows of compaction 1 whose meaning was kept and whose values were not.",
)
def _judge_lost_values(answer: Any, told: Any = None) -> str:
    table = _require_table(told, "meaning_kept", "told")
    late = table[table["compaction"] == 1]
    values = late["values_kept"].fillna(True).astype(bool)  # noqa: FBT003
    return mark_number(answer, int((late["meaning_kept"].astype(bool) & ~values).sum()), within=0)


@exercise(
    "a3-a",
    "Which pair of settings is the cheapest on the mean of the sessions? (reserve_tokens, "
    "keep_recent_tokens); give the table `runs`, too.",
    "And it is the one that loses most: no single score.",
    hint="Group by both settings, and take the mean of `cost_usd`.",
)
def _judge_cheapest_pair(answer: Any, runs: Any = None) -> str:
    names = ["reserve_tokens", "keep_recent_tokens"]
    table = _require_table(runs, names[0], "runs")
    best = table.groupby(names)["cost_usd"].mean().reset_index().sort_values("cost_usd")
    right = tuple(int(best[name].iloc[0]) for name in names)
    pair = as_pair(answer)
    if pair is None:
        return "Give two numbers: (reserve_tokens, keep_recent_tokens)."
    wrong = [name for name, reply, is_ in zip(names, pair, right, strict=True) if reply != is_]
    return f"Look again at {' and '.join(wrong)}." if wrong else ""


@exercise(
    "a3-b",
    "Over the six samples: does the whole interval of `fuseraft` less `none` lie below zero: 'yes' "
    "or 'no'?",
    "That speaks of dollars. What it loses is another column.",
    hint="Both ends of the interval, `low` and `high`, on the same side of nothing?",
    is_choice=True,
)
def _judge_interval_sign(answer: Any) -> str:
    right = "yes" if _is_fuseraft_cheaper() else "no"
    return mark_choice(answer, right, _YES_NO, dict.fromkeys(_YES_NO, "Look at `low` and `high`."))


@cache
def _is_fuseraft_cheaper() -> bool:
    from ctxkit.metrics.stats import compare_settings

    return bool(compare_settings(_sweep_fuseraft(), "fuseraft", "none")["high"] < 0)
