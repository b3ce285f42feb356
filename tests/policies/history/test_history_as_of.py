"""What stays and where a cut is safe is as of the call: rows that come later change nothing before them."""

from __future__ import annotations

from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from late_result_messages import grown, late_talk
from random_sessions import Fours

from ctxkit.policies import History, MessageLog


def looks(h: History) -> tuple[object, ...]:
    """All that a policy can ask of a history about what must not be parted or removed."""
    n = range(len(h) + 1)
    return (
        h.stays.tolist(),
        h.groups.tolist(),
        [h.is_safe(p) for p in n],
        [h.safe(p) for p in n],
        [h.safe_before(p) for p in n],
        [h.fitting(budget) for budget in (0, 500, 2000, 9000)],
    )


@settings(max_examples=examples(25))
@given(st.integers(0, 10**6))
def test_a_history_knows_no_more_than_the_log_did_at_its_call(seed):
    whole = MessageLog.of(late_talk(seed, 20, late=0.4), Fours())
    for call, live in grown(whole, whole.calls):
        then, now = History.start(live, call), History.start(whole, call)
        assert looks(now) == looks(then)
        p = len(now) // 2
        assert now.drop(p, "half").messages == then.drop(p, "half").messages
        assert (
            now.shorten(now.role("tool"), "!").messages
            == then.shorten(then.role("tool"), "!").messages
        )


@settings(max_examples=examples(25))
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_an_edited_head_stays_as_of_the_call_too(seed, first):
    whole = MessageLog.of(late_talk(seed, 20, late=0.4), Fours())
    heads = {}
    for call, live in grown(whole, whole.calls):
        if call < first:
            continue
        for name, log in (("live", live), ("whole", whole)):
            if call == first:
                heads[name] = History.start(log, call).shorten({0: "s", 1: "!"}, None, "short")
            heads[name] = heads[name].at(call)
        assert looks(heads["live"]) == looks(heads["whole"])
