"""A stream shows what the whole text would show, however it is cut into pieces."""

from __future__ import annotations

import time
from random import Random

import pytest
from _internal.redaction.secret_corpus import B64, INNOCENT, beside, block, drawn, prefixed
from hypothesis import given
from hypothesis import strategies as st

from ctxkit._internal import StreamRedactor, redact

TEXTS = [text for _, text, _ in [*prefixed(3), *beside(3)]]


def streamed(text, pieces):
    stream, out, at = StreamRedactor([]), [], 0
    for n in pieces:
        out.append(stream.feed(text[at : at + n]))
        at += n
    return [*out, stream.feed(text[at:]), stream.flush()]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 13, 100])
def test_pieces_of_any_size_give_what_the_whole_gives(size):
    for text in [*TEXTS, *INNOCENT, f"see\n{block(2)}\nthere", block(4).rsplit("\n", 1)[0]]:
        whole = f"First some words.\n{text}\nThen more of them."
        assert "".join(streamed(whole, [size] * (len(whole) // size))) == redact(whole)


@given(st.integers(0, 10**6), st.lists(st.integers(1, 40), max_size=60))
def test_any_cuts_of_any_mix_give_what_the_whole_gives(seed, pieces):
    random = Random(seed)
    text = "\n".join(
        random.sample([*TEXTS, *INNOCENT, f"\n{block(seed)}\n", "plain words of a reply"], 6)
    )
    assert "".join(streamed(text, pieces)) == redact(text)


def test_no_piece_ever_holds_the_beginning_of_a_secret():
    for _, text, secret in [*prefixed(5), *beside(5)]:
        shown = ""
        for piece in streamed(f"Use\n{text}\nnow, please.", [2] * 500):
            shown += piece
            assert secret[:6] not in shown, text


def test_a_secret_of_the_environment_with_spaces_is_held_back():
    stream = StreamRedactor(["correct horse battery"])
    assert [stream.feed(p) for p in ["say corr", "ect hor", "se batt", "ery loudly ", "now"]][
        :3
    ] == ["say ", "", ""]
    assert "".join([stream.feed(" "), stream.flush()]).endswith("now ")


def test_words_are_shown_one_late_and_a_lone_begin_line_holds_nothing_up():
    stream = StreamRedactor([])
    assert [stream.feed(p) for p in ["one ", "two ", "three ", "four"]] == [
        "",
        "one ",
        "two ",
        "three ",
    ]
    stream = StreamRedactor([])
    shown = stream.feed("The line -----BEGIN PRIVATE KEY-----\nopens it.\nMore words follow here ")
    assert shown.endswith("follow ")


def test_a_word_without_an_end_is_given_out_and_a_key_in_it_is_not():
    key = "sk-proj-" + drawn(1, B64.replace("/", "").replace("+", ""), 9_000)
    stream = StreamRedactor([])
    shown = "".join(
        [stream.feed(key[i : i + 7]) for i in range(0, len(key), 7)]
        + [stream.feed(" over"), stream.flush()]
    )
    assert shown == "[redacted] over"


def test_a_long_stream_costs_linear_time():
    def seconds(size):
        text, stream = drawn(1, B64 + "    \n", size), StreamRedactor([])
        begun = time.thread_time()
        for i in range(0, size, 20):
            stream.feed(text[i : i + 20])
        return time.thread_time() - begun

    seconds(1000)
    few, many = (min(seconds(size) for _ in range(3)) for size in (10_000, 40_000))
    assert many < 8 * few
