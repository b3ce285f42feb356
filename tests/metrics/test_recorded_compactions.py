"""Derived compactions: labelled, found by two rules, compared with the marks where logs have them."""

from __future__ import annotations

import pytest
from builders import assistant, session, summarised, usage, user
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics.compaction_sizes_and_detection import (
    CtxMapRule,
    TraceLabRule,
    _window_after_reply,
    compare_inferred_with_recorded_compactions,
    infer_compactions,
)
from ctxkit.session import Edit


def sized(*prompts: int):
    return session(*(m for p in prompts for m in (user(), assistant(usage=usage(p)))))


def test_a_large_fall_from_the_top_is_a_compaction():
    (edit,) = infer_compactions(sized(50_000, 150_000, 30_000, 40_000, 60_000))
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
    assert not infer_compactions(sized(*prompts))


def test_the_other_rule_takes_any_fall_below_half():
    assert [e.details["call"] for e in infer_compactions(sized(100, 49, 48, 20), "ctxmap")] == [
        1,
        3,
    ]
    assert len(infer_compactions(sized(100, 49), CtxMapRule(share=0.4))) == 0


def test_a_rule_may_be_a_function():
    (edit,) = infer_compactions(sized(5, 4), lambda prompts: [1])
    assert edit.method == "<lambda>"


def test_an_unknown_rule_is_named():
    with pytest.raises(BadArguments, match="Did you mean 'tracelab'"):
        infer_compactions(sized(1), "tracelap")


def test_agreement_counts_what_the_rule_missed_and_invented():
    a, b = user(), assistant(usage=usage(150_000))
    s = session(
        a,
        b,
        summarised([a, b]),
        user(),
        assistant(usage=usage(20_000)),
        user(),
        assistant(usage=usage(21_000)),
    )
    frame = compare_inferred_with_recorded_compactions([s, sized(1, 2)])
    assert frame[
        ["rule", "marked", "true_positives_n", "false_negatives_n", "false_positives_n"]
    ].values.tolist() == [
        ["tracelab", 1, 1, 0, 0],
        ["ctxmap", 1, 1, 0, 0],
    ]


def test_a_mark_that_no_call_followed_cannot_be_judged():
    a, b = user(), assistant(usage=usage(150_000))
    assert compare_inferred_with_recorded_compactions(session(a, b, summarised([a, b]))).empty


def test_both_rules_find_pis_compactions(real):
    s = ck.read(real / "pi/before-compaction.jsonl")
    frame = compare_inferred_with_recorded_compactions(s).set_index("rule")
    assert frame.loc["tracelab", ["marked", "true_positives_n", "false_positives_n"]].tolist() == [
        2,
        2,
        0,
    ]
    assert [e.tokens_after for e in infer_compactions(s)] == [25_739, 28_617]


@given(st.lists(st.integers(1, 300_000), max_size=60))
def test_every_find_is_a_fall(prompts):
    for rule in (TraceLabRule(), CtxMapRule()):
        assert all(prompts[i] < prompts[i - 1] for i in rule(prompts))


def test_an_agreement_has_each_count_and_share():
    first = [user(), assistant(usage=usage(150_000))]
    log = [*first, summarised(first), user(), assistant(usage=usage(20_000))]
    log += [m for n in (21_000, 22_000) for m in (user(), assistant(usage=usage(n)))]
    log += [user(), assistant(usage=usage(150_000)), user(), assistant(usage=usage(15_000))]
    missed = [user(), assistant(usage=usage(14_000))]
    s = session(*log, summarised(log[-1:]), *missed, format="pi")
    row = compare_inferred_with_recorded_compactions(s, ["tracelab"]).iloc[0].to_dict()
    assert row == {
        "session": "test",
        "format": "pi",
        "rule": "tracelab",
        "calls": 7,
        "marked": 2,  # before calls 1 and 6
        "derived": 2,  # at the falls of calls 1 and 5
        "true_positives_n": 1,
        "false_negatives_n": 1,
        "false_positives_n": 1,
        "recall": 0.5,
        "precision": 0.5,
    }


def test_what_was_only_changed_or_derived_is_no_mark():
    first = [user(), assistant(usage=usage(150_000))]
    after = [user(), assistant(usage=usage(20_000))]
    other = summarised(first, source="derived"), Edit(kind="hidden", id="e", targets=(first[0].id,))
    for edit in other:
        assert compare_inferred_with_recorded_compactions(session(*first, edit, *after)).empty
    dropped = Edit(kind="dropped", id="e", targets=(first[0].id,), source="recorded")
    assert compare_inferred_with_recorded_compactions(session(*first, dropped, *after))[
        "marked"
    ].to_list() == [1, 1]
    assert compare_inferred_with_recorded_compactions(
        session(dropped, *after, *first)
    ).empty  # no call came before


def test_a_rule_finds_the_smallest_fall_that_it_names():
    assert TraceLabRule()([200_000, 136_000]) == [1]
    assert TraceLabRule()([200_000, 136_001]) == []
    assert TraceLabRule()([200_000, 150_000, 20_000]) == [2]  # from three quarters of the largest
    assert TraceLabRule()([200_001, 150_000, 20_000]) == []
    assert TraceLabRule()([400_000, 299_999]) == [1]
    assert TraceLabRule()([400_000, 300_000]) == []  # not below three quarters
    stays = [200_000, 20_000, 149_999, 149_999, 150_000]
    assert TraceLabRule()(stays) == [1]
    assert TraceLabRule()([*stays[:3], 150_000]) == []
    assert CtxMapRule()([100, 49, 100, 50]) == [1]
    assert TraceLabRule()([]) == CtxMapRule()([]) == []


def test_the_window_after_a_reply_holds_it_and_is_what_its_program_reported_where_nothing_is_billed():
    assert _window_after_reply(assistant("done", usage=usage(100, output=30))) == 130
    reported = assistant("done", details={"used": 700})
    assert _window_after_reply(reported) == 700
    assert _window_after_reply(assistant("done")) is None
