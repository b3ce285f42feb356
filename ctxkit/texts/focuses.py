"""A focus without a model: the words near it, how near a line is, how much of it was kept."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from math import log as ln
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.texts.contents import one_line
from ctxkit.texts.message_lines import Numbers
from ctxkit.texts.sentences import MARK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.texts.message_lines import Lines, Weighed

TERMS = 32
"""Words of a focus that are looked at."""
_LINE = 60
"""Characters of the focus that are said again in the audit."""
_END = re.compile(r"[.!?]+(?=\s)")
"""What would end a sentence within the audit, which is one."""
_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_ENDING = re.compile(r"(?<=\w\w)(?:s|(?<=\w)(?:ing|ed))$")
_ASKING = frozenset(
    re.findall(
        r"\w+",
        "a about all also an and any anything are as at be do don each especially every everything "
        "exactly focus for from i in include is it its just keep make me mention my not of on only "
        "or our please preserve remember retain say summarise summarize summary sure t that the "
        "their them these they this those to us was we were what where which who with you your",
    )
)
"""Words that ask, and name nothing."""
_ID = r"(?=.*\d)(?:[0-9a-f-]{7,}|[a-z]+\d{3,}|[a-z]+[_-][\w-]*\d[\w-]*|\d{4,})"
_FILE = r".*/.*|[\w-]+\.[a-z]\w{0,4}"
_KINDS = {
    **dict.fromkeys(("id", "identifier", "uuid", "hash", "hashe", "commit"), _ID),
    **dict.fromkeys(("path", "file", "folder"), _FILE),
    **dict.fromkeys(("url", "link"), r"https?|//.+"),
    **dict.fromkeys(("number", "figure", "amount"), r"\d[\d.]*"),
    **dict.fromkeys(("error", "failure"), r".*(?:error|exception)|fail(?:ed|s|ure)?|traceback"),
}
"""What a focus names by its kind, and how a word of that kind looks."""


class Focus(NamedTuple):
    """What a summary shall look at, as terms: stems of words, pairs of CJK signs."""

    text: str
    terms: tuple[str, ...]


@lru_cache(maxsize=64)
def focus(text: str) -> Focus | None:
    """Return the focus that a text asks for; None where it names nothing."""
    text = one_line(text, 2000)
    found = _WORD.findall(text.lower())[: 4 * TERMS]
    named = [w for w in found if w not in _ASKING] or found
    terms = dict.fromkeys(t for w in named for t in _terms(w))
    return Focus(text, tuple(terms)[:TERMS]) if terms else None


def _terms(word: str) -> list[str]:
    signs = _CJK.findall(word)
    if signs:
        return [s[k : k + 2] for s in signs for k in range(max(len(s) - 1, 1))]
    return [_stem(word)]


def _stem(word: str) -> str:
    return _ENDING.sub("", word)


def is_near(word: str, term: str) -> bool:
    """Say whether a word is near a term: a part of it is, or it is of the kind that it names."""
    if _CJK.match(term):
        return term in word
    kind = _KINDS.get(term)
    return (kind is not None and re.fullmatch(kind, word) is not None) or any(
        _stem(part) == term for part in _WORD.findall(word)
    )


class Near:
    """The words of a session that are near a focus.

    A term weighs its rarity, ln(1 + messages / messages with a word near it) over the session so
    far; one that the session does not know weighs nothing.

    Args:
        lines: of the session.
        focus: what is asked for.
        among: the parts of the session so far.
    """

    def __init__(self, lines: Lines, focus: Focus, among: NDArray[Any]) -> None:
        self._focus = focus
        among = np.unique(among)
        firsts, starts, ids = lines.firsts.all, lines.starts.all, lines.ids.all
        begins, ends = starts[firsts[among]], starts[firsts[among + 1]]
        self._words = {t: _near_words(lines, t) for t in focus.terms}
        self._idf = {}
        for term, near in self._words.items():
            sums = np.concatenate(([0], np.cumsum(near[ids])))
            holding = int((sums[ends] > sums[begins]).sum())
            self._idf[term] = ln(1 + len(among) / holding) if holding else 0.0

    def lines(self, weighed: Weighed) -> NDArray[Any]:
        """Return how near each line is: the share of the focus that it holds, by rarity, 0 to 1."""
        whole, near = sum(self._idf.values()), np.zeros(len(weighed.at))
        if not whole or not len(near):
            return near
        for term, words in self._words.items():
            hit = np.add.reduceat(words[weighed.ids], weighed.starts) > 0
            near += hit * (self._idf[term] / whole)
        return near

    @property
    def longest(self) -> int:
        """Characters that the audit may have, its end of line included."""
        return len(self._line(9_999_999, 9_999_999, 1.0)) + 1

    def audit(self, weighed: Weighed, chosen: list[int]) -> str:
        """Return a line that says how much of the focus stands in the lines chosen.

        It counts words near the focus, and weighs them by their rarity.
        """
        kept = np.unique(np.concatenate([weighed.words(k) for k in chosen]))
        there = np.unique(weighed.ids)
        worth = sum((self._idf[t] * words for t, words in self._words.items()), np.zeros(1))
        near = there[worth[there] > 0]
        held = kept[worth[kept] > 0]
        share = float(worth[held].sum() / worth[near].sum()) if len(near) else 0.0
        return self._line(len(held), len(near), share)

    def _line(self, kept: int, near: int, share: float) -> str:
        told = one_line(_END.sub("", self._focus.text), _LINE).replace("]", ")")
        if not near:
            return f'{MARK}"{told}": nothing here is near it]'
        return (
            f'{MARK}"{told}": {kept:,} of {near:,} words near it are kept, {share:.0%} by rarity]'
        )


def _near_words(lines: Lines, term: str) -> NDArray[Any]:
    """Return for each word of the lines 1 where it is near a term, else 0; kept with the lines."""
    known = lines.near.setdefault(term, Numbers(np.int8))
    new = [is_near(w, term) for w in islice(lines.words, len(known.all), None)]
    known.extend(new)
    lines.hold(len(new))
    return known.all
