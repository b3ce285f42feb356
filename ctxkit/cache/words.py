"""How far dollars can be believed, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxkit.cache.predictions import Prediction

UNKNOWN = "No cache split is recorded, so the cache model could not be checked."


def foretold(found: Prediction) -> str:
    """Return how well a session was foretold, with why not where it was not."""
    if found.error is None or found.low is None or found.high is None:
        return found.why or UNKNOWN
    return within(found.error, found.low, found.high) + (f" {found.why}" if found.why else "")


def within(error: float, low: float, high: float) -> str:
    """Return the sentence for one session's prediction error and its interval."""
    return (
        f"Foretold by other sessions, without its reads, the input side is {error:+.1%} off the "
        f"record (80 % interval {low:+.0%} to {high:+.0%})."
    )
