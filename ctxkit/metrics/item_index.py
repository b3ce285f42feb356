"""The items of a session as arrays, and matchers that find them in other texts and wordings.

A sentence gives a rule where most of the words of the shorter one of both are common to them
(compared by their first five letters, at least three of them, or all the rule has), both forbid or
neither does, and the text holds every path, id, name and number of the rule. So a shorter wording
counts, another value does not. It is a bound, not a measurement: a contradiction in other words is
not seen.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from ahocorasick_rs import AhoCorasick

from ctxkit.metrics.items import (
    ERROR_LINE_CHARS,
    ITEM_FAMILIES,
    MAX_SEARCHED_CHARS,
    SPEAKERS,
    Item,
    iter_texts,
    split_sentences,
)
from ctxkit.metrics.semantic import extract_exact_values, is_whole
from ctxkit.policies.history.head import content_hash
from ctxkit.session.messages import Text, ToolCall
from ctxkit.session.tool_calls import get_call_path, is_read_tool, is_write_tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from ctxkit.metrics.items import MessageItemCache
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session

    Ints = NDArray[np.int64]


USER_WEIGHT = 4.0
"""What an item weighs that the user said, where one of a reply or a tool's result weighs 1: chosen,
not measured.
"""


class MessageRows:
    """When each message came that can be shown: a *row*, counted in the order of the log."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.messages = [m for m in session.messages if m.visible]
        upto, n = [], 0
        for message in session.messages:
            if message.role == "assistant":
                upto.append(n)
            n += message.visible
        self.upto = np.array(upto, np.int64)
        """For each call how many rows came before it."""
        self.calls = len(upto)
        self.arrival = np.searchsorted(self.upto, np.arange(n), "right")
        """For each row the first call at which it is there."""

    def tokens(self, _message: Message) -> int:
        """Return the tokens of a text that is no row; here they do not matter."""
        return 0

    def stands_in(self, _message: Message) -> Ints:
        """Return the items that a text holds; here none is known."""
        return np.zeros(0, np.int64)


class ItemIndex(MessageRows):
    """The items of a session's rows and calls, numbered.

    A *text* is a message that is no row: a compaction or a pruning put it in, of any replay of the
    session.
    """

    def __init__(self, session: Session, index: MessageItemCache) -> None:
        super().__init__(session)
        self.index, messages = index, self.messages
        self.numbers: dict[Item, int] = {}
        named = [self._numbered(index.names(m)) for m in messages]
        self.wordings = RuleMatcher(
            (n, found) for found, n in self.numbers.items() if found.family == "constraint"
        )
        """The user's rules, to be found again in whatever words."""
        self._rules: dict[tuple[str, int], set[int]] = {}
        given = map(self._rules_of, messages)
        self.named = RaggedArray(map(_merge_sorted, named, given))
        """The items that each row names: its own, the endings of its paths, and rules in other
        words.
        """
        self.held = RaggedArray(self._numbered(index.items(m)) for m in messages)
        """The items that each row holds."""
        self.used = RaggedArray(
            _merge_sorted(self._numbered(index.used(c.message)), self._rules_of(c.message))
            for c in session.calls
        )
        """The items that the reply of each call uses."""
        files = _files_by_message(session)
        pairs = [self._files_of(m, files.get(id(m))) for m in messages]
        self.filed = RaggedArray([f for f, _ in pair] for pair in pairs)
        """The items of each row that is a file's content, and for each (`paths`) the number of the
        file's path.
        """
        self.paths = np.array([path for pair in pairs for _, path in pair], np.int64)
        self.size = np.array([index.size(m) for m in messages], np.int64)
        self.n = len(self.numbers)
        self.family = np.array([ITEM_FAMILIES.index(f.family) for f in self.numbers], np.int64)
        self._sorted()
        self.again = self._again()
        """The items that a reply names after an earlier message held them: the same under any
        rules.
        """
        self.weight = np.ones(self.n)
        """What each item weighs: `USER_WEIGHT` where the user said it."""
        mine = np.array([m.role == "user" for m in messages], bool)
        self.weight[self.held.values[mine[self.held.owner]]] = USER_WEIGHT

    def _sorted(self) -> None:
        width = self.calls + 1
        order = np.lexsort((self.used.owner, self.used.values))
        self._uses = np.append(self.used.values[order] * width + self.used.owner[order], -1)
        self.last_use = np.full(self.n, -1)
        np.maximum.at(self.last_use, self.used.values, self.used.owner)
        order = np.argsort(self.named.values, kind="stable")
        self.names_item, self.names_row = self.named.values[order], self.named.owner[order]
        """Every pair of an item and a row that names it, by item and then by row."""

    def _again(self) -> Ints:
        first = np.full(self.n, len(self.messages))
        np.minimum.at(first, self.held.values, self.held.owner)
        seen = np.array([c.message.visible for c in self.session.calls], bool)
        last = np.full(self.n, -1)
        mine = seen[self.used.owner]
        np.maximum.at(last, self.used.values[mine], self.used.owner[mine])
        return np.flatnonzero((last >= 0) & (np.append(self.upto, 0)[last] > first))

    def _rules_of(self, message: Message) -> set[int]:
        """Return the rules that a message of the user or the agent gives, in whatever words."""
        if message.role not in SPEAKERS:
            return set()
        key = message.role, id(message.parts)
        if key not in self._rules:
            spoken = "\n".join(
                p.text[:MAX_SEARCHED_CHARS] for p in message.parts if isinstance(p, Text)
            )
            self._rules[key] = self.wordings.in_text(spoken)
        return self._rules[key]

    def first_uses(self, found: Ints, calls: Ints) -> Ints:
        """Return the first call from a given one on that uses each item; a large number: none."""
        width = self.calls + 1
        use = self._uses[
            np.searchsorted(self._uses[:-1], found * width + np.minimum(calls, self.calls))
        ]
        return np.where(use // width == found, use % width, 1 << 62)

    # -- texts that are no rows --------------------------------------------------------------------

    def tokens(self, message: Message) -> int:
        """Return the tokens of a text."""
        return self.index.size(message)

    def stands_in(self, message: Message) -> Ints:
        """Return the items that a text holds: it names them, or they stand in it as they are."""
        return self._put_in.of(message)

    @cached_property
    def _put_in(self) -> TextItemMatcher:
        return TextItemMatcher(self.numbers, self.wordings)

    # -- numbers -----------------------------------------------------------------------------------

    def _numbered(self, found: Iterable[Item]) -> list[int]:
        numbers = self.numbers
        return [numbers.setdefault(f, len(numbers)) for f in found]

    def _files_of(self, message: Message, path: str | None) -> list[tuple[int, int]]:
        if not path:
            return []
        (at,) = self._numbered([Item("path", path)])
        return [(self._numbered([f])[0], at) for f in self.index.items(message) if f.text != path]


def _merge_sorted(numbers: list[int], more: set[int]) -> list[int]:
    return [*numbers, *sorted(more.difference(numbers))] if more else numbers


class RaggedArray:
    """Lists of numbers end to end."""

    def __init__(self, lists: Iterable[list[int]]) -> None:
        given = list(lists)
        lengths = [len(one) for one in given]
        self.values = np.array([n for one in given for n in one], np.int64)
        self.owner = np.repeat(np.arange(len(given)), lengths)
        """Which list each number stands in."""
        self.starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)

    def of(self, which: int) -> Ints:
        """Return the numbers of one list."""
        return self.values[self.starts[which] : self.starts[which + 1]]


