"""Items are found word by word as they are in the whole text, read by each pattern alone."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxkit.metrics import items
from ctxkit.metrics.afterwards import _PAIR, pairs
from ctxkit.metrics.items import FoundItem, normal, of_text

_SIGNS = st.sampled_from("aZ9fE/._-#~@+, \n\t:%é日\x1c\xa0\u2028'=>")
_BITS = st.sampled_from(
    ["src/a.py", "Error", "fatal:", "error TS12:", "TypeError", " is now ", "FIN-7", "12 tests",
     "https://a.b/c", "MAX_X", "fin-import-7", "0a1b2c3d", "port: 80", "X-Bill-Trace", "1.5 s"]
)  # fmt: skip
_TEXTS = st.lists(st.one_of(_SIGNS, _BITS), max_size=30).map("".join)


def plainly(text: str) -> set[FoundItem]:
    """What each pattern finds in all of a text."""
    out, bare = set[FoundItem](), text
    for hit in items._URL.findall(text):
        out.add(FoundItem("url", hit.rstrip(".,;:!?")))
        bare = items._URL.sub(" ", text)
    out |= {FoundItem("path", h) for h in items._PATH.findall(bare) if items._EXTENSION.search(h)}
    for hit in items._ID.findall(bare):
        if not hit.isalpha() and (
            hit.isdigit() or hit[0] == "#" or "-" in hit or items._mixed(hit)
        ):
            out.add(FoundItem("id", hit.casefold()))
    for hit in items._CODE.findall(bare):
        if re.search(r"\d", hit) and hit.casefold() not in items._EVERYWHERE:
            out.add(FoundItem("id", hit.casefold()))
    for hit in items._NAME.findall(bare):
        if "_" in hit or not re.search(r"\d", hit):
            out.add(FoundItem("name", hit))
    number = items._NUMBER.pattern.replace(r"\d(?<![\w.,-].)\d{0,14}", r"(?<![\w.,-])\d{1,15}")
    assert number != items._NUMBER.pattern
    out |= {FoundItem("number", h.replace(" ", "")) for h in re.findall(number, bare)}
    return out | {FoundItem("error", normal(h)) for h in items._ERROR.findall(bare)}


@given(_TEXTS)
@example("a" * 5_000 + "-1/b.py")
@example("日本語-7 src/日本/a.py エラー Error: だめ")
def test_words_hold_what_the_text_holds(text: str) -> None:
    assert set(of_text(text)) == plainly(text)


@given(_TEXTS)
def test_sentences_end_at_marks_and_lines(text: str) -> None:
    assert items._END.split(text) == re.split(r"(?<=[.!?])\s+|\n+", text)


@given(_TEXTS)
@example("the port: 80\nlimit is now 3\nx -> 'y9'\nso it is. 4")
def test_lines_give_the_pairs_of_the_text(text: str) -> None:
    plain = [(n.casefold().removeprefix("the "), v.rstrip(".:")) for n, v in _PAIR.findall(text)]
    assert list(pairs(text)) == plain


@pytest.mark.parametrize(
    "text", ["x-1/" * 50_000, "E" * 200_000, "is: " * 50_000, "1," * 100_000, " " * 200_000]
)
def test_hard_texts_are_read_once(text: str) -> None:
    import time

    start = time.process_time()
    list(of_text(text))
    list(pairs(text))
    list(items.sentences(text))
    assert time.process_time() - start < 2
