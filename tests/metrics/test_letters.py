"""Texts found in others by their letters, against looking for each; lines read one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctxkit.metrics.items import of_text, stands
from ctxkit.metrics.letters import NARROW, WIDE, Letters

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
                "UTF-8",
                "INV-2026-1",
            ),
        ]
    )
).map("".join)


@given(st.lists(SIGNS, max_size=30), SIGNS)
def test_what_stands_in_a_text_is_found(texts, text):
    told = [n for n, each in enumerate(texts) if stands(each, text)]
    assert Letters(texts).standing_in(text) == told


@given(st.lists(st.text("ab", min_size=NARROW - 1, max_size=WIDE + 3), min_size=1), st.data())
def test_texts_of_every_length_are_found(texts, data):
    text = " ".join(data.draw(st.permutations(texts)))
    assert Letters(texts).standing_in(text) == list(range(len(texts)))


def test_no_text_stands_in_none():
    assert Letters([]).standing_in("anything") == []
    assert Letters(["abcdefghijklmn", "abc", "", "x"]).standing_in("") == [2]


@given(SAID)
def test_a_text_holds_what_its_lines_hold(text):
    by_line = {found for line in text.split("\n") for found in of_text(line)}
    assert set(of_text(text)) == by_line