def _files_by_message(session: Session) -> dict[int, str]:
    """Return the file on disk whose content a result or a call carries, by its identity."""
    asked: dict[str, str] = {}
    out: dict[int, str] = {}
    for message in session.messages:
        for part in message.parts:
            if isinstance(part, ToolCall) and (is_read_tool(part.name) or is_write_tool(part.name)):
                path = get_call_path(part)
                if path is not None:
                    asked[part.id] = out[id(message)] = path
        if message.call_id in asked:
            out[id(message)] = asked[message.call_id]
    return out


CACHED_TEXTS = 4096
"""Texts of which it is remembered what they hold."""
_UNIT = re.compile(r"(?<=\d)(?=[^\d.,])")
"""Between a number and its unit, where a text may have a space."""


class TextItemMatcher:
    """The items of a session, to be found in texts that are no rows.

    An item stands in a text word for word, white space aside; an id in whatever case, a number with
    or without a space before its unit; and a user's rule in whatever words.
    """

    def __init__(self, numbers: Mapping[Item, int], wordings: RuleMatcher) -> None:
        self._wordings = wordings
        self._texts: dict[Any, Ints] = {}
        self._as_said = NumberedTextSearch(
            ((form, n) for found, n in numbers.items() for form in _written_forms(found)),
            ERROR_LINE_CHARS,
        )
        ids = ((found.text, n) for found, n in numbers.items() if found.family == "id")
        self._ids = NumberedTextSearch(ids, ERROR_LINE_CHARS)

    def of(self, message: Message) -> Ints:
        """Return the items that stand in a text."""
        key = make_text_key(message)
        found = self._texts.get(key)
        if found is None:
            if len(self._texts) >= CACHED_TEXTS:
                self._texts.clear()
            found = self._texts[key] = np.array(sorted(self._look(message)), np.int64)
        return found

    def _look(self, message: Message) -> set[int]:
        text = " ".join(" ".join(iter_texts(message)).split())
        held = self._as_said.in_text(text) | self._ids.in_text(text.casefold())
        return held | self._wordings.in_text(message.text[:MAX_SEARCHED_CHARS])


def _written_forms(found: Item) -> Iterator[str]:
    """Yield how an item is written in a text."""
    yield found.text
    if found.family == "number":
        yield _UNIT.sub(" ", found.text, count=1)


def make_text_key(message: Message) -> str | int:
    """Return what is equal for messages that say the same."""
    return content_hash(message) if message.tool_calls else message.text


