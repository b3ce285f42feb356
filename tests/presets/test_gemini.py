"""Gemini CLI: the split, the threshold and the budgets of its source."""

import pytest
from builders import assistant, call, result, step, user
from histories import CHARS, shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.presets.systems.gemini import GeminiSummary, find_split_point
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(100_000, 0, CHARS)


def test_the_split_is_the_first_user_message_beyond_the_share():
    """chatCompressionService: first user content at or beyond 70 % of the characters"""
    h = shown([user("x" * 100), assistant("y" * 100)] * 5)
    assert find_split_point(h, 0.7) == 8
    assert find_split_point(h, 0.5) == 6


def test_everything_is_compressed_after_a_plain_reply():
    """no split point beyond the share: the whole where the last is a reply without calls"""
    assert find_split_point(shown(user("x"), assistant("y" * 900)), 0.7) == 2


def test_the_last_split_point_where_a_tool_is_at_work():
    """else the last user message"""
    asked = call("bash", command="ls")
    assert (
        find_split_point(
            shown(user("x" * 90), assistant("y"), user("z"), asked, result("r" * 900, asked)), 0.7
        )
        == 2
    )


def test_a_compression_keeps_the_last_third():
    h = shown([user("x" * 400), assistant("y" * 400)] * 5)
    new = GeminiSummary(keep_messages=1, summariser=lambda p: "SNAPSHOT")(h, ROOM)
    assert texts(new)[0] == "SNAPSHOT"
    assert len(new) == 3


def test_a_result_that_grew_is_refused():
    """COMPRESSION_FAILED_INFLATED_TOKEN_COUNT"""
    h = shown([user("x" * 40), assistant("y" * 40)] * 5)
    assert GeminiSummary(keep_messages=1, summariser=lambda p: "long " * 900)(h, ROOM) is h


def test_old_outputs_beyond_the_budget_are_cut():
    """reverse budget: the newest outputs stay whole"""
    rows = [s for i in range(3) for s in step("bash", str(i) * 4000, command=str(i))]
    new = GeminiSummary(keep_messages=1, result_tokens=1500, result_chars=500).truncate_outputs(
        shown(user("go"), *rows)
    )
    assert [len(t) > 1000 for t in texts(new)[2::2]] == [False, False, True]


@pytest.mark.parametrize(("tokens", "due"), [(50_000, True), (49_999, False)])
def test_it_is_due_at_half_the_window(tokens, due):
    rules = presets.gemini(context_window=100_000)
    h = shown(user("abcd" * tokens))
    assert rules.trigger(h, rules.context_budget(h.log)) is due


def test_the_pipeline_cuts_aged_messages_before_it_summarises():
    """profiles.ts: beyond the retained tokens long nodes are truncated; only over the maximum a snapshot is made"""
    rules = presets.gemini(
        variant="pipeline", retained_tokens=1000, max_tokens=9000, max_tokens_per_node=100
    )
    rows = [s for i in range(3) for s in step("bash", str(i) * 8000, command=str(i))]
    h = shown(user("go"), *rows)
    new = rules.policy(h, rules.context_budget(h.log))
    assert [len(t) > 1000 for t in texts(new)[2::2]] == [False, False, True]
    assert "summary" not in [m.role for m in new.messages]
    with pytest.raises(BadArguments, match="retained_tokens"):
        presets.gemini(variant="pipeline", retained_tokens=200_000)


def test_the_pipeline_summarises_over_the_maximum():
    rules = presets.gemini(
        variant="pipeline", retained_tokens=1000, max_tokens=2000, summariser=lambda p: "SNAPSHOT"
    )
    h = shown([user("x" * 800), assistant("y" * 800)] * 9)
    assert texts(rules.policy(h, rules.context_budget(h.log)))[0] == "SNAPSHOT"
