"""Texts found in others, all at once, against looking for each."""

from __future__ import annotations

import re

import pytest
from builders import assistant, call, user
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.metrics import LosableItem, extract_items
from ctxkit.metrics.item_index_and_rule_matching import (
    InsertedTextItemMatcher,
    MultiTextSearch,
    RuleParaphraseMatcher,
    WholeWordSearch,
)
from ctxkit.metrics.losable_items import ERROR_LINE_CHARS

SIGNS = st.text(st.sampled_from("ab/.é語_ "), max_size=40)


def found(texts, text, cut_at=ERROR_LINE_CHARS):
    return WholeWordSearch(((t, n) for n, t in enumerate(texts) if t), cut_at).in_text(text)


def stands(words, text):
    """What is in a text does not begin or end inside of a word."""
    start, end = (r"(?<!\w)" if re.match(r"\w", words) else ""), r"(?!\w)"
    return re.search(start + re.escape(words) + (end if re.search(r"\w$", words) else ""), text)


@given(st.lists(SIGNS, max_size=30), SIGNS)
def test_what_stands_in_a_text_is_found(texts, text):
    assert found(texts, text) == {n for n, t in enumerate(texts) if t and stands(t, text)}


@given(st.lists(st.text("ab./", min_size=1, max_size=15), min_size=1), st.data())
def test_texts_of_every_length_are_found(texts, data):
    text = " ".join(data.draw(st.permutations(texts)))
    assert found(texts, text) == {*range(len(texts))}


def test_no_text_stands_in_none():
    assert found([], "anything") == set()
    assert found(["abcdefghijklmn", "abc", "x"], "") == set()


def test_what_was_cut_may_end_inside_of_a_word():
    assert found(["abc def"], "abc defghi", cut_at=7) == {0}
    assert found(["abc def"], "abc defghi", cut_at=8) == set()


def test_halves_of_surrogate_pairs_hide_nothing():
    assert found(["ab", "語"], "\ud800 ab 語\udfff") == {0, 1}


def held(text, *given):
    """The items of some texts that are in another."""
    numbers = {f: n for n, f in enumerate({f for t in given for f in extract_items(user(t))})}
    known = list(numbers)
    rules = RuleParaphraseMatcher((n, f) for f, n in numbers.items() if f.family == "constraint")
    return {known[n].text for n in InsertedTextItemMatcher(numbers, rules).of(assistant(text))}


@pytest.mark.parametrize(
    ("said", "item", "text"),
    [
        ("it took 12 ms", "12ms", "all of 12 ms."),
        ("it took 12ms", "12ms", "all of 12\nms"),
        ("it took 1.5 GB", "1.5GB", "1.5GB of it"),
        ("see INV-2026-1", "inv-2026-1", "of inv-2026-1, and"),
        ("see inv-2026-1", "inv-2026-1", "Inv-2026-1"),
        ("ValueError: an odd   thing", "ValueError: an odd thing", "so ValueError: an\n odd thing"),
    ],
)
def test_an_item_is_found_as_texts_write_it(said, item, text):
    assert item in held(text, said)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("it took 12 ms", "112 ms, or 12 msec"),
        ("see fin-import-1", "fin-import-10"),
        ("in src/a/b.ts", "src/a/b.tsx"),
        ("the MAX_RETRIES", "max_retries"),
    ],
)
def test_another_item_is_not(said, text):
    assert not held(text, said)


@given(st.integers(0, 400))
def test_an_error_line_is_found_however_long_it_is(n):
    said = "ValueError: " + "x" * n
    assert held(f"then {said}", said) == {f.text for f in extract_items(user(said))} != set()


def test_what_a_call_of_a_tool_names_is_found():
    [path] = [f for f in extract_items(user("src/a/b.ts")) if f.family == "path"]
    put_in = call("read", path="src/a/b.ts")
    assert InsertedTextItemMatcher(
        {LosableItem("path", path.text): 0}, RuleParaphraseMatcher([])
    ).of(put_in).tolist() == [0]


@given(
    st.lists(st.text("ab", min_size=1, max_size=3), max_size=5), st.text("aABb ß\n", max_size=60)
)
def test_lines_in_which_any_stand(texts, text):
    told = [
        (folded, {n for n, t in enumerate(texts) if t in folded})
        for folded in text.casefold().split("\n")
    ]
    found = [(line.casefold(), of) for line, of in MultiTextSearch(texts).lines(text)]
    assert sorted(found, key=str) == sorted([(line, of) for line, of in told if of], key=str)
