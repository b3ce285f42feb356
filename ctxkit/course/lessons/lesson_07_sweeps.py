"""Notebook 07: choosing, and how sure one can be."""

from __future__ import annotations

from functools import cache
from statistics import pstdev
from typing import TYPE_CHECKING, Any

from ctxkit.course.contests import Contest
from ctxkit.course.exercises import exercise, guess
from ctxkit.course.marking import mark_choice, mark_number, score_guess
from ctxkit.course.sample_data import make_rules_above, replay_sample, score_replay

if TYPE_CHECKING:
    from collections.abc import Sequence

_TRIGGERS = range(28_000, 32_001, 500)
_MOST = 2.60


# The loss is worked out under triggers that nobody would call different. Its spread is the noise of
# this one session, against which differences between settings are held.
@cache
def losses(words: str = "summary:keep_tokens=8000") -> Sequence[float]:
    """Return the loss of a policy under triggers that differ by a few per cent."""
    return [
        score_replay(replay_sample(make_rules_above(words, t)))["needed_later_loss"]
        for t in _TRIGGERS
    ]


@guess(
    "07",
    "Summaries above 30,000 tokens lose 55 % of what is needed later. Move the trigger to anything "
    "from 28,000 to 32,000. By how many points does the loss change, from the least to the most?",
    "That much is chance: no one would call these triggers different settings.",
)
def _guess_loss_range(answer: Any) -> str:
    return score_guess(answer, 100 * (max(losses()) - min(losses())), "points")


@exercise(
    "07-a",
    "What is the standard deviation of these losses (triggers 28,000 to 32,000 in steps of 500), "
    "in points? (Within 15 %: with n or n - 1.)",
    "Two settings that are nearer than twice this are not told apart by this session.",
)
def _judge_loss_deviation(answer: Any) -> str:
    right = 100 * pstdev(losses())
    slips = {
        "That is the distance from the least to the most.": 100 * (max(losses()) - min(losses())),
        "That is the variance.": right**2,
    }
    return mark_number(answer, right, within=0.15, slips=slips)


@exercise(
    "07-b",
    "Win: rules that keep fifteen of fifteen facts, lose at most 5 % and cost at most "
    f"${_MOST:.2f}.",
    "Can you get below $2.42?",
)
def _judge_contest_rules(answer: Any) -> str:
    entry = Contest.tried("yours", answer)
    if entry.why:
        return f"It does not count: {entry.why}."
    return f"It counts, at ${entry.cost_usd:.2f}." if entry.cost_usd > _MOST else ""


@exercise(
    "07-c",
    "Which of these does a replay not tell: 'bill', 'loss' or 'behaviour'?",
    "It keeps the recorded steps. What the agent would have done with another prompt nobody knows.",
)
def _judge_replay_blind_spot(answer: Any) -> str:
    why = {
        "bill": "It does: the prompts are known, and the prices.",
        "loss": "It does: what was used again stands in the record.",
    }
    return mark_choice(answer, "behaviour", ("bill", "loss", "behaviour"), why)
