"""Texts found in others by their words, against looking for each; lines read one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctxkit.metrics.items import of_line, stands
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
    """What stands in a text, line by line and over the ends of lines."""
    standing = StandingTexts(dict(enumerate(texts)))
    stand, near = zip(*(standing.in_line(line) for line in text.split("\n")), strict=True)
    return set().union(*stand) | standing.in_text(set().union(*near), text)


@given(st.lists(SIGNS, max_size=30), SIGNS)
def test_what_stands_in_a_text_is_found(texts, text):
    plain = " ".join(text.split())
    told = {n for n, each in enumerate(texts) if stands(each, plain)}
    assert found(texts, text) == told


@given(st.lists(st.text("ab./", max_size=15), min_size=1), st.data())
def test_texts_of_every_length_are_found(texts, data):
    text = " ".join(data.draw(st.permutations(texts)))
    assert found(texts, text) == {*range(len(texts))}


def test_no_text_stands_in_none():
    assert found([], "anything") == set()
    assert found(["abcdefghijklmn", "abc", "", "x"], "") == {2}


@given(SAID)
def test_a_text_holds_what_its_lines_hold(text):
    for role in ("user", "assistant", "tool"):
        by_line = {found for line in text.split("\n") for found in of_line(role, line)}
        assert set(of_line(role, text)) == by_line
