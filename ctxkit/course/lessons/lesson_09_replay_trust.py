"""Notebook 09: how far a replay can be trusted."""

from __future__ import annotations

from functools import cache
from typing import Any

from ctxkit.course.answer_marking import mark_choice, mark_number, score_guess
from ctxkit.course.exercises import exercise, guess, numbers
from ctxkit.course.sample_data import load_sample

_TASKS = [{"tasks": n} for n in (50, 10, 25, 100, 200)]
_WORDS = ("cheaper", "dearer", "within noise")


@cache
def _measure_masked_costs() -> tuple[float, float]:
    """Return the dollars predicted and real of an agent whose results are masked after five."""
    from ctxkit import presets
    from ctxkit.experiments import studies

    row = studies.loop([presets.swe_agent_mask(n=5)], progress=False).iloc[0]
    return float(row["usd_predicted"]), float(row["usd_real"])


@guess(
    "09",
    "An agent looks up numbers. Without management it pays 42 cents. A mask that shows the last "
    "five results is predicted to cost 45 cents. What does it cost when the agent really runs?",
    "It reads again what it can no longer see, and every look is a call.",
)
def _guess_real_cost(answer: Any) -> str:
    return score_guess(answer, _measure_masked_costs()[1], "$")


@exercise(
    "09-a",
    "The same policy run twice over {tasks} tasks: within how many per cent of each other are "
    "the dollars in 80 of 100 cases?",
    "A difference below that may be chance, whatever the replay says.",
    hint="The table of floors has a row for each number of tasks; a share times 100 is per cent.",
    numbers=_TASKS,
)
def _judge_noise_floor(answer: Any) -> str:
    from ctxkit.experiments import studies

    table = studies.table("floors").pivot(index="tasks", columns="figure", values="floor")
    usd = next(c for c in table.columns if "usd" in str(c) or "dollar" in str(c))
    return mark_number(
        answer, 100 * float(str(table.loc[numbers("09-a")["tasks"], usd])), within=0.05
    )


@exercise(
    "09-b",
    "Under `gemini` the sample is predicted to cost less than as recorded. What does `vs_recorded` "
    "say of it: 'cheaper', 'dearer' or 'within noise'?",
    "The interval of real runs and the noise floor are wider than the difference.",
    hint="The column `vs_recorded` of a comparison has the verdict.",
    is_choice=True,
)
def _judge_verdict(answer: Any) -> str:
    right = _compare_gemini()
    return mark_choice(
        answer, right, _WORDS, dict.fromkeys(_WORDS, "Look at the column `vs_recorded`.")
    )


@cache
def _compare_gemini() -> str:
    from ctxkit.experiments.comparison import compare

    table = compare(load_sample(), ["gemini"], loss=False, progress=False)
    return str(table.loc["gemini", "vs_recorded"])
