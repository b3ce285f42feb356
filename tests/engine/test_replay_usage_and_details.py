"""What a replay's replies and details say, on a session whose every size is known."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, tool_call, user
from random_sessions import Fours

import ctxkit as ck
from ctxkit.engine import find_context_window
from ctxkit.engine.replay import describe_crowded_window
from ctxkit.policies import Clear, Rules, guards, triggers
from ctxkit.session import Usage


def compact(history, _budget):
    return history.summarise(history.safe(history.back(40)), "S" * 20, "full")


def make_session(cached=True):
    """Return four calls whose prompts are billed just as they are counted; the third failed."""
    log, prompt = [], 0
    for n in range(4):
        read = tool_call("read", f"c{n}", path=f"{n}")
        words = [user("u" * 400, id=f"u{n}")] if n != 1 else [result("r" * 800, tool_call("read", "c0"), id="r0")]  # fmt: skip
        prompt += 200 if n == 1 else 100
        usage = None if n == 2 else Usage(input_tokens=prompt if not cached else 0, cache_read_tokens=0 if cached else None, cache_write_tokens=prompt if cached else None, output_tokens=20 + n, reasoning_tokens=n)  # fmt: skip
        parts = [read] if n == 0 else []
        reply = assistant("a" * 40, *parts, usage=usage, id=f"a{n}", error="failed" if n == 2 else None, details={"effort": "high", "pruned": True})  # fmt: skip
        log += [*words, reply]
        prompt += 10
    return session(*log, details={"cwd": "/here"})


RULES = Rules(compact, triggers.AtCalls((2, 3)), counter=Fours(), window=5_000, name="mine")


def test_replies_have_the_usage_of_the_modelled_prompts_and_what_they_wrote():
    s = make_session()
    again = ck.replay(s, RULES)
    run = again.prompt_source
    assert again.format == "replay"
    assert again.origin is s
    for n, call in enumerate(again.calls):
        message, before = call.message, s.calls[n].message
        assert message.details["usage_source"] == "derived"
        assert message.details["effort"] == "high"
        assert "pruned" not in message.details  # it told of the record's prompt
        if n == 2:
            assert message.usage is None
            assert message.details["prompt_tokens"] == run.prompts[2]
            continue
        usage, prompt, fresh = message.usage, int(run.prompts[n]), int(run.fresh_tokens[n])
        assert (usage.input_tokens, usage.cache_read_tokens) == (fresh, prompt - fresh)
        assert usage.cache_write_tokens is usage.cost_usd is None
        assert (usage.output_tokens, usage.reasoning_tokens) == (20 + n, n)
        assert message.details["shared_tokens"] == prompt - fresh
        assert before.details["pruned"] is True


def test_without_a_cache_split_all_of_a_prompt_is_input():
    again = ck.replay(make_session(cached=False), RULES)
    usages = [c.message.usage for c in again.calls if c.message.usage]
    prompts = [int(n) for i, n in enumerate(again.prompt_source.prompts) if i != 2]
    assert [u.input_tokens for u in usages] == prompts
    assert {u.cache_read_tokens for u in usages} == {None}


def test_details_tell_the_outcome_of_the_run():
    again = ck.replay(make_session(), RULES.but(guards=guards.CompactionCountLimit(1, "run")))
    run, told = again.prompt_source, again.details["replay"]
    assert again.details["cwd"] == "/here"
    assert (told["rules"], told["limit"], told["counter"]) == ("mine", 5_000, "fours")
    assert told["total_tokens"] == sum(run.prompts.tolist()) == run.total
    assert told["fresh_tokens"] == sum(run.fresh_tokens.tolist()) == run.fresh
    assert told["peak_tokens"] == max(run.prompts.tolist()) == run.peak
    assert [(h["call"], h["guard"], h["why"]) for h in told["held"]] == [
        (3, "attempts", "suppressed: attempts")
    ]
    assert [(e["kind"], e["call"]) for e in told["events"]] == [("start", 2), ("end", 2)]
    assert (told["pruning"], told["note"], told["refused_calls"]) == (None, None, None)


def test_the_messages_that_the_next_call_would_not_see_are_counted_with_their_results():
    s = make_session()
    for rules, hidden in (
        (Rules(counter=Fours()), [0, 0]),
        (Rules(counter=Fours(), pruning=Clear(keep_last=0)), [1, 1]),
        (Rules(counter=Fours(), pruning=Clear(keep_last=1)), [0, 0]),
        (Rules(lambda h, _: h.summarise(h.safe(5), "S"), triggers.AtCalls((3,)), counter=Fours()), [5, 1]),
    ):  # fmt: skip
        assert ck.replay(s, rules).details["replay"]["hidden"] == hidden


def test_a_fixed_part_that_fills_the_window_is_noted():
    usage = Usage(input_tokens=5_000, output_tokens=5)
    s = session(user("u" * 40), assistant("a", usage=usage), user("v"), assistant("b", usage=usage))
    noted = ck.replay(
        s, Rules(compact, triggers.Above(100), window=4_000, reserve=500, assumed=True)
    )
    sentence = describe_crowded_window(noted.prompt_source)
    assert "does not fit into the window" in sentence
    assert "(4,000 tokens, 500 of them held free)" in sentence
    assert sentence in noted.details["replay"]["note"]
    fixed = noted.prompt_source.log.fixed
    for window, is_noted in ((fixed, True), (fixed + 1, False)):
        run = ck.replay(s, Rules(compact, triggers.Above(100), window=window, assumed=True)).prompt_source  # fmt: skip
        assert (describe_crowded_window(run) is not None) is is_noted


@pytest.mark.parametrize(
    ("models", "window"),
    [(("claude-sonnet-4-5", "gpt-5"), 200_000), ((None, "claude-sonnet-4-5"), 200_000), ((None, None), None)],
)  # fmt: skip
def test_the_window_is_that_of_the_first_model_that_is_named(models, window):
    log = [m for model in models for m in (user(), assistant("a", model=model))]
    assert find_context_window(session(*log)) == window
    assert find_context_window(session(*log, model="claude-sonnet-4-5")) == 200_000
