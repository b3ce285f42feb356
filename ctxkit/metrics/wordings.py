"""Whether a text still gives a rule of the user's, in whatever words.

A sentence gives a rule where most of the words of the shorter one of both are common to them
(compared by their first five letters, at least three of them, or all the rule has), both forbid or
neither does, and the text holds every path, id, name and number of the rule. So a shorter wording
counts, another value does not. It is a bound, not a measurement: a contradiction in other words is
not seen.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.metrics.items import sentences
from ctxkit.metrics.meaning import missing, values
from ctxkit.metrics.standing_texts import Places

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.metrics.items import FoundItem

COMMON = 0.6
"""Share of the words of the shorter sentence that both must have."""
LEAST = 3
"""Words that both must have, where the rule has so many."""
_KEPT = 1 << 13
"""Sentences of which it is remembered what they give: summaries say them again and again."""
_FORBIDS = re.compile(
    r"(?<!\w)(?:not|never|no|none|without|avoid|forbidden|prohibited|\w{2,8}n['’]t|dont|cannot)(?!\w)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_EMPTY = frozenset(
    _WORD.findall(
        "the and for are was were been its this that with from you your she they them then than "
        "but all any can will would has have had not never none without must should always only "
        "make sure keep ensure please need does doesn don dont isn avoid user said asked also when"
    )
)
"""Words that say nothing of what a rule is about; those that forbid are looked at apart."""


class WordedRule(NamedTuple):
    """What a sentence is about."""

    stems: frozenset[str]
    exact: tuple[str, ...]
    """Its numbers, dates, paths and identifiers."""
    forbids: bool


def rule(sentence: str) -> WordedRule:
    """Return what a sentence is about: words by their beginnings, values, and whether it
    forbids.
    """
    words = _WORD.findall(sentence.casefold())
    return WordedRule(
        frozenset(w[:5] for w in words if w not in _EMPTY),
        values(sentence),
        _FORBIDS.search(sentence) is not None,
    )


class Wordings:
    """Some rules, to be found again in texts.

    Args:
        given: items that are rules, each with a number.
    """

    def __init__(self, given: Iterable[tuple[int, FoundItem]]) -> None:
        self._rules = {number: rule(found.text) for number, found in given}
        self._least = min((min(LEAST, len(told.stems)) for told in self._rules.values()), default=0)
        self._by_stem: dict[str, list[int]] = {}
        for number, told in self._rules.items():
            for stem in told.stems:
                self._by_stem.setdefault(stem, []).append(number)
        self._places = Places(self._by_stem)
        self._near = lru_cache(_KEPT)(self._look)

    def in_text(self, text: str) -> set[int]:
        """Return the numbers of the rules that a text gives; no sentence goes over a line's end."""
        lines = [line for line, of in self._places.lines(text) if len(of) >= self._least]
        told = {sentence for line in lines for sentence in sentences(line)}
        near = {number for sentence in told for number in self._near(sentence)}
        plain = text.casefold() if near else ""
        return {n for n in near if not missing(self._rules[n].exact, plain)}

    def _look(self, sentence: str) -> list[int]:
        stems = {w[:5] for w in _WORD.findall(sentence.casefold()) if w not in _EMPTY}
        several = stems & self._by_stem.keys()
        if not several or len(several) < self._least:
            return []
        common = Counter(n for stem in several for n in self._by_stem[stem])
        near = [n for n, k in common.items() if self._alike(n, k, len(stems))]
        forbids = bool(near) and _FORBIDS.search(sentence) is not None
        return [n for n in near if self._rules[n].forbids == forbids]

    def _alike(self, number: int, common: int, words: int) -> bool:
        own = len(self._rules[number].stems)
        return common >= min(LEAST, own) and common >= COMMON * min(own, words)
