"""What a live session knows of a prompt: the last bill and a count of what came since."""

from __future__ import annotations

import msgspec
from builders import assistant, session, summarised, user
from random_sessions import Fours

from ctxkit.engine import compute_billing_offset, count_sizes_by_last_usage
from ctxkit.session import Usage


def billed(prompt: int, text: str = "x" * 40):
    return assistant(text, usage=Usage(input_tokens=prompt, cache_read_tokens=0, output_tokens=10))


def test_a_bill_above_the_count_is_expected_of_the_next_call():
    log = session(user("x" * 400), billed(150), user("y" * 40), billed(175))
    sizes, parts = count_sizes_by_last_usage(log, Fours())
    assert sizes == [100, 10, 10, 10]
    # The first prompt has 100 counted tokens and 150 billed; the second 120 counted: 170 expected.
    assert [tuple(p) for p in parts] == [(0, 50), (50, 5)]


def test_after_a_compaction_what_it_left_is_counted_with_what_comes():
    first, second = user("x" * 400), user("y" * 200)
    edit = msgspec.structs.replace(summarised([first], "z" * 80), trigger="manual")
    log = session(first, billed(150), second, edit, billed(130), user("w" * 40), billed(125))
    sizes, parts = count_sizes_by_last_usage(log, Fours())
    assert sizes == [100, 10, 50, 10, 10, 10]
    # Left are the reply of 10, the question of 50 and a summary of 20: 80 of the 130 billed.
    assert tuple(parts[1]) == (0, 50)
    # Then 100 are counted and 50 more expected.
    assert tuple(parts[2]) == (50, -25)


def test_a_bill_that_cannot_be_of_the_prompt_says_nothing():
    assert compute_billing_offset(billed(150), 100) == 50
    assert compute_billing_offset(billed(90), 100) == -10
    assert compute_billing_offset(assistant("no bill"), 100) == 0
    assert compute_billing_offset(assistant("no bill"), 100, default=7) == 7
    least = 10_000
    count = least * 4
    assert compute_billing_offset(billed(least), count, default=7) == least - count
    assert compute_billing_offset(billed(least - 1), count, default=7) == 7
