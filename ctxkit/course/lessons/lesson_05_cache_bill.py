"""Notebook 05: what the cache does to the bill."""

from __future__ import annotations

from typing import Any

from ctxkit.course.exercises import exercise, guess
from ctxkit.course.marking import mark_number, score_guess
from ctxkit.course.sample_data import load_sample, measure_cost_above

_READ, _INPUT, _WRITE, _OUTPUT = 0.30, 3.0, 3.75, 15.0
"""Dollars a million tokens, as the notebook prints them."""
_TAKEN, _BEHIND = 2_000, 30_000


@guess(
    "05",
    "Clear all but the last 20 results above 26,000 tokens: $2.96. The same above 10,000 sends a "
    "fifth fewer tokens. How many dollars is that?",
    "It cuts before three of four calls, and what stands behind each cut is written anew.",
)
def _guess_frequent_clearing_cost(answer: Any) -> str:
    return score_guess(answer, measure_cost_above("clear:keep_last=20", 10_000), "$")


@exercise(
    "05-b",
    f"A result of {_TAKEN:,} tokens stands before {_BEHIND:,} others in a warm prompt. After how "
    "many calls does taking it out pay?",
    "So a result in the middle of a warm prompt is better left alone.",
)
def _judge_break_even(answer: Any) -> str:
    from ctxkit.metrics.breakeven import reads_until_mutation_pays

    # What is paid once is writing the tokens behind instead of reading them (w - r each); what is
    # saved in each later call is reading the tokens taken (r each): n = (w - r) / r * ratio.
    ratio = _BEHIND / _TAKEN
    slips = {
        "You counted the writing, but without it the tokens behind would have been read: w - r.": (
            _WRITE / _READ * ratio
        ),
        "You turned tokens taken and tokens behind round.": (_WRITE - _READ) / _READ / ratio,
        "Prices are missing: what is saved is a read, what is paid is a write.": ratio,
        "You took the price of plain input for that of writing.": (_INPUT - _READ) / _READ * ratio,
    }
    right = reads_until_mutation_pays(_TAKEN, _BEHIND)
    return mark_number(answer, right, within=0.01, slips=slips)


@exercise(
    "05-a",
    "A call has 1,200 fresh tokens, reads 88,000 and writes 3,000; its reply has 900. What does it "
    "cost, in dollars?",
    "Half of it is the read, though a read costs a tenth: there are so many of them.",
)
def _judge_call_cost(answer: Any) -> str:
    right = (1_200 * _INPUT + 88_000 * _READ + 3_000 * _WRITE + 900 * _OUTPUT) / 1e6
    slips = {
        "You paid every token of the prompt as plain input.": (
            (92_200 * _INPUT + 900 * _OUTPUT) / 1e6
        ),
        "The reply is missing.": (1_200 * _INPUT + 88_000 * _READ + 3_000 * _WRITE) / 1e6,
        "You paid what was written as plain input.": (
            (4_200 * _INPUT + 88_000 * _READ + 900 * _OUTPUT) / 1e6
        ),
    }
    return mark_number(answer, right, slips=slips)


@exercise(
    "05-c",
    "How many dollars did the pauses of this session add? (What a cache that had lived would have "
    "read, and was written in its place.)",
    "More than a seventh of the bill, for nothing but time that went by.",
)
def _judge_pause_cost(answer: Any) -> str:
    from ctxkit.metrics.cache_misses import find_cache_misses

    # only misses after a pause; `expected` would have been read, `kept` really was
    misses = [m for m in find_cache_misses(load_sample()) if m is not None and m.paused]
    again = sum(max(m.expected - m.kept, 0) for m in misses)
    slips = {
        "That is all that those tokens cost; reading them would have cost something, too.": (
            again * _WRITE / 1e6
        ),
        "You took the price of plain input for that of writing.": again * (_INPUT - _READ) / 1e6,
    }
    return mark_number(answer, again * (_WRITE - _READ) / 1e6, within=0.01, slips=slips)
