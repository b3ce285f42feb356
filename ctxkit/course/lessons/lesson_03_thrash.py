"""Notebook 03: thrash, payback, distance."""

from __future__ import annotations

from functools import cache
from typing import Any

from ctxkit.course.answer_marking import mark_number, score_guess
from ctxkit.course.exercises import exercise, guess, numbers
from ctxkit.course.sample_data import load_sample, measure_cost_above, replay_sample, score_replay

_PAYBACKS = [{"calls": n} for n in (25, 18, 20, 30, 36, 40)]
_LIMITS = [
    {"peak": peak, "dollars": dollars}
    for peak in (30_000, 28_000, 26_000)
    for dollars in (2.6, 2.5)
]


@guess(
    "03",
    "Above 20,000 tokens, keep the newest 18,000 and sum up the rest. As recorded the session cost "
    "$3.29. How many dollars are these rules?",
    "They send fewer tokens and cost more: every cut writes the prompt anew.",
)
def _guess_cautious_cost(answer: Any) -> str:
    return score_guess(answer, measure_cost_above("summary:keep_tokens=18000", 20_000), "$")


@exercise(
    "03-a",
    "A compaction pays back after {calls} calls. How many tokens must lie between what is kept and "
    "the trigger, so that the next one does not come before? (Within 5 %.)",
    "That is all there is to thrash: a distance that is too short.",
    hint="How many tokens does a prompt grow by, from one call to the next? That, times the calls.",
    numbers=_PAYBACKS,
)
def _judge_trigger_distance(answer: Any) -> str:
    # prompts grow by about the same number at each call: distance = growth * calls
    grown = growth()
    slips = {
        "That is the growth of one call.": grown,
        "That is all that the session grew by.": grown * (len(load_sample().calls) - 1),
    }
    return mark_number(answer, grown * numbers("03-a")["calls"], within=0.05, slips=slips)


@cache
def growth() -> float:
    """Return by how many tokens a prompt of the sample grows from call to call, never compacted."""
    from ctxkit.metrics.frames import frame

    # never compacted, so the mean growth is last less first, by the calls between
    prompts = frame(replay_sample("none"), per="call")["prompt_tokens"]
    return float(prompts.iloc[-1] - prompts.iloc[0]) / (len(prompts) - 1)


@exercise(
    "03-b",
    "Find rules whose prompts stay below {peak:,} tokens, that do not thrash and cost at most "
    "${dollars:.2f}. Give the rules.",
    "That is half of the answer. Now look at what they lose: `ck.compare(session, [rules])`.",
    hint="A lower trigger makes prompts shorter; keeping less makes the distance longer.",
    numbers=_LIMITS,
)
def _judge_calm_rules(answer: Any) -> str:
    scored = score_replay(replay_sample(answer), loss=False)
    peak, dollars = numbers("03-b").values()
    if scored["peak_tokens"] >= peak:
        return f"The largest prompt has {scored['peak_tokens']:,} tokens."
    if scored["is_thrashing"]:
        bad, total = scored["not_paid_back_n"], scored["compactions_n"]
        return f"They thrash: {bad} of {total} compactions were not paid back."
    if scored["cost_usd"] > dollars:
        return f"They cost ${scored['cost_usd']:.2f}."
    return ""
