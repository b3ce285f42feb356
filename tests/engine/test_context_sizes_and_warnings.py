"""A context of a few dicts: its sizes before and after a bill, its warnings and its session, worked out by hand."""

from __future__ import annotations

import warnings

import pytest
from random_sessions import Fours

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.policies import Rules, Summary, triggers
from ctxkit.session import Usage


def ask(chars: int):
    return {"role": "user", "content": "u" * chars}


def answer(chars: int = 40, **more):
    return {"role": "assistant", "content": "a" * chars, **more}


def make_context(rules=None, **more):
    return ck.Context(rules or Rules(counter=Fours(), window=1_000), **more)


@pytest.mark.parametrize(
    "usage",
    [150, Usage(input_tokens=50, cache_read_tokens=100), {"prompt_tokens": 150, "completion_tokens": 3}],
)  # fmt: skip
def test_later_prompts_are_the_bill_and_what_was_added_since(usage):
    context = make_context()
    assert (context.tokens, context.limit, context.run.call) == (0, 1_000, 0)
    context.add(ask(400)).fit()
    assert context.tokens == 100
    context.add(answer(), ask(400))
    assert context.tokens == 210
    context.fit(usage=usage)
    assert context.tokens == 260
    context.fit(usage=270)  # no message came since: this bill is of the second prompt
    assert context.tokens == 270
    assert [c.message.usage.prompt_tokens for c in context.session.calls] == [150]


def test_a_bill_is_taken_once_for_a_prompt():
    context = make_context()
    messages = [ask(400)]
    context.fit(messages)
    messages += [answer(), ask(400)]
    context.fit(messages, usage=150)
    messages += [answer(), ask(400)]
    context.fit(messages, usage=300)  # 40 more than was known
    assert context.tokens == 300 + 10 + 100
    usages = [c.message.usage.prompt_tokens for c in context.session.calls]
    assert usages == [150, 300]
    assert context.run.prompts.tolist() == [150, 300, 410]


@pytest.mark.parametrize("usage", [0, True, "many", {}, Usage(output_tokens=5)])
def test_a_bill_without_prompt_tokens_is_refused(usage):
    context = make_context()
    with pytest.raises(BadArguments, match="prompt tokens"):
        context.add(ask(4)).fit(usage=150)
    context.fit()
    with pytest.raises(BadArguments, match="prompt tokens"):
        context.fit(usage=usage)


def test_a_context_says_what_it_holds():
    context = make_context(Rules(counter=Fours(), window=1_000, name="mine"), name="talk")
    context.fit([ask(400), answer(), ask(400)])
    assert (
        repr(context) == "<Context mine: 3 messages, 210 of 1,000 tokens, 2 calls, 0 compactions>"
    )
    s = context.session
    assert (s.id, s.format, s.context_window, len(s.messages)) == ("talk", "live", 1_000, 3)


def keep_last(history, _budget):
    return history.summarise(history.safe(len(history) - 1), "S", "full")


def test_rules_that_compact_at_three_calls_in_a_row_are_warned_of():
    context = make_context(Rules(keep_last, triggers.Always(), counter=Fours(), window=1_000))
    messages = [ask(400)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            context.fit(messages)
            messages += [answer(), ask(400)]
    with pytest.warns(UserWarning, match="compact at each call"):
        context.fit(messages)
    assert [c.call for c in context.run.compactions] == [1, 2, 3]
    assert "3 compactions>" in repr(context)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once
        context.fit([*messages, answer(), ask(400)])


def test_a_prompt_over_the_limit_is_warned_of_once():
    context = make_context()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context.fit([ask(4_000)])
    with pytest.warns(UserWarning, match="This prompt has 1,011 tokens, and the limit is 1,000"):
        context.fit([ask(4_000), answer(), ask(4)])


def test_the_same_dicts_come_back_and_a_list_must_go_on():
    context = make_context()
    messages = [ask(40), answer(), ask(44)]
    prompt = context.fit(messages)
    assert [a is b for a, b in zip(prompt, messages, strict=True)] == [True] * 3
    prompt.append(answer())  # the list that was returned may go on, too
    again = context.fit([*prompt, ask(48)])
    assert [len(m["content"]) for m in again] == [40, 40, 44, 40, 48]
    with pytest.raises(BadArguments, match="do not go on"):
        context.fit([ask(41)])
    with pytest.raises(BadArguments, match="Message 5 is none"):
        context.add({"role": "nobody"})


def test_replies_with_a_name_are_of_that_agent():
    context = make_context()
    named = {**ask(4), "name": "Bob"}  # a user's name is no agent's
    context.fit([ask(4), answer(name="helper"), named, answer(name=""), ask(4)])
    assert [m.agent for m in context.session.messages] == [None, "helper", None, None, None]
    assert [c.agent for c in context.session.calls] == ["helper", "main"]


# -- A context warns once of what its user must know, and sizes go by the usage that it is given.


def read(n, chars=8_000):
    return {"role": "user", "content": f"file {n}: " + "x = 1\n" * (chars // 6)}


def run_loop(context, n=20):
    messages = []
    for i in range(n):
        messages += [read(i), {"role": "assistant", "content": f"Read {i}."}]
        context.fit(messages[:-1])


def warned(context, n=20):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_loop(context, n)
    return [str(w.message) for w in caught]


def test_the_first_prompt_over_the_limit_warns_once():
    said = warned(ck.Context("none", limit=10_000))
    assert len(said) == 1
    assert "the limit is 10,000" in said[0]
    assert "`usage=`" in said[0]


def test_a_prompt_within_the_limit_does_not_warn():
    assert warned(ck.Context("none", limit=1_000_000)) == []


@pytest.mark.parametrize("summariser", [None, lambda passage: "What was read."])
def test_an_extract_as_summary_is_announced_once(summariser):
    rules = Rules(Summary(keep_tokens=3_000), triggers.Above(9_000), summariser=summariser)
    said = [w for w in warned(ck.Context(rules, limit=100_000)) if "summary" in w]
    assert len(said) == (summariser is None)
    assert all("summariser=" in w for w in said)


@pytest.mark.parametrize(
    "usage",
    [9_000, ck.Usage(input_tokens=9_000), {"prompt_tokens": 9_000, "completion_tokens": 3},
     {"input_tokens": 1_000, "cache_read_input_tokens": 8_000}],
)  # fmt: skip
def test_usage_anchors_later_sizes(usage):
    context = ck.Context(Rules(Summary(keep_tokens=2_000), triggers.Above(9_500)), limit=20_000)
    messages = [read(0)]
    context.fit(messages)
    counted = context.tokens
    messages += [{"role": "assistant", "content": "Read."}, {"role": "user", "content": "Go on."}]
    context.fit(messages, usage=usage)
    assert counted < 9_000 < context.run.prompts[-1] < 9_100
    assert context.session.calls[0].message.usage.prompt_tokens == 9_000
    messages += [{"role": "assistant", "content": "Read."}, read(1)]
    with pytest.warns(UserWarning, match="No model wrote this summary"):
        context.fit(messages)
    assert len(context.edits) == 1


@pytest.mark.parametrize("usage", ["many", {}, 0, True, {"total": 3}])
def test_usage_without_prompt_tokens_is_refused(usage):
    context = ck.Context("none")
    context.fit([read(0)])
    with pytest.raises(BadArguments, match="prompt tokens"):
        context.fit([read(0), read(1)], usage=usage)
