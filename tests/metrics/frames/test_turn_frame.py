"""The turn frame keeps fuseraft's columns and rules."""

from __future__ import annotations

import pandas as pd
from builders import assistant, session, summarised, usage, user
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.session import Message

SNAPSHOT = [
    "ts",
    "session",
    "agent",
    "turn",
    "turn_input_tokens",
    "turn_output_tokens",
    "cumulative_input_tokens",
    "warn_at",
    "cutover_at",
]


def turn(agent, number, tokens, **details):
    return Message(
        role="assistant",
        id=f"{agent}{number}",
        kind="turn",
        agent=agent,
        turn=number,
        usage=usage(tokens),
        details=details,
    )


def test_fuserafts_columns_stand_first_under_their_own_names():
    columns = list(ck.frame([], per="turn").columns)
    assert columns[:10] == [*SNAPSHOT, "compaction_occurred"]


def test_a_turn_sums_its_calls_and_its_context_is_the_largest_prompt():
    s = session(
        user(),
        assistant(usage=usage(100, 10)),
        assistant(usage=usage(40, 90)),
        user(),
        assistant(usage=usage(7)),
    )
    frame = ck.frame(s)
    assert frame["turn_input_tokens"].tolist() == [240, 7]
    assert frame["turn_output_tokens"].tolist() == [20, 10]
    assert frame["context_tokens"].tolist() == [130, 7]
    assert frame["cache_read_tokens"].tolist() == [100, 0]
    assert frame["cumulative_input_tokens"].tolist() == [240, 247]
    assert frame["source"].tolist() == ["derived", "derived"]


def test_whole_turns_have_no_occupancy():
    frame = ck.frame(session(turn("Dev", 0, 500, warn_at=600, cutover_at=900)))
    assert frame["turn_input_tokens"].tolist() == [500]
    assert frame["context_tokens"].isna().all()
    assert (frame["warn_at"].iloc[0], frame["cutover_at"].iloc[0]) == (600, 900)
    assert frame["source"].tolist() == ["recorded"]


def test_a_compaction_marks_the_turn_before_it_and_resets_every_agent():
    log = [
        turn("Dev", 0, 10),
        turn("dev", 1, 20),
        turn("Rev", 2, 5),
        summarised([]),
        turn("Rev", 3, 7),
        turn("Dev", 4, 1),
    ]
    frame = ck.frame(session(*log))
    assert frame["compaction_occurred"].tolist() == [False, False, True, False, False]
    assert frame["cumulative_input_tokens"].tolist() == [10, 30, 5, 7, 1]


def test_a_compaction_before_any_call_marks_nothing():
    u = user()
    frame = ck.frame(session(u, summarised([u]), assistant(usage=usage(5))))
    assert frame["compaction_occurred"].tolist() == [False]


def test_a_recorded_running_sum_is_kept():
    frame = ck.frame(
        session(
            turn("D", 0, 10, cumulative_input_tokens=10),
            turn("D", 5, 20, cumulative_input_tokens=20),
        )
    )
    assert frame["cumulative_input_tokens"].tolist() == [10, 20]


def test_turns_without_usage_say_nothing_of_tokens():
    row = ck.frame(session(user(), assistant())).iloc[0]
    assert pd.isna(row["turn_input_tokens"])
    assert pd.isna(row["source"])
    assert row["calls_n"] == 1


def test_a_turn_whose_cost_is_partly_unknown_has_none():
    from ctxkit.session import Usage

    known, unknown = Usage(input_tokens=1, cost_usd=0.25), Usage(input_tokens=1)
    frame = ck.frame(session(user(), assistant(usage=known), assistant(usage=unknown)))
    assert frame["cost_usd"].isna().all()
    assert ck.frame(session(user(), assistant(usage=known), assistant(usage=known)))[
        "cost_usd"
    ].tolist() == [0.5]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 10**6), st.booleans()), max_size=30)
)
def test_running_sums_keep_fuserafts_invariant(steps):
    log = []
    for number, (agent, tokens, cut) in enumerate(steps):
        log.append(turn(agent, number, tokens))
        if cut:
            log.append(summarised([]))
    frame = ck.frame(session(*log))
    before: dict[str, int] = {}
    for row in frame.itertuples():
        before[row.agent] = before.get(row.agent, 0) + row.turn_input_tokens
        assert row.cumulative_input_tokens == before[row.agent]
        before = {} if row.compaction_occurred else before
