"""Values are looked up many at a time as one by one, and each is worked out once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.policies.history import edited_head as head
from ctxkit.policies.history.edited_head import IntegerKeyCache

if TYPE_CHECKING:
    import pytest

NUMBERS = st.lists(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 2)))


def told(asked: list[list[int]], known: IntegerKeyCache) -> tuple[list[list[int]], list[int]]:
    """What is found for the numbers of each question, and which numbers were worked out."""
    made, out = [], []
    for numbers in asked:

        def make(place: int, numbers: list[int] = numbers) -> int:
            made.append(numbers[place])
            return numbers[place] // 2

        out.append(known.get_or_compute(np.array(numbers, np.int64), make).tolist())
    return out, made


@given(NUMBERS)
def test_each_number_has_its_value_and_is_worked_out_once(asked: list[list[int]]) -> None:
    found, made = told(asked, IntegerKeyCache())
    assert found == [[n // 2 for n in numbers] for numbers in asked]
    assert sorted(made) == sorted({n for numbers in asked for n in numbers})


def test_what_is_too_much_is_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "MAX_CACHED_VALUES", 3)
    found, made = told([[1, 2], [2, 3, 4], [9], [1, 9]], IntegerKeyCache())
    assert found == [[0, 1], [1, 1, 2], [4], [0, 4]]
    assert made == [1, 2, 3, 4, 9, 1]
