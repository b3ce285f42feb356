"""Notebook 03: thrash, payback, distance."""

from __future__ import annotations

from typing import Any

from ctxkit.course.exercises import exercise, guess
from ctxkit.course.marking import mark_number, score_guess
from ctxkit.course.sample_data import load_sample, measure_cost_above, replay_sample, score_replay

_PAYS, _PEAK, _MOST = 25, 30_000, 2.60


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
    f"A cut here pays after about {_PAYS} calls. How many tokens must lie between what is kept and "
    "the trigger, so that the next cut does not come before? (Within 10 %.)",
    "That is all there is to thrash: a distance that is too short.",
)
def _judge_trigger_distance(answer: Any) -> str:
    # prompts grow by about the same number at each call: distance = growth * calls
    grown = growth()
    slips = {
        "That is the growth of one call.": grown,
        "That is all that the session grew by.": grown * (len(load_sample().calls) - 1),
    }
    return mark_number(answer, grown * _PAYS, within=0.1, slips=slips)


def growth() -> float:
    """Return by how many tokens a prompt of the sample grows from call to call, never compacted."""
    from ctxkit.metrics.frames import frame

    # never compacted, so the mean growth is last less first, by the calls between
    prompts = frame(replay_sample("none"), per="call")["prompt_tokens"]
    return float(prompts.iloc[-1] - prompts.iloc[0]) / (len(prompts) - 1)


@exercise(
    "03-b",
    f"Find rules whose prompts stay below {_PEAK:,} tokens, that do not thrash and cost at most "
    f"${_MOST:.2f}. Give the rules.",
    "That is half of the answer. Now look at what they lose: `ck.compare(session, [rules])`.",
)
def _judge_calm_rules(answer: Any) -> str:
    scored = score_replay(replay_sample(answer), loss=False)
    if scored["peak_tokens"] >= _PEAK:
        return f"The largest prompt has {scored['peak_tokens']:,} tokens."
    if scored["is_thrashing"]:
        return f"They thrash: {scored['not_paid_back_n']} of {scored['compactions_n']} cuts did not pay."
    if scored["cost_usd"] > _MOST:
        return f"They cost ${scored['cost_usd']:.2f}."
    return ""
