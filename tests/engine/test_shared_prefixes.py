"""The longest prefix that a prompt shares with the last one or with any whose cache still lives."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ctxkit.engine.prompt_sizes_and_prefixes import (
    MAX_DIVERGENCES,
    SharedPrefixFinder,
    measure_common_prefix,
)


def make_prefixes(lives: int = 99, cold: tuple[int, ...] = ()) -> SharedPrefixFinder:
    """Return no divergences yet, where a cache lives for so many calls."""
    clock = SimpleNamespace(
        alive=lambda earlier, later: later - earlier <= lives,
        cold=[n in cold for n in range(400)],
    )
    return SharedPrefixFinder(clock)


def share(prefixes: SharedPrefixFinder, *prompts: str) -> list[int]:
    """Return what each prompt but the first shares, a letter being a message."""
    coded = [np.array([ord(c) for c in p]) for p in prompts]
    return [prefixes.count_shared(n, coded[n - 1], coded[n]) for n in range(1, len(coded))]


@pytest.mark.parametrize(
    ("prompts", "shared"),
    [
        (("abc", "abcd", "abcde"), [3, 4]),
        (("abc", "axc", "axcd"), [1, 3]),
        (("abc", "axc", "abcd"), [1, 3]),  # what was undone is still in the cache
        (("abc", "axc", "ayc", "axcd"), [1, 1, 3]),
        (("abc", "axc", "abd"), [1, 2]),
        (("abcd", "abxd", "ayxd", "abcd"), [2, 1, 4]),
        (("abc", "xbc"), [0]),
    ],
)  # fmt: skip
def test_a_prompt_shares_with_any_that_was_sent(prompts, shared):
    assert share(make_prefixes(), *prompts) == shared


def test_a_cache_that_is_gone_shares_nothing_more():
    prompts = "abc", "axc", "ayc", "abcd"
    assert share(make_prefixes(lives=3), *prompts) == [1, 1, 3]
    assert share(make_prefixes(lives=2), *prompts) == [1, 1, 1]
    assert share(make_prefixes(cold=(3,)), *prompts) == [1, 1, 1]


def test_only_the_newest_divergences_are_looked_at():
    """The first prompt is found again among so many other ones, and not among one more."""
    others = [f"a{chr(200 + n)}" for n in range(MAX_DIVERGENCES)]
    assert share(make_prefixes(), "ab", *others[:-1], "abc")[-1] == 2
    assert share(make_prefixes(), "ab", *others, "abc")[-1] == 1


def test_what_came_before_a_call_is_all_that_it_looks_at():
    prefixes = make_prefixes()
    share(prefixes, "abc", "axc", "ayc", "azc")
    assert [d.call for d in prefixes.divergences] == [0, 1, 2]
    assert [d.call for d in prefixes.before(2).divergences] == [0]
    assert [d.call for d in prefixes.before(3).divergences] == [0, 1]
    assert [(d.shared, chr(d.next_content)) for d in prefixes.divergences] == [
        (1, "b"),
        (1, "x"),
        (1, "y"),
    ]


def test_arrays_share_their_first_equal_values():
    lengths = [
        measure_common_prefix(np.array(a), np.array(b))
        for a, b in (([], [1]), ([1], [2]), ([1, 2], [1, 2]), ([1, 2], [1, 3]), ([1], [1, 5]))
    ]
    assert lengths == [0, 0, 2, 1, 1]
