"""What a pruning after a pause saves is read off sums, and is what the call itself saves."""

from __future__ import annotations

import msgspec
from builders import assistant, result, system, tool_call, user
from hypothesis import given, settings
from hypothesis import strategies as st
from talks_by_chance import Fours

from ctxkit.history import History, Log
from ctxkit.messages import Image, Text
from ctxkit.policies.idle import CacheTtl
from ctxkit.policies.shrinks import Shrinks
from ctxkit.tokens import Room

ROOM = Room(1500, 0, Fours())


@st.composite
def talks(draw):
    """Turns with tool results of many lengths, some with images, pinned or of odd tools; every call after a pause."""
    out, now = [system()] if draw(st.booleans()) else [], 0.0
    for _ in range(draw(st.integers(1, 4))):
        out.append(user("go on " * draw(st.integers(0, 40)), time=now))
        for _ in range(draw(st.integers(0, 4))):
            call = tool_call(draw(st.sampled_from(["read", "bash", "Web"])), path="a")
            out.append(assistant("so " * draw(st.integers(0, 30)), call, time=now))
            now += draw(st.sampled_from([10.0, 1000.0, 1000.0]))
            parts = (Text("x" * draw(st.sampled_from([0, 20, 33, 90, 400, 2500]))),)
            if draw(st.integers(0, 5)) == 0:
                parts += (Image("image/png", "AAAA"),)
            made = result("", call, time=now, pinned=draw(st.integers(0, 7)) == 0)
            out.append(msgspec.structs.replace(made, parts=parts))
    return [*out, assistant("done", time=now + 1000)]


policies = st.builds(
    CacheTtl,
    ttl_seconds=st.just(300.0),
    keep_last_assistants=st.integers(0, 3),
    soft_trim_ratio=st.sampled_from([0.01, 0.2, 0.5]),
    hard_clear_ratio=st.sampled_from([0.01, 0.1, 0.3, 0.9]),
    min_prunable_tool_chars=st.sampled_from([0, 500, 4000]),
    soft_trim_max_chars=st.sampled_from([50, 300]),
    soft_trim_head_chars=st.sampled_from([0, 40]),
    soft_trim_tail_chars=st.just(30),
    hard_clear=st.booleans(),
    allow=st.sampled_from([("*",), (), ("READ", "b*")]),
    deny=st.sampled_from([(), ("web",)]),
    keep_images=st.sampled_from([0, 0, 1]),
)


@settings(max_examples=300, deadline=None)
@given(talks(), policies, st.booleans(), st.integers(0, 300))
def test_what_is_saved_is_what_the_call_saves(rows, policy, compacted, keep):
    log = Log.of(rows, Fours())
    base = History.start(log)
    for call in range(1, log.calls):
        history = base.at(call)
        if compacted and call == log.calls // 2:
            base = history = history.summarise(history.safe(history.back(keep)), 40, "old")
        found = policy.saves(history, ROOM)
        if found is None or not policy.due(history):
            continue
        new = policy(history, ROOM)
        saved, ahead = found
        assert saved == history.tokens - new.tokens
        if saved:
            same = [a == b for a, b in zip(history.messages, new.messages, strict=True)]
            assert ahead == history.before(same.index(False))


def test_a_row_that_comes_to_stay_begins_the_sums_anew():
    ask = tool_call("read", path="a")
    log = Log.of([user("go"), assistant("", ask), result("x" * 900, ask), user("on"), assistant("ok")], Fours())
    policy = CacheTtl(soft_trim_max_chars=50, soft_trim_head_chars=10, soft_trim_tail_chars=10)
    before = Shrinks.of(policy, log, 3, len(log)).trims[-1]
    log.append(result("late", ask, pinned=True))  # the whole group stays from now on
    assert before > 0 == Shrinks.of(policy, log, 3, len(log)).trims[-1]


def test_no_more_rows_are_looked_at_than_are_shown():
    ask = tool_call("read", path="a")
    log = Log.of([user("go"), assistant("", ask), result("x" * 900, ask), assistant("ok")], Fours())
    assert len(Shrinks.of(CacheTtl(), log, 3, 2).chars) == 3
