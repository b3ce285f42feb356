"""Every sample of the table is found, no exclusion is, and silence is understood."""

from __future__ import annotations

import pytest
from builders import assistant

from ctxkit.session import (
    NOT_OVERFLOW_TEXTS,
    OVERFLOW_TEXTS,
    Usage,
    is_overflow,
    is_rate_limit,
    is_silent_overflow,
)


@pytest.mark.parametrize("row", OVERFLOW_TEXTS, ids=lambda r: r.provider)
def test_every_sample_is_found(row):
    assert is_overflow(row.sample)
    assert is_overflow(row.sample.upper() if row.sample.isascii() else row.sample)
    assert is_overflow(RuntimeError(f"Error code: 400 - {row.sample}")) or row.pattern.startswith(
        "^"
    )


@pytest.mark.parametrize("row", NOT_OVERFLOW_TEXTS, ids=lambda r: r.pattern)
def test_no_exclusion_is_taken_for_overflow(row):
    assert not is_overflow(row.sample)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Connection error.",
        "Invalid API key",
        "max_tokens must be positive",
        "context deadline exceeded",
        "Model not found: context-1",
    ],
)
def test_other_errors_are_not_overflow(text):
    assert not is_overflow(text)


@pytest.mark.parametrize(
    "text",
    [
        "429 Too Many Requests",
        "ThrottlingException: Too many tokens",
        "Overloaded",
        "rate_limit_error",
    ],
)
def test_rate_limits_are_told_apart(text):
    assert is_rate_limit(text)
    assert not is_overflow(text)


def test_a_huge_error_is_looked_at_in_bounded_time():
    assert not is_overflow("x " * 5_000_000)


@pytest.mark.parametrize(
    ("stop", "prompt", "output", "window", "expected"),
    [
        ("stop", 200_001, 5, 200_000, True),
        ("stop", 199_999, 5, 200_000, False),
        ("length", 1_048_570, 0, 1_048_576, True),
        ("length", 100, 0, 200_000, False),
        ("length", 1_048_570, 4096, 1_048_576, False),
        ("error", 300_000, 0, 200_000, False),
    ],
)
def test_silent_overflow(stop, prompt, output, window, expected):
    reply = assistant(
        "",
        stop=stop,
        usage=Usage(input_tokens=58, cache_read_tokens=prompt - 58, output_tokens=output),
    )
    assert is_silent_overflow(reply, window) is expected


def test_without_usage_nothing_is_claimed():
    assert not is_silent_overflow(assistant("", stop="stop"), 10)
