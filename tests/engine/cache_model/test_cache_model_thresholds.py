"""Each number at which the cache model changes its mind, at both of its sides."""

from __future__ import annotations

import math

import pytest
from builders import session, user
from cached_sessions import MODEL, growing, reply
from msgspec.structs import replace

from ctxkit import prices
from ctxkit.engine import (
    find_miss_cause,
    get_call_features,
    make_input_cost_function,
    predict_input_cost,
)
from ctxkit.engine.cache_model.call_features import get_written_cache_lifetime, is_miss
from ctxkit.engine.cache_model.interval_calibration import select_calibration_sessions
from ctxkit.engine.cache_model.training_counts import (
    CallClassCounts,
    PastErrorsByAvailableLogs,
    PastPredictionError,
    SameDeveloperSessions,
    count_session,
)
from ctxkit.session import Usage


def teach(*developers: str):
    """Return the counts of a session of each developer, like the predicted one."""
    counted = count_session(growing(own="t"))
    return [
        replace(counted, session=f"{name}{n}", head=(n,), developer=name)
        for n, name in enumerate(developers)
    ]


@pytest.mark.parametrize(("calls", "is_said"), [(7, True), (8, False)])
def test_fewer_than_eight_calls_are_few(calls, is_said):
    why = predict_input_cost(growing(calls, own="me"), teach(*"abcd")).why or ""
    assert (f"It has {calls} calls with a cache split" in why) is is_said


@pytest.mark.parametrize(
    ("developers", "words"),
    [("a", "Only 1 other developer of"), ("abc", "Only 3 other developers of"), ("abcd", ""), ("", "No log of the same")],
)  # fmt: skip
def test_fewer_than_four_developers_are_few(developers, words):
    predicted = predict_input_cost(growing(own="me"), teach(*developers))
    assert words in (predicted.why or "")
    assert (predicted.why or "").startswith(words[:4])
    assert predicted.teachers == len(developers)


def test_two_calls_can_be_predicted_and_halves_from_four_on():
    one, two, three, four = (predict_input_cost(growing(n, own="me"), teach(*"abcd")) for n in (1, 2, 3, 4))  # fmt: skip
    assert (one.error, one.why) == (None, "The log has one call with a cache split, so no prediction can be checked.")  # fmt: skip
    assert two.error is not None
    assert [p.second_half_error is None for p in (two, three, four)] == [True, True, False]


def hits(*reads: tuple[int, int]):
    """Return a session of prompts of so many tokens, of which so many were read, with replies of 100."""
    log = [m for n, (size, read) in enumerate(reads) for m in (user(time=10.0 * n), reply(size, read, time=10.0 * n + 1))]  # fmt: skip
    return count_session(session(*log, format="pi", model=MODEL)).shortfall


def test_a_shortfall_is_the_median_of_three_hits_from_2048_tokens_on():
    prompts = [(3_000, 0), (4_000, 2_990), (5_000, 3_980), (6_000, 4_970)]
    assert hits(*prompts[:3]) is None
    measured = hits(*prompts)
    assert (measured.of_prompt, measured.of_reply) == (20, 120)
    for first, is_counted in ((2_048, True), (2_047, False)):
        assert (hits((first, 0), (4_000, first), *prompts[2:]) is not None) is is_counted


@pytest.mark.parametrize(
    ("expected", "read", "missed"),
    [(10_000, 8_976, False), (10_000, 8_975, True), (100_000, 95_000, False), (100_000, 94_999, True)],
)  # fmt: skip
def test_a_read_is_short_beyond_a_twentieth_and_1024_tokens(expected, read, missed):
    assert is_miss(expected, read) is missed


FIRST, SECOND = get_call_features(growing(2))


def test_a_call_knows_the_prompt_at_which_the_turn_before_began():
    calls = get_call_features(growing(3))
    assert [c.turn_before for c in calls] == [None, 20_000, 20_500]
    assert [c.turn_starts for c in calls] == [True, True, True]
    one_turn = session(user(), reply(9_000), reply(9_100), user(), reply(9_200))
    assert [c.turn_before for c in get_call_features(one_turn)] == [None, None, 9_000]
    assert [c.turn_starts for c in get_call_features(one_turn)] == [True, False, True]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"before": 1_024}, "unexplained"),
        ({"before": 1_023}, "too_short"),
        ({"gap": 299.9}, "unexplained"),
        ({"gap": 300.0}, "ttl_expiry_prefix"),
        ({"gap": 300.0, "common": False}, "ttl_expiry"),
        ({"before": 21_500}, "unexplained"),  # 20,500 tokens: a thousand less
        ({"before": 21_501}, "changed_earlier"),
        ({"before": 20_501, "family": "openai"}, "reasoning_dropped"),
        ({"before": 20_500, "family": "openai"}, "unexplained"),
        ({"other_effort": True}, "effort_change"),
        ({"other_effort": True, "family": "openai"}, "unexplained"),
        ({"edited": True, "before": 9}, "compaction"),
        ({"switched": True, "before": None}, "prefix_change"),
        ({"before": None}, "cold_start"),
        ({"restarted": True, "tools_loaded": True}, "resumed"),
        ({"tools_loaded": True, "retried": True}, "tools_loaded"),
        ({"retried": True}, "retry"),
    ],
)
def test_the_first_cause_that_holds_is_the_cause(changes, cause):
    assert find_miss_cause(replace(SECOND, **{"least": 1_024, "life": 300.0} | changes)) == cause


