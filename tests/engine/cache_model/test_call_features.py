"""Features of a call that a program's version, its times and its writes decide, worked out by hand."""

from __future__ import annotations

import pytest
from builders import assistant, session, user
from msgspec.structs import replace

from ctxkit.engine import get_call_features
from ctxkit.engine.cache_model.call_features import (
    HOUR,
    find_program_era,
    get_cache_lifetime,
    has_hour_writes,
    has_reliable_times,
)
from ctxkit.session import Usage

MODEL = "claude-sonnet-4-5"


def call(
    time: float | None,
    prompt: int = 20_000,
    read: int = 0,
    hour: int | None = None,
    write: int = 100,
):
    usage = Usage(
        input_tokens=prompt - read - write, cache_read_tokens=read, cache_write_tokens=write,
        cache_write_1h_tokens=hour, output_tokens=5,
    )  # fmt: skip
    return assistant("ok", usage=usage, model=MODEL, time=time)


def make_log(*times, version="2.1.3", tool="claude-code", prompt=20_000):
    log = [m for t in times for m in (user("go", time=t - 1), call(t, prompt))]
    return session(*log, format=tool, version=version, model=MODEL)


@pytest.mark.parametrize(
    ("tool", "version", "prompt", "common"),
    [
        ("claude-code", "2.1.0", 20_000, True),
        ("claude-code", "2.1.207", 20_000, True),
        ("claude-code", "3.0", 20_000, True),
        ("claude-code", "2.0.99", 20_000, False),  # before 2.1 no prefix is cached apart
        ("claude-code", "1.9", 20_000, False),
        ("claude-code", "beta", 20_000, False),
        ("claude-code", None, 20_000, False),
        ("codex", "2.1.0", 20_000, False),
        ("claude-code", "2.1.0", 31_999, True),
        ("claude-code", "2.1.0", 32_000, False),  # tools of the user come before the system message
    ],
)
def test_sessions_begin_alike_in_claude_code_from_2_1_on(tool, version, prompt, common):
    features = get_call_features(make_log(10.0, version=version, tool=tool, prompt=prompt))
    assert [f.common for f in features] == [common]


@pytest.mark.parametrize(
    ("version", "era"),
    [
        ("2.0.99", ""),
        ("2.1.0", "2.1.0"),
        ("2.1.19", "2.1.0"),
        ("2.1.20", "2.1.20"),
        ("2.1.49", "2.1.20"),
        ("2.1.50", "2.1.50"),
        ("2.1.99", "2.1.50"),
        ("2.1.100", "2.1.100"),
        ("2.1.199", "2.1.100"),
        ("2.1.200", "2.1.200"),
        ("3.0.0", "2.1.200"),
        (None, ""),
    ],
)
def test_releases_that_miss_alike_are_one_era(version, era):
    assert find_program_era("claude-code", version) == era
    assert find_program_era("pi", version) == ""


@pytest.mark.parametrize(
    ("times", "reliable"),
    [
        ((10.0, 20.0, 30.0), True),
        ((10.0, 10.0, 30.0), True),
        ((10.0, 10.0, 10.0), False),  # three calls at one time: the log was copied
        ((), False),
    ],
)
def test_times_that_were_copied_are_no_times(times, reliable):
    log = session(*(m for t in times for m in (user("go"), call(t))), format="pi", model=MODEL)
    assert has_reliable_times(log) is reliable


@pytest.mark.parametrize(("back", "reliable"), [(59.0, True), (61.0, False)])
def test_a_clock_may_go_back_by_a_minute(back, reliable):
    log = session(user("a", time=100.0), call(101.0), user("b", time=101.0 - back), call(150.0),
                  format="pi", model=MODEL)  # fmt: skip
    assert has_reliable_times(log) is reliable


@pytest.mark.parametrize(
    ("hour", "write", "life"), [(60, 0, 3600), (60, 40, 3600), (40, 60, 300), (None, 60, 300)]
)
def test_a_cache_lives_as_most_of_its_writes(hour, write, life):
    log = session(user("a"), call(1.0, hour=hour, write=write), format="claude-code", model=MODEL)
    assert HOUR == 3600
    assert get_cache_lifetime(log) == life
    assert has_hour_writes(log, log.calls[0]) is (life == 3600)


def test_without_a_rule_a_cache_is_taken_to_live_an_hour_unless_writes_are_billed():
    unknown = {"format": "pi", "model": "my-model"}
    reads = session(user("a"), assistant("ok", usage=Usage(input_tokens=9, cache_read_tokens=0, output_tokens=1)), **unknown)  # fmt: skip
    assert get_cache_lifetime(reads) == 3600
    assert get_cache_lifetime(session(user("a"), call(1.0), **unknown)) == 300


def test_each_model_of_a_session_has_the_cache_life_of_its_own():
    """Five minutes with Claude, half an hour with GPT-6: the pause of ten minutes outlives one."""
    log = []
    for model, start in ((MODEL, 10.0), ("gpt-6-sol", 710.0)):
        for time in (start, start + 600):
            usage = Usage(input_tokens=10_000, cache_read_tokens=10_000, output_tokens=5)
            log += [user("go", time=time - 1), assistant("ok", usage=usage, model=model, time=time)]
    features = get_call_features(session(*log, model=MODEL))
    assert [(f.life, f.expired) for f in features] == [
        (300, False), (300, True), (1800, False), (1800, False)]  # fmt: skip


@pytest.mark.parametrize(("hour", "write", "is_hour"), [(60, 0, True), (None, 60, False)])
def test_a_call_without_usage_has_the_cache_life_of_its_session(hour, write, is_hour):
    log = session(
        user("a"),
        call(1.0, hour=hour, write=write),
        user("b"),
        assistant("ok", model=MODEL, time=2.0),
        format="claude-code",
        model=MODEL,
    )
    assert [has_hour_writes(log, c) for c in log.calls] == [is_hour, is_hour]


COMMAND = "<command-name>{}</command-name>"
FLAGS = ("after_command", "restarted", "retried", "other_effort")


@pytest.mark.parametrize(
    ("between", "effort", "flags"),
    [
        (user("go"), "high", set()),
        (user(COMMAND.format("/model"), kind="wrapper"), "high", {"after_command", "restarted"}),
        (user(COMMAND.format("/cost"), kind="wrapper"), "high", {"after_command"}),
        (user(COMMAND.format("/model")), "high", set()),  # the user's own words
        (user("a skill", kind="injected"), "high", {"after_command"}),
        (user("a file", kind="injected", details={"attachment": "file"}), "high", set()),
        (user("overloaded", kind="api_error"), "high", {"retried"}),
        (user("go"), "low", {"other_effort"}),
    ],
)
def test_what_comes_between_two_calls_may_break_their_prefix(between, effort, flags):
    def make_call(time: float, effort: str):
        return replace(call(time), details={"effort": effort})

    log = session(
        between, make_call(1.0, "high"), between, make_call(2.0, effort), user(),
        make_call(3.0, effort), format="claude-code", version="2.1.3", model=MODEL,
    )  # fmt: skip
    first, second, third = get_call_features(log)
    assert {flag for flag in FLAGS if getattr(first, flag)} == set()  # no call before it
    assert {flag for flag in FLAGS if getattr(second, flag)} == flags
    # a call behind one that was refused may still find its cache gone
    assert {flag for flag in FLAGS if getattr(third, flag)} == flags & {"retried"}
