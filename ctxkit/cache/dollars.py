"""Dollars of the input side of calls, from the tokens that each reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.cache.cached_calls import HOUR, cache_life
from ctxkit.prices import price

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.cache.cached_calls import ForeseenCall
    from ctxkit.session import Session


class Dollars(NamedTuple):
    """The input side as a straight line: each token that is read is cheaper by so much."""

    whole: NDArray[Any]
    """Dollars of each call that reads nothing."""
    saved: NDArray[Any]
    """Dollars that one read token of a call saves."""

    def of(self, reads: NDArray[Any]) -> NDArray[Any]:
        """Return the dollars of calls that read so many tokens, summed over the last axis."""
        return np.asarray((self.whole - self.saved * reads).sum(axis=-1))


def dollars(session: Session, known: Sequence[ForeseenCall]) -> Dollars | None:
    """Return what calls cost by the table of prices; None where one has no price.

    What is not read is written, at the price of the life that the session's writes have, or sent
    fresh where the provider bills no writes or the prompt is too short to be cached.
    """
    calls = session.calls
    usages = [calls[a.call].message.usage for a in known]
    writes = any(u and (u.cache_write_tokens or u.cache_write_1h_tokens) for u in usages)
    hour = writes and cache_life(session) == HOUR
    whole, saved = np.zeros(len(known)), np.zeros(len(known))
    for i, a in enumerate(known):
        found = price(calls[a.call].message.model or session.model)
        if found is None:
            return None
        p = found.at(a.prompt)
        rest = p.write(hour=hour) if writes and a.prompt >= a.least else p.input
        whole[i] = a.prompt * rest
        saved[i] = rest - p.read
    return Dollars(whole, saved)