@pytest.mark.parametrize(
    ("hour", "short", "life"), [(2, 1, 3600.0), (1, 1, 300.0), (0, 1, 300.0), (0, 0, None)]
)
def test_writes_live_as_most_of_them(hour, short, life):
    usage = Usage(cache_read_tokens=0, cache_write_tokens=short, cache_write_1h_tokens=hour)
    (call,) = session(user(), reply(9, usage=usage)).calls
    assert get_written_cache_lifetime(call) == life


@pytest.mark.parametrize(("prompt", "field"), [(1_024, "cache_write"), (1_023, "input")])
def test_a_prompt_is_written_from_the_smallest_that_is_cached_on(prompt, field):
    usage = Usage(input_tokens=prompt - 1, cache_read_tokens=0, cache_write_tokens=1, output_tokens=1)  # fmt: skip
    s = session(user(), reply(prompt, usage=usage), model=MODEL)
    listed = prices.price(MODEL)
    costs = make_input_cost_function(s, get_call_features(s))
    assert costs.whole.tolist() == [pytest.approx(prompt * getattr(listed, field))]
    assert costs.saved.tolist() == [pytest.approx(getattr(listed, field) - listed.cache_read)]


# -- which sessions calibrate an interval


def judged(developers: str, *, calls: int = 40, teachers: int = 4, **more):
    """Return sessions of so many calls and teachers, whose predictions were held against the record."""
    error = PastPredictionError(0.1, 0.2, 0.3)
    past = PastErrorsByAvailableLogs(teachers, 0.5, error, error, error)
    counts = {"turn start": CallClassCounts(calls=calls)}
    return [replace(row, past=past, counts=counts, **more) for row in teach(*developers)]


def test_sessions_of_like_length_and_teachers_calibrate_where_four_developers_have_them():
    (target,) = teach("me")
    long, short = judged("abcd", calls=40), judged("efgh", calls=39)
    far = judged("ijkl", teachers=3)
    rows = [*long, *short, *far, *judged("mnop", tool="pi"), *judged("qrst", teachers=0)]

    def chosen(rows, calls, *, is_near=True):
        return {
            r.developer for r in select_calibration_sessions(rows, target, calls, is_near=is_near)
        }

    assert chosen(rows, 40) == set("abcd")
    assert chosen(rows, 39) == set("efgh")
    assert chosen(rows, 40, is_near=False) == set("ijkl")
    assert chosen([*long[:3], *short], 40) == set("abcefgh")  # three developers are too few
    assert chosen([*long[:2], far[0], far[1]], 40) == set("abij")
    assert chosen([*long[:3]], 40) == set()


# -- the developer's other logs


def at(*times: float, own: str, model: str = MODEL, tool: str = "pi"):
    log = [m for t in times for m in (user(time=t - 1), reply(20_000, 10, time=t, model=model))]
    return session(*log, id=own, format=tool, model=model)


def test_idle_is_since_the_last_call_of_the_same_program_and_model_in_another_log():
    me = at(1_000.0, 1_010.0, own="me")
    others = [at(100.0, 900.0, own="a"), at(950.0, own="b", model="gpt-5"), at(960.0, own="c", tool="codex"), at(2_000.0, own="d")]  # fmt: skip
    assert SameDeveloperSessions([me, *others]).measure_idle(me) == 999.0 - 900.0
    assert SameDeveloperSessions([me, *others[1:]]).measure_idle(me) == math.inf
    assert SameDeveloperSessions([me]).measure_idle(me) is None
    assert SameDeveloperSessions(others).measure_idle(session(user(), reply(9), id="x")) is None
    nested = replace(session(id="p"), children=(at(990.0, own="child"),))
    assert SameDeveloperSessions([me, nested]).measure_idle(me) == 999.0 - 990.0


def test_logs_of_the_developer_that_read_a_cache_teach():
    cold = session(*[m for t in (1.0, 2.0) for m in (user(time=t), reply(20_000, time=t))], id="z")
    logs = SameDeveloperSessions([at(100.0, 110.0, own="a"), at(500.0, own="b"), cold])
    assert [c.session for c in logs.counts] == ["a"]
    assert {c.developer for c in logs.counts} == {"own"}
