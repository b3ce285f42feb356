"""Letta: about 70 percent stay, in steps of a tenth less until it fits; or nothing does."""

import pytest
from builders import assistant, user
from histories import CHARS, ids, shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(2000, 0, CHARS)


def talk(n, chars=40):
    return [(assistant if i % 2 else user)("x" * chars, id=f"m{i}") for i in range(n)]


def test_the_oldest_30_percent_are_summarised():
    new = presets.letta(summariser=lambda p: "SUMMARY").policy(shown(talk(10)), ROOM)
    assert texts(new)[0] == "SUMMARY"
    assert ids(new)[1] == "m3"


def test_more_in_steps_of_a_tenth_where_it_does_not_fit():
    new = presets.letta(summariser=lambda p: "S").policy(shown(talk(20, 800)), ROOM)
    assert new.tokens <= 1300
    assert 5 <= len(new) <= 8


def test_mode_all_keeps_nothing():
    new = presets.letta(mode="all", summariser=lambda p: "S").policy(shown(talk(10)), ROOM)
    assert texts(new) == ["S"]


def test_a_summary_is_clipped():
    assert presets.letta().policy.limit == 12_500
    assert presets.letta(clip_chars=None).policy.limit is None
    with pytest.raises(BadArguments):
        presets.letta(mode="window")
