"""What each call found in the prompt cache, what it had to send again, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.cache.predictions import Prediction, prediction
from ctxkit.cache.words import foretold
from ctxkit.metrics.bills import Sheet
from ctxkit.metrics.misses import misses
from ctxkit.metrics.money import recorded
from ctxkit.metrics.shared_prefixes import Sent
from ctxkit.metrics.size import sent, spots_in
from ctxkit.plots.axes import Axes
from ctxkit.plots.chart import Chart
from ctxkit.plots.chart_words import noted
from ctxkit.plots.palette import COLOURS
from ctxkit.plots.traces import Trace
from ctxkit.readers.given import of_session
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session import Session

_KINDS = {
    "cold_start": "cold start",
    "ttl_expiry": "the cache had expired",
    "compaction": "a compaction",
    "prefix_change": "another model",
    "too_short": "too short to be cached before",
    "effort_change": "another effort of thinking",
    "resumed": "started anew",
    "reasoning_dropped": "old reasoning taken out",
    "changed_earlier": "earlier messages changed",
    "retry": "a call that was refused",
    "ttl_expiry_prefix": "expired but for the shared beginning",
    "tools_loaded": "further tools loaded",
    "unexplained": "unexplained",
}

_UNTOLD = "The record does not tell cached from uncached input, so nothing can be said."
_LOOKS = (0, 3, 5, 6, 8, 11, 13, 14, 15, 16, 19, 21, 7)
"""Looks of the marks: colours that the areas do not have; one that comes again has another sign."""


class CacheCall(NamedTuple):
    """One billed call: tokens by class, and its miss, if it was one."""

    call: int
    read: int
    written: int
    fresh: int
    miss: str | None
    """Why it missed; None: a hit."""
    lost: int
    """Tokens that had to be sent again."""


@of_session
def cache_data(session: Session) -> tuple[CacheCall, ...]:
    """Return what each billed call read and wrote; of a replay as its record's cache behaviour
    would have it.

    Nothing where the record does not tell cached from uncached input.
    """
    origin = session.origin or session
    if not origin.has_cache:
        return ()
    found = misses(origin)
    if session.origin is None:
        why = [(None, 0) if miss is None else (miss.kind, miss.lost) for miss in found]
        return tuple(
            CacheCall(x.call, x.read, x.write + x.write_1h, x.fresh, *why[x.call])
            for x in recorded(session).lines
        )
    sheet, (prompts, shared), spots = Sheet.of(origin), sent(session), spots_in(session)
    by_call = Sent(prompts.tolist(), shared.tolist())
    cut = {s.call for s in spots}
    out = []
    for c in [c for c, billed in enumerate(sheet.billed) if billed]:
        miss = found[c]
        own = miss.kind if miss is not None and miss.kind != "compaction" else None
        kind = "compaction" if c in cut else own
        expected = int(prompts[c] if kind == "cold_start" else min(shared[c], prompts[c]))
        read, prompt = sheet.read(c, by_call), int(prompts[c])
        written = prompt - read if sheet.write(c, prompt) else 0
        lost = max(expected - read, 0) if kind else 0
        out.append(CacheCall(c, read, written, prompt - read - written, kind, lost))
    return tuple(out)


@of_session
@noted
def cache(session: Session) -> Chart:
    """Chart for each call how much of its prompt was read from the cache, written or sent afresh;
    misses by cause.

    Raises:
        BadArguments: it is no session.
    """
    data = cache_data(session)
    p = prediction(session.origin or session) if data else Prediction()
    trust = foretold(p.error, p.low, p.high, p.why)
    return _chart(title_of(session), data, trust, replayed=session.origin is not None)


def _chart(name: str, data: Sequence[CacheCall], trust: str, *, replayed: bool) -> Chart:
    def hover(k: int) -> str:
        c = data[k]
        why = f"\nmissed: {_KINDS[c.miss]}, {c.lost:,} tokens again" if c.miss else ""
        return f"call {c.call}\nread {c.read:,}\nwritten {c.written:,}\nfresh {c.fresh:,}{why}"

    places = [c.call for c in data]
    stacks = [("read", [c.read for c in data], 2), ("written", [c.written for c in data], 1)]
    stacks.append(("fresh", [c.fresh for c in data], 4))
    traces = [
        Trace(name=n, x=places, y=y, kind="area", colour=COLOURS[i], hover=hover)
        for n, y, i in stacks
        if any(y)
    ]
    traces += [
        _misses(kind, data, i)
        for kind, i in zip(_KINDS, _LOOKS, strict=True)
        if any(c.miss == kind for c in data)
    ]
    source = (
        "as the record's cache behaviour would have it (derived)" if replayed else "as recorded"
    )
    told = f"Prompt tokens of each call by class, {source}. Marks are misses. {trust}"
    axes = Axes(x="call", y="tokens in the prompt", traces=tuple(traces), stacked=True)
    return Chart(
        title=f"Prompt cache of {name}",
        caption=told if data else _UNTOLD,
        drawing=axes,
        head=("outcome", "calls", "tokens sent again"),
        rows=tuple(_rows(data)),
    )


def _misses(kind: str, data: Sequence[CacheCall], i: int) -> Trace:
    def hover(k: int) -> str:
        return f"call {data[k].call}\n{_KINDS[kind]}\n{data[k].lost:,} tokens again"

    heights = [c.read + c.written + c.fresh if c.miss == kind else None for c in data]
    return Trace(
        name=_KINDS[kind], x=[c.call for c in data], y=heights, kind="points", hover=hover, look=i
    )


def _rows(data: Sequence[CacheCall]) -> list[tuple[str, ...]]:
    hits = [c for c in data if c.miss is None]
    out: list[tuple[str, ...]] = [("hit", f"{len(hits):,}", "0")] if data else []
    for kind, words in _KINDS.items():
        found = [c for c in data if c.miss == kind]
        if found:
            out.append((words, f"{len(found):,}", f"{sum(c.lost for c in found):,}"))
    return out
