"""What a prompt would be billed, from what others were billed."""

from __future__ import annotations

import pytest
from builders import assistant, usage
from hypothesis import given
from hypothesis import strategies as st
from stand_in_models import ECHO, agent, run, said

import ctxkit as ck
from ctxkit.session import ToolCall, Usage
from ctxkit.tokens.live_prompt_sizes import (
    COUNTED_TOKENS_KEY,
    CountedAndBilledTokens,
    estimate_billed_tokens,
    get_current_size,
    list_counted_and_billed_prompts,
)

COUNTS = st.integers(1, 200_000)
KNOWN = st.lists(st.builds(CountedAndBilledTokens, COUNTS, COUNTS), max_size=6)


@given(st.lists(COUNTS, min_size=2), COUNTS, st.integers(0, 3_000), st.sampled_from([0.25, 1, 3]))
def test_what_is_billed_in_proportion_with_a_fixed_part_is_predicted(counts, counted, fixed, rate):
    known = [CountedAndBilledTokens(n, round(fixed + rate * n)) for n in counts]
    low, high = min(counts), max(counts)
    if high >= 2 * low and counted >= low:
        guesses = {
            estimate_billed_tokens(counted, known),
            *(estimate_billed_tokens(counted, known, k) for k in known),
        }
        tolerance = 1 + (counted + high) / (high - low)  # whole tokens
        assert all(abs(g - (fixed + rate * counted)) <= tolerance for g in guesses)
    elif not fixed:
        assert estimate_billed_tokens(counted, known) == pytest.approx(
            rate * counted, rel=0.5, abs=2
        )


@given(COUNTS, KNOWN, st.integers(0, 5))
def test_it_is_never_negative_and_exact_for_a_prompt_that_was_sent(counted, known, n):
    base = known[n % len(known)] if known else None
    assert estimate_billed_tokens(counted, known, base) >= 0
    assert estimate_billed_tokens(counted, []) == counted
    if base is not None:
        assert estimate_billed_tokens(base.counted, known, base) in (
            base.billed, *(k.billed for k in known if k.counted == base.counted))  # fmt: skip


def test_by_a_bill_that_can_be_no_size_of_a_prompt_no_other_is_scaled():
    """as of a server that bills what its cache did not hold"""
    tiny = Usage(input_tokens=10, output_tokens=3)
    asks = [said(ToolCall(f"c{i}", "echo", {"x": "word " * 400}), usage=tiny) for i in range(4)]
    one = agent(*asks, said("done", usage=tiny), tools=[ECHO])
    ended = run(one.turn("go"))
    assert {get_current_size(one.session), ck.report(one.session).prompt_tokens} == {
        (10, "recorded"),
        10,
    }
    assert ended.context_tokens == one.gauge()[0] == 10
    run(one.compact(ck.presets.fuseraft(mode="intent", keep_recent_turns=1).policy))
    assert get_current_size(one.session) == (
        sum(i.tokens for i in one.session.sent(None)),
        "estimated",
    )


def test_a_model_that_tells_no_usage_has_counts_for_sizes():
    one = agent(*[said("word " * 400, usage=None)] * 3)
    for n in range(3):
        ended = run(one.turn(f"go {n}"))
    sent = sum(i.tokens for i in one.session.sent(-1))
    assert (ended.context_tokens, get_current_size(one.session).source) == (sent, "estimated")
    edits = run(one.compact(ck.presets.fuseraft(mode="intent", keep_recent_turns=1).policy))
    assert edits[0].tokens_before == sent > edits[-1].tokens_after == one.gauge()[0] > 0


def test_bills_of_another_model_or_of_other_tools_do_not_count():
    def reply(billed, counted, **more):
        details = {COUNTED_TOKENS_KEY: counted, **more.pop("details", {})}
        return assistant(usage=usage(billed), details=details, **more)

    first, second = (reply(900 * n, 100 * n, model="a") for n in (1, 2))
    other = reply(300, 100, model="b")
    tools = reply(400, 100, model="b", details={"tools_digest": "0f" * 6})
    failed = assistant("", model="c", is_error=True)
    assert list_counted_and_billed_prompts([first, second, failed], 10) == [
        (110, 900),
        (210, 1_800),
    ]
    assert list_counted_and_billed_prompts([first, second, failed, other], 10) == [(110, 300)]
    assert list_counted_and_billed_prompts([first, other, tools], 10) == [(110, 400)]
    assert list_counted_and_billed_prompts([None, reply(10, 100)], 10) == []
