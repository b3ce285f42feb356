"""One compaction, and how it held: one value and one verdict for records and replays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.metrics.bills import WrittenSummary
from ctxkit.metrics.breakeven import requests_until_reset_pays
from ctxkit.metrics.means import mean, middle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.bills import Sheet
    from ctxkit.metrics.shared_prefixes import Sent
    from ctxkit.prices import Price

FULL = 0.75
"""Share of the size before a cut at which the context counts as full again."""
NO_PROGRESS = 0.1
"""A cut that saves less than this share made no progress (OpenHands' minimum progress)."""
SPIRAL = 3
"""So many cuts without progress in a row count as thrash (where Codex stops trying)."""


class Compaction(msgspec.Struct, frozen=True, gc=False):
    """All that was compacted before one call. Sizes are tokens of its prompt, without and with."""

    call: int
    """The first call that was shown its outcome."""
    before: int
    after: int
    messages_before: int
    messages_after: int
    summary: int
    """Tokens that it put in."""
    written: tuple[WrittenSummary, ...] = ()
    """The summaries that a model wrote for it."""
    number: int = 0
    """As ``frame(per="compaction")`` counts; of several before one call, that of the last."""
    front: int = 0
    """Tokens at its front that the call before was sent as they are: the cache still has them."""
    sent: int | None = None
    """Tokens of the prompt of the call before; None: as many as without it."""

    @property
    def savings(self) -> float:
        """Share of the tokens that it saved; negative where the prompt grew."""
        return 1 - self.after / self.before if self.before else 0.0

    @property
    def message_savings(self) -> float:
        """Share of the messages that it took out of sight."""
        return 1 - self.messages_after / self.messages_before if self.messages_before else 0.0


class Verdict(msgspec.Struct, frozen=True):
    """How one compaction held. None: it cannot be said."""

    interval: int | None
    """Calls until the next one; None for the last one."""
    refill_3: float | None
    """Share of the freed tokens that was full again three calls later; above 1: fuller."""
    refill_10: float | None
    rebound_calls: int | None
    """Calls until the prompt was back at three quarters of its size before; None: it never was."""
    pays_after: float | None
    """Requests after which it has paid for itself (see `breakeven`); None without a price."""
    unpaid: bool | None
    """True where the next one came before that."""


def verdicts(
    cuts: Sequence[Compaction], prompts: Sent, sheet: Sheet, costs: Sequence[float | None]
) -> list[Verdict]:
    """Return how compactions held, one after the other.

    Args:
        cuts: the compactions, one a call.
        prompts: the sizes of the prompts.
        sheet: what the record tells of prices and of what the cache can have held.
        costs: dollars of the summaries of each; None: one has no price.
    """
    out, last = [], len(prompts)
    for i, cut in enumerate(cuts):
        following = cuts[i + 1].call if i + 1 < len(cuts) else None
        stop = last if following is None else following
        pays = pays_after(cut, sheet, costs[i])
        interval = None if following is None else following - cut.call
        unpaid = None if pays is None or interval is None else interval < pays
        soon, later = _refill(cut, prompts, 3, stop), _refill(cut, prompts, 10, stop)
        full = prompts.reaches(FULL * cut.before, cut.call, stop)
        back = None if full is None else full - cut.call
        out.append(Verdict(interval, soon, later, back, pays, unpaid))
    return out


def _refill(cut: Compaction, prompts: Sent, calls: int, stop: int) -> float | None:
    if cut.call + calls >= stop or cut.before <= cut.after:
        return None
    size = prompts.prompt(cut.call + calls)
    return (size - cut.after) / (cut.before - cut.after) if size else None


def pays_after(cut: Compaction, sheet: Sheet, cost: float | None) -> float | None:
    """Return after how many requests a compaction has paid for itself, its own call the first.

    Its summaries `cost` what the bill of a replay takes for them. What its call finds in the cache,
    with and without it, is what the call before was sent, and at most what the record's own call
    can have found.
    """
    known = sheet.at(cut.call)
    if known is None or cost is None:
        return None
    read, write = _prices(known.at(cut.before), sheet)
    found = cut.before if cut.sent is None else min(cut.before, cut.sent)
    if cut.call < len(sheet.kept):
        found = min(found, sheet.kept[cut.call])
    return requests_until_reset_pays(
        cut.before,
        cut.after,
        cost_usd=cost,
        read_price=read,
        write_price=write,
        found=found,
        front=cut.front,
    )


def _prices(p: Price, sheet: Sheet) -> tuple[float, float]:
    """Return what a token costs that the cache holds, and one that it does not."""
    fit = sheet.fit
    return p.read if sheet.has_cache else p.input, p.write(hour=fit.hour) if fit.writes else p.input


def held(
    cuts: Sequence[Compaction], prompts: Sent, sheet: Sheet, costs: Sequence[float | None]
) -> dict[str, Any]:
    """Return how compactions held, under the names of a score's columns; None: not known.

    What they saved is that of all; how they held, of those that a call was shown, which come first.
    """
    shown = felt(cuts, len(prompts))
    found = verdicts(shown, prompts, sheet, costs)
    return {
        "cuts_n": len(cuts),
        **summed([c.savings for c in shown], found),
        "token_savings": mean([c.savings for c in cuts]),
        "message_savings": mean([c.message_savings for c in cuts]),
        "summary_tokens": sum([c.summary for c in cuts]),
    }


def summed(savings: Sequence[float], found: Sequence[Verdict]) -> dict[str, Any]:
    """Return how compactions held whose savings and verdicts are known, named as in a score."""
    told = [v.unpaid for v in found if v.unpaid is not None]
    run = longest([saved < NO_PROGRESS for saved in savings])
    return {
        "unpaid_cuts_n": sum(told) if told or len(found) < 2 else None,
        "anti_thrash": 1 - sum(told) / len(told) if told else None,
        "refill": mean([v.refill_10 for v in found]),
        "rebound_calls": middle([v.rebound_calls for v in found]),
        "no_progress_n": run,
        "thrash": thrashes(run, told),
    }


def thrashes(run: int, unpaid: Sequence[bool]) -> bool:
    """Say whether compactions thrash: `SPIRAL` in a row without progress, or most did not pay.

    Args:
        run: the longest run of those without progress.
        unpaid: of each that can be said to be paid or not, True where it is not; one says nothing.
    """
    return run >= SPIRAL or (len(unpaid) > 1 and sum(unpaid) > len(unpaid) / 2)


def felt(cuts: Sequence[Compaction], calls: int) -> list[Compaction]:
    """Return the compactions that a call was shown."""
    return [cut for cut in cuts if cut.call < calls]


def longest(flags: Sequence[bool]) -> int:
    """Return the length of the longest run of True."""
    best = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        best = max(best, run)
    return best
