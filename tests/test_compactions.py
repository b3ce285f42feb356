"""Derived compactions: labelled, found by two rules."""

from __future__ import annotations

import pytest
from builders import assistant, session, usage, user
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.messages import Edit
from ctxkit.metrics.derived_compactions import CtxMap, TraceLab, derive


def sized(*prompts: int):
    return session(*(m for p in prompts for m in (user(), assistant(usage=usage(p)))))


def test_a_large_fall_from_the_top_is_a_compaction():
    (edit,) = derive(sized(50_000, 150_000, 30_000, 40_000, 60_000))
    assert (edit.source, edit.method, edit.details["call"]) == ("derived", "tracelab", 2)
    assert (edit.tokens_before, edit.tokens_after, edit.targets) == (150_000, 30_000, ())


@pytest.mark.parametrize(
    "prompts",
    [
        (60_000, 1_000, 2_000),  # the fall is small
        (300_000, 100_000, 20_000, 400_000),  # it was not near the top
        (150_000, 30_000, 150_000, 151_000),  # it came back at once: another agent's call
    ],
)
def test_three_parts_must_hold(prompts):
    assert not derive(sized(*prompts))


def test_the_other_rule_takes_any_fall_below_half():
    assert [e.details["call"] for e in derive(sized(100, 49, 48, 20), "ctxmap")] == [1, 3]
    assert len(derive(sized(100, 49), CtxMap(share=0.4))) == 0


def test_a_rule_may_be_a_function():
    (edit,) = derive(sized(5, 4), lambda prompts: [1])
    assert edit.method == "<lambda>"


def test_an_unknown_rule_is_named():
    with pytest.raises(BadArguments, match="Did you mean 'tracelab'"):
        derive(sized(1), "tracelap")


def test_the_first_rule_finds_pis_compactions_where_they_are_marked(real):
    s = ck.read(real / "pi/before-compaction.jsonl")
    marked = [
        next(c.index for c in s.calls if c.position > place and c.message.usage)
        for place, entry in enumerate(s.path)
        if isinstance(entry, Edit)
    ]
    assert [e.details["call"] for e in derive(s)] == marked
    assert [e.tokens_after for e in derive(s)] == [25_739, 28_617]


@given(st.lists(st.integers(1, 300_000), max_size=60))
def test_every_find_is_a_fall(prompts):
    for rule in (TraceLab(), CtxMap()):
        assert all(prompts[i] < prompts[i - 1] for i in rule(prompts))
