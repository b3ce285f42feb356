"""What a session says of its growth: the share of carried tokens that the cache missed."""

from __future__ import annotations

from math import inf

import pytest
from builders import assistant, session, system, user

from ctxkit.errors import BadArguments
from ctxkit.metrics import (
    MAX_TURN_TOKENS,
    GrowthProfile,
    ItemIndex,
    MessageItemCache,
    estimate_floor,
)
from ctxkit.metrics.context_growth_and_floor import get_compaction_floor
from ctxkit.session import Edit, Usage
from ctxkit.tokens import measure_sizes, prices

MODEL = "claude-sonnet-4-5"


def make_profile(*reads: tuple[int, int]) -> GrowthProfile:
    """Return the profile of a session with calls of so many prompt tokens, of which so many were read."""
    log = []
    for i, (prompt, read) in enumerate(reads):
        usage = Usage(input_tokens=prompt - read, cache_read_tokens=read, output_tokens=10)
        log += [
            user(f"go {i}", time=10.0 * i),
            assistant("ok", usage=usage, model=MODEL, time=10.0 * i + 1),
        ]
    return GrowthProfile(session(*log, model=MODEL, format="claude-code"))


def test_the_share_is_of_what_later_calls_carry():
    # The second call carries 10,000 and reads all; the third carries 11,000 and reads nothing.
    profile = make_profile((10_000, 0), (11_000, 10_000), (12_000, 0))
    assert profile.miss_share == pytest.approx(11_000 / 21_000, abs=0.01)
    assert make_profile((10_000, 0), (11_000, 10_000)).miss_share == 0


def test_prompts_that_do_not_grow_have_no_profile():
    for reads in ([(10_000, 5_000)], [(10_000, 0), (10_000, 10_000)]):
        with pytest.raises(BadArguments, match="do not grow"):
            make_profile(*reads)


def test_a_session_that_does_not_grow_is_named_by_its_first_prompt():
    with pytest.raises(BadArguments, match="The prompts of “go 0” do not grow"):
        make_profile((10_000, 5_000))


def make_session(*calls, **more):
    """Return a session of calls, each its prompt, its read (None: no split) and the second it is sent at."""
    log = []
    for i, (prompt, read, time) in enumerate(calls):
        usage = Usage(input_tokens=prompt - (read or 0), cache_read_tokens=read, output_tokens=10)
        log += [
            user("x" * 40, time=time),
            assistant("y" * 40, usage=usage, model=more.get("model", MODEL), time=time + 1),
        ]
        log += [more["edit"]] if i in more.get("after", ()) else []
    return session(*log, model=MODEL, format="claude-code")


def test_growth_is_the_mean_step_and_the_peak_the_largest_prompt():
    profile = make_profile((10_000, 0), (11_000, 0), (14_000, 0))
    assert (profile.growth, profile.peak, profile.summary) == (2_000, 14_000, 1_000)
    assert profile.model == MODEL


def test_steps_over_an_edit_are_no_growth():
    edit = Edit(kind="hidden", id="e", targets=())
    calls = [(10_000, 0, 0), (11_000, 0, 10), (5_000, 0, 20), (5_500, 0, 30)]
    profile = GrowthProfile(make_session(*calls, edit=edit, after=(1,)))
    assert profile.growth == (1_000 + 500) / 2
    assert profile.recorded_trigger == {"recorded": 11_010}  # with the reply of ten tokens


def test_calls_of_two_agents_grow_by_themselves():
    log = []
    for i, prompt in enumerate((10_000, 2_000, 11_000, 2_600)):
        usage = Usage(input_tokens=prompt, output_tokens=10)
        name = "main" if i % 2 == 0 else "helper"
        log += [user(), assistant("ok", usage=usage, model=MODEL, agent=name)]
    assert GrowthProfile(session(*log, model=MODEL)).growth == (1_000 + 600) / 2


def test_a_floor_is_the_smallest_prompt_and_a_summary_where_the_log_has_no_compaction():
    profile = make_profile((10_000, 0), (11_000, 0), (9_500, 0), (12_000, 0))
    assert profile.estimate_floor_after(700) == (10_200, "its smallest prompt and a summary")


