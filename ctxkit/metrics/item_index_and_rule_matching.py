"""Index of a session's items by message and reply, and search for items and rules in texts."""

# Rows and calls
#
# A *row* is a visible message of the log, counted in order. Items are numbered by first occurrence.
# The item numbers of every row and every reply are in a ragged array (values, and the list that
# each value belongs to), so that loss and visibility are array operations over all pairs of item
# and row. Building the index reads each message once.
#
# Rules in other words
#
# A sentence states a rule (an item of the family "constraint") if
#   - they share the stems of at least 60 % of the words of the shorter one, and at least three
#     stems, or all that the rule has (a stem is the first five letters of a word);
#   - both forbid something, or neither does;
#   - the text contains every path, id, name and number of the rule.
# So another wording counts and another value does not. The heuristic errs on the side of finding a
# rule: it does not detect a contradiction in other words. Candidates come from an inverted index by
# stem and by value; all stems and values are searched in one pass (Aho-Corasick).

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from ahocorasick_rs import AhoCorasick

from ctxkit.metrics.losable_items import (
    ERROR_LINE_CHARS,
    ITEM_FAMILIES,
    MAX_SEARCHED_CHARS,
    SPEAKERS,
    LosableItem,
    extract_exact_values,
    is_whole_value,
    iter_texts_and_argument_strings,
    split_sentences,
)
from ctxkit.policies.history.edited_head import hash_content
from ctxkit.session.messages import Text, ToolCall
from ctxkit.session.tool_call_paths_and_descriptions import (
    get_call_path,
    is_read_tool,
    is_write_tool,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ctxkit.metrics.losable_items import MessageItemCache
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session

    Ints = NDArray[np.int64]


USER_WEIGHT = 4.0
"""Weight of an item that the user stated; an item of a reply or tool result has weight 1. The value
is chosen, not measured.
"""


class VisibleMessageRows:
    """The visible messages of a session as rows, and the call at which each arrives."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.messages = [m for m in session.messages if m.visible]
        rows_before_call, n = [], 0
        for message in session.messages:
            if message.role == "assistant":
                rows_before_call.append(n)
            n += message.visible
        self.rows_before_call = np.array(rows_before_call, np.int64)
        self.calls = len(rows_before_call)
        self.arrival_call = np.searchsorted(self.rows_before_call, np.arange(n), "right")
        """The first call whose prompt can contain each row."""

    def count_tokens(self, _message: Message) -> int:
        """Return the tokens of an inserted text; 0 here, because sizes do not matter."""
        return 0

    def find_items(self, _message: Message) -> Ints:
        """Return the items that an inserted text states; none here."""
        return np.zeros(0, np.int64)


class ItemIndex(VisibleMessageRows):
    """The numbered items of a session's rows and replies.

    An *inserted text* is a message that is not a row: a compaction or a pruning inserted it, in
    this session or in a replay of it.

    Args:
        session: a session with text.
        item_cache: extracts the items of its messages.
    """

    # An inverted index between items and messages. Items are numbered as messages mention them,
    # and every other structure holds numbers: `RaggedArray`s from a row or reply to its items, and
    # arrays with one value per item. The order of the steps matters: rules in other words can be
    # matched only after the messages' rules have numbers, and `items_n` is final only after replies
    # and files. Memory and time are linear in the mentions, plus sorting.
    def __init__(self, session: Session, item_cache: MessageItemCache) -> None:
        super().__init__(session)
        self.item_cache, messages = item_cache, self.messages
        self.item_numbers: dict[LosableItem, int] = {}
        """The number of each item, in ascending order."""
        self._numbers_of_set: dict[int, list[int]] = {}
        mentions = [self._number_set(item_cache.items_and_path_endings(m)) for m in messages]
        self.rule_matcher = RuleParaphraseMatcher(
            (n, item) for item, n in self.item_numbers.items() if item.family == "constraint"
        )
        rules_by_text = self._find_stated_rules()
        self.row_mentions = RaggedArray(
            _append_missing(numbers, rules_by_text.get(id(m.parts)) if m.role in SPEAKERS else None)
            for numbers, m in zip(mentions, messages, strict=True)
        )
        """The items that each row mentions: its own, path endings, and rules in other words."""
        self.row_items = RaggedArray(self._number_set(item_cache.items(m)) for m in messages)
        """The items that each row states itself."""
        self.reply_items = RaggedArray(
            _append_missing(
                self._number_set(item_cache.items_used_by_reply(c.message)),
                rules_by_text.get(id(c.message.parts)),
            )
            for c in session.calls
        )
        """The items that the reply of each call uses."""
        paths = _find_file_paths(session)
        in_files = [self._number_file_items(m, paths.get(id(m))) for m in messages]
        self.file_items = RaggedArray([item for item, _ in pairs] for pairs in in_files)
        """The items of each row that contains the content of a file."""
        self.file_paths = np.array([path for pairs in in_files for _, path in pairs], np.int64)
        """The number of the file's path, for each of `file_items`."""
        self.row_tokens = np.array([item_cache.count_tokens(m) for m in messages], np.int64)
        self.items_n = len(self.item_numbers)
        self.family = np.array(
            [ITEM_FAMILIES.index(item.family) for item in self.item_numbers], np.int64
        )
        self._sort_uses_and_mentions()
        self.reused_items = self._find_reused_items()
        """The items that a reply uses after an earlier message stated them. They do not depend on
        compaction rules, so shares of different rules have the same denominator.
        """
        self.weight = np.ones(self.items_n)
        """`USER_WEIGHT` for the items that the user stated, else 1."""
        is_user_row = np.array([m.role == "user" for m in messages], bool)
        self.weight[self.row_items.values[is_user_row[self.row_items.owner]]] = USER_WEIGHT

    def _sort_uses_and_mentions(self) -> None:
        width, uses = self.calls + 1, self.reply_items
        order = np.lexsort((uses.owner, uses.values))
        # Item and call are packed into one sorted number, so a binary search finds the next use.
        self._use_keys = np.append(uses.values[order] * width + uses.owner[order], -1)
        self.last_use = np.full(self.items_n, -1)
        """The last call that uses each item, or -1."""
        np.maximum.at(self.last_use, uses.values, uses.owner)
        order = np.argsort(self.row_mentions.values, kind="stable")
        self.mention_item = self.row_mentions.values[order]
        """The item of each pair of an item and a row that mentions it, by item, then by row."""
        self.mention_row = self.row_mentions.owner[order]
        """The row of each such pair."""

    def _find_reused_items(self) -> Ints:
        first_row = np.full(self.items_n, len(self.messages))
        np.minimum.at(first_row, self.row_items.values, self.row_items.owner)
        is_visible = np.array([c.message.visible for c in self.session.calls], bool)
        last_use = np.full(self.items_n, -1)
        counts = is_visible[self.reply_items.owner]
        np.maximum.at(last_use, self.reply_items.values[counts], self.reply_items.owner[counts])
        rows_before_use = np.append(self.rows_before_call, 0)[last_use]
        return np.flatnonzero((last_use >= 0) & (rows_before_use > first_row))

    def _find_stated_rules(self) -> dict[int, set[int]]:
        """Return the rules that messages of user and agent state, in any wording, by `id()` of the
        parts; without messages that state none.
        """
        replies = (c.message for c in self.session.calls if not c.message.visible)
        speakers = [m for m in chain(self.messages, replies) if m.role in SPEAKERS]
        spoken = [
            "\n".join([p.text[:MAX_SEARCHED_CHARS] for p in m.parts if isinstance(p, Text)])
            for m in speakers
        ]
        stated = zip(speakers, self.rule_matcher.in_texts(spoken), strict=True)
        return {id(m.parts): rules for m, rules in stated if rules}

    def find_first_uses(self, items: Ints, calls: Ints) -> Ints:
        """Return the first call at or after a given call that uses each item, else ``1 << 62``.

        Args:
            items: numbers of items.
            calls: for each of them the first call that counts, from 0.
        """
        width = self.calls + 1
        keys = items * width + np.minimum(calls, self.calls)
        use = self._use_keys[np.searchsorted(self._use_keys[:-1], keys)]
        return np.where(use // width == items, use % width, 1 << 62)

    # -- inserted texts ----------------------------------------------------------------------------

    def count_tokens(self, message: Message) -> int:
        """Return the tokens of an inserted text."""
        return self.item_cache.count_tokens(message)

    def find_items(self, message: Message) -> Ints:
        """Return the items that an inserted text states, word for word or as a rule."""
        return self._text_matcher.of(message)

    @cached_property
    def _text_matcher(self) -> InsertedTextItemMatcher:
        return InsertedTextItemMatcher(self.item_numbers, self.rule_matcher)

    # -- numbers of items --------------------------------------------------------------------------

    def _number_set(self, items: frozenset[LosableItem]) -> list[int]:
        """Return the numbers of a set of the item cache; most sets are requested three times.

        Sets are identified by `id()`, which stays unique while the cache keeps them alive.
        """
        numbers = self._numbers_of_set.get(id(items))
        if numbers is None:
            numbers = self._numbers_of_set[id(items)] = self._number_items(items)
        return numbers

    def _number_items(self, items: Iterable[LosableItem]) -> list[int]:
        numbers = self.item_numbers
        return [numbers.setdefault(item, len(numbers)) for item in items]

    def _number_file_items(self, message: Message, path: str | None) -> list[tuple[int, int]]:
        """Return pairs of an item of a file's content and the path of the file."""
        if not path:
            return []
        (path_number,) = self._number_items([LosableItem("path", path)])
        return [
            (self._number_items([item])[0], path_number)
            for item in self.item_cache.items(message)
            if item.text != path
        ]


def _append_missing(numbers: list[int], more: set[int] | None) -> list[int]:
    return [*numbers, *sorted(more.difference(numbers))] if more else numbers


class RaggedArray:
    """Lists of numbers of different lengths, concatenated in one array."""

    def __init__(self, lists: Iterable[list[int]]) -> None:
        rows = list(lists)
        lengths = list(map(len, rows))
        self.values = np.fromiter(chain.from_iterable(rows), np.int64, sum(lengths))
        self.owner = np.repeat(np.arange(len(rows)), lengths)
        """The index of the list that each value belongs to."""
        self.starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)

    def get_list(self, number: int) -> Ints:
        """Return the values of one list."""
        return self.values[self.starts[number] : self.starts[number + 1]]


def _find_file_paths(session: Session) -> dict[int, str]:
    """Return the path of the file whose content a message contains, by `id()` of the message."""
    path_of_call: dict[str, str] = {}
    paths: dict[int, str] = {}
    for message in session.messages:
        for part in message.parts:
            if isinstance(part, ToolCall) and (is_read_tool(part.name) or is_write_tool(part.name)):
                path = get_call_path(part)
                if path is not None:
                    path_of_call[part.id] = paths[id(message)] = path
        if message.call_id in path_of_call:
            paths[id(message)] = path_of_call[message.call_id]
    return paths


MAX_CACHED_TEXTS = 4096
"""Maximum number of texts whose items are cached."""
_NUMBER_UNIT_GAP = re.compile(r"(?<=\d)(?=[^\d.,])")
"""Between a number and its unit, where a text may have a space."""


class InsertedTextItemMatcher:
    """Finds the numbered items of a session in inserted texts.

    A text states an item word for word, ignoring white space; an id in upper or lower case, a
    number with or without a space before its unit, a user's rule in any wording.
    """

    def __init__(
        self, numbers: Mapping[LosableItem, int], rule_matcher: RuleParaphraseMatcher
    ) -> None:
        self._rule_matcher = rule_matcher
        self._items_by_text: dict[Any, Ints] = {}
        self._verbatim_search = WholeWordSearch(
            ((form, n) for item, n in numbers.items() for form in _iter_written_forms(item)),
            ERROR_LINE_CHARS,
        )
        ids = ((item.text, n) for item, n in numbers.items() if item.family == "id")
        self._id_search = WholeWordSearch(ids, ERROR_LINE_CHARS)

    def of(self, message: Message) -> Ints:
        """Return the numbers of the items that a text states, in order."""
        key = make_text_key(message)
        items = self._items_by_text.get(key)
        if items is None:
            if len(self._items_by_text) >= MAX_CACHED_TEXTS:
                self._items_by_text.clear()
            items = np.array(sorted(self._search_text(message)), np.int64)
            self._items_by_text[key] = items
        return items

    def _search_text(self, message: Message) -> set[int]:
        text = " ".join(" ".join(iter_texts_and_argument_strings(message)).split())
        items = self._verbatim_search.in_text(text) | self._id_search.in_text(text.casefold())
        return items | self._rule_matcher.in_text(message.text[:MAX_SEARCHED_CHARS])


def _iter_written_forms(item: LosableItem) -> Iterator[str]:
    yield item.text
    if item.family == "number":
        yield _NUMBER_UNIT_GAP.sub(" ", item.text, count=1)


def make_text_key(message: Message) -> str | int:
    """Return a key that is equal for messages with equal content."""
    return hash_content(message) if message.tool_calls else message.text


MIN_COMMON_SHARE = 0.6
"""Share of the words of the shorter sentence that both sentences must have."""
MIN_COMMON_WORDS = 3
"""Words that both sentences must have, or all words of a rule that has fewer."""
_CACHED_LINES, _MAX_CACHED_LINE = 1 << 13, 1_000
"""Maximum number of lines of which a result is cached, and characters of the longest one."""
_SEARCHED_AT_ONCE = 1_000_000
"""Characters of the texts that are joined for one search."""
_NEGATION = re.compile(
    r"(?<!\w)(?:not|never|no|none|without|avoid|forbidden|prohibited|\w{2,8}n['’]t|dont|cannot)(?!\w)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "the and for are was were been its this that with from you your she they them then than "
        "but all any can will would has have had not never none without must should always only "
        "make sure keep ensure please need does doesn don dont isn avoid user said asked also when"
    )
)
"""Words that do not identify the topic of a rule; `_NEGATION` matches negations."""


