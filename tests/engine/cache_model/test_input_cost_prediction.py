"""A prediction is told no read, is taught by others alone, and says why where it has no figure."""

from __future__ import annotations

import math

import pytest
from builders import assistant, session, user
from cached_sessions import fresh, growing, reply
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from trust_training import DeveloperLog, count_logs, select_distinct_sessions

import ctxkit as ck
from ctxkit.engine import (
    get_call_features,
    load_training_counts,
    predict_input_cost,
    prepare_prediction,
    replace_reads,
    with_random_reads,
)
from ctxkit.engine.cache_model.miss_rate_estimator import simulate_reads
from ctxkit.engine.cache_model.training_counts import (
    SameDeveloperSessions,
    count_session,
    exclude_copies,
    get_recorded_reads,
)
from ctxkit.session import MISSING_START_KIND, Message, Usage
from ctxkit.tokens import prices

FIGURES = (
    "error",
    "low",
    "high",
    "read_split_error",
    "second_half_error",
    "lifetime_error",
    "spread",
)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=examples(20))
def test_what_is_predicted_does_not_depend_on_what_was_read(seed):
    s = growing()
    assert predict_input_cost(with_random_reads(s, seed)).reads == predict_input_cost(s).reads


def test_a_real_prediction_does_not_depend_on_the_reads_either(real):
    s = ck.read(real / "claude-code/entire-7f78a542.jsonl")
    spoilt = with_random_reads(s)
    assert get_recorded_reads(spoilt) != get_recorded_reads(s)
    assert predict_input_cost(spoilt).reads == predict_input_cost(s).reads
    assert predict_input_cost(spoilt).error != pytest.approx(predict_input_cost(s).error, abs=0.2)


def test_other_reads_leave_the_sizes_as_they_were():
    s = growing()
    again = replace_reads(s, [7] * 12)
    assert [a.prompt for a in get_call_features(again)] == [a.prompt for a in get_call_features(s)]
    assert set(get_recorded_reads(again)) == {7}


def test_a_session_never_teaches_itself_nor_does_a_copy():
    s, other = growing(own="one"), growing(11, step=400.0, own="two")
    longer = growing(20, own="copy")
    rows = [count_session(x) for x in (s, longer)] + [
        replace(count_session(other), head=(1, 2, 3, 4, 5))
    ]
    assert [t.session for t in exclude_copies(rows, s.id, rows[0].head)] == ["two"]


def test_what_others_teach_changes_what_is_predicted():
    calm, restless = growing(own="calm"), growing(12, own="restless")
    cold = replace_reads(restless, [0] * 12)
    rows = [replace(t, head=(n,)) for n, t in enumerate((count_session(calm), count_session(cold)))]
    assert predict_input_cost(growing(own="me"), rows[:1]).error < 0.1
    assert predict_input_cost(growing(own="me"), rows[1:]).error > 1.0


@pytest.mark.parametrize("found", [0, 9_000])
def test_a_second_model_finds_what_second_models_of_other_sessions_found(found):
    def two(own):
        then = reply(20_000, found, time=20.0, model="claude-haiku-4-5")
        return session(user(), reply(20_000, time=1.0), user(), then, id=own, format="claude-code")

    rows = [replace(count_session(two(f"t{i}")), head=(i,)) for i in range(5)]
    assert predict_input_cost(two("me"), rows).reads == (0, found)


def test_the_interval_holds_the_point_and_is_never_empty():
    p = predict_input_cost(growing())
    assert p.low < p.error < p.high
    assert p.spread[0] < 0 < p.spread[1]


def test_a_prediction_is_always_the_same():
    assert predict_input_cost(growing()) == predict_input_cost(growing())


def short(n=3, **more):
    return session(
        *(m for i in range(n) for m in (user(), reply(20_000 + i, time=10.0 * i, **more)))
    )


BARE = {
    "no usage": (session(user(), assistant(), user(), assistant()), "no usage"),
    "no split": (
        session(
            *(m for _ in range(3) for m in (user(), assistant(usage=Usage(input_tokens=9_000))))
        ),
        "no cache split",
    ),
    "one call": (short(1), "one call"),
    "no price": (short(model="nobody-knows-9"), "no known price"),
    "no messages": (session(), "no usage"),
}


