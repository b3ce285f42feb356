"""What the bill would have been if: each a sentence with its dollars and what it takes
for granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.cache.cached_calls import HOUR
from ctxkit.display.amounts import change, counted, dollars
from ctxkit.messages import Usage
from ctxkit.metrics.money import recorded
from ctxkit.prices import price

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.accounts import Accounts, Charge
    from ctxkit.prices import Price
    from ctxkit.session import Session
    from ctxkit.spending.ledgers import Resent
    from ctxkit.spending.portions import Portions

CHEAPER = ("claude-sonnet-4-5", "claude-haiku-4-5", "gpt-5-mini", "gemini-2.5-flash")
"""Models that a session is priced for beside its own, where the table has them."""
_SMALL = 0.005
"""Dollars below which a sentence says nothing."""


class WhatIf(NamedTuple):
    """One change, and the bill that it would have made."""

    name: str
    usd: float
    """Dollars more (or, negative, less)."""
    sentence: str


def what_ifs(
    session: Session, found: Accounts, parts: Portions, resent: Sequence[Resent]
) -> list[WhatIf]:
    """Return what can be said without a replay; the same calls are taken for granted."""
    made = (
        _hour(session, found, resent),
        _models(session, found),
        _stable(resent, parts),
        _append_only(session),
        _summaries(session, found),
    )
    return sorted((w for w in made if w is not None and abs(w.usd) >= _SMALL), key=lambda w: w.usd)


def _hour(session: Session, found: Accounts, resent: Sequence[Resent]) -> WhatIf | None:
    """A cache that lives an hour: pauses shorter than that are hits, every write is dearer."""
    known = price(session.model or _first_model(session))
    if known is None or known.cache_write is None or known.cache_write_1h is None:
        return None
    paused = [r for r in resent if r.miss.paused]
    short = [r for r in paused if r.miss.gap is not None and r.miss.gap < HOUR]
    usages = {c.index: c.message.usage for c in session.calls}
    if not short or any(u is not None and u.cache_write_1h_tokens for u in usages.values()):
        return None
    saved, again = sum(r.usd for r in short), {r.miss.call: r.miss.lost for r in short}
    writes = sum(max(c.write - again.get(c.call, 0), 0) for c in found.charges)
    dearer = writes * (known.cache_write_1h - known.cache_write)
    told = (
        f"With a cache that lives an hour, {len(short)} of {counted(len(paused), 'pause')} would"
        f" have cost {dollars(saved)} less and all writing {dollars(dearer)} more:"
        f" {_less(dearer - saved)} in all."
    )
    return WhatIf("cache for an hour", dearer - saved, told)


def _models(session: Session, found: Accounts) -> WhatIf | None:
    """The same tokens at other models' prices; their own counts would differ, and so
    would the run.
    """
    own, told = _first_model(session), []
    for name in CHEAPER:
        other = price(name)
        if other is not None and own is not None and name not in own:
            told.append((sum(_at(other, c) for c in found.charges if c.usd is not None), name))
    if not told or not found.calls_usd:
        return None
    each = [
        f"{dollars(usd)} at those of {name} ({change(usd / found.calls_usd - 1)})"
        for usd, name in sorted(told)
    ]
    said = (
        f"By other models' prices the same calls would have cost {', '.join(each)}; another model"
        " takes other calls."
    )
    return WhatIf("another model", min(told)[0] - found.calls_usd, said)


def _at(other: Price, c: Charge) -> float:
    usage = Usage(
        input_tokens=c.fresh,
        cache_read_tokens=c.read,
        cache_write_tokens=c.write,
        output_tokens=c.output,
    )
    return other.cost_usd(usage) or 0.0


def _stable(resent: Sequence[Resent], parts: Portions) -> WhatIf | None:
    """What never changes put before the summary: a compaction leaves it in the cache."""
    cuts = [r for r in resent if r.miss.kind == "compaction" and r.miss.lost]
    kept = sum(
        r.usd * min(max(parts.fixed_tokens - r.miss.kept, 0), r.miss.lost) / r.miss.lost
        for r in cuts
    )
    if not cuts:
        return None
    told = (
        "Had the system prompt and the tools stayed in the cache at"
        f" {counted(len(cuts), 'compaction')} (the stable part before the summary), it would have"
        f" cost {dollars(kept)} less."
    )
    return WhatIf("stable part first", -kept, told)


def _append_only(session: Session) -> WhatIf | None:
    """A summary asked for at the end of the cached prompt, and not by a call of its own."""
    if session.origin is not None or not session.edits:
        return None
    own, reused = recorded(session).summaries_usd, recorded(session, reuse=True).summaries_usd
    if own is None or reused is None:
        return None
    told = (
        "Had each summary been asked for at the end of the cached prompt, the summaries would have"
        f" cost {dollars(reused)} and not {dollars(own)}."
    )
    return WhatIf("append-only summaries", reused - own, told)


def _summaries(session: Session, found: Accounts) -> WhatIf | None:
    own, usd = price(_first_model(session)), found.summaries_usd
    small = next(((n, p) for n in reversed(CHEAPER) if (p := price(n)) is not None), None)
    if own is None or small is None or not usd or small[1].input >= own.input:
        return None
    name, other = small
    less = usd * (other.input / own.input - 1)
    told = (
        f"Summaries by {name} would have cost about {dollars(usd + less)} and not {dollars(usd)}, "
        "by its price of input; what they would have left out is another question."
    )
    return WhatIf("cheaper summaries", less, told)


def _first_model(session: Session) -> str | None:
    return session.model or next((c.message.model for c in session.calls if c.message.model), None)


def _less(usd: float) -> str:
    return f"{dollars(-usd)} less" if usd < 0 else f"{dollars(usd)} more"


def smaller(session: Session, found: Accounts, window: int) -> WhatIf:
    """Return what the session would have cost in a smaller window, by a replay.

    Claude Code's rules stand for a compaction near its end.
    """
    from ctxkit.metrics.accounts import accounts
    from ctxkit.presets import claude_code
    from ctxkit.replays import replay

    base = session.origin or session
    made = accounts(replay(base, claude_code(context_window=window)))
    usd, now = made.total_usd or 0.0, found.total_usd or 0.0
    told = (
        f"In a window of {window:,} tokens, compacted as Claude Code does, it would have cost"
        f" {dollars(usd)} ({change(usd / now - 1) if now else 'no cost is known'}), with"
        f" {counted(len(made.summaries), 'paid summary', 'paid summaries')}. A replay: the same"
        " calls."
    )
    return WhatIf(f"window of {window:,}", usd - now, told)