def _stem_words(sentence: str) -> frozenset[str]:
    words = _WORD.findall(sentence.casefold())
    return frozenset(w[:5] for w in words if w not in _STOP_WORDS)


def is_negated(sentence: str) -> bool:
    """Return True if a sentence contains a word that forbids or negates."""
    return _NEGATION.search(sentence) is not None


class RuleTopic(NamedTuple):
    """The topic of a rule; rules of one topic differ only in their exact values."""

    stems: frozenset[str]
    forbids: bool


class RuleParaphraseMatcher:
    """Finds numbered rules in texts, whatever their wording.

    Args:
        rules: items that are rules, each with its number.
    """

    def __init__(self, rules: Iterable[tuple[int, LosableItem]]) -> None:
        self._values_of_rule: dict[int, tuple[str, ...]] = {}
        self._topic_of_rule: dict[int, int] = {}
        topics: dict[RuleTopic, int] = {}
        for number, rule in rules:
            values = extract_exact_values(rule.text)
            self._values_of_rule[number] = tuple(v.casefold() for v in values)
            topic = RuleTopic(_stem_words(rule.text), is_negated(rule.text))
            self._topic_of_rule[number] = topics.setdefault(topic, len(topics))
        self._topics = list(topics)
        self._min_stems = min((min(MIN_COMMON_WORDS, len(t.stems)) for t in topics), default=0)
        self._topics_by_stem: dict[str, list[int]] = {}
        for number, topic in enumerate(topics):
            for stem in topic.stems:
                self._topics_by_stem.setdefault(stem, []).append(number)
        self._stem_search = MultiTextSearch(self._topics_by_stem)
        self._index_by_value()
        # Summaries of one session share most lines. A value has no blank, so it is in one line.
        self._topics_of_line = _cache_short_lines(self._find_topics_of_line)
        self._values_in_line = _cache_short_lines(self._find_values)

    def _index_by_value(self) -> None:
        """Index rules without values by topic, and other rules by their rarest value."""
        self._rules_without_values: dict[int, list[int]] = {}
        self._rules_by_value: dict[str, list[int]] = {}
        frequency = Counter(v for values in self._values_of_rule.values() for v in values)
        for number, values in self._values_of_rule.items():
            if values:
                rarest = min(values, key=frequency.__getitem__)
                self._rules_by_value.setdefault(rarest, []).append(number)
            else:
                topic = self._topic_of_rule[number]
                self._rules_without_values.setdefault(topic, []).append(number)
        self._values = list(frequency)
        self._value_search = MultiTextSearch(self._values)

    def in_text(self, text: str) -> set[int]:
        """Return the numbers of the rules that a text states; no sentence spans two lines."""
        # 1. Lines with enough stems of any rule; 2. topics of their sentences; 3. exact values.
        lines = [
            line for line, stems in self._stem_search.lines(text) if len(stems) >= self._min_stems
        ]
        topics = {topic for line in lines for topic in self._topics_of_line(line)}
        if not topics:
            return set()
        rules = {n for topic in topics for n in self._rules_without_values.get(topic, ())}
        values = {v for line in text.casefold().split("\n") for v in self._values_in_line(line)}
        for number in (n for value in values for n in self._rules_by_value.get(value, ())):
            is_on_topic = self._topic_of_rule[number] in topics
            if is_on_topic and values.issuperset(self._values_of_rule[number]):
                rules.add(number)
        return rules

    def in_texts(self, texts: Sequence[str]) -> Iterator[set[int]]:
        """Yield the result of `in_text` for each text.

        A text is read by itself only if it has as many stems as the shortest rule needs. One search
        over many texts, joined line by line, counts these; no stem spans two lines.
        """
        for first, stop in _iter_chunks(list(map(len, texts)), _SEARCHED_AT_ONCE):
            folded = [text.casefold() for text in texts[first:stop]]
            ends = np.cumsum([len(text) + 1 for text in folded])
            hits = self._stem_search.find_all("\n".join(folded))
            starts = np.fromiter((start for _, start, _ in hits), np.int64, len(hits))
            counts = np.bincount(ends.searchsorted(starts, "right"), minlength=len(folded))
            for text, stems_n in zip(texts[first:stop], counts.tolist(), strict=True):
                yield self.in_text(text) if stems_n >= max(self._min_stems, 1) else set()

    def _find_values(self, folded_text: str) -> set[str]:
        """Return the rules' values that occur in a casefolded text."""
        hits = self._value_search.find_all(folded_text)
        return {
            self._values[n] for n, start, end in hits if is_whole_value(folded_text, start, end)
        }

    def _find_topics_of_line(self, line: str) -> set[int]:
        """Return the topics that the sentences of a line are about."""
        return {
            topic for sentence in split_sentences(line) for topic in self._find_topics(sentence)
        }

    def _find_topics(self, sentence: str) -> list[int]:
        """Return the topics that a sentence is about."""
        stems = _stem_words(sentence)
        rule_stems = stems & self._topics_by_stem.keys()
        if not rule_stems or len(rule_stems) < self._min_stems:
            return []
        common = Counter(topic for stem in rule_stems for topic in self._topics_by_stem[stem])
        near = [topic for topic, n in common.items() if self._is_alike(topic, n, len(stems))]
        forbids = bool(near) and is_negated(sentence)
        return [topic for topic in near if self._topics[topic].forbids == forbids]

    def _is_alike(self, topic: int, common_n: int, stems_n: int) -> bool:
        rule_n = len(self._topics[topic].stems)
        shorter_n = min(rule_n, stems_n)
        return (
            common_n >= min(MIN_COMMON_WORDS, rule_n) and common_n >= MIN_COMMON_SHARE * shorter_n
        )


