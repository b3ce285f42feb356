"""Boise State: the table of its specification, the floor-seeking cut, one cut and then none."""

import pytest
from builders import assistant, session, user
from histories import CHARS, ids, shown

from ctxkit import presets
from ctxkit.engine import run_replay
from ctxkit.errors import BadArguments
from ctxkit.presets.systems.boise import SummaryDownToFloor, get_window_thresholds
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(200_000, 0, CHARS)


@pytest.mark.parametrize(
    ("window", "row"),
    [
        (128_000, (64_000, 16_000, 89_600)),
        (200_000, (100_000, 25_000, 140_000)),
        (256_000, (100_000, 25_000, 150_000)),
        (1_000_000, (100_000, 25_000, 150_000)),
    ],
)
def test_three_numbers_from_the_window(window, row):
    """the table of section 3.1"""
    assert tuple(round(n) for n in get_window_thresholds(window)) == row


def turns(n, chars):
    return [
        m
        for i in range(n)
        for m in (user("u" * chars, id=f"u{i}"), assistant("a" * chars, id=f"a{i}"))
    ]


def test_as_much_stays_as_fits_the_floor():
    """the oldest user message whose rest is at or below the floor"""
    policy = SummaryDownToFloor(
        keep_turns=1, floor=1000, protected_turns=1, summariser=lambda p: "S"
    )
    assert ids(policy(shown(turns(20, 400)), ROOM))[1] == "u15"


def test_the_last_turns_always_stay():
    """three turns, however large"""
    policy = SummaryDownToFloor(
        keep_turns=3, floor=1000, protected_turns=3, summariser=lambda p: "S"
    )
    assert ids(policy(shown(turns(8, 4000)), ROOM))[1] == "u5"
    h = shown(turns(3, 4000))
    assert policy(h, ROOM) is h


def paused(pauses):
    """A session of turns of 4,000 tokens, with a pause before each."""
    time, log = 0.0, []
    for i, pause in enumerate(pauses):
        time += pause
        log += [
            user("u" * 8000, id=f"u{i}", time=time),
            assistant("a" * 8000, id=f"a{i}", time=time + 1),
        ]
    return session(*log)


def test_a_cut_waits_for_a_cold_cache():
    rules = {"context_window": 80_000, "summariser": "fixed:100"}
    warm = run_replay(paused([10.0] * 10), presets.boise(**rules))
    cold = run_replay(paused([10.0] * 9 + [900.0, 10.0]), presets.boise(**rules))
    assert [c.call for c in warm.compactions] == []
    assert [c.call for c in cold.compactions] == [9]


def test_the_hard_ceiling_does_not_wait():
    done = run_replay(
        paused([10.0] * 18), presets.boise(context_window=80_000, summariser="fixed:100")
    )
    assert len(done.compactions) == 1
    assert done.compactions[0].before >= 56_000
    with pytest.raises(BadArguments, match="hard ceiling"):
        presets.boise(hard_ceiling_ratio=0.1)
