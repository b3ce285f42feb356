"""Extractive text: the most informative lines of a passage by TF-IDF, near a focus if given."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from math import log as ln
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.policies.history.growing_columns_and_sums import GrowingArray
from ctxkit.policies.texts.message_content_and_truncation import format_one_line
from ctxkit.policies.texts.message_lines_for_extracts import (
    FOCUS_MARK,
    MAX_LINE_CHARS,
    ROLE_TAGS,
    SUMMARY_LINE,
    USER_LINE,
    LineIndex,
    WeightedLines,
    expand_ranges,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


MAX_CANDIDATES = 400
"""Maximum number of lines compared with each other, by weight: the comparison is quadratic."""
FOCUS_BOOST = 4.0
"""Weight bonus of a line with every term of the focus, as a multiple of its weight."""
FOCUS_SHARE = 0.5
"""Share of the budget for lines near a focus."""
WEIGHT_STEP = 2.0**40
"""Weights are multiples of 1 / WEIGHT_STEP, so that sums are exact in any order."""

# Extraction in four steps:
# 1. `weigh_lines`: each line gets the TF-IDF of its words (documents are the lines of the passage),
#    less for long lines, more with a cue, for the first line and for earlier summaries, and by
#    recency.
# 2. With a focus, `FocusMatcher` raises the weight of lines that hold its terms.
# 3. `choose_lines`: maximal marginal relevance. Again and again the line with the largest weight,
#    less 0.8 times its largest overlap with a chosen line, is added, until the budget is full. Half
#    of it is for lines near the focus; the rest for the user, then others, then the user again.
# 4. The chosen lines are written in their order, and with a focus an audit line.
# Deterministic; O(lines) for 1 and 2, O(candidates x chosen) for 3.
_LENGTH_DIVISORS: NDArray[Any] = np.array([(8 + n) ** 0.9 for n in range(MAX_LINE_CHARS + 1)])


class ExtractOptions(NamedTuple):
    """Options of an extract."""

    budget: float
    """Budget in characters."""
    user_share: float
    """Share of the budget for user messages."""
    focus: SummaryFocus | None = None


def write_extract(
    lines: LineIndex, parts: NDArray[Any], options: ExtractOptions, all_parts: NDArray[Any]
) -> str:
    """Return the extract of some parts, cached by passage and options.

    Args:
        lines: the line index of the session.
        parts: the parts of the passage, in order.
        options: budget, share of the user, focus.
        all_parts: the parts of the session so far, for the rarity of the terms of a focus.
    """
    with lines.lock:
        key = (parts.tobytes(), *options, len(all_parts) if options.focus else 0)
        text = lines.extracts.get(key)
        if text is None:
            text = lines.extracts[key] = _compose_extract(lines, parts, options, all_parts)
            lines.hold(len(text) + len(key[0]))
        return text


def _compose_extract(
    lines: LineIndex, parts: NDArray[Any], options: ExtractOptions, all_parts: NDArray[Any]
) -> str:
    weighed, budget, audit = weigh_lines(lines, parts), options.budget, ""
    matcher, near_lines = None, np.zeros(0, np.int64)
    if options.focus is not None:
        matcher = FocusMatcher(lines, options.focus, all_parts)
        nearness = matcher.lines(weighed)
        weighed = weighed._replace(weights=weighed.weights * (1 + FOCUS_BOOST * nearness))
        near_lines = np.flatnonzero(nearness)
        budget -= matcher.longest if 2 * matcher.longest <= budget else 0
    chosen = sorted(_choose_places(lines, weighed, budget, options.user_share, near_lines))
    if not chosen:
        return _first_words(lines, parts, max(int(options.budget), 1))
    if matcher is not None and budget < options.budget:
        audit = "\n" + matcher.audit(weighed, chosen)
    line_numbers = weighed.at[chosen].tolist()
    return "\n".join(f"{lines.tags[k]}: {lines.texts[k]}" for k in line_numbers) + audit


def weigh_lines(lines: LineIndex, parts: NDArray[Any]) -> WeightedLines:
    """Return the lines of some parts with their weights.

    The weight of a line of k words among n lines is sum(ln(1 + n / lines with the word)) /
    (8 + k) ** 0.9, times 1.6 with a cue, times 1.5 for the first line and for earlier summaries,
    times 0.7 to 1.3 by its place.

    Args:
        lines: the line index of the session.
        parts: the parts of the passage, in order.
    """
    firsts, starts = lines.firsts.all, lines.starts.all
    line_numbers = expand_ranges(firsts[parts], firsts[parts + 1] - firsts[parts])
    sizes = starts[line_numbers + 1] - starts[line_numbers]
    ids = lines.ids.all[expand_ranges(starts[line_numbers], sizes)].astype(
        np.intp
    )  # the type of NumPy indices
    count, word_starts = len(line_numbers), sizes.cumsum() - sizes
    if not count:
        return WeightedLines(line_numbers, ids, word_starts, sizes, line_numbers, np.zeros(0))
    weights = np.add.reduceat(_information(ids, count), word_starts) / _LENGTH_DIVISORS[sizes]
    weights *= np.where(lines.cues.all[line_numbers], 1.6, 1.0)
    position_factors = np.where(lines.kinds.all[line_numbers] == SUMMARY_LINE, 1.5, 1.0)
    position_factors[0] = 1.5
    weights *= position_factors
    weights *= 0.7 + 0.6 * np.arange(1, count + 1) / count
    return WeightedLines(
        line_numbers, ids, word_starts, sizes, lines.costs.all[line_numbers], weights
    )


def _information(ids: NDArray[Any], n: int) -> NDArray[Any]:
    lines_with_word = np.bincount(ids)
    document_counts = np.flatnonzero(np.bincount(lines_with_word))
    by_count = np.zeros(document_counts[-1] + 1)
    by_count[document_counts] = [
        round(ln(1 + n / k) * WEIGHT_STEP) / WEIGHT_STEP if k else 0.0
        for k in document_counts.tolist()
    ]
    information: NDArray[Any] = by_count[lines_with_word[ids]]
    return information


def _choose_places(
    lines: LineIndex, weighed: WeightedLines, budget: float, user: float, near_lines: NDArray[Any]
) -> list[int]:
    """Return the places of the chosen lines.

    Half of the budget is for lines near a focus, if there is one. Of the rest, a share is for lines
    of the user, then come lines of others, then the user's again.
    """
    is_user = lines.kinds.all[weighed.at] == USER_LINE
    chosen = choose_lines(weighed, near_lines, budget * FOCUS_SHARE, [])
    remaining = budget - weighed.costs[chosen].sum()
    for for_user, share in ((True, user), (False, 1.0), (True, 1.0)):
        places = is_user == for_user
        places[chosen] = False
        chosen += choose_lines(weighed, np.flatnonzero(places), remaining * share, chosen)
        remaining = budget - weighed.costs[chosen].sum()
    return chosen


def choose_lines(
    weighed: WeightedLines, places: NDArray[Any], budget: float, already_chosen: list[int]
) -> list[int]:
    """Return the places of lines that fit the budget, by maximal marginal relevance.

    The marginal weight of a line is its weight less 0.8 of it times the largest share of words
    that it has in common with a line chosen before; of equal lines the first is chosen. Where all
    lines fit together, none needs to be weighed against another.

    Args:
        weighed: the lines with their words, costs and weights.
        places: indices into `weighed` of the lines to choose from.
        budget: characters that the chosen lines may take, as `weighed.costs` counts them.
        already_chosen: places of lines that are in the extract already.
    """
    weights = weighed.weights
    if len(places) > MAX_CANDIDATES:
        places = np.sort(places[np.argsort(-weights[places], kind="stable")[:MAX_CANDIDATES]])
    candidates = places[weighed.costs[places] <= budget]
    chosen: list[int] = []
    if weighed.costs[candidates].sum() <= budget:
        chosen += candidates.tolist()
        return chosen
    # Lines chosen before count as chosen, so that this round does not repeat them.
    repeats = RedundancyTracker(weighed, candidates)
    repeats.add_all(already_chosen)
    weights, costs = weights[candidates], weighed.costs[candidates]
    marginal_weights, highest_cost = np.empty(len(candidates)), int(costs.max())
    while True:
        np.multiply(repeats.max_overlap, -0.8, out=marginal_weights)
        marginal_weights += 1
        marginal_weights *= weights
        best = int(marginal_weights.argmax())
        if marginal_weights[best] <= 0:
            return chosen
        place = int(candidates[best])
        chosen.append(place)
        budget -= int(costs[best])
        # A chosen line, and lines that no longer fit, are out.
        weights[best] = 0.0
        if budget < highest_cost:
            weights[costs > budget] = 0.0
        repeats.add(place)


class RedundancyTracker:
    """The largest overlap of each candidate with the lines chosen so far.

    The overlap of two lines is their shared words / words of the shorter line.

    Args:
        weighed: the lines of a passage.
        places: the places of the candidates.
    """

    __slots__ = (
        "_found",
        "_ids",
        "_mark",
        "_shorter",
        "_sizes",
        "_starts",
        "_weighed",
        "max_overlap",
    )

    def __init__(self, weighed: WeightedLines, places: NDArray[Any]) -> None:
        self._weighed, self._sizes = weighed, weighed.sizes[places]
        self._ids = weighed.ids[expand_ranges(weighed.starts[places], self._sizes)]
        self._starts = self._sizes.cumsum() - self._sizes
        self._mark = np.zeros(int(weighed.ids.max()) + 1)
        self._found = np.empty(len(self._ids))
        self._shorter: dict[int, NDArray[Any]] = {}
        """For each size of a chosen line the words of the shorter of it and each candidate."""
        self.max_overlap = np.zeros(len(places))

    def add(self, place: int) -> None:
        """Update the overlaps for one more chosen line."""
        words = self._weighed.words(place)
        size = len(words)
        shorter = self._shorter.get(size)
        if shorter is None:
            shorter = self._shorter[size] = np.minimum(self._sizes, size)
        self._mark[words] = 1.0
        self._mark.take(self._ids, out=self._found, mode="clip")  # without a check of each number
        self._mark[words] = 0.0
        shared = np.add.reduceat(self._found, self._starts)
        shared /= shorter
        np.maximum(self.max_overlap, shared, out=self.max_overlap)

    def add_all(self, places: list[int]) -> None:
        """Update the overlaps for several chosen lines, by a sparse product of lines and words.

        Only the words that chosen lines and candidates have in common are multiplied.
        """
        weighed, candidates_n = self._weighed, len(self._sizes)
        sizes = weighed.sizes[places]
        words = weighed.ids[expand_ranges(weighed.starts[places], sizes)]
        self._mark[words] = 1.0
        common = np.flatnonzero(self._mark[self._ids])
        self._mark[words] = 0.0
        if not len(common):
            return
        common = common[np.argsort(self._ids[common], kind="stable")]
        common_ids, candidates = self._ids[common], self._starts.searchsorted(common, "right") - 1
        # each chosen line meets the candidates of each of its words, which are a range here
        first = common_ids.searchsorted(words)
        counts = common_ids.searchsorted(words, "right") - first
        chosen = np.repeat(np.repeat(np.arange(len(places)), sizes), counts)
        pairs = chosen * candidates_n + candidates[expand_ranges(first, counts)]
        shared = np.bincount(pairs, minlength=len(places) * candidates_n)
        overlaps = shared.reshape(len(places), -1) / np.minimum.outer(sizes, self._sizes)
        np.maximum(self.max_overlap, overlaps.max(axis=0), out=self.max_overlap)


def _first_words(lines: LineIndex, parts: NDArray[Any], max_chars: int) -> str:
    """Return the beginning of the passage, where no line fits or all are signs."""
    rows: list[str] = []
    chars = 0
    for part in parts.tolist():
        message = lines.messages[part]
        words = " ".join(message.text.split(None, max_chars)[:max_chars])
        if words:
            rows.append(f"{ROLE_TAGS.get(message.role, 'Result')}: {words}")
            chars += len(rows[-1]) + 1
            if chars > max_chars:
                break
    return "\n".join(rows)[:max_chars]


MAX_TERMS = 32
"""Maximum number of terms of a focus."""
_MAX_FOCUS_CHARS = 60
"""Characters of the focus in the audit line."""
_SENTENCE_END = re.compile(r"[.!?]+(?=\s)")
"""Ends of sentences, removed from the focus in the audit line."""
_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_WORD_ENDING = re.compile(r"(?<=\w\w)(?:s|(?<=\w)(?:ing|ed))$")
_REQUEST_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about all also an and any anything are as at be do don each especially every everything "
        "exactly focus for from i in include is it its just keep make me mention my not of on only "
        "or our please preserve remember retain say summarise summarize summary sure t that the "
        "their them these they this those to us was we were what where which who with you your",
    )
)
"""Words of a request that name no topic."""
_ID = r"(?=.*\d)(?:[0-9a-f-]{7,}|[a-z]+\d{3,}|[a-z]+[_-][\w-]*\d[\w-]*|\d{4,})"
_FILE = r".*/.*|[\w-]+\.[a-z]\w{0,4}"
_KIND_PATTERNS = {
    **dict.fromkeys(("id", "identifier", "uuid", "hash", "hashe", "commit"), _ID),
    **dict.fromkeys(("path", "file", "folder"), _FILE),
    **dict.fromkeys(("url", "link"), r"https?|//.+"),
    **dict.fromkeys(("number", "figure", "amount"), r"\d[\d.]*"),
    **dict.fromkeys(("error", "failure"), r".*(?:error|exception)|fail(?:ed|s|ure)?|traceback"),
}
"""Terms that name a kind of word (such as ids), with the pattern of that kind."""


class SummaryFocus(NamedTuple):
    """A topic of a summary as terms: stems of words, and pairs of CJK signs."""

    text: str
    terms: tuple[str, ...]


@lru_cache(maxsize=64)
def parse_focus(text: str) -> SummaryFocus | None:
    """Parse the focus of a text; None where it has no terms."""
    text = format_one_line(text, 2000)
    words = _WORD.findall(text.lower())[: 4 * MAX_TERMS]
    topic_words = [w for w in words if w not in _REQUEST_WORDS] or words
    terms = dict.fromkeys(t for w in topic_words for t in _terms(w))
    return SummaryFocus(text, tuple(terms)[:MAX_TERMS]) if terms else None


def _terms(word: str) -> list[str]:
    signs = _CJK.findall(word)
    if signs:
        return [s[k : k + 2] for s in signs for k in range(max(len(s) - 1, 1))]
    return [_stem(word)]


def _stem(word: str) -> str:
    return _WORD_ENDING.sub("", word)


def matches_focus_term(word: str, term: str) -> bool:
    """Return True where a part of a word equals a term, or the word is of the kind it names.

    Args:
        word: a word of a text.
        term: a term of the focus, such as "error" or "path".
    """
    if _CJK.match(term):
        return term in word
    kind = _KIND_PATTERNS.get(term)
    return (kind is not None and re.fullmatch(kind, word) is not None) or any(
        _stem(part) == term for part in _WORD.findall(word)
    )


class FocusMatcher:
    """The words of a session that are near a focus, and the weights of its terms.

    The weight of a term is ln(1 + messages / messages with a word near it) over the session so far
    (IDF), and 0 where no message has one.

    Args:
        lines: the line index of the session.
        focus: the focus.
        all_parts: the parts of the session so far.
    """

    def __init__(self, lines: LineIndex, focus: SummaryFocus, all_parts: NDArray[Any]) -> None:
        self._focus = focus
        all_parts = np.unique(all_parts)
        firsts, starts, ids = lines.firsts.all, lines.starts.all, lines.ids.all
        begins, ends = starts[firsts[all_parts]], starts[firsts[all_parts + 1]]
        self._words = {t: _near_words(lines, t) for t in focus.terms}
        self._idf = {}
        for term, near in self._words.items():
            sums = np.concatenate(([0], np.cumsum(near[ids])))
            parts_with_term = int((sums[ends] > sums[begins]).sum())
            self._idf[term] = ln(1 + len(all_parts) / parts_with_term) if parts_with_term else 0.0

    def lines(self, weighed: WeightedLines) -> NDArray[Any]:
        """Return for each line the share of the focus that it holds, by IDF, 0 to 1."""
        total_idf, near = sum(self._idf.values()), np.zeros(len(weighed.at))
        if not total_idf or not len(near):
            return near
        for term, words in self._words.items():
            has_term = np.add.reduceat(words[weighed.ids], weighed.starts) > 0
            near += has_term * (self._idf[term] / total_idf)
        return near

    @property
    def longest(self) -> int:
        """Maximum characters of the audit line, with its line end."""
        return len(self._format_audit(9_999_999, 9_999_999, 1.0)) + 1

    def audit(self, weighed: WeightedLines, chosen: list[int]) -> str:
        """Return a line on how many of the words near the focus are in the chosen lines.

        The share weights each word by the rarity of its terms.

        Args:
            weighed: the lines of the passage, with their words.
            chosen: numbers of the lines in the extract.
        """
        chosen_words = np.unique(np.concatenate([weighed.words(k) for k in chosen]))
        passage_words = np.unique(weighed.ids)
        weights = sum((self._idf[t] * words for t, words in self._words.items()), np.zeros(1))
        near = passage_words[weights[passage_words] > 0]
        matched = chosen_words[weights[chosen_words] > 0]
        share = float(weights[matched].sum() / weights[near].sum()) if len(near) else 0.0
        return self._format_audit(len(matched), len(near), share)

    def _format_audit(self, matched: int, near: int, share: float) -> str:
        line = format_one_line(_SENTENCE_END.sub("", self._focus.text), _MAX_FOCUS_CHARS).replace(
            "]", ")"
        )
        if not near:
            return f'{FOCUS_MARK}"{line}": nothing here is near it]'
        return (
            f'{FOCUS_MARK}"{line}": {matched:,} of {near:,} words near it are kept, {share:.0%} '
            "by rarity]"
        )


def _near_words(lines: LineIndex, term: str) -> NDArray[Any]:
    """Return for each word of the index 1 where it is near a term, else 0; cached there."""
    words = lines.near.setdefault(term, GrowingArray(np.int8))
    new = [matches_focus_term(w, term) for w in islice(lines.words, len(words.all), None)]
    words.extend(new)
    lines.hold(len(new))
    return words.all
