"""Each visible character is found again at its place in the text as it came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctxkit._internal import redact
from ctxkit._internal.redaction_rule_and_hidden_characters import TextWithoutHiddenCharacters

PIECES = [
    "a", "Z", "7", " ", "\n", "m", "[", "]", ";", "\\", "^", "\x1b", "\x1b[31m", "\x1b[K", "\x1b[2 q", "\x1b(B", "\x1b7",
    "\x1bM", "\x1b]8;;https://x.org\x1b\\", "\x1b]0;a title\x07", "\x1b]", "\x1bP", "\x9b1m", "\x07", "\x00", "\u200b",
    "\xad", "\ufe0f", "\u0130", "\N{GRINNING FACE}", "\ud800", r"\u001b[1m", r"\x1b[0m", r"\033[0;31m", r"\e[K", "^[[m",
    r"\u200b", r"\\ufeff", "ghp_", "password=",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_every_place_has_its_origin(pieces):
    text = "".join(pieces)
    view = TextWithoutHiddenCharacters(text)
    assert [text[view.origin(i)] for i in range(len(view.text))] == list(view.text)
    assert len(view.low) == len(view.text)
    assert view.is_changed == (view.text != text)


@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_a_text_without_a_secret_comes_back_with_all_its_escapes(pieces):
    text = "".join(p for p in pieces if p not in ("ghp_", "password="))
    assert redact(text) == text


def test_what_is_not_seen_goes_and_the_rest_stays():
    seen = {
        "\x1b[01;31m\x1b[Kred\x1b[m\x1b[K": "red", "\x1b]8;;https://x.org\x1b\\link\x1b]8;;\x1b\\": "link",
        "\x1bMup": "Mup", "\x1b[?25lhidden\x1b[?25h": "hidden", "a\u200bb\xadc": "abc", r"\u001b[1mbold\u001b[0m": "bold",
        r"\033[1mbold\e[0m": "bold", "^[[1mbold^[[0m": "bold", r"\n\t\x41\u0041": r"\n\t\x41\u0041", "^[a-z]$": "^[a-z]$",
    }  # fmt: skip
    assert {text: TextWithoutHiddenCharacters(text).text for text in seen} == seen
