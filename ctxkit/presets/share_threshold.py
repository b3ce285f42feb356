"""Inspect's threshold: a share of the window, or a number of tokens."""

from __future__ import annotations

from typing import Any

from ctxkit.errors import BadArguments
from ctxkit.policies.triggers import Above, Share


def trigger(threshold: float) -> Any:
    """Return the trigger of a threshold: up to 1 a share of the window, above it tokens.

    Raises:
        BadArguments: it is not above 0.
    """
    if isinstance(threshold, bool) or not threshold > 0:
        raise BadArguments(
            f"threshold is a share of the window up to 1, or tokens above it; got {threshold!r}."
        )
    return Share(threshold) if threshold <= 1 else Above(threshold)
