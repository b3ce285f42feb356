"""How far dollars can be believed, in a sentence."""

from __future__ import annotations

UNKNOWN = "No cache split is recorded, so the cache model could not be checked."


def foretold(error: float | None, low: float | None, high: float | None, note: str | None) -> str:
    """Return how well one session was foretold: error and interval, and what it rests on."""
    if error is None or low is None or high is None:
        return note or UNKNOWN
    return (
        f"Foretold by other sessions, without its reads, the input side is {error:+.1%} off the "
        f"record (80 % interval {low:+.0%} to {high:+.0%}).{f' {note}' if note else ''}"
    )
