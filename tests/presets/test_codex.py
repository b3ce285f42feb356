"""Codex CLI: what its own tests and documentation say of a compaction."""

import pytest
from builders import assistant, call, result, step, user
from histories import shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.presets.systems.codex import SUMMARY_PREFIX, CodexSummary
from ctxkit.tokens import ContextBudget, get_counter

ROOM = ContextBudget(100_000, 0, get_counter("bytes/4"))


def compacted(history, **settings):
    return CodexSummary(
        keep_messages=1, prefix=SUMMARY_PREFIX, summariser=lambda p: "SUMMARY", **settings
    )(history, ROOM)


def test_only_user_messages_survive_and_the_summary_stands_last():
    """tests of compact.rs: assistant text is ignored, the summary message is the last item"""
    new = compacted(
        shown(user("first"), assistant("ignored " * 50), *step("bash", "x" * 400), user("second"))
    )
    assert texts(new) == ["first", "second", SUMMARY_PREFIX + "SUMMARY"]


def test_an_overlong_user_message_is_cut_in_the_middle():
    """compact.rs: a budget of 16 tokens over 200 words leaves a marker of truncated tokens and the summary"""
    h = shown(user("word " * 200), assistant("x" * 900), counter=get_counter("bytes/4"))
    first, second = texts(compacted(h, user_tokens=16))
    assert "tokens truncated" in first
    assert len(first) < 120
    assert second.endswith("SUMMARY")


def test_the_newest_user_messages_have_the_budget_first():
    h = shown(
        user("old " * 100), user("new " * 10), assistant("x" * 900), counter=get_counter("bytes/4")
    )
    assert texts(compacted(h, user_tokens=10))[0] == "new " * 10


def test_an_earlier_summary_is_not_kept_as_a_user_message():
    """compact.rs: messages that begin with the summary's prefix are no user messages"""
    once = compacted(shown(user("a"), assistant("x" * 400)))
    assert compacted(once) is once


@pytest.mark.parametrize(
    ("limit", "tokens", "due"),
    [(None, 90_000, True), (None, 89_999, False), (60_000, 60_000, True), (99_000, 89_000, False)],
)
def test_it_is_due_at_nine_tenths_or_earlier(limit, tokens, due):
    """the configured limit counts up to 0.9 of the window, no further"""
    rules = presets.codex(context_window=100_000, model_auto_compact_token_limit=limit)
    h = shown(user("abcd" * tokens))
    assert rules.trigger(h, rules.context_budget(h.log)) is due


def test_tool_output_is_cut_where_a_limit_is_set():
    rules = presets.codex(tool_output_token_limit=10)
    asked = call("shell", command="ls")
    h = shown(user("go"), asked, result("y" * 500, asked))
    assert len(texts(rules.pruning(h, ROOM))[-1]) < 200
    with pytest.raises(BadArguments):
        presets.codex(model_auto_compact_token_limit=0)
