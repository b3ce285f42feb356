"""Advice on when to compact and under which rules is bounded, and noise is not advised."""

from __future__ import annotations

from collections import defaultdict

import pytest
from builders import assistant, result, session, summarised, tool_call, usage, user
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.experiments import MAX_SESSION_SHARE, measure_saving_concentration
from ctxkit.metrics import (
    MAX_TURN_TOKENS,
    ItemIndex,
    MessageItemCache,
    estimate_floor,
    when_to_compact,
)
from ctxkit.metrics.threshold_replays import NEAR_OPTIMAL, LossBoundByThreshold
from ctxkit.tokens import measure_sizes

MODEL = "claude-sonnet-4-5"


def working(n: int = 120, back: int = 40, first: int = 4_000, by: int = 1_000, **more):
    """A coding session whose every call names the file that it read so many calls before."""
    log, size = [user("Mend the files, please.")], first
    for i in range(n):
        asked = tool_call("read_file", path=f"src/part{i}.py")
        say = f"as in src/part{i - back}.py" if i >= back else "on"
        log += [
            assistant(say, asked, usage=usage(0, read=size - by if i else 0, write=by if i else size),
                      model=MODEL, time=10.0 * i),
            result("word " * (by - 50), asked),
        ]  # fmt: skip
        size += by
        if i % 20 == 19:
            log.append(user("Go on."))
    return session(
        *log, assistant("done", usage=usage(0, read=size, write=by), model=MODEL), **more
    )


def parts(s):
    anchored = measure_sizes(s)
    memory = ItemIndex(s, MessageItemCache(anchored))
    return anchored, memory, estimate_floor(s, anchored, memory)


def test_a_coding_session_is_not_told_to_compact_where_dollars_alone_would():
    s = working()
    told, (_, _, must) = when_to_compact(s), parts(s)
    assert told.cheapest < 60_000 < told.best <= told.window
    assert told.floor >= must.total == told.context_floor.total
    at = {c.name: c.loss for c in told.trigger_costs}
    assert (
        at["best"]
        <= told.max_loss
        == at["window"] + ck.metrics.optimal_trigger_floor_and_wait.EXTRA_LOSS
        < at["dollars alone"]
    )
    assert "In dollars alone" in " ".join(repr(told).split())
    assert told.low <= told.best <= told.high


def test_the_bound_comes_from_what_is_used_again_and_not_from_the_size():
    """The same sizes where nothing is used again, or at once: dollars alone answer, and it says so."""
    far, near, none = (
        when_to_compact(working(back=40)),
        when_to_compact(working(back=1)),
        when_to_compact(working(back=10**6)),
    )
    assert near.best == near.cheapest < far.best
    assert (none.max_loss, none.best) == (None, none.cheapest)


def test_loss_at_a_size_falls_as_the_size_grows_and_is_nothing_where_nothing_is_cut():
    anchored, memory, must = parts(working())
    risk = LossBoundByThreshold(memory, anchored, must.total, must.fixed)
    found = [risk.at(size) for size in (30_000, 60_000, 90_000, 10**7)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.5
    assert found[-1] == 0


def test_a_wrong_window_is_seen():
    assert (
        when_to_compact(working(context_window=60_000)).best
        <= 60_000
        < when_to_compact(working()).best
    )
    with pytest.raises(BadArguments, match="does not lie in a window"):
        when_to_compact(working(context_window=20_000))


def test_what_must_stay_holds_the_turn_and_the_items():
    _anchored, _memory, must = parts(working())
    assert 0 < must.needed < 2_000
    assert must.turn == MAX_TURN_TOKENS
    assert must.fixed <= 4_000
    _, _, idle = parts(working(back=10**6))
    assert idle.needed == 0


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9))
def test_what_one_session_makes_of_a_saving_is_a_share_of_it(savings):
    told = measure_saving_concentration(savings)
    assert told["sessions_saving_n"] == sum(v > 0 for v in savings)
    if told["sessions_saving_n"]:
        assert 1 / told["sessions_saving_n"] - 1e-9 <= told["largest_session_share"] <= 1 + 1e-9
    else:
        assert told["largest_session_share"] is None


RULES = ck.grid(
    ck.presets.pi, context_window=[90_000, 100_000], keep_recent_tokens=[30_000], summariser="fixed"
)


def test_advice_that_one_session_carries_is_withheld():
    long, short = (
        working(160, back=2, id="long"),
        [working(20, back=2, id=f"s{i}") for i in range(5)],
    )
    found = ck.advise([long, *short], RULES)
    mine = found[found["rules"].str.startswith("pi")]
    assert len(mine)
    assert not mine["advised"].any()
    assert (mine["largest_session_share"] > MAX_SESSION_SHARE).all()
    assert mine["advice"].str.contains("Not advised").all()


def test_a_saving_below_the_error_of_the_dollars_is_not_advised(monkeypatch):
    """The same sessions as below, their dollars known to nobody: each setting is like the last."""
    nobody = defaultdict(lambda: 1e6)
    monkeypatch.setattr(
        "ctxkit.experiments.setting_advice.average_cost_uncertainty_usd", lambda _runs: nobody
    )
    found = ck.advise([working(150 + 5 * i, back=40, id=f"s{i}") for i in range(5)], RULES)
    mine = found[found["rules"].str.startswith("pi")]
    assert len(mine)
    assert not mine["advised"].any()
    assert mine["advice"].str.contains("its dollars are known within").all()
    assert found["indistinguishable_from"].iloc[-1] == ", ".join(found["rules"].iloc[:-1]) != ""


def test_advice_that_many_sessions_carry_is_given_with_its_interval_and_their_number():
    """The error of the dollars is known of Codex's logs, as other developers' calibrate it."""
    sessions = [working(150 + 5 * i, back=2, id=f"s{i}", format="codex") for i in range(5)]
    found = ck.advise(sessions, RULES)
    mine = found[found["rules"].str.startswith("pi") & found["advised"]]
    assert len(mine)
    row = mine.iloc[0]
    assert (row["sessions_saving_n"], row["sessions_n"]) == (5, 5)
    assert row["largest_session_share"] < MAX_SESSION_SHARE
    assert 0 < row["saved_usd_low"] <= row["saved_usd"] <= row["saved_usd_high"]
    assert "5 of 5 sessions carry it" in row["advice"]
    assert 0 < row["cost_uncertainty_usd"] < row["saved_usd"]


def test_a_cheap_rule_that_loses_what_is_needed_is_on_the_front_and_not_advised():
    found = ck.advise([working(150 + 5 * i, back=40, id=f"s{i}") for i in range(5)], RULES)
    mine = found[found["rules"].str.startswith("pi")]
    assert len(mine)
    assert not mine["advised"].any()
    assert mine["advice"].str.contains("loses more than").all()


@pytest.mark.parametrize("more", [{}, {"floor": 3_000}])
def test_near_ceilings_cost_about_the_same(more):
    told = when_to_compact(working(back=1), **more)
    usd = {c.name: c.usd for c in told.trigger_costs}
    assert told.low < told.best < told.high
    assert usd["window"] > NEAR_OPTIMAL * usd["best"]


def test_one_call_and_no_usage_are_refused_with_a_reason():
    with pytest.raises(BadArguments, match="do not grow"):
        when_to_compact(session(user(), assistant(usage=usage(), model=MODEL)))
    with pytest.raises(BadArguments, match="no usage"):
        when_to_compact(session(user(), assistant("a"), summarised([]), assistant("b")))
