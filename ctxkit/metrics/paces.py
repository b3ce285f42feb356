"""How a session's context grows, pauses and comes down: what its own log says about when to
compact.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, isinf
from statistics import fmean, median
from typing import TYPE_CHECKING

from ctxkit.cache.cached_calls import HOUR, cache_life, has_clock, pause
from ctxkit.errors import BadArguments
from ctxkit.messages import Edit
from ctxkit.metrics.misses import Miss, misses
from ctxkit.metrics.thrash import cuts
from ctxkit.prices import price
from ctxkit.sizes import Sizes, sizes
from ctxkit.sizes.windows import window_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.prices import Price
    from ctxkit.session import Call, Session

WINDOW = 200_000
"""The window where neither the log nor the table of prices says one."""
SUMMARY = 1_000
"""Tokens of a summary where the log has none."""


class Pace:
    """What one session's log says, asked for once.

    Raises:
        BadArguments: the log has no usage or no price, or its prompts do not grow.
    """

    def __init__(self, session: Session) -> None:
        if not session.has_usage:
            raise BadArguments(
                "When to compact is worked out from recorded prompt sizes, and this log has no"
                " usage."
            )
        self.session = session
        self.billed = [
            c
            for c in session.calls
            if c.message.usage is not None and c.message.usage.prompt_tokens
        ]
        self.anchored: Sizes = sizes(session)
        self.cuts = cuts(session, anchored=self.anchored)
        self.pairs = _pairs(self.billed)
        self.model, self.price = _price(session, self.billed)
        edits = [e for e in session.path if isinstance(e, Edit) and e.inserted]
        written = [sum(self.anchored.of(m) for m in e.inserted) for e in edits]
        self.summary = round(median(written)) if written else SUMMARY
        self.hour = cache_life(session) == HOUR
        """Whether what is written lives an hour."""
        steps = [_size(b) - _size(a) for a, b in self.pairs if not self._cut(a, b)]
        self.growth = fmean(steps) if steps else 0.0
        if self.growth <= 0:
            raise BadArguments(
                f"The prompts of session {session.id!r} do not grow, so nothing has to be"
                " compacted."
            )

    def _cut(self, a: Call, b: Call) -> bool:
        return any(isinstance(e, Edit) for e in self.session.path[a.position : b.position])

    @property
    def window(self) -> tuple[int, str]:
        """The window in tokens, and who says so."""
        window = window_of(self.session, self.model)
        if window.tokens is None:
            return max(WINDOW, *map(_size, self.billed)), "assumed"
        told = "table of prices" if window.note is None else "what the log proves"
        return window.tokens, "recorded" if window.source == "recorded" else told

    def floor(self, summary: int) -> tuple[int, str]:
        """Return what a compaction leaves, in tokens, and who says so."""
        after = [c.after for c in self.cuts if c.after < c.before]
        if after:
            return round(median(after)), "as the log's compactions did"
        return min(map(_size, self.billed)) + summary, "its smallest prompt and a summary"

    @property
    def recorded(self) -> dict[str, int]:
        """The size at which the log's own compactions came; empty where it has none."""
        return {"recorded": round(median(c.before for c in self.cuts))} if self.cuts else {}

    @property
    def missed(self) -> float | None:
        """The share of carried tokens that were not found again; by pauses alone where no cache
        split is known.
        """
        if self.session.has_cache:
            found = misses(self.session, anchored=self.anchored)
            later = (found[b.index] for _, b in self.pairs)
            lost = sum(m.lost for m in later if m is not None and m.kind != "compaction")
            carried = sum(min(_size(a), _size(b)) for a, b in self.pairs)
            return lost / carried if carried else 0.0
        cold = self._cold(None)
        return None if cold is None else sum(cold) / max(len(cold), 1)

    @property
    def cold_every(self) -> float | None:
        """The mean over calls of how many calls away the next cold one is."""
        found = misses(self.session, anchored=self.anchored) if self.session.has_cache else None
        cold = self._cold(found)
        if cold is None:
            return None
        waits, ahead = [], inf
        for is_cold in reversed(cold):
            ahead = 0.0 if is_cold else ahead + 1
            waits.append(ahead)
        known = [w for w in waits if not isinf(w)]
        return fmean(known) if known else inf

    def _cold(self, found: Sequence[Miss | None] | None) -> list[bool] | None:
        """Say of each pair whether the later one found the cache dead; None without a clock."""
        if not has_clock(self.session):
            return None
        if found is not None:
            later = (found[b.index] for _, b in self.pairs)
            return [m is not None and m.paused for m in later]
        life, gaps = cache_life(self.session), (pause(self.session, *pair) for pair in self.pairs)
        return [gap is not None and gap >= life for gap in gaps]


def _size(call: Call) -> int:
    return (call.message.usage.prompt_tokens or 0) if call.message.usage else 0


def _pairs(billed: list[Call]) -> list[tuple[Call, Call]]:
    """Return the calls that follow each other in one cache, by the later one."""
    threads: dict[tuple[str, str | None], list[Call]] = {}
    for call in billed:
        threads.setdefault((call.agent, call.message.model), []).append(call)
    return sorted((p for t in threads.values() for p in pairwise(t)), key=lambda p: p[1].index)


def _price(session: Session, billed: list[Call]) -> tuple[str, Price]:
    """Return the model that was sent the most, and its price at a middling prompt."""
    sent: dict[str | None, int] = {}
    for call in billed:
        name = call.message.model or session.model
        sent[name] = sent.get(name, 0) + _size(call)
    model = max(sent, key=lambda name: sent[name])
    known = price(model)
    if known is None:
        raise BadArguments(
            f"Model {model or 'without a name'!r} has no price, so nothing can be weighed in"
            " dollars."
        )
    return model or "", known.at(round(median(map(_size, billed))))
