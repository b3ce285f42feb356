"""Classify provider failures and decide how long to wait before retrying."""

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
"""What passes by itself: the last three within seconds, the first two when the server has room."""

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
"""Refusals that SDKs ask again after: a timeout, a conflict, too early."""
_OLLAMA_RUNNER = re.compile(r"unexpected response from Ollama: \{'error'")
"""LiteLLM's words for an error in the middle of Ollama's stream: its runner died, or ran out."""
_FAILURE_TEXTS: dict[FailureKind, str] = {
    "rate limit": "is over its rate limit",
    "overload": "is overloaded",
    "unreachable": "cannot be reached",
    "broken off": "broke the connection off",
    "server error": "had an error",
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a provider is waited for.

    Without a word from the server the pauses double, with up to a quarter more by chance, so that
    many clients do not come back at once. What the server asks for (`retry-after`) is waited in
    full; a limit of the turn ends it sooner.
    """

    attempts: int = 7
    """Calls in all where the server is full; where it fails, at most 4."""
    pause: float = 1.0
    """Seconds before the second call."""
    cap: float = 60.0
    """Seconds that a pause of our own lasts at most."""
    longest: float = 3600.0
    """Seconds that a server may ask for; beyond, it is given up at once."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def wait(self, failure: FailureKind, attempt: int, retry_after: float | None) -> float | None:
        """Return the seconds to wait after the attempt of that number, from 0; None: give up."""
        is_busy = failure in ("rate limit", "overload")
        if attempt + 1 >= (self.attempts if is_busy else min(self.attempts, 4)):
            return None
        if retry_after is not None:
            return retry_after if retry_after <= self.longest else None
        return min(self.pause * 2.0**attempt, self.cap) * (1 + self.chance() / 4)


def classify_failure(error: BaseException) -> FailureKind | None:
    """Return how a call failed, where asking again may help; None where it will not."""
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
    if (
        "APIConnectionError" in text[:200]
    ):  # LiteLLM's name for whatever else went wrong on this side
        return None
    if _OLLAMA_RUNNER.search(text):
        return "server error"
    is_temporary = isinstance(status, int) and (status >= 500 or status in _TEMPORARY_STATUSES)
    return "server error" if is_temporary else None


def parse_retry_after(error: BaseException, now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that a server asked to wait (`retry-after`, RFC 9110), or None."""
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
    """Return seconds or a date as seconds from now; None for what is neither, or lies behind."""
    try:
        seconds = float(value) / unit
    except ValueError:
        try:
            return max(email.utils.parsedate_to_datetime(value).timestamp() - now(), 0.0)
        except (ValueError, TypeError, OverflowError):
            return None
    return seconds if seconds >= 0 else None  # a NaN is not


def describe_failure(name: str, failure: FailureKind, address: str | None = None) -> str:
    """Return what is said of a failure: who, and what it did."""
    where = f" at {address}" if address and failure == "unreachable" else ""
    return f"{name} {_FAILURE_TEXTS[failure]}{where}"
