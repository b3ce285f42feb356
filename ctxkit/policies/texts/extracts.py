"""Extracts: the most telling lines of a passage by TF-IDF and marginal relevance, near a focus
where one is given.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from math import log as ln
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.policies.texts.content import one_line
from ctxkit.policies.texts.line_index import (
    FOCUS_MARK,
    MAX_LINE_CHARS,
    ROLE_TAGS,
    SUMMARY_LINE,
    USER_LINE,
    GrowingArray,
    LineIndex,
    WeighedLines,
    expand_ranges,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


MAX_CANDIDATES = 400
"""Lines looked at closely, the weightiest: comparing all with all grows with the square."""
FOCUS_BOOST = 4.0
"""A line that holds every word of a focus weighs this many times its weight more."""
FOCUS_SHARE = 0.5
"""Share of the room for lines near a focus."""
WEIGHT_STEP = 2.0**40
"""Information is told in steps of 1 / GRAIN: sums are then exact, in whatever order."""
_LONG: NDArray[Any] = np.array([(8 + n) ** 0.9 for n in range(MAX_LINE_CHARS + 1)])


class ExtractOptions(NamedTuple):
    """What an extract shall be like."""

    room: float
    """Characters."""
    user: float
    """Share of the room for what the user said."""
    focus: Focus | None = None


def write_extract(
    lines: LineIndex, parts: NDArray[Any], wish: ExtractOptions, among: NDArray[Any]
) -> str:
    """Return the extract of some parts; the same passage under the same wish is written once.

    Args:
        lines: of the session.
        parts: what is summarised, in order.
        wish: room, share of the user, focus.
        among: the parts of the session so far: how rare the words of a focus are is judged by them.
    """
    with lines.lock:
        key = (parts.tobytes(), *wish, len(among) if wish.focus else 0)
        text = lines.written.get(key)
        if text is None:
            text = lines.written[key] = _compose_extract(lines, parts, wish, among)
            lines.hold(len(text) + len(key[0]))
        return text


def _compose_extract(
    lines: LineIndex, parts: NDArray[Any], wish: ExtractOptions, among: NDArray[Any]
) -> str:
    weighed, room, audit = weigh_lines(lines, parts), wish.room, ""
    near, first = None, np.zeros(0, np.int64)
    if wish.focus is not None:
        near = FocusMatcher(lines, wish.focus, among)
        nearness = near.lines(weighed)
        weighed = weighed._replace(weights=weighed.weights * (1 + FOCUS_BOOST * nearness))
        first = np.flatnonzero(nearness)
        room -= near.longest if 2 * near.longest <= room else 0
    chosen = sorted(_choose_places(lines, weighed, room, wish.user, first))
    if not chosen:
        return _first_words(lines, parts, max(int(wish.room), 1))
    if near is not None and room < wish.room:
        audit = "\n" + near.audit(weighed, chosen)
    at = weighed.at[chosen].tolist()
    return "\n".join(f"{lines.tags[k]}: {lines.texts[k]}" for k in at) + audit


def weigh_lines(lines: LineIndex, parts: NDArray[Any]) -> WeighedLines:
    """Return the lines of some parts with their weights.

    A line of k words among n lines weighs sum(ln(1 + n / lines with the word)) / (8 + k) ** 0.9
    (TF-IDF, long lines less), times 1.6 with a cue, times 1.5 where it is the first or of an
    earlier summary, times 0.7 to 1.3 by its place.
    """
    firsts, starts = lines.firsts.all, lines.starts.all
    at = expand_ranges(firsts[parts], firsts[parts + 1] - firsts[parts])
    sizes = starts[at + 1] - starts[at]
    ids = lines.ids.all[expand_ranges(starts[at], sizes)].astype(np.intp)  # what NumPy indexes by
    n, first_words = len(at), sizes.cumsum() - sizes
    if not n:
        return WeighedLines(at, ids, first_words, sizes, at, np.zeros(0))
    weights = np.add.reduceat(_information(ids, n), first_words) / _LONG[sizes]
    weights *= np.where(lines.cues.all[at], 1.6, 1.0)
    first = np.where(lines.kinds.all[at] == SUMMARY_LINE, 1.5, 1.0)
    first[0] = 1.5
    weights *= first
    weights *= 0.7 + 0.6 * np.arange(1, n + 1) / n
    return WeighedLines(at, ids, first_words, sizes, lines.costs.all[at], weights)


def _information(ids: NDArray[Any], n: int) -> NDArray[Any]:
    seen = np.bincount(ids)
    often = np.flatnonzero(np.bincount(seen))
    of = np.zeros(often[-1] + 1)
    of[often] = [
        round(ln(1 + n / k) * WEIGHT_STEP) / WEIGHT_STEP if k else 0.0 for k in often.tolist()
    ]
    information: NDArray[Any] = of[seen[ids]]
    return information


def _choose_places(
    lines: LineIndex, weighed: WeighedLines, room: float, user: float, first: NDArray[Any]
) -> list[int]:
    """Return the places of the lines chosen.

    Half of the room is for lines near a focus, where there is one; of the rest a share is for what
    the user said, then comes what others said, then the user again.
    """
    is_user = lines.kinds.all[weighed.at] == USER_LINE
    chosen = choose_lines(weighed, first, room * FOCUS_SHARE, [])
    left = room - weighed.costs[chosen].sum()
    for mine, share in ((True, user), (False, 1.0), (True, 1.0)):
        places = is_user == mine
        places[chosen] = False
        chosen += choose_lines(weighed, np.flatnonzero(places), left * share, chosen)
        left = room - weighed.costs[chosen].sum()
    return chosen


def choose_lines(
    weighed: WeighedLines, places: NDArray[Any], room: float, already_chosen: list[int]
) -> list[int]:
    """Return places that fit the room, one by one the weightiest that repeats the least.

    A line is worth its weight less 0.8 of it times the largest share of words that it has in common
    with one that was chosen or is known (maximal marginal relevance); of two of one worth the first
    is taken.
    """
    weights = weighed.weights
    places = np.sort(places[np.argsort(-weights[places], kind="stable")[:MAX_CANDIDATES]])
    open_ = places[weighed.costs[places] <= room]
    chosen: list[int] = []
    if not len(open_):
        return chosen
    repeats = RedundancyTracker(weighed, open_)
    for place in already_chosen:
        repeats.add(weighed.words(place))
    weights, costs = weights[open_], weighed.costs[open_]
    while True:
        worth = weights * (1 - 0.8 * repeats.alike)
        best = int(worth.argmax())
        if worth[best] <= 0:
            return chosen
        place = int(open_[best])
        chosen.append(place)
        room -= int(costs[best])
        weights[best] = 0.0
        weights[costs > room] = 0.0
        repeats.add(weighed.words(place))


class RedundancyTracker:
    """How much each of some lines repeats of what was chosen."""

    __slots__ = ("_ids", "_mark", "_sizes", "_starts", "alike")

    def __init__(self, weighed: WeighedLines, places: NDArray[Any]) -> None:
        self._sizes = weighed.sizes[places]
        self._ids = weighed.ids[expand_ranges(weighed.starts[places], self._sizes)]
        self._starts = self._sizes.cumsum() - self._sizes
        self._mark = np.zeros(int(weighed.ids.max()) + 1)
        self.alike = np.zeros(len(places))
        """For each line the most that one chosen shares with it: words / words of the shorter."""

    def add(self, words: NDArray[Any]) -> None:
        """Take up one more chosen line."""
        self._mark[words] = 1.0
        shared = np.add.reduceat(self._mark[self._ids], self._starts)
        self._mark[words] = 0.0
        shared /= np.minimum(self._sizes, len(words))
        np.maximum(self.alike, shared, out=self.alike)


def _first_words(lines: LineIndex, parts: NDArray[Any], most: int) -> str:
    """Return the beginning of what was said: of nothing but signs, or where no line fits."""
    rows: list[str] = []
    lines_left = 0
    for part in parts.tolist():
        message = lines.messages[part]
        words = " ".join(message.text.split(None, most)[:most])
        if words:
            rows.append(f"{ROLE_TAGS.get(message.role, 'Result')}: {words}")
            lines_left += len(rows[-1]) + 1
            if lines_left > most:
                break
    return "\n".join(rows)[:most]


MAX_TERMS = 32
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
_KIND_PATTERNS = {
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
def parse_focus(text: str) -> Focus | None:
    """Return the focus that a text asks for; None where it names nothing."""
    text = one_line(text, 2000)
    match = _WORD.findall(text.lower())[: 4 * MAX_TERMS]
    named = [w for w in match if w not in _ASKING] or match
    terms = dict.fromkeys(t for w in named for t in _terms(w))
    return Focus(text, tuple(terms)[:MAX_TERMS]) if terms else None


def _terms(word: str) -> list[str]:
    signs = _CJK.findall(word)
    if signs:
        return [s[k : k + 2] for s in signs for k in range(max(len(s) - 1, 1))]
    return [_stem(word)]


def _stem(word: str) -> str:
    return _ENDING.sub("", word)


def is_near_term(word: str, term: str) -> bool:
    """Say whether a word is near a term: a part of it is, or it is of the kind that it names."""
    if _CJK.match(term):
        return term in word
    kind = _KIND_PATTERNS.get(term)
    return (kind is not None and re.fullmatch(kind, word) is not None) or any(
        _stem(part) == term for part in _WORD.findall(word)
    )


class FocusMatcher:
    """The words of a session that are near a focus.

    A term weighs its rarity, ln(1 + messages / messages with a word near it) over the session so
    far; one that the session does not know weighs nothing.

    Args:
        lines: of the session.
        focus: what is asked for.
        among: the parts of the session so far.
    """

    def __init__(self, lines: LineIndex, focus: Focus, among: NDArray[Any]) -> None:
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

    def lines(self, weighed: WeighedLines) -> NDArray[Any]:
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

    def audit(self, weighed: WeighedLines, chosen: list[int]) -> str:
        """Return a line that says how much of the focus stands in the lines chosen.

        It counts words near the focus, and weighs them by their rarity.
        """
        counts = np.unique(np.concatenate([weighed.words(k) for k in chosen]))
        there = np.unique(weighed.ids)
        worth = sum((self._idf[t] * words for t, words in self._words.items()), np.zeros(1))
        near = there[worth[there] > 0]
        matched = counts[worth[counts] > 0]
        share = float(worth[matched].sum() / worth[near].sum()) if len(near) else 0.0
        return self._line(len(matched), len(near), share)

    def _line(self, counts: int, near: int, share: float) -> str:
        line = one_line(_END.sub("", self._focus.text), _LINE).replace("]", ")")
        if not near:
            return f'{FOCUS_MARK}"{line}": nothing here is near it]'
        return (
            f'{FOCUS_MARK}"{line}": {counts:,} of {near:,} words near it are kept, {share:.0%} '
            "by rarity]"
        )


def _near_words(lines: LineIndex, term: str) -> NDArray[Any]:
    """Return for each word of the lines 1 where it is near a term, else 0; kept with the lines."""
    words = lines.near.setdefault(term, GrowingArray(np.int8))
    new = [is_near_term(w, term) for w in islice(lines.words, len(words.all), None)]
    words.extend(new)
    lines.hold(len(new))
    return words.all