@pytest.mark.parametrize("name", BARE)
def test_where_there_is_no_figure_it_is_missing_with_its_reason(name):
    s, why = BARE[name]
    p = predict_input_cost(s)
    assert why in p.why
    assert {
        f: getattr(p, f) for f in FIGURES if f != "read_split_error" and getattr(p, f) is not None
    } == {}
    assert (p.read_split_error is None) == (name != "no price")
    row = ck.score(s, loss=False)
    assert ck.score(s, loss=False)["prediction_note"] == p.why
    assert (
        row[["prediction_error", "prediction_low", "prediction_high", "second_half_error"]]
        .isna()
        .all()
    )


def test_a_call_that_is_predicted_to_cost_nothing_has_an_error_and_no_spread(monkeypatch):
    """The first call is left out, as its log has no beginning, and reads are free."""
    monkeypatch.setattr(prices, "_registered", {})
    prices.register("free-reads", prices.Price(input=1e-6, output=1e-6, cache_read=0.0))
    lost = Message(role="system", id="lost", kind=MISSING_START_KIND, visible=False)
    calls = [reply(20_000, time=10.0 * i, model="free-reads", usage=fresh(20_000)) for i in (1, 2)]
    p = predict_input_cost(session(lost, user(time=0.0), calls[0], user(time=15.0), calls[1]))
    assert (p.error, p.spread) == (-1.0, None)


