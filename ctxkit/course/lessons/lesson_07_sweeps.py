"""Exercises of notebook 07: the choice of a setting, and how certain it is."""

from __future__ import annotations

from functools import cache
from statistics import pstdev, stdev
from typing import TYPE_CHECKING, Any

from ctxkit.course.contests import ContestEntry, judge_rules
from ctxkit.course.exercises import exercise, guess, mark_choice, mark_number, numbers, score_guess
from ctxkit.course.generator.billing_service_coding_session import make_session
from ctxkit.course.sample_replays_and_scores import measure_loss_with_trigger
from ctxkit.course.students import get_student_and_ambiguity_note
from ctxkit.policies import triggers
from ctxkit.policies.compaction_and_pruning_rules import Rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session.session import Session

_TRIGGERS = range(28_000, 32_001, 500)
_KEEP_TOKENS = [{"keep_tokens": n} for n in (8_000, 5_000, 6_000, 12_000)]
_HIDDEN_N = 2
_MARGIN = Rules(policy="clear:keep_last=5", trigger=triggers.Share(0.8), name="clear at 80%")
"""The rules that the notebook shows to hold on every session; an answer must cost less."""
_LESS_USD = 0.15


# The loss is worked out under triggers that nobody would call different. Its spread is the noise of
# this one session, against which differences between settings are held.
@cache
def measure_losses_near_trigger(policy: str = "summary:keep_tokens=8000") -> Sequence[float]:
    """Return the loss of a policy under triggers that differ by a few per cent."""
    return [measure_loss_with_trigger(policy, t) for t in _TRIGGERS]


@guess(
    "07",
    "Summaries above 30,000 tokens lose 55 % of what is needed later. Move the trigger to anything "
    "from 28,000 to 32,000. By how many points does the loss change, from the least to the most?",
    "That much is chance: no one would call these triggers different settings.",
)
def _guess_loss_range(answer: Any) -> str:
    return score_guess(
        answer,
        100 * (max(measure_losses_near_trigger()) - min(measure_losses_near_trigger())),
        "points",
    )


@exercise(
    "07-a",
    "What is the standard deviation of these losses (`summary:keep_tokens={keep_tokens}`, triggers "
    "28,000 to 32,000 in steps of 500), in points? (With n or with n - 1.)",
    "Two settings that are nearer than twice this are not told apart by this session.",
    hint="The column `needed_later_loss` of `jitter`, its `.std()`, in points: times 100.",
    numbers=_KEEP_TOKENS,
)
def _judge_loss_deviation(answer: Any) -> str:
    measured = measure_losses_near_trigger(f"summary:keep_tokens={numbers('07-a')['keep_tokens']}")
    right, sample = 100 * pstdev(measured), 100 * stdev(measured)
    # with n or with n - 1: what is near to either is right
    if not mark_number(answer, sample, tolerance=0.05):
        return ""
    slips = {
        "That is the distance from the least to the most.": 100 * (max(measured) - min(measured)),
        "That is the variance.": sample**2,
    }
    return mark_number(answer, right, tolerance=0.05, common_mistakes=slips)


@exercise(
    "07-b",
    "Rules that keep every fact, lose at most 5 % and fit the window on `billing` and on two "
    f"sessions that you have not seen, and cost at least {100 * _LESS_USD:.0f} cents less than "
    f"`{_MARGIN.name}` on the mean of the three.",
    "They were not chosen on those two: that is what a choice has to survive. Now enter them.",
    hint="Leave a margin, and not too wide a one: a lower trigger is cheaper until it loses facts, "
    "and rules that only just hold on one session do not hold on the next.",
)
def _judge_contest_rules(answer: Any) -> str:
    entries = [judge_rules("yours", answer)]
    if entries[0].why:
        return f"On `billing` it does not count: {entries[0].why}."
    seed = get_student_and_ambiguity_note()[0].seed
    entries += [judge_rules("yours", answer, session) for session in _make_hidden(seed)]
    if why := next((each.why for each in entries[1:] if each.why), ""):
        return f"On `billing` it counts; on a session that you have not seen it {why}."
    # a bound in dollars would be easy on one student's sessions and hard on another's
    mean, margin = _mean_usd(entries), _mean_usd(_judge_margin(seed))
    if mean <= margin - _LESS_USD:
        return ""
    return f"It counts on all three, at ${mean:.2f}; `{_MARGIN.name}` costs ${margin:.2f}."


def _make_hidden(seed: str) -> list[Session]:
    """Return the sessions that a student has not seen; each student has others."""
    return [make_session(f"exercise {seed}/{n}") for n in range(_HIDDEN_N)]


@cache
def _judge_margin(seed: str) -> Sequence[ContestEntry]:
    """Return the figures of the notebook's rules on `billing` and on a student's sessions."""
    return [judge_rules(_MARGIN.name, _MARGIN, each) for each in (None, *_make_hidden(seed))]


def _mean_usd(entries: Sequence[ContestEntry]) -> float:
    return sum(each.cost_usd for each in entries) / len(entries)


@exercise(
    "07-c",
    "Which of these does a replay not tell: 'bill', 'loss' or 'behaviour'?",
    "It keeps the recorded steps. What the agent would have done with another prompt nobody knows.",
    hint="Which of the three would have changed what stands in the record?",
    is_choice=True,
)
def _judge_replay_blind_spot(answer: Any) -> str:
    why = {
        "bill": "It does: the prompts are known, and the prices.",
        "loss": "It does: what was used again stands in the record.",
    }
    return mark_choice(answer, "behaviour", ("bill", "loss", "behaviour"), why)
