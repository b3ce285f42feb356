"""What a session says of its growth: the share of carried tokens that the cache missed."""

from __future__ import annotations

import pytest
from builders import assistant, session, user

from ctxkit.errors import BadArguments
from ctxkit.metrics.growth_profile import GrowthProfile
from ctxkit.session import Usage

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