MIN_COMMON_SHARE = 0.6
"""Share of the words of the shorter sentence that both must have."""
MIN_COMMON_WORDS = 3
"""Words that both must have, where the rule has so many."""
_CACHED_SENTENCES = 1 << 13
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


class RuleWords(NamedTuple):
    """What a sentence is about."""

    stems: frozenset[str]
    exact: tuple[str, ...]
    """Its numbers, dates, paths and identifiers."""
    forbids: bool


def parse_rule(sentence: str) -> RuleWords:
    """Return what a sentence is about: words by their beginnings, values, and whether it
    forbids.
    """
    words = _WORD.findall(sentence.casefold())
    return RuleWords(
        frozenset(w[:5] for w in words if w not in _EMPTY),
        extract_exact_values(sentence),
        _FORBIDS.search(sentence) is not None,
    )


class RuleMatcher:
    """Some rules, to be found again in texts.

    Args:
        given: items that are rules, each with a number.
    """

    def __init__(self, given: Iterable[tuple[int, Item]]) -> None:
        self._exact: dict[int, tuple[str, ...]] = {}
        self._topic_of: dict[int, int] = {}
        topics: dict[tuple[frozenset[str], bool], int] = {}
        for number, found in given:
            told = parse_rule(found.text)
            self._exact[number] = tuple(v.casefold() for v in told.exact)
            about = told.stems, told.forbids
            self._topic_of[number] = topics.setdefault(about, len(topics))
        self._topics = list(topics)
        """What rules are about: many may be about the same and differ by their values alone."""
        self._least = min((min(MIN_COMMON_WORDS, len(stems)) for stems, _ in topics), default=0)
        self._by_stem: dict[str, list[int]] = {}
        for topic, (stems, _) in enumerate(topics):
            for stem in stems:
                self._by_stem.setdefault(stem, []).append(topic)
        self._stems = MultiTextSearch(self._by_stem)
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
        self._value_places = MultiTextSearch(self._values)
        self._near = lru_cache(_CACHED_SENTENCES)(self._look)

    def in_text(self, text: str) -> set[int]:
        """Return the numbers of the rules that a text gives; no sentence goes over a line's end."""
        lines = [line for line, of in self._stems.lines(text) if len(of) >= self._least]
        told = {sentence for line in lines for sentence in split_sentences(line)}
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
        return common >= min(MIN_COMMON_WORDS, own) and common >= MIN_COMMON_SHARE * min(own, words)


class MultiTextSearch:
    """Where each of many texts stands in another, in whatever words it stands there (Aho and
    Corasick 1975: one walk over the text, however many are looked for).
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._find = AhoCorasick(list(map(_encodable, texts))).find_matches_as_indexes

    def of(self, text: str) -> list[tuple[int, int, int]]:
        """Return the number of each text that stands in a text, where it begins, where it ends."""
        return self._find(_encodable(text), overlapping=True)

    def lines(self, text: str) -> Iterator[tuple[str, set[int]]]:
        """Yield the lines of a text in which any stand, in whatever case, with the numbers of
        those; the texts are to be casefolded, and so is the line where that makes it longer.
        """
        folded = text.casefold()
        told = text if len(text) == len(folded) else folded
        found: dict[tuple[int, int], set[int]] = {}
        begin = end = -1
        for which, start, _ in self.of(folded):
            if not begin <= start < end:  # they come in order, so a line is looked for once
                begin, end = folded.rfind("\n", 0, start) + 1, folded.find("\n", start)
                end = end if end >= 0 else len(folded)
                standing = found.setdefault((begin, end), set())
            standing.add(which)
        yield from ((told[begin:end], of) for (begin, end), of in found.items())


class NumberedTextSearch:
    """Some numbered texts, to be found in others; one may be written in several ways.

    What stands in a text does not begin or end inside of a word: `fin-import-1` does not stand in
    `fin-import-10`.

    Args:
        texts: each with its number, none of them empty.
        cut_at: longer texts may have been cut there, so that they end inside of a word.
    """

    def __init__(self, texts: Iterable[tuple[str, int]], cut_at: int) -> None:
        numbers: dict[str, set[int]] = {}
        for text, number in texts:
            numbers.setdefault(text, set()).add(number)
        self._numbers, self._cut_at = list(numbers.values()), cut_at
        self._places = MultiTextSearch(numbers)

    def in_text(self, text: str) -> set[int]:
        """Return the numbers of the texts that stand in a text."""
        out: set[int] = set()
        for which, start, end in self._places.of(text):
            whole = end - start >= self._cut_at or not _splits_word(text, end)
            if whole and not _splits_word(text, start):
                out |= self._numbers[which]
        return out


def _splits_word(text: str, at: int) -> bool:
    """Say whether a place lies inside of a word."""
    return 0 < at < len(text) and _in_word(text[at - 1]) and _in_word(text[at])


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _encodable(text: str) -> str:
    """Return a text, as long as it was, without halves of surrogate pairs, which UTF-8 has not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
