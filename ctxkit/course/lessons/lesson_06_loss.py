"""Notebook 06: what was lost, and what of it was needed."""

from __future__ import annotations

from functools import cache
from typing import Any

from ctxkit.course.answer_marking import mark_list, score_guess
from ctxkit.course.exercises import exercise, guess, numbers
from ctxkit.course.sample_data import facts_kept, load_sample, replay_sample, score_replay

_LIMITS = [{"dollars": dollars} for dollars in (3.00, 2.95, 2.90, 2.85)]


@guess(
    "06",
    "Under `pi` in this window 9 % of what was needed later was out of sight. How many of the "
    "fifteen facts does the last turn begin with?",
    "A small loss of items can hide a large loss of facts: nobody asks for a fact twice a day.",
)
def _guess_visible_facts(answer: Any) -> str:
    return score_guess(answer, _count_facts_under_pi(), "facts")


@cache
def _count_facts_under_pi() -> int:
    return sum(facts_kept(replay_sample("pi")).values())


@exercise(
    "06-a",
    "Which facts are out of sight when the last turn of the record begins? A list of sentences.",
    "Two of them the first summary still had. Nothing warned the agent when the second one dropped "
    "them.",
    hint="`ck.course.facts_kept(session)` says of each sentence whether it is shown.",
)
def _judge_lost_facts(answer: Any) -> str:
    return mark_list(
        answer, [fact for fact, is_visible in facts_kept(load_sample()).items() if not is_visible]
    )


@exercise(
    "06-b",
    "Find rules that keep all fifteen facts for at most ${dollars:.2f}. Give the rules.",
    "Enter them: `ck.contest().enter(...)`.",
    hint="The facts stand in what was said; most of the tokens stand in what tools printed.",
    numbers=_LIMITS,
)
def _judge_rules_keeping_facts(answer: Any) -> str:
    replay = replay_sample(answer)
    facts = facts_kept(replay)
    if not all(facts.values()):
        return f"They keep {sum(facts.values())} of {len(facts)} facts."
    cost = score_replay(replay, loss=False)["cost_usd"]
    return f"They cost ${cost:.2f}." if cost > numbers("06-b")["dollars"] else ""