ODD = {
    "no times": [replace(m, time=None) for m in growing().log],
    "clock backwards": [replace(m, time=-(m.time or 0) * 100) for m in growing().log],
    "two models": [replace(m, model="claude-haiku-4-5") if m.role == "assistant" and i > 12 else m
                   for i, m in enumerate(growing().log)],
    "no text": [replace(m, parts=()) for m in growing().log],
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_logs_have_a_prediction_and_no_crash(name):
    s = replace(growing(), log=tuple(ODD[name]))
    p = predict_input_cost(s)
    assert p.error is not None
    assert p.low <= p.error <= p.high
    table_ = ck.compare(s, ["none"], progress=False)
    assert table_["prediction_error"].iloc[0] == pytest.approx(p.error)
    assert (table_["cost_low_usd"] <= table_["cost_usd"]).all()


def test_each_row_says_within_which_dollars_it_is_known():
    s = growing()
    rows, p = ck.compare(s, ["none"], progress=False), predict_input_cost(s)
    recorded, none = rows.iloc[0], rows.iloc[1]
    assert recorded["cost_low_usd"] == recorded["cost_usd"] == recorded["cost_high_usd"]
    assert none["cost_low_usd"] == pytest.approx(none["cost_usd"] + p.spread[0] * none["input_usd"])
    assert none["cost_high_usd"] == pytest.approx(
        none["cost_usd"] + p.spread[1] * none["input_usd"]
    )
    side = "high" if p.error > 0 else "low"
    assert f"input cost {100 * abs(p.error):.1f} % too {side}" in rows.caption


def test_the_table_holds_counts_alone():
    rows = load_training_counts()
    assert len(rows) > 20
    assert len({t.session for t in rows}) == len(rows)
    assert all(
        c.misses <= c.calls and c.lost <= c.expected for t in rows for c in t.counts.values()
    )


def test_teachers_are_judged_by_each_other_and_copies_teach_once():
    given = [growing(own="a"), growing(15, own="copy of a"), growing(12, step=200.0, own="b")]
    found = select_distinct_sessions(
        [*given, replace(given[0], id="too short", log=given[0].log[:2])]
    )
    assert [s.id for s in found] == ["copy of a"]
    logs = [
        DeveloperLog(found[0], "a/b", "a"),
        DeveloperLog(replace(given[2], log=given[2].log[2:]), "a/b", "b"),
    ]
    rows = count_logs(logs)
    assert [row.developer for row in rows] == ["1", "2"]
    assert [row.past.teachers for row in rows] == [1, 1]


def test_a_folder_of_logs_tells_when_the_last_one_was_and_teaches():
    """The first call found a prefix where the last log had just ended, and nothing a day later."""

    def log(own, start, first):
        s = growing(3, own=own)
        moved = [replace(m, time=m.time + start) for m in s.log]
        return replace(replace_reads(s, [first, 20_000, 20_500]), log=tuple(moved))

    def near(own, start, first):
        return replace_reads(log(own, start, first), [first, 20_000, 20_500])

    others = []
    for i in range(12):
        sessions = [near(f"{i}a", 0.0, 0), near(f"{i}b", 30.0, 15_000), near(f"{i}c", 9e5, 0)]
        logs = SameDeveloperSessions(sessions)
        others += [
            replace(count_session(s, idle=logs.measure_idle(s)), developer=str(i), head=(n, i))
            for n, s in enumerate(sessions)
        ]
    for start, found in ((40.0, 15_000), (9e5, 0)):
        me = near("me", start, 0)
        logs = SameDeveloperSessions([near("before", 0.0, 0), me])
        calls = prepare_prediction(me, others, logs, uses_own_logs=False)
        reads = simulate_reads(calls.calls, calls.rates).rules_only
        assert reads[0] == pytest.approx(found), start
    assert SameDeveloperSessions([me]).measure_idle(me) is None
    assert SameDeveloperSessions([me, near("later", 1e6, 0)]).measure_idle(me) == math.inf


def test_an_untaught_kind_gets_the_lifetime_alone_and_no_interval():
    s = replace(growing(), parent="main")  # no subagent of this tool and model is in these rows
    rows = [r for r in load_training_counts() if not r.subagent]
    p = predict_input_cost(s, rows)
    assert (p.teachers, p.low, p.high, p.spread) == (0, None, None, None)
    assert p.error == p.lifetime_error
    assert "No log of the same tool, model and kind of agent" in p.why
    assert "four times of five" in p.why


def test_a_model_that_no_log_has_seen_gets_two_ends():
    """It may have no cache: the figure is that of the lifetime, and how many times more without."""
    sizes = [20_000 + 100 * i for i in range(8)]
    replies = (reply(n, time=n / 10, model="glm-5", usage=fresh(n)) for n in sizes)
    log = (m for each in replies for m in (user(), each))
    p = predict_input_cost(session(*log, format="claude-code", model="glm-5"))
    times = (1 + p.nothing_cached_error) / (1 + p.lifetime_error)
    assert times > 2
    assert (p.error, p.low) == (p.lifetime_error, None)
    assert f"if that has no cache, it costs {times:.1f} times that figure" in p.why
    seen = replace(growing(), parent="main")
    rows = [r for r in load_training_counts() if not r.subagent]
    assert "no cache" not in predict_input_cost(seen, rows).why


def test_one_developer_with_many_logs_does_not_outvote_others():
    """Rates go by developer: 40 logs of one person that miss count as one of three."""
    cold = [replace_reads(growing(60, own=f"c{i}"), [0] * 60) for i in range(40)]
    rows = [replace(count_session(s), head=(i,), developer="one") for i, s in enumerate(cold)]
    calm = [replace(count_session(growing(120, own=n)), head=(n,), developer=n) for n in "xyzuvw"]
    p = predict_input_cost(growing(own="me"), [*rows, *calm])
    alone = [replace(row, developer="") for row in rows]
    assert p.error < 0.8 * predict_input_cost(growing(own="me"), [*alone, *calm]).error


def test_a_score_learns_from_the_folder_of_the_developers_logs(real):
    folder = real / "claude-code/session-share"
    s = ck.read(folder / "0ccf1a04-1b4c-43b6-8aa5-79e41db43a68.jsonl")
    logs = ck.read_all(folder, progress=False)
    rows = [ck.score(s, loss=False, logs=given) for given in (None, str(folder), logs)]
    errors = [row["prediction_error"] for row in rows]
    assert errors[0] != errors[1] == errors[2]
    assert errors[1] == predict_input_cost(s, logs=SameDeveloperSessions(logs)).error
    assert rows[1]["prediction_low"] < errors[1] < rows[1]["prediction_high"]


@pytest.mark.parametrize(
    ("recorded", "replaced"),
    [
        # what is not read is written, for as long as the session's writes live
        (
            Usage(input_tokens=100, cache_read_tokens=0, cache_write_tokens=900),
            Usage(cache_read_tokens=400, cache_write_tokens=600),
        ),
        (
            Usage(input_tokens=100, cache_read_tokens=0, cache_write_1h_tokens=900),
            Usage(cache_read_tokens=400, cache_write_tokens=0, cache_write_1h_tokens=600),
        ),
        # without billed writes it is sent uncached
        (
            Usage(input_tokens=1_000, cache_read_tokens=0),
            Usage(input_tokens=600, cache_read_tokens=400),
        ),
    ],
)
def test_with_other_reads_the_rest_of_a_prompt_is_billed_as_before(recorded, replaced):
    log = session(user(), assistant(usage=recorded, model="claude-sonnet-4-5"))
    (call,) = replace_reads(log, [400]).calls
    assert call.message.usage == replaced
