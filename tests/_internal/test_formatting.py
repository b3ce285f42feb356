"""Every character of a text can be seen, and the text can be read back."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit._internal import escape_invisible_characters

HIDERS = st.sampled_from("\x00\x07\x08\x1b\r\x0b\x0c\x1c\x7f\x85\xa0\xad\u200b\u200d\u202e\u2028"
                         "\u2066\ufeff\ufe0f\u3164\u2800\u034f\U000e0041\ud800\t\n⟨⟩⇥ aU+0301B"
                         "\u0301\u0336")  # fmt: skip
TEXTS = st.text(HIDERS | st.characters(codec=None, exclude_categories=()))


def read_back(shown: str) -> str:
    """Return the text that is shown, by the one rule a reader has to know."""
    plain = shown.replace("⇥\t", "\t")
    return re.sub(r"⟨U\+([0-9A-F]{4,6})⟩", lambda m: chr(int(m[1], 16)), plain)


@given(TEXTS)
def test_the_text_can_be_read_back(text):
    assert read_back(escape_invisible_characters(text)) == text


@given(TEXTS)
def test_nothing_invisible_is_left(text):
    shown = escape_invisible_characters(text).replace("⇥\t", "")
    assert all(c == " " or unicodedata.category(c)[0] not in "CZ" for c in shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -rf x # é 한 🙂", "rm -rf x # é 한 🙂"),
        ("\x1b[2Jrm", "⟨U+001B⟩[2Jrm"),
        ("a\u202eb\u200bc", "a⟨U+202E⟩b⟨U+200B⟩c"),
        ("a\tb\r", "a⇥\tb⟨U+000D⟩"),
        ("a\u3164b\ufe0f\U000e0041", "a⟨U+3164⟩b⟨U+FE0F⟩⟨U+E0041⟩"),
        ("⟨U+001B⟩", "⟨U+27E8⟩U+001B⟩"),
        ("e" + "\u0301" * 6, "e" + "\u0301" * 4 + "⟨U+0301⟩" * 2),
    ],
)
def test_what_leaves_no_mark_has_its_number(text, shown):
    assert escape_invisible_characters(text) == shown


def test_a_percentage_is_not_split_between_lines():
    from ctxkit._internal import wrap_lines

    assert wrap_lines("It is up to 100 % here.", 14) == ["It is up to", "100 % here."]
