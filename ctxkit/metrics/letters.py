"""Which of many texts stand in another text, found by letters that few of them have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.metrics.items import stands
from ctxkit.metrics.time_spans import spread

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Codes = NDArray[Any]

NARROW, WIDE = 3, 12
"""How many letters in a row of a text are looked for: 12 where it has them, else 3."""
SAMPLES = 8
"""Places of a text at which its letters are looked at, for those that few other texts have."""
_BASE = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(48)
"""Bits of a code that its first look at leaves out."""


class Letters:
    """Some texts, to be found in others: all of one cost little more than its length."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = list(texts)
        lengths = [len(t) for t in self._texts]
        self._short = [at for at, n in enumerate(lengths) if n < NARROW]
        narrow = [at for at, n in enumerate(lengths) if NARROW <= n < WIDE]
        wide = [at for at, n in enumerate(lengths) if n >= WIDE]
        self._by_code = [_ByCode(self._texts, narrow, NARROW), _ByCode(self._texts, wide, WIDE)]

    def standing_in(self, text: str) -> list[int]:
        """Return the numbers of the texts that stand in a text, rising."""
        near = self._short.copy()
        for by, codes in zip(self._by_code, _codes(text), strict=True):
            near += by.near(codes)
        return sorted(at for at in near if stands(self._texts[at], text))


class _ByCode:
    """Some texts, each by the code of so many letters in a row that few of the others have."""

    def __init__(self, texts: list[str], mine: list[int], width: int) -> None:
        lengths = np.array([len(texts[at]) for at in mine], np.int64)
        starts, several = lengths.cumsum() - lengths, lengths - width + 1
        step = np.maximum(several // SAMPLES, 1)
        n = -(-several // step)
        some = _codes("".join([texts[at] for at in mine]))[width == WIDE][
            np.repeat(starts, n) + spread(np.zeros_like(n), n) * np.repeat(step, n)
        ]
        codes = _rarest(some, n)
        order = np.argsort(codes, kind="stable")
        self._codes, self._numbers = codes[order], np.array(mine, np.int64)[order]
        self._likely = np.zeros(1 << 16, bool)
        self._likely[codes >> _FIRST] = True

    def near(self, told: Codes) -> list[int]:
        """Return the numbers of the texts whose code a text has, by the codes of all its
        letters.
        """
        told = np.unique(told[self._likely[told >> _FIRST]])
        start, stop = (self._codes.searchsorted(told, side) for side in ("left", "right"))
        found: list[int] = self._numbers[spread(start, stop - start)].tolist()
        return found


def _rarest(codes: Codes, n: Codes) -> Codes:
    """Return of each text's codes, `n` of them, the first that the fewest texts have."""
    if not len(n):
        return codes
    _, which, often = np.unique(codes, return_inverse=True, return_counts=True)
    often, starts = often[which], n.cumsum() - n
    first = np.flatnonzero(often == np.repeat(np.minimum.reduceat(often, starts), n))
    return codes[first[first.searchsorted(starts)]]


def _codes(text: str) -> tuple[Codes, Codes]:
    """Return a number for each `NARROW` and each `WIDE` letters in a row, equal for equal ones."""
    signs = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    narrow = _joined(_joined(signs, signs[1:], 1), signs[2:], 1)
    half = _joined(narrow, narrow[NARROW:], NARROW)
    return narrow, _joined(half, half[2 * NARROW :], 2 * NARROW)


def _joined(codes: Codes, behind: Codes, width: int) -> Codes:
    """Return the codes of letters and of so many that stand behind them."""
    return codes[: len(behind)] * _BASE**width + behind
