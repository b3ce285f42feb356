"""Each cause holds where the log shows it, and not where its sign is taken away."""

from __future__ import annotations

from typing import get_args

import pytest
from builders import result, session, summarised, user
from cached_sessions import fresh, reply

from ctxkit.engine import find_miss_cause, get_call_features
from ctxkit.engine.cache_model.call_features import (
    MISS_RULES,
    MissCause,
    compute_warm_read,
    floor_to_block,
    get_cache_lifetime,
    is_miss,
)
from ctxkit.engine.cache_model.training_counts import UNEXPLAINED_CLASSES, classify_call
from ctxkit.session import Message, Text, Usage


def between(*what, prompt=21_000, time=20.0, model="claude-sonnet-4-5", before=20_000, **more):
    """A first call of 20,000 tokens, something, and a second call."""
    old = user(time=0.0)
    first = reply(before, time=1.0, model=model, **more.get("first", {}))
    second = reply(prompt, time=time, model=more.get("then", model), **more.get("second", {}))
    made = [w([old, first]) if callable(w) else w for w in what]
    kept = {"format": "claude-code", "version": more.get("version")}
    return session(old, first, *made, second, model=model, **kept)


def event(kind_: str) -> Message:
    return Message(role="system", id=kind_, kind=kind_, visible=False)


def wrapper(command: str) -> Message:
    text = f"<command-name>{command}</command-name>"
    return Message(role="user", id="w", kind="wrapper", parts=(Text(text),))


def effort(level: str):
    return {"details": {"effort": level}}


WITH = {
    "prefix_change": (between(user(time=10), then="claude-haiku-4-5"), between(user(time=10))),
    "compaction": (between(summarised, user(time=10)), between(user(time=10))),
    "too_short": (between(user(time=10), before=800), between(user(time=10))),
    "ttl_expiry_prefix": (
        between(user(time=310), time=320, version="2.1.0"),
        between(user(time=290), time=320, version="2.1.0"),
    ),
    "tools_loaded": (
        between(result("found", tool="ToolSearch"), user(time=10)),
        between(result("found", tool="Grep"), user(time=10)),
    ),
    "ttl_expiry": (between(user(time=310), time=320), between(user(time=290), time=320)),
    "effort_change": (
        between(user(time=9), first=effort("off"), second=effort("high")),
        between(user(time=9), first=effort("high"), second=effort("high")),
    ),
    "resumed": (between(wrapper("/exit"), user(time=10)), between(wrapper("/cost"), user(time=10))),
    "reasoning_dropped": (
        between(user(time=10), prompt=19_900, model="gpt-5", first={"usage": fresh(20_000)}),
        between(user(time=10), prompt=20_100, model="gpt-5", first={"usage": fresh(20_000)}),
    ),
    "changed_earlier": (
        between(user(time=10), prompt=18_000), between(user(time=10), prompt=19_500),
    ),
    "retry": (
        between(event("api_error"), user(time=10)), between(event("synthetic"), user(time=10)),
    ),
}  # fmt: skip


def test_every_rule_is_tried_here():
    assert {r.name for r in MISS_RULES} - {"cold_start"} == set(WITH)
    assert {*WITH, "cold_start", "unexplained"} == set(get_args(MissCause))


@pytest.mark.parametrize("name", WITH)
def test_a_cause_holds_where_its_sign_is_and_only_there(name):
    there, gone = WITH[name]
    assert find_miss_cause(get_call_features(there)[-1]) == name
    assert find_miss_cause(get_call_features(gone)[-1]) == "unexplained"
    assert find_miss_cause(get_call_features(there)[0]) == "cold_start"


def test_a_resume_that_only_its_hook_tells_counts():
    s = between(user(time=10), second={"details": {"resumed": True}})
    assert find_miss_cause(get_call_features(s)[-1]) == "resumed"


@pytest.mark.parametrize(
    "made", [{"version": "2.0.76"}, {"version": "2.1.0", "before": 40_000, "prompt": 41_000}]
)
def test_no_prefix_is_shared_before_2_1_nor_behind_tools_of_ones_own(made):
    assert (
        find_miss_cause(get_call_features(between(user(time=310), time=320, **made))[-1])
        == "ttl_expiry"
    )


def test_only_the_first_search_for_tools_changes_what_is_sent_first():
    log = [user(), reply(20_000, time=1.0)]
    for i in (1, 2):
        log += [result("found", tool="ToolSearch"), reply(20_000 + i, time=10.0 * i)]
    found = [classify_call(a) for a in get_call_features(session(*log, format="claude-code"))]
    assert found[1:] == ["tools_loaded", "inside a turn"]


def test_the_life_goes_by_the_last_writes_before():
    """A subscriber's writes live an hour until the plan is used up, and then five minutes."""
    hour = Usage(cache_read_tokens=0, cache_write_1h_tokens=90_000, output_tokens=5)
    first, then = reply(90_000, time=1.0, usage=hour), reply(91_000, 90_000, time=400.0)
    s = session(user(), first, user(), then, user(), reply(92_000, 91_000, time=800.0))
    assert [a.life for a in get_call_features(s)] == [3600.0, 3600.0, 300.0]
    assert [a.expired for a in get_call_features(s)] == [False, False, True]


def test_the_life_goes_by_the_class_of_the_writes():
    hour = Usage(cache_read_tokens=0, cache_write_1h_tokens=20_000, output_tokens=5)
    s = between(user(time=310), time=320, first={"usage": hour}, second={"usage": hour})
    assert (get_cache_lifetime(s), find_miss_cause(get_call_features(s)[-1])) == (
        3600.0,
        "unexplained",
    )


def test_providers_cache_in_blocks_of_their_own():
    assert [floor_to_block(1000, n) for n in (1, 128, 64, 256)] == [1000, 896, 960, 768]
    models = ("claude-opus-5-5", "gpt-5", "gpt-5.5", "gpt-6-sol", "deepseek-chat", "kimi-k3", "x-1")
    blocks = [get_call_features(between(user(time=10), model=m))[-1].block for m in models]
    assert blocks == [1, 128, 512, 1024, 64, 256, 1]
    deepseek = between(user(time=10), model="deepseek-chat", prompt=30_000)
    assert (
        compute_warm_read(get_call_features(deepseek)[-1]) == (20_000 + 100) // 64 * 64
    )  # the reply is cached with its prompt
    assert compute_warm_read(get_call_features(between(user(time=10)))[-1]) == 20_000


def test_a_small_shortfall_is_a_hit():
    assert not is_miss(20_000, 19_000)
    assert is_miss(20_000, 18_900)
    assert not is_miss(2_000, 1_000)


@pytest.mark.parametrize("times", [(1.0, None), (1000.0, 20.0)], ids=["none", "backwards"])
def test_without_a_clock_a_pause_is_unknown_and_not_short(times):
    s = session(user(), reply(20_000, time=times[0]), user(), reply(21_000, time=times[1]), user())
    assert get_call_features(s)[1].gap is None
    assert classify_call(get_call_features(s)[1]) in UNEXPLAINED_CLASSES[-2:]


def test_three_calls_at_one_time_have_lost_the_clock():
    s = session(*(m for i in range(3) for m in (user(), reply(20_000 + i, time=5.0))))
    assert [a.gap for a in get_call_features(s)] == [None] * 3