@pytest.mark.parametrize(
    ("times", "share", "calls"),
    [
        ((0, 10, 400, 410), 1 / 3, 0.5),  # one, none, and again none before the end
        ((0, 10, 20, 30), 0.0, inf),
        ((0, 301, 602, 903), 1.0, 0.0),  # 300 seconds after the reply of the second before
        ((0, 300, 600, 900), 0.0, inf),
    ],
)
def test_pauses_say_how_many_calls_find_no_cache_where_no_read_is_recorded(times, share, calls):
    prompts = zip((10_000, 11_000, 12_000, 13_000), times, strict=True)
    profile = GrowthProfile(make_session(*((n, None, at) for n, at in prompts)))
    assert profile.miss_share == pytest.approx(share)
    assert profile.calls_to_cold == calls


def test_without_a_clock_nothing_is_said_of_pauses():
    calls = [(10_000, None, 0), (11_000, None, 0), (12_000, None, 0)]
    profile = GrowthProfile(make_session(*calls))
    assert (profile.miss_share, profile.calls_to_cold) == (None, None)


def test_a_window_that_nobody_knows_is_the_usual_one_or_the_largest_prompt(monkeypatch):
    monkeypatch.setattr(prices, "_registered", {})
    prices.register("unheard-of-model", prices.Price(input=1e-6, output=2e-6))
    small, large = (
        GrowthProfile(
            make_session((10_000, 0, 0), (n, 0, 10), (n - 500, 0, 20), model="unheard-of-model")
        )
        for n in (11_000, 300_000)
    )
    assert small.window == (200_000, "assumed")
    assert large.window == (300_000, "assumed")


@pytest.mark.parametrize(
    ("largest", "source"), [(150_000, "table of prices"), (260_000, "what the log proves")]
)
def test_a_window_comes_from_the_prices_unless_a_prompt_was_larger(largest, source):
    model = "claude-sonnet-4-5"
    profile = GrowthProfile(make_session((10_000, 0, 0), (largest, 0, 10), model=model))
    tokens, found = profile.window
    assert found == source
    assert tokens >= largest
    assert (tokens == 200_000) == (source == "table of prices")


def test_what_has_no_usage_or_no_price_is_refused():
    with pytest.raises(BadArguments, match="no usage"):
        GrowthProfile(session(user(), assistant()))
    with pytest.raises(BadArguments, match="'nobody' has no price"):
        GrowthProfile(make_session((10_000, 0, 0), (11_000, 0, 10), model="nobody"))


def test_the_model_is_that_of_most_tokens():
    log = []
    for i, (prompt, model) in enumerate(((10_000, MODEL), (9_000, "gpt-5"), (11_000, "gpt-5"))):
        usage = Usage(input_tokens=prompt, output_tokens=10)
        log += [user(time=10.0 * i), assistant("ok", usage=usage, model=model, time=10.0 * i + 1)]
    assert GrowthProfile(session(*log)).model == "gpt-5"


@pytest.mark.parametrize(("growth", "is_bounded"), [(100, False), (100_000, True)])
def test_what_must_stay_is_the_front_a_turn_and_the_items_in_use(growth, is_bounded):
    """The path has 29 characters and is in use from its first message to the last call."""
    path = "src/ledger/rounding_rules.py"

    def bill(n: int) -> Usage:
        return Usage(input_tokens=1_000 + n * growth, output_tokens=30)

    log = session(
        system("s" * 40),
        user(f"See {path}."),
        assistant("a" * 40, usage=bill(0)),
        user("Go on."),
        assistant("b" * 40, usage=bill(1)),
        user("More."),
        assistant(f"I use {path}.", usage=bill(2)),
        model=MODEL,
    )
    sizes = measure_sizes(log)
    front, *tokens = [sizes.of(m) for m in log.messages]
    turns = sorted(tokens[i] + tokens[i + 1] for i in (0, 2, 4))
    bare = estimate_floor(log, sizes, None)
    assert bare == (sizes.fixed + front, MAX_TURN_TOKENS if is_bounded else turns[1], None)
    assert (turns[1] > MAX_TURN_TOKENS) == is_bounded
    assert bare.total == bare.fixed + bare.turn
    floor = estimate_floor(log, sizes, ItemIndex(log, MessageItemCache(sizes)))
    assert floor == bare._replace(needed=len(path) // 4)
    assert floor.total == bare.total + 7
    parts = f"{floor.fixed:,} of system and tools, {floor.turn:,} of the last turn"
    assert (str(bare), str(floor)) == (parts, f"{parts}, 7 of items needed later")
    profile = GrowthProfile(log)
    left = 1_000 + 500, "its smallest prompt and a summary"
    assert get_compaction_floor(profile, floor._replace(fixed=1_400, turn=93), 500) == left
    assert get_compaction_floor(profile, floor._replace(fixed=1_400, turn=94), 500) == (1_501, "what must stay")  # fmt: skip
