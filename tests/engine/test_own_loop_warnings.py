"""A context warns once of what its user must know, and sizes go by the usage that it is given."""

from __future__ import annotations

import warnings

import pytest

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.policies import Rules, Summary, triggers


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
