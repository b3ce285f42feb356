"""Planning a long summary: groups, parts, chunks. OC cases: OpenClaw's own planner tests (4000 characters = 1000 tokens)."""

import pytest
from builders import assistant, call, result, tool_call, user

from ctxkit.policies import openclaw_safeguard as safeguard


def sized(*rows):
    return [m for m, _ in rows], [n for _, n in rows]


FOUR = sized(*[(user(), 1000)] * 4)


def test_oc1_two_parts_halve_four_equal_messages():
    """four messages of 1000 tokens in two parts: [1,2],[3,4]"""
    assert safeguard.chunk_by_share(*FOUR, 2) == [(0, 1), (2, 3)]


def test_oc1_there_are_no_more_parts_than_asked_for():
    """the last part takes the rest, also where that is above its share"""
    four, five, seven = (sized(*[(user(), 1000)] * n) for n in (4, 5, 7))
    assert safeguard.chunk_by_share(*four, 2) == [(0, 1), (2, 3)]  # a part may fill its share
    assert safeguard.chunk_by_share(*five, 2) == [(0, 1), (2, 3, 4)]
    assert safeguard.chunk_by_share(*seven, 3) == [(0, 1), (2, 3), (4, 5, 6)]
    assert safeguard.chunk_by_share(*seven, 1) == [(0, 1, 2, 3, 4, 5, 6)]


def test_oc2_history_share_drops_the_older_half_until_it_fits():
    """window 2000, share 0.5: two halvings, only the fourth stays"""
    assert safeguard.drop_older_halves(*FOUR, 1000) == ((3,), (0, 1, 2), 2)


def test_oc3_a_call_stays_with_its_result():
    """a chunk limit of 700 tokens puts call and result in one chunk of their own"""
    c = call()
    rows = sized((user(), 200), (c, 450), (result(of=c), 450), (user(), 200))
    assert safeguard.chunk_by_size(*rows, 700) == [(0,), (1, 2), (3,)]


def test_oc4_a_displaced_result_stays_with_its_call():
    """a user message between call and result is taken into their group"""
    c = call()
    assert safeguard.group_calls_with_results([c, user(), result(of=c), user()]) == [
        (0, 1, 2),
        (3,),
    ]


def test_oc5_an_aborted_call_binds_nothing():
    """an aborted call ends its group at once: [1],[2,3]"""
    c = assistant("", tool_call(), stop="aborted")
    rows = sized((c, 500), (user(), 300), (result(of=c), 200))
    assert safeguard.chunk_by_size(*rows, 700) == [(0,), (1, 2)]


def test_oc6_an_unfinished_call_binds_nothing():
    """a call without a result ends its group at once: [1],[2,3]"""
    rows = sized((call(), 500), (user(), 300), (assistant(), 200))
    assert safeguard.chunk_by_size(*rows, 700) == [(0,), (1, 2)]


def test_oc7_a_large_call_leaves_with_its_result():
    """window 2000: a call of 3000 tokens and its small result are left out with a note"""
    c = call()
    rows, notes = safeguard.exclude_oversized_messages(
        *sized((c, 3000), (result(of=c), 5), (user(), 5)), 2000
    )
    assert rows == (2,)
    assert "Large assistant" in notes[0]
    rows, notes = safeguard.exclude_oversized_messages(
        *sized((c, 5), (result(of=c), 3000), (user(), 5)), 2000
    )
    assert rows == (2,)
    assert "Large toolResult" in notes[0]


def test_chunks_get_smaller_where_messages_are_large():
    assert safeguard.compute_chunk_share(10, 10 * 100, 200_000) == 0.4
    assert safeguard.compute_chunk_share(2, 2 * 60_000, 200_000) == pytest.approx(0.15)
    assert safeguard.compute_chunk_tokens(10, 1000, 200_000) == 80_000 - 4096


def test_short_histories_are_one_stage():
    assert len(safeguard.plan_stages(*FOUR, 200_000)) == 1
    assert len(safeguard.plan_stages(*FOUR, 12_000)) == 2


def test_one_message_over_the_budget_is_kept():
    assert safeguard.drop_older_halves(*sized((user(), 9000)), 10) == ((0,), (), 0)