def _cache_short_lines(find: Callable[[str], set[Any]]) -> Callable[[str], set[Any]]:
    """Return a function of a line that stores its results for lines that are not too long."""
    cached = lru_cache(_CACHED_LINES)(find)
    return lambda line: (cached if len(line) <= _MAX_CACHED_LINE else find)(line)


def _iter_chunks(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of a list whose sizes sum up to at most a limit, or of one larger item."""
    first = total = 0
    for at, size in enumerate(sizes):
        if total + size > limit and at > first:
            yield first, at
            first, total = at, 0
        total += size
    if sizes:
        yield first, len(sizes)


class MultiTextSearch:
    """Finds all occurrences of many texts in another, in one pass (Aho and Corasick, 1975)."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._find = AhoCorasick(list(map(_make_encodable, texts))).find_matches_as_indexes

    def find_all(self, text: str) -> list[tuple[int, int, int]]:
        """Return each occurrence: number of the searched text, start, end; they may overlap."""
        return self._find(_make_encodable(text), overlapping=True)

    def lines(self, text: str) -> Iterator[tuple[str, set[int]]]:
        """Yield the lines that contain any searched text, in any case, with the texts' numbers.

        The searched texts must be casefolded; lines are yielded casefolded if that changes the
        length of the text.
        """
        folded = text.casefold()
        source = text if len(text) == len(folded) else folded
        numbers_by_line: dict[tuple[int, int], set[int]] = {}
        start = end = -1
        for number, at, _ in self.find_all(folded):
            if not start <= at < end:  # hits are ordered, so each line is located once
                start, end = folded.rfind("\n", 0, at) + 1, folded.find("\n", at)
                end = end if end >= 0 else len(folded)
                numbers = numbers_by_line.setdefault((start, end), set())
            numbers.add(number)
        yield from ((source[start:end], of) for (start, end), of in numbers_by_line.items())


class WholeWordSearch:
    """Finds numbered texts as whole words in another; one number may have several spellings.

    An occurrence does not begin or end inside a word: `fin-import-1` is not in `fin-import-10`.

    Args:
        texts: texts with their numbers, none of them empty.
        cut_at: texts with at least this many characters may be truncated and end inside a word.
    """

    def __init__(self, texts: Iterable[tuple[str, int]], cut_at: int) -> None:
        numbers: dict[str, set[int]] = {}
        for text, number in texts:
            numbers.setdefault(text, set()).add(number)
        self._numbers, self._cut_at = list(numbers.values()), cut_at
        self._search = MultiTextSearch(numbers)

    def in_text(self, text: str) -> set[int]:
        """Return the numbers of the texts that occur in a text."""
        numbers: set[int] = set()
        for which, start, end in self._search.find_all(text):
            ends_well = end - start >= self._cut_at or not _splits_word(text, end)
            if ends_well and not _splits_word(text, start):
                numbers |= self._numbers[which]
        return numbers


def _splits_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and _is_word_char(text[at - 1]) and _is_word_char(text[at])


def _is_word_char(char: str) -> bool:
    return char.isalnum() or char == "_"


def _make_encodable(text: str) -> str:
    """Return the text with lone surrogates replaced (UTF-8 lacks them); the length is the same."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
