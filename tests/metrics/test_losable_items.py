"""Items are found word by word as they are in the whole text, read by each pattern alone."""

from __future__ import annotations

import re

import pytest
from builders import user
from hypothesis import example, given
from hypothesis import strategies as st

from ctxkit.metrics import LosableItem, extract_items, losable_items
from ctxkit.metrics.losable_items import collapse_whitespace_and_truncate, extract_text_items
from ctxkit.metrics.user_rule_loss_and_breaches import _PAIR, extract_value_pairs

_SIGNS = st.sampled_from("aZ9fE/._-#~@+, \n\t:%é日\x1c\xa0\u2028'=>")
_BITS = st.sampled_from(
    ["src/a.py", "Error", "fatal:", "error TS12:", "TypeError", " is now ", "FIN-7", "12 tests",
     "https://a.b/c", "MAX_X", "fin-import-7", "0a1b2c3d", "port: 80", "X-Bill-Trace", "1.5 s"]
)  # fmt: skip
_TEXTS = st.lists(st.one_of(_SIGNS, _BITS), max_size=30).map("".join)
_ID = re.compile(
    r"(?<![\w-])(?:[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
    r"|[0-9a-fA-F]{7,64}|\d{6,20}|#\d{1,7}|[A-Z]{2,10}-\d{1,7})(?![\w-])"
)
_NAME = re.compile(
    r"(?<![\w./-])[A-Z](?:[A-Za-z0-9]{0,40}(?:-[A-Z][A-Za-z0-9]{0,40}){1,9}"
    r"|[A-Z0-9]{0,40}(?:_[A-Z0-9]{1,40}){1,9})(?!-?\w|/|\.\w)"
)
_UUID = "0A1b2c3d-e5f6-7890-abcd-0123456789ab"


def plainly(text: str) -> set[LosableItem]:
    """What each pattern, as it is plainly said, finds in all of a text."""
    out, bare = set[LosableItem](), text
    for hit in losable_items._URL.findall(text):
        out.add(LosableItem("url", hit.rstrip(".,;:!?")))
        bare = losable_items._URL.sub(" ", text)
    out |= {
        LosableItem("path", h)
        for h in losable_items._PATH.findall(bare)
        if losable_items._EXTENSION.search(h)
    }
    for hit in _ID.findall(bare):
        if not hit.isalpha() and (
            hit.isdigit()
            or hit[0] == "#"
            or "-" in hit
            or losable_items._has_digits_and_letters(hit)
        ):
            out.add(LosableItem("id", hit.casefold()))
    for hit in losable_items._HYPHENATED_CODE.findall(bare):
        if re.search(r"\d", hit) and hit.casefold() not in losable_items._COMMON_CODES:
            out.add(LosableItem("id", hit.casefold()))
    for hit in _NAME.findall(bare):
        if "_" in hit or not re.search(r"\d", hit):
            out.add(LosableItem("name", hit))
    number = losable_items._NUMBER.pattern.replace(
        r"\d(?<![\w.,-].)\d{0,14}", r"(?<![\w.,-])\d{1,15}"
    )
    assert number != losable_items._NUMBER.pattern
    out |= {LosableItem("number", h.replace(" ", "")) for h in re.findall(number, bare)}
    return out | {
        LosableItem("error", collapse_whitespace_and_truncate(h))
        for h in losable_items._ERROR.findall(bare)
    }


@given(_TEXTS)
@example("a" * 5_000 + "-1/b.py")
@example("日本語-7 src/日本/a.py エラー Error: だめ")
@example(
    f"{_UUID} x{_UUID} {_UUID}-1 #12 #12a a#7 1234567 x1234567 ٣1234567 AB-12 XAB-12 éAB-1 1234567"
)
@example("a123456 f1234567 A123456 F123456a Z123456 #a1234567")
@example("a TypeError: x FAILED\nfatal: no\n\nTraceback ab Traceback " + "c" * 300 + "Error: d")
def test_words_hold_what_the_text_holds(text: str) -> None:
    assert set(extract_text_items(text)) == plainly(text)


@given(_TEXTS)
def test_sentences_end_at_marks_and_lines(text: str) -> None:
    assert losable_items._SENTENCE_END.split(text) == re.split(r"(?<=[.!?])\s+|\n+", text)


@given(_TEXTS)
@example("the port: 80\nlimit is now 3\nx -> 'y9'\nso it is. 4")
def test_lines_give_the_pairs_of_the_text(text: str) -> None:
    plain = [(n.casefold().removeprefix("the "), v.rstrip(".:")) for n, v in _PAIR.findall(text)]
    assert list(extract_value_pairs(text)) == plain


@pytest.mark.parametrize(
    "text", ["x-1/" * 50_000, "E" * 200_000, "is: " * 50_000, "1," * 100_000, " " * 200_000]
)
def test_hard_texts_are_read_once(text: str) -> None:
    import time

    start = time.thread_time()
    list(extract_text_items(text))
    list(extract_value_pairs(text))
    list(losable_items.split_sentences(text))
    assert time.thread_time() - start < 2


def test_a_sentence_has_eight_characters_or_more_and_is_read_up_to_600() -> None:
    split = losable_items.split_sentences
    assert list(split("1234567. 12345678!?\n  - a line  \n" + "x" * 700)) == [
        *("12345678", "- a line", "x" * 600),
    ]
    ban = "never delete the ledger"
    for words_n, is_read in ((110, True), (130, False)):  # 550 and 650 characters before it
        text = "word " * words_n + ban
        families = {item.family for item in extract_items(user(text))}
        assert ("constraint" in families) is is_read
