"""Exercises of notebooks 05 (effect of the cache on the bill) and 06 (losses, and which items were
needed).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ctxkit.course.exercises import exercise, guess, mark_list, mark_number, numbers, score_guess
from ctxkit.course.sample_replays_and_scores import (
    facts_kept,
    load_sample,
    measure_cost_with_trigger,
    replay_sample,
    score_replay,
)

_READ, _INPUT, _WRITE, _OUTPUT = 0.30, 3.0, 3.75, 15.0
"""Dollars a million tokens, as the notebook prints them."""
_RESULTS = [
    {"taken": taken, "behind": behind}
    for taken in (2_000, 1_500, 2_500, 4_000)
    for behind in (30_000, 24_000, 36_000, 45_000)
]
_CALLS = [
    {"fresh": fresh, "read": read, "written": written, "reply": reply}
    for fresh, written in ((1_200, 3_000), (800, 4_500), (2_100, 2_600))
    for read, reply in ((88_000, 900), (64_000, 1_300), (41_000, 600), (120_000, 450))
]


_LEAST_MINUTES = [{"minutes": n} for n in (5, 8, 15, 30, 45, 60)]


@guess(
    "05",
    "Clear all but the last 20 results above 26,000 tokens: $2.96. The same above 10,000 sends a "
    "fifth fewer tokens. How many dollars is that?",
    "It cuts before three of four calls, and what stands behind each cut is written anew.",
)
def _guess_frequent_clearing_cost(answer: Any) -> str:
    return score_guess(answer, measure_cost_with_trigger("clear:keep_last=20", 10_000), "$")


@exercise(
    "05-b",
    "A result of {taken:,} tokens stands before {behind:,} others in a warm prompt. After how "
    "many calls does taking it out pay?",
    "So a result in the middle of a warm prompt is better left alone.",
    hint="What stands behind is written instead of read, once; each call then reads less.",
    numbers=_RESULTS,
)
def _judge_break_even(answer: Any) -> str:
    from ctxkit.metrics.compaction_formulas import reads_until_mutation_pays

    # What is paid once is writing the tokens behind instead of reading them (w - r each); what is
    # saved in each later call is reading the tokens taken (r each): n = (w - r) / r * ratio.
    removed, behind = numbers("05-b").values()
    ratio = behind / removed
    slips = {
        "You counted the writing, but without it the tokens behind would have been read: w - r.": (
            _WRITE / _READ * ratio
        ),
        "You turned tokens taken and tokens behind round.": (_WRITE - _READ) / _READ / ratio,
        "Prices are missing: what is saved is a read, what is paid is a write.": ratio,
        "You took the price of plain input for that of writing.": (_INPUT - _READ) / _READ * ratio,
    }
    right = reads_until_mutation_pays(removed, behind)
    return mark_number(answer, right, tolerance=0.01, common_mistakes=slips)


@exercise(
    "05-a",
    "A call has {fresh:,} fresh tokens, reads {read:,} and writes {written:,}; its reply has "
    "{reply:,}. What does it cost, in dollars?",
    "Much of it is the read, though a read costs a tenth: there are so many of them.",
    hint="Four products, by a million: the prices stand in the table above.",
    numbers=_CALLS,
)
def _judge_call_cost(answer: Any) -> str:
    fresh, read, written, reply = numbers("05-a").values()
    prompt = fresh * _INPUT + read * _READ + written * _WRITE
    right = (prompt + reply * _OUTPUT) / 1e6
    slips = {
        "You paid every token of the prompt as plain input.": (
            ((fresh + read + written) * _INPUT + reply * _OUTPUT) / 1e6
        ),
        "The reply is missing.": prompt / 1e6,
        "You paid what was written as plain input.": (
            ((fresh + written) * _INPUT + read * _READ + reply * _OUTPUT) / 1e6
        ),
    }
    return mark_number(answer, right, common_mistakes=slips)


@exercise(
    "05-c",
    "How many dollars did the pauses of more than {minutes} minutes add? (What a cache that had "
    "lived would have read, and was written in its place.)",
    "All pauses together are more than a seventh of the bill, for nothing but time that went by.",
    hint="The sum of `expected` less `kept` over those pauses, at the price of writing less "
    "reading.",
    numbers=_LEAST_MINUTES,
)
def _judge_pause_cost(answer: Any) -> str:
    minutes = numbers("05-c")["minutes"]
    again = _count_rewritten_after_pauses(minutes)
    every = _count_rewritten_after_pauses(0)
    slips = {
        "That is all that those tokens cost; reading them would have cost something, too.": (
            again * _WRITE / 1e6
        ),
        "You took the price of plain input for that of writing.": again * (_INPUT - _READ) / 1e6,
        "You took the shorter pauses, too.": every * (_WRITE - _READ) / 1e6,
    }
    return mark_number(
        answer, again * (_WRITE - _READ) / 1e6, tolerance=0.01, common_mistakes=slips
    )


@cache
def _count_rewritten_after_pauses(minutes: int) -> int:
    """Return the tokens that a cache would have had, but for the pauses longer than this."""
    from ctxkit.metrics.cache_misses import find_cache_misses

    # only misses after a pause; `expected` would have been read, `kept` really was
    misses = [m for m in find_cache_misses(load_sample()) if m is not None and m.paused]
    return sum(max(m.expected - m.read_tokens, 0) for m in misses if (m.gap or 0) > 60 * minutes)


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
    hint="The facts are in the messages of user and agent; most tokens are in results of tools.",
    numbers=_LIMITS,
)
def _judge_rules_keeping_facts(answer: Any) -> str:
    replay = replay_sample(answer)
    facts = facts_kept(replay)
    if not all(facts.values()):
        return f"They keep {sum(facts.values())} of {len(facts)} facts."
    cost = score_replay(replay, loss=False)["cost_usd"]
    return f"They cost ${cost:.2f}." if cost > numbers("06-b")["dollars"] else ""
