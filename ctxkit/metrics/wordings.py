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
from ctxkit.metrics.meaning import is_whole, values
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
        self._exact: dict[int, tuple[str, ...]] = {}
        self._topic_of: dict[int, int] = {}
        topics: dict[tuple[frozenset[str], bool], int] = {}
        for number, found in given:
            told = rule(found.text)
            self._exact[number] = tuple(v.casefold() for v in told.exact)
            about = told.stems, told.forbids
            self._topic_of[number] = topics.setdefault(about, len(topics))
        self._topics = list(topics)
        """What rules are about: many may be about the same and differ by their values alone."""
        self._least = min((min(LEAST, len(stems)) for stems, _ in topics), default=0)
        self._by_stem: dict[str, list[int]] = {}
        for topic, (stems, _) in enumerate(topics):
            for stem in stems:
                self._by_stem.setdefault(stem, []).append(topic)
        self._stems = Places(self._by_stem)
        self._without_values: dict[int, list[int]] = {}
        self._by_value: dict[str, list[int]] = {}
        """Rules by the value of theirs that the fewest rules have."""
        often = Counter(v for exact in self._exact.values() for v in exact)
        for number, exact in self._exact.items():
            if exact:
                self._by_value.setdefault(min(exact, key=often.__getitem__), []).append(number)
            else:
                self._without_values.setdefault(self._topic_of[number], []).append(number)
        self._values = list(often)
        self._value_places = Places(self._values)
        self._near = lru_cache(_KEPT)(self._look)

    def in_text(self, text: str) -> set[int]:
        """Return the numbers of the rules that a text gives; no sentence goes over a line's end."""
        lines = [line for line, of in self._stems.lines(text) if len(of) >= self._least]
        told = {sentence for line in lines for sentence in sentences(line)}
        near = {topic for sentence in told for topic in self._near(sentence)}
        if not near:
            return set()
        given = {n for topic in near for n in self._without_values.get(topic, ())}
        standing = self._standing(text.casefold())
        for number in (n for value in standing for n in self._by_value.get(value, ())):
            if self._topic_of[number] in near and standing.issuperset(self._exact[number]):
                given.add(number)
        return given

    def _standing(self, plain: str) -> set[str]:
        """Return the values of rules that stand in a text, which is given in lower case."""
        hits = self._value_places.of(plain)
        return {self._values[which] for which, start, end in hits if is_whole(plain, start, end)}

    def _look(self, sentence: str) -> list[int]:
        """Return the topics that a sentence is about."""
        stems = {w[:5] for w in _WORD.findall(sentence.casefold()) if w not in _EMPTY}
        several = stems & self._by_stem.keys()
        if not several or len(several) < self._least:
            return []
        common = Counter(topic for stem in several for topic in self._by_stem[stem])
        near = [topic for topic, k in common.items() if self._is_alike(topic, k, len(stems))]
        forbids = bool(near) and _FORBIDS.search(sentence) is not None
        return [topic for topic in near if self._topics[topic][1] == forbids]

    def _is_alike(self, topic: int, common: int, words: int) -> bool:
        own = len(self._topics[topic][0])
        return common >= min(LEAST, own) and common >= COMMON * min(own, words)
