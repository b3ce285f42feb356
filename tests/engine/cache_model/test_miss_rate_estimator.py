"""Miss rates, reads at hits and misses, classes of calls and dollars of a prediction, worked out by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from builders import session, user
from cached_sessions import reply
from msgspec.structs import replace

from ctxkit.engine import get_call_features
from ctxkit.engine.cache_model.input_cost_prediction import (
    InputCostFunction,
    SessionInputCostPredictor,
    compute_read_error,
    describe_prediction,
)
from ctxkit.engine.cache_model.miss_rate_estimator import (
    N_DRAWS,
    MissRateEstimator,
    SimulatedReads,
    simulate_reads,
)
from ctxkit.engine.cache_model.training_counts import (
    CallClassCounts,
    MedianReadShortfalls,
    SessionMissCounts,
    classify_call,
    count_session,
    exclude_copies,
    get_model_tier_or_version,
    has_miss_cause,
    with_initial_idle,
)

CAUSED, PLAIN = "compaction", "inside a turn"
TARGET = SessionMissCounts(
    "target", (), "claude-code", "anthropic", "claude-opus-5", subagent=False, counts={}
)
OTHER_TOOL = replace(TARGET, session="t", tool="pi", model="gpt-5", developer="a")
OTHER_MODEL = replace(TARGET, session="m", model="claude-haiku-4-5", developer="a")
SAME = replace(TARGET, session="s", developer="a")


def draw(*training, names=(CAUSED,), **more):
    """Return miss rate and share read at a miss of each class, every developer weighing one."""
    rates = MissRateEstimator(training, TARGET, **more)
    weights = np.ones((N_DRAWS, 9))[:, : len(rates.draw_weights(np.random.default_rng(0))[0])]
    drawn = rates.draw_rates(names, weights)
    assert np.ptp(drawn.probability, axis=0).max() == 0
    return drawn.probability[0].tolist(), drawn.read_share[0].tolist()


def test_without_training_sessions_a_call_with_a_cause_misses_and_another_hits():
    assert draw(names=(CAUSED, PLAIN)) == ([0.85, 0.02], [0.3, 0.3])


def test_a_cause_counts_by_calls_and_the_wider_group_for_three_of_them():
    counts = {CAUSED: CallClassCounts(calls=7, misses=1, expected=70, lost=4, missed=10)}
    probability, _ = draw(replace(OTHER_TOOL, counts=counts))
    assert probability == [pytest.approx((1 + 3 * 0.85) / (7 + 3))]


def test_each_narrower_group_is_drawn_towards_the_wider_one():
    counts = {CAUSED: CallClassCounts(calls=7, misses=1, expected=70, lost=4, missed=10)}
    wide = (1 + 3 * 0.85) / 10
    # another model of the same tool: in all sessions, those of the tool, and its classes
    expected = wide
    for _ in range(2):
        expected = (1 + 3 * expected) / 10
    assert draw(replace(OTHER_MODEL, counts=counts))[0] == [pytest.approx(expected)]
    # the same model: its family's group too
    expected = (1 + 3 * expected) / 10
    assert draw(replace(SAME, counts=counts))[0] == [pytest.approx(expected)]
    # the developer's own sessions are the narrowest group alone, the session's half its last
    own = replace(SAME, session="o", counts=counts)
    assert draw(own=[own])[0] == [pytest.approx(wide)]
    assert draw(first_half=own)[0] == [pytest.approx(wide)]


def test_without_a_cause_tokens_count_and_a_wider_group_for_twenty_calls():
    counts = {PLAIN: CallClassCounts(calls=10, misses=2, expected=1000, lost=60, missed=100)}
    probability, read_share = draw(replace(OTHER_TOOL, counts=counts), names=(PLAIN,))
    mean = 1000 / 10
    share = (100 - 60 + 3 * mean * 0.3) / (100 + 3 * mean)  # the prior counts as three misses
    lost = (60 + 20 * mean * 0.02 * (1 - 0.3)) / (1000 + 20 * mean)
    assert read_share == [pytest.approx(share)]
    assert probability == [pytest.approx(lost / (1 - share))]


def test_a_developer_of_weight_zero_teaches_nothing_with_and_without_the_first_half():
    often = replace(SAME, session="b1", developer="b", counts={CAUSED: CallClassCounts(50, 50)})
    seldom = replace(SAME, session="a1", counts={CAUSED: CallClassCounts(50, 5)})
    half = replace(TARGET, session="0", counts={})  # before all others in alphabetical order
    both, alone = MissRateEstimator((often, seldom), TARGET), MissRateEstimator((seldom,), TARGET)
    for columns in ([1.0, 0.0], [1.0, 1.0, 0.0]):
        weights = np.broadcast_to(columns, (N_DRAWS, len(columns)))
        of_one = np.ones((N_DRAWS, len(columns) - 1))
        assert np.array_equal(
            both.draw_rates((CAUSED,), weights).probability,
            alone.draw_rates((CAUSED,), of_one).probability,
        )
        both, alone = both.with_own_half(half), alone.with_own_half(half)


def test_counts_of_one_base_are_added_with_their_reads_in_order():
    counts = {
        "turn start/2.1.20": CallClassCounts(2, 1, 300, 50, 100, (50,)),
        "compaction": CallClassCounts(1, 1, 40, 30, 40, (10,)),
        "turn start/command": CallClassCounts(3, 1, 500, 20, 60, (40,)),
    }
    assert replace(SAME, counts=counts).base_counts == {
        "turn start": CallClassCounts(5, 2, 800, 70, 160, (50, 40)),
        "compaction": CallClassCounts(1, 1, 40, 30, 40, (10,)),
    }


def test_the_first_half_of_the_session_counts_twelve_calls_of_the_others():
    counts = {PLAIN: CallClassCounts(calls=10, misses=2, expected=1000, lost=60, missed=100)}
    probability, _ = draw(first_half=replace(TARGET, counts=counts), names=(PLAIN,))
    share = (40 + 300 * 0.3) / 400
    lost = (60 + 12 * 100 * 0.02 * 0.7) / (1000 + 12 * 100)
    assert probability == [pytest.approx(lost / (1 - share))]


def test_a_developer_counts_for_four_hundred_calls_at_most():
    counts = {CAUSED: CallClassCounts(calls=800, misses=80, expected=1, lost=0, missed=1)}
    probability, _ = draw(replace(OTHER_TOOL, counts=counts))
    assert probability == [pytest.approx((40 + 3 * 0.85) / (400 + 3))]


def test_a_wide_group_takes_releases_of_a_class_together_and_a_narrow_one_does_not():
    counts = {
        f"{CAUSED}/2.1.0": CallClassCounts(calls=7, misses=1),
        CAUSED: CallClassCounts(calls=3),
    }
    probability, _ = draw(replace(OTHER_TOOL, counts=counts))
    assert probability == [pytest.approx((1 + 3 * 0.85) / 13)]
    wide = (1 + 3 * probability[0]) / 13  # by the tool's sessions
    assert draw(replace(OTHER_MODEL, counts=counts))[0] == [pytest.approx(3 * wide / 6)]
    own = replace(SAME, session="o", counts=counts)
    assert draw(own=[own])[0] == [pytest.approx(3 * 0.85 / 6)]


# -- reads


def make_calls(*prompts: int, pause=10.0, **more):
    """Return the features of calls that begin `pause` seconds apart, with replies of 10 tokens."""
    log = [m for n, size in enumerate(prompts) for m in (user(time=pause * n), reply(size, time=pause * n + 5, **more))]  # fmt: skip
    return get_call_features(session(*log, format="claude-code", model="claude-opus-5"))


def test_a_hit_reads_the_prompt_before_less_what_its_models_fall_short():
    calls = make_calls(10_000, 12_000, 13_000)
    taught = [replace(SAME, session=str(n), developer=str(n), shortfall=MedianReadShortfalls(of_prompt=n, of_reply=n + 10)) for n in (3, 7, 20)]  # fmt: skip
    assert MissRateEstimator(taught, TARGET).hit_reads(calls).tolist() == [0.0, 9_993.0, 11_993.0]


def test_where_the_reply_is_cached_too_a_hit_reads_it():
    calls = make_calls(10_000, 12_000)
    one = replace(SAME, shortfall=MedianReadShortfalls(of_prompt=-40.0, of_reply=4.0))
    reply_tokens = calls[1].reply
    assert reply_tokens > 0
    assert MissRateEstimator([one], TARGET).hit_reads(calls).tolist() == [
        0.0,
        10_000 + reply_tokens - 4,
    ]


def test_a_hit_reads_at_most_its_prompt_where_the_models_read_more_than_the_one_before():
    calls = make_calls(10_000, 10_050, 12_000)
    more = replace(SAME, shortfall=MedianReadShortfalls(of_prompt=-100.0, of_reply=200.0))
    assert MissRateEstimator([more], TARGET).hit_reads(calls).tolist() == [0.0, 10_050.0, 10_150.0]


def test_the_same_model_teaches_before_its_family_and_its_family_before_none():
    calls = make_calls(10_000, 12_000)
    family = replace(SAME, model="claude-opus-4-1", shortfall=MedianReadShortfalls(100.0, 110.0))
    same = replace(SAME, shortfall=MedianReadShortfalls(5.0, 15.0))
    other = replace(OTHER_MODEL, shortfall=MedianReadShortfalls(900.0, 910.0))
    reads = [MissRateEstimator(rows, TARGET).hit_reads(calls)[1] for rows in ([other, family, same], [other, family], [other])]  # fmt: skip
    assert reads == [9_995, 9_900, 10_000]


def reads_at(name, *rows, own=(), **more):
    rates = MissRateEstimator(rows, TARGET, own=own, **more)
    drawn = rates.draw_miss_reads(name, np.ones((N_DRAWS, 9)), np.random.default_rng(1))
    return None if drawn is None else sorted(set(drawn.tolist()))


def with_reads(row, *reads, name=CAUSED, session="x"):
    return replace(row, session=session, counts={name: CallClassCounts(1, 1, reads=reads)})


def test_reads_at_a_miss_are_those_of_the_sessions_most_alike():
    same = with_reads(SAME, 1)
    old = with_reads(replace(SAME, version="1"), 2, 2, 2)
    haiku = with_reads(OTHER_MODEL, 4, 4, 4)
    pi = with_reads(OTHER_TOOL, 5)
    own = with_reads(SAME, 7, session="own")
    assert reads_at(CAUSED, same, old, haiku, pi, own=[own]) == [7]
    assert reads_at(CAUSED, same, old, haiku, pi) == [1]
    assert reads_at(CAUSED, old, haiku, pi) == [2]
    assert reads_at(CAUSED, haiku, pi) == [4]
    assert reads_at(CAUSED, pi) == [5]
    assert reads_at(CAUSED) is None
    assert reads_at(CAUSED, own, first_half=with_reads(TARGET, 9)) == [9]


def test_of_sessions_of_a_kind_and_of_a_tool_those_of_the_same_releases_come_first():
    def era(row, name, *reads):
        return with_reads(replace(row, version="1", era=name), *reads, session=name + row.model)

    of_kind = era(SAME, "", 2, 2, 2), era(SAME, "2.1.0", 3, 3, 3)
    of_tool = era(OTHER_MODEL, "", 4, 4, 4), era(OTHER_MODEL, "2.1.0", 5, 5, 5)
    assert reads_at(CAUSED, *of_kind, *of_tool) == [2]
    assert reads_at(CAUSED, of_kind[1], *of_tool) == [3]
    assert reads_at(CAUSED, *of_tool) == [4]
    assert reads_at(CAUSED, of_tool[1], with_reads(OTHER_TOOL, 6, 6, 6)) == [5]


def test_two_reads_are_too_few_for_a_group_that_is_not_the_same_program():
    old = with_reads(replace(SAME, version="1"), 2, 2)
    haiku = with_reads(OTHER_MODEL, 4)
    assert reads_at(CAUSED, old, haiku) == [2, 4]  # three of the tool together


def test_a_first_call_of_a_person_takes_other_lives_where_there_is_none_of_its_own():
    hour = with_reads(SAME, 3, name="cold_start 60m/2")
    subagent = with_reads(SAME, 8, name="cold_start subagent", session="y")
    assert reads_at("cold_start 5m/1", hour) == [3]
    assert reads_at("cold_start subagent", hour) is None
    assert reads_at("cold_start subagent", hour, subagent) == [8]


def test_what_a_call_without_a_prompt_before_reads_is_nothing_or_half_of_its_prompt():
    calls = make_calls(10_000, 12_000)
    drawn = simulate_reads(calls, MissRateEstimator([], TARGET))
    assert set(drawn.draws[:, 0].tolist()) == {0.0, 5_000.0}
    assert set(drawn.draws[:, 1].tolist()) == {10_000.0, 3_000.0}
    assert drawn.rules_only.tolist() == [0.0, 10_000.0]


def test_a_miss_with_a_cause_reads_nothing_where_no_session_shows_what_it_reads():
    calls = make_calls(10_000, 12_000, pause=7_200.0)
    assert has_miss_cause(classify_call(calls[1]))
    drawn = simulate_reads(calls, MissRateEstimator([], TARGET))
    assert set(drawn.draws[:, 1].tolist()) == {0.0, 10_000.0}


# -- classes


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-3-5-sonnet", "claude-sonnet"),
        ("claude-haiku-4-5", "claude-haiku"),
        ("anthropic/claude-opus-5", "claude-opus"),
        ("claude-2", "claude"),
        ("gpt-5.2-codex", "gpt-5.2"),
        ("openai/gpt-5", "gpt-5"),
        ("Gemini-3-pro", "gemini"),
        ("router/qwen-3:free", "qwen-free"),
        (None, ""),
    ],
)
def test_models_that_cache_alike_are_a_family(model, family):
    assert get_model_tier_or_version(model) == family


FIRST, SECOND, THIRD = make_calls(10_000, 12_000, 13_000)
CLASSES = {
    "cold_start 5m": (FIRST, {}),
    "cold_start 60m": (FIRST, {"life": 3600.0}),
    "cold_start 5m/0": (FIRST, {"idle": 59.0}),
    "cold_start 5m/1": (FIRST, {"idle": 60.0}),
    "cold_start 5m/5": (FIRST, {"idle": math.inf}),
    "cold_start subagent": (FIRST, {"subagent": True, "idle": 60.0}),
    "compaction": (THIRD, {"edited": True, "gap": 299.0}),
    "compaction later": (THIRD, {"edited": True, "gap": 300.0}),
    "ttl_expiry 10m": (THIRD, {"gap": 599.0}),
    "ttl_expiry 60m": (THIRD, {"gap": 3599.0}),
    "ttl_expiry later": (THIRD, {"gap": 3600.0}),
    "long pause": (THIRD, {"gap": 300.0, "life": 3600.0, "family": "openai"}),
    "turn start": (THIRD, {"gap": 300.0, "life": 3600.0}),
    "second call": (SECOND, {}),
    "turn start, no clock": (SECOND, {"gap": None}),
    "inside a turn": (THIRD, {"turn_starts": False}),
    "inside a turn, no clock": (THIRD, {"turn_starts": False, "gap": None}),
    "inside a turn/subagent": (THIRD, {"turn_starts": False, "subagent": True}),
    "inside a turn/2.1.0": (THIRD, {"turn_starts": False, "era": "2.1.0", "after_command": True}),
    "turn start/2.1.0 command": (THIRD, {"era": "2.1.0", "after_command": True}),
    "turn start/2.1.0": (THIRD, {"era": "2.1.0"}),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_call_is_of_the_class_that_its_log_tells(name):
    call, changed = CLASSES[name]
    plain = replace(call, era="", common=False)
    assert classify_call(replace(plain, **changed)) == name


def test_a_class_has_a_cause_unless_it_is_of_those_without():
    assert [has_miss_cause(n) for n in ("compaction/2.1.0", "second call", "turn start/x")] == [
        True,
        False,
        False,
    ]


# -- counts


def test_a_session_is_counted_by_class():
    s = session(
        user(time=0.0), reply(10_000, 4_000, time=1.0),
        user(time=2.0), reply(12_000, 10_000, time=3.0),
        user(time=4.0), reply(14_000, 2_000, time=5.0),
        format="pi", model="claude-opus-5",
    )  # fmt: skip
    counted = count_session(s)
    assert counted.counts == {
        "cold_start 5m": CallClassCounts(1, 0, 10_000, reads=(4_000,)),
        "second call": CallClassCounts(1, 0, 10_000),
        "turn start": CallClassCounts(1, 1, 12_000, 10_000, 12_000, (2_000,)),
    }
    assert (counted.calls, counted.head, counted.shortfall) == (3, (10_000, 12_000, 14_000), None)
    assert count_session(s, 1).counts.keys() == {"cold_start 5m"}
    assert (counted.owner, replace(counted, developer="d").owner) == ("test", "d")


def test_a_copy_begins_with_the_same_five_prompts():
    row = replace(TARGET, session="x", head=(1, 2, 3, 4, 5))
    assert exclude_copies([row], "other", (1, 2, 3, 4, 5)) == []
    assert exclude_copies([row], "other", (1, 2, 3, 4, 6)) == [row]
    assert exclude_copies([replace(row, head=(1, 2))], "other", (1, 2)) != []
    assert exclude_copies([row], "x", ()) == []


def test_the_developer_of_a_first_half_has_a_weight_of_its_own():
    rates = MissRateEstimator([SAME], TARGET)
    new, known = replace(TARGET, developer="b"), replace(TARGET, developer="a")
    counts = [
        rates.with_own_half(half).draw_weights(np.random.default_rng(1)).shape[1]
        for half in (new, known)
    ]
    assert counts == [2, 1]
    assert rates.draw_weights(np.random.default_rng(1)).shape[1] == 1


def test_only_the_first_call_knows_how_long_the_developer_was_away():
    calls = with_initial_idle((FIRST, SECOND), 77.0)
    assert [c.idle for c in calls] == [77.0, None]
    assert with_initial_idle((FIRST,), None) == (FIRST,)
    assert with_initial_idle((), 77.0) == ()


# -- dollars


def make_case(whole=(10.0, 10.0), saved=(1.0, 1.0), **more):
    costs = InputCostFunction(np.array(whole), np.array(saved))
    return SessionInputCostPredictor(
        (FIRST, SECOND), MissRateEstimator([], TARGET), [0, 2], costs, **more
    )


def test_draws_without_spread_leave_the_error_of_the_model_on_both_sides():
    bill = make_case().measure_bill(SimulatedReads(np.array([[0.0, 4.0]] * 5), np.array([0, 4])))
    assert bill == pytest.approx((16.0, 0.05, 0.05))


def test_the_point_is_between_the_median_draw_and_the_rules_and_the_sides_hold_the_draws():
    draws = np.array([[0.0, n] for n in range(11)], float)  # 20 to 10 dollars, in the middle 15
    bill = make_case().measure_bill(SimulatedReads(draws, np.array([0, 5 / 3])))
    point = math.sqrt(15 * (20 - 5 / 3))
    below, above = math.log(point / 11), math.log(19 / point)
    assert bill.point == pytest.approx(point)
    assert bill.below == pytest.approx(math.hypot(below, 0.05))
    assert bill.above == pytest.approx(math.hypot(max(above, below / 2), 0.05))


def test_a_session_is_halved_where_each_half_has_two_calls():
    calls = (FIRST, SECOND, THIRD, THIRD, THIRD)
    halves = [make_case()._replace(calls=calls[:n]).half_size for n in range(6)]
    assert halves == [0, 0, 0, 0, 2, 2]


def test_evidence_is_the_developers_own_logs_else_the_time_since_the_folders_last_session():
    away = with_initial_idle((FIRST, SECOND), 77.0)
    known = SimpleNamespace(own=[TARGET])
    unknown = SimpleNamespace(own=[])
    cases = [(away, known), (away, unknown), ((FIRST, SECOND), unknown), ((), unknown)]
    found = [make_case()._replace(calls=calls, rates=rates).evidence for calls, rates in cases]
    assert found == ["known", "folder", "alone", "alone"]


def test_the_split_is_off_by_the_tokens_of_each_call_over_all_prompts():
    calls = FIRST, SECOND
    assert compute_read_error(calls, [0, 9_000], [500, 10_000]) == 1_500 / 22_000
    headless = replace(FIRST, headless=True), SECOND
    assert compute_read_error(headless, [0, 9_000], [500, 10_000]) == 1_000 / 12_000


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ((0.123, -0.1, 0.456, "It has 3 calls."), "The cost model, which does not see this session's cache reads, predicts its input cost 12.3 % too high; 80 % interval -10 % to +46 %. It has 3 calls."),
        ((-0.05, None, None, None), "The cost model, which does not see this session's cache reads, predicts its input cost 5.0 % too low."),
        ((None, None, None, "No usage."), "No usage."),
        ((None, None, None, None), "No cache split is recorded, so the cache model could not be checked."),
    ],
)  # fmt: skip
def test_a_prediction_is_a_sentence(figures, sentence):
    assert describe_prediction(*figures) == sentence
