"""Texts found in others by their words, against looking for each; words and lines read alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctxkit.messages import Message, Text
from ctxkit.metrics.items import items, of_line, of_words, sentences, stands
from ctxkit.metrics.standing_texts import StandingTexts

SIGNS = st.text(st.sampled_from("ab/.é語\ud800 \n"), max_size=40)
SAID = st.lists(
    st.sampled_from(
        [
            *(
                "src/a/b.ts",
                "https://x.y/z?q=1.",
                "#12",
                "deadbeef1",
                "7 ms",
                "error: no",
                "fatal: x",
            ),
            *(
                "ValueError: odd",
                "\u2028",
                "\r",
                " ",
                "\n",
                "-",
                "must keep",
                "going with x. ",
                "TODO later!",
                "UTF-8",
                "INV-2026-1",
            ),
        ]
    )
).map("".join)


def found(texts, text):
    """What stands in a text, word by word and over white space."""
    standing = StandingTexts(dict(enumerate(texts)))
    told = [standing.in_word(word) for word in text.split()]
    near = set().union(*(near for _, near in told))
    return set().union(*(stand for stand, _ in told)) | standing.in_text(near, text)


@given(st.lists(SIGNS.filter(bool), max_size=30), SIGNS)
def test_what_stands_in_a_text_is_found(texts, text):
    plain = " ".join(text.split())
    told = {n for n, each in enumerate(texts) if stands(each, plain)}
    assert found(texts, text) == told


@given(st.lists(st.text("ab./", min_size=1, max_size=15), min_size=1), st.data())
def test_texts_of_every_length_are_found(texts, data):
    text = " ".join(data.draw(st.permutations(texts)))
    assert found(texts, text) == {*range(len(texts))}


def test_no_text_stands_in_none():
    assert found([], "anything") == set()
    assert found(["abcdefghijklmn", "abc", " ", "x"], "") == set()


@given(SAID)
def test_a_text_holds_what_its_lines_and_words_hold(text):
    for role in ("user", "assistant", "tool"):
        alone = {f for line in text.split("\n") for f in of_line(role, line, sentences(line))}
        alone |= {found for word in text.split() for found in of_words(word)}
        assert alone == items(Message(role=role, parts=(Text(text),)))
