"""Cutting a text: the agent `ai`'s cases with its defaults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.policies.texts import message_content_and_truncation

AI = {"max_lines": 2000, "max_chars": 204800, "max_bytes": 51200, "mode": "head_tail"}


@pytest.mark.parametrize("mode", ["head", "head_tail", "middle"])
@given(text=st.text(max_size=200), limit=st.integers(1, 50))
def test_bytes_and_characters_never_pass_their_limit(mode, text, limit):
    assert len(message_content_and_truncation.truncate_bytes(text, limit, mode).encode()) <= limit
    assert len(message_content_and_truncation.truncate_chars(text, limit, mode)) <= limit


def test_middle_keeps_both_ends():
    assert message_content_and_truncation.truncate_chars("abcdefghij", 4, "middle") == "abij"
    assert message_content_and_truncation.truncate_bytes("abcdefghij", 4, "middle") == "abij"


def test_what_fits_is_the_same_text():
    assert message_content_and_truncation.truncate_output("short", **AI) == "short"
    assert message_content_and_truncation.truncate_end("short", 5, "...") == "short"
    assert message_content_and_truncation.truncate_middle("short", 3, 2, "|") == "short"


def test_suffix_names_what_was_removed():
    assert (
        message_content_and_truncation.truncate_end("x" * 3000, 1000, "[{n} left out]")
        == "x" * 1000 + "[2,000 left out]"
    )


def test_a_tail_of_nothing_keeps_the_head_only():
    assert message_content_and_truncation.truncate_middle("abcdef", 2, 0, "|") == "ab|"


@pytest.mark.parametrize(("n", "text"), [(12, "12B"), (8922, "8.7KB"), (1258291, "1.2MB")])
def test_sizes_are_written_in_short(n, text):
    assert message_content_and_truncation.format_bytes(n) == text
