"""What passes by itself is waited for: as the server says, else in doubling pauses."""

from __future__ import annotations

import pytest

from ctxkit.agent import RetryPolicy
from ctxkit.agent.models.provider_streams_and_retries import (
    classify_retryable_failure,
    parse_retry_after,
)


class Failed(Exception):
    def __init__(self, text, status=None, **headers):
        super().__init__(text)
        self.status_code = status
        self.litellm_response_headers = {k.replace("_", "-"): v for k, v in headers.items()} or None


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (Failed("Rate limit reached", 429), "rate limit"),
        (Failed("You exceeded your current quota", 429), None),
        (Failed("Overloaded", 529), "overload"),
        (Failed("Service Unavailable", 503), "overload"),
        (Failed("The server had an error", 500), "server error"),
        (Failed("Cannot connect to host 127.0.0.1:1", 500), "unreachable"),
        (Failed("Connection error.", 500), "unreachable"),
        (Failed("Connection reset by peer", 500), "broken off"),
        (Failed("Request Timeout", 408), "server error"),
        (Failed("Conflict", 409), "server error"),
        (Failed("Too Early", 425), "server error"),
        (Failed("Payload Too Large", 413), None),
        (Failed("Incorrect API key provided", 401), None),
        (Failed("context_length_exceeded", 400), None),
        (Failed("litellm.APIConnectionError: 'NoneType' object is not iterable", 500), None),
        (ValueError("no"), None),
    ],
)
def test_each_failure_is_what_it_is(error, failure):
    assert classify_retryable_failure(error) == failure


def test_of_a_long_error_the_first_20_000_characters_say_what_it_is():
    before = 20_000 - len("ValueError: overloaded")
    assert classify_retryable_failure(ValueError("x" * before + "overloaded")) == "overload"
    assert classify_retryable_failure(ValueError("x" * (before + 1) + "overloaded")) is None


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (Failed("x", retry_after="7"), 7.0),
        (Failed("x", retry_after_ms="1500"), 1.5),
        (Failed("x", retry_after="Thu, 01 Jan 1970 00:02:00 GMT"), 20.0),
        (Failed("x", retry_after="soon"), None),
        (Failed("x", retry_after="-5"), None),
        (Failed("x", retry_after="nan"), None),
        (Failed("x", retry_after="inf"), float("inf")),
        (Failed("Please try again in 1.2s."), 1.2),
        (Failed("Please retry after 30 seconds"), 30.0),
        (Failed("Please retry after 500 milliseconds"), 0.5),
        (Failed("Try again in 20ms"), 0.02),
        (Failed("Please try again in 1m26.4s."), 86.4),
        (Failed("Retry in 1h2m"), 3720.0),
        (Failed("Please try again in 6 minutes."), 360.0),
        (Failed('"retryDelay": "14s"'), 14.0),
        (Failed("Please retry after 1.2.3 seconds"), None),
        (Failed("x"), None),
    ],
)
def test_what_the_server_asks_for_is_read(error, seconds):
    found = parse_retry_after(error, now=lambda: 100.0)
    assert found == (seconds if seconds is None else pytest.approx(seconds))


def test_pauses_double_to_a_cap_with_a_quarter_by_chance():
    patience = RetryPolicy(attempts=9, chance=lambda: 1.0)
    waits = [patience.wait("rate limit", n, None) for n in range(9)]
    assert waits == [1.25, 2.5, 5.0, 10.0, 20.0, 40.0, 75.0, 75.0, None]
    assert [patience.wait("server error", n, None) is None for n in range(5)] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_a_server_may_ask_for_an_hour_and_no_more():
    assert RetryPolicy().wait("rate limit", 0, 3_000.0) == 3_000.0
    assert RetryPolicy().wait("rate limit", 0, 30_000.0) is None
