"""Retries of model calls: classes of failures, and how long to wait before the next attempt."""

from __future__ import annotations

import asyncio
import email.utils
import random
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.session.overflow_errors import is_overflow, is_rate_limit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FailureKind = Literal["rate limit", "overload", "unreachable", "broken off", "server error"]
"""Failures that pass: the first two when the server has capacity, the others within seconds."""

_QUOTA = re.compile(r"(?i)insufficient_quota|exceeded your current quota|billing|credit balance")
_OVERLOAD = re.compile(
    r"(?i)overloaded|\b529\b|service unavailable|\b503\b|no capacity|model is loading"
)
_UNREACHABLE = re.compile(
    r"(?i)connection error|connect call failed|cannot connect|connection refused"
    r"|all connection attempts"
    r"|name or service not known|temporary failure in name resolution|nodename nor servname"
)
_CONNECTION_LOST = re.compile(
    r"(?i)connection reset|reset by peer|server disconnected|incomplete chunked read|payload is not"
    r"|peer closed|clientpayloaderror|readerror|remoteprotocolerror|broken pipe"
    r"|before any terminal event|connection (?:was )?closed"
)
_TEMPORARY_STATUSES = (408, 409, 425)
"""Client errors that SDKs retry: a timeout, a conflict, too early."""
_OLLAMA_RUNNER = re.compile(r"unexpected response from Ollama: \{'error'")
"""LiteLLM's message for an error in the middle of Ollama's stream, such as a dead runner."""
_FAILURE_TEXTS: dict[FailureKind, str] = {
    "rate limit": "is over its rate limit",
    "overload": "is overloaded",
    "unreachable": "cannot be reached",
    "broken off": "broke the connection off",
    "server error": "had an error",
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when a provider is called again.

    Without a delay from the server, pauses grow exponentially with up to 25 % jitter, so that many
    clients do not return at the same time. A delay that the server asks for (`retry-after`) is
    waited in full; a limit of the turn may end it sooner.

    Example:
        >>> from ctxkit.agent.models.retries import RetryPolicy
        >>> policy = RetryPolicy(chance=lambda: 0.0)
        >>> [policy.wait("overload", attempt, None) for attempt in range(4)]
        [1.0, 2.0, 4.0, 8.0]
    """

    attempts: int = 7
    """Calls in total for a busy server; for one that fails at most 4."""
    pause: float = 1.0
    """Seconds before the second call."""
    cap: float = 60.0
    """Longest pause in seconds, if the server asked for none."""
    longest: float = 3600.0
    """Seconds that a server may ask for; with more the call fails at once."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def wait(self, failure: FailureKind, attempt: int, retry_after: float | None) -> float | None:
        """Return the seconds to wait after a failed attempt; None: give up.

        Args:
            failure: class of the failure.
            attempt: number of the attempt, from 0.
            retry_after: seconds that the server asked for; None: it did not.
        """
        is_busy = failure in ("rate limit", "overload")
        if attempt + 1 >= (self.attempts if is_busy else min(self.attempts, 4)):
            return None
        if retry_after is not None:
            return retry_after if retry_after <= self.longest else None
        return min(self.pause * 2.0**attempt, self.cap) * (1 + self.chance() / 4)


# The order of the tests matters: an overflow or an exhausted quota may come with the status of a
# rate limit, and LiteLLM raises `APIConnectionError` for any error on this side of the connection,
# bugs included, so that name alone is no reason to retry. Texts go before the status.


def classify_failure(error: BaseException) -> FailureKind | None:
    """Return the class of a failure that another attempt may cure, or None.

    Args:
        error: of LiteLLM, by whatever class.

    Returns:
        None for an overflow, a spent quota, a wrong key and any error that would come again.

    Example:
        >>> from ctxkit.agent.models.retries import classify_failure
        >>> classify_failure(RuntimeError("server overloaded"))
        'overload'
    """
    text, status = f"{type(error).__name__}: {error}"[:20_000], getattr(error, "status_code", None)
    if is_overflow(error) or _QUOTA.search(text):
        return None
    if _OVERLOAD.search(text) or status in (503, 529):
        return "overload"
    if status == 429 or is_rate_limit(error):
        return "rate limit"
    if _UNREACHABLE.search(text):
        return "unreachable"
    if _CONNECTION_LOST.search(text):
        return "broken off"
    # LiteLLM's name for any other error on this side of the connection.
    if "APIConnectionError" in text[:200]:
        return None
    if _OLLAMA_RUNNER.search(text):
        return "server error"
    is_temporary = isinstance(status, int) and (status >= 500 or status in _TEMPORARY_STATUSES)
    return "server error" if is_temporary else None


def parse_retry_after(error: BaseException, now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that a server asked to wait (`retry-after`, RFC 9110), or None.

    Args:
        error: of LiteLLM; its response's headers are read, then its text.
        now: returns seconds since 1970, for a header that is a date.

    Returns:
        Seconds.

    Example:
        >>> from ctxkit.agent.models.retries import parse_retry_after
        >>> parse_retry_after(RuntimeError("Rate limited, try again in 20 s"))
        20.0
    """
    for headers in _list_headers(error):
        values = {str(k).lower(): str(v) for k, v in dict(headers).items()}
        for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
            seconds = _parse_delay(values.get(name, ""), unit, now)
            if seconds is not None:
                return seconds
    match = re.search(r"(?i)(?:retry|try again) (?:after|in) (\d+(?:\.\d+)?) ?(ms|s|m)", str(error))
    if match is None:
        match = re.search(r'"retryDelay": ?"(\d+(?:\.\d+)?)(s)', str(error))  # Gemini's
    if match is None:
        return None
    return float(match[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0}[match[2].lower()]


def _list_headers(error: BaseException) -> list[Any]:
    errors = [error, getattr(error, "original_exception", None), error.__cause__, error.__context__]
    headers = [getattr(e, "litellm_response_headers", None) for e in errors]
    headers += [getattr(getattr(e, "response", None), "headers", None) for e in errors]
    headers += [getattr(e, "headers", None) for e in errors]
    return [h for h in headers if h]


def _parse_delay(value: str, unit: float, now: Callable[[], float]) -> float | None:
    """Return a number of seconds or an HTTP date as seconds from now; None if it is neither."""
    try:
        seconds = float(value) / unit
    except ValueError:
        try:
            return max(email.utils.parsedate_to_datetime(value).timestamp() - now(), 0.0)
        except (ValueError, TypeError, OverflowError):
            return None
    return seconds if seconds >= 0 else None  # a NaN is not


def describe_failure(name: str, failure: FailureKind, address: str | None = None) -> str:
    """Return a clause on a failure: the model, and what happened.

    Args:
        name: of the model.
        failure: its class.
        address: of the server, named if it cannot be reached.

    Returns:
        The beginning of an error's sentence.
    """
    where = f" at {address}" if address and failure == "unreachable" else ""
    return f"{name} {_FAILURE_TEXTS[failure]}{where}"
