"""Exercises of notebooks 08 (snapshot logs of a lab, as a frame) and 09 (how far to trust a
replay).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ctxkit.course.exercises import exercise, guess, mark_choice, mark_number, numbers, score_guess
from ctxkit.course.sample_replays_and_scores import load_sample
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    import pandas as pd


_CUTOVERS = [{"tokens": n} for n in (120_000, 90_000, 110_000, 130_000, 140_000, 150_000)]


def _require_turn_frame(turns: Any) -> pd.DataFrame:
    if not hasattr(turns, "columns") or "turn_input_tokens" not in turns.columns:
        raise BadArguments("Give the frame, too: ck.check('08-a', answer, turns).")
    frame: pd.DataFrame = turns
    return frame


@guess(
    "08",
    "An agent may spend 100,000 tokens; one that is above that when its turn is over causes a "
    "compaction. By how many per cent has it gone over, on the mean? Give the log, too.",
    "The turn that crosses the line is already paid for.",
)
def _guess_overshoot(answer: Any, log: Any = None) -> str:
    if "cutover_at" not in getattr(log, "columns", ()):
        raise BadArguments("Give the log, too: ck.check('08-guess', GUESS, log).")
    from ctxkit.formats.snapshots.turn_segment_compaction_frames import segments

    parts = segments(log)
    over = parts[parts["reached"] == "cutover"]
    return score_guess(
        answer, 100 * float((over["cumulative_input_tokens"] / over["cutover_at"] - 1).mean()), "%"
    )


@exercise(
    "08-a",
    "Which agent sends most of all input tokens? Its name; give the frame `turns`, too.",
    "An agent with many tool rounds pays for its prompt in each of them.",
    hint="Group `turns` by agent and add up `turn_input_tokens`.",
    is_choice=True,
)
def _judge_largest_sender(answer: Any, turns: Any = None) -> str:
    sums = _require_turn_frame(turns).groupby("agent")["turn_input_tokens"].sum()
    names = [str(name).lower() for name in sums.index]
    right = str(sums.idxmax()).lower()
    return mark_choice(answer, right, names, dict.fromkeys(names, "It is not the largest."))


@exercise(
    "08-b",
    "How many compactions would a cut-over at {tokens:,} tokens have made? Give the frame, too.",
    "As long as nothing else changes: with another budget the turns themselves would be others.",
    hint="`compactions_at` of the notebook counts them for any number of tokens.",
    numbers=_CUTOVERS,
)
def _judge_compaction_count(answer: Any, turns: Any = None) -> str:
    frame = _require_turn_frame(turns)
    limit = numbers("08-b")["tokens"]
    spent: dict[tuple[str, str], int] = {}
    fired = 0
    columns = ("session", "agent", "turn_input_tokens")
    for session, agent, tokens in zip(*(frame[c] for c in columns), strict=True):
        # tokens add up by agent; one agent over the limit resets all agents of its session
        spent[session, agent] = spent.get((session, agent), 0) + int(tokens)
        if spent[session, agent] >= limit:
            fired += 1
            spent = {key: n for key, n in spent.items() if key[0] != session}
    return mark_number(answer, fired, tolerance=0)


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

    table = studies.table("floors").pivot_table(index="tasks", columns="figure", values="floor")
    usd = next(c for c in table.columns if "usd" in str(c) or "dollar" in str(c))
    return mark_number(
        answer, 100 * float(str(table.loc[numbers("09-a")["tasks"], usd])), tolerance=0.05
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
    from ctxkit.experiments.rules_comparison_on_one_session import compare

    table = compare(load_sample(), ["gemini"], loss=False, progress=False)
    return str(table.loc["gemini", "vs_recorded"])
