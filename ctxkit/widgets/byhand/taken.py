"""What is known of one compaction: what it did to each message, its cost, what was needed later."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ctxkit.display.amounts import dollars
from ctxkit.display.markup import line
from ctxkit.metrics import loss, thrash
from ctxkit.metrics.bills import Sheet
from ctxkit.plots._diff import diff_data

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.metrics.thrash import Judged
    from ctxkit.session import Session
    from ctxkit.widgets.byhand.compaction_rows import Compacted

CHANGES, ITEMS = 24, 12
"""Rows of messages and of items that are told; of more the number."""
_ITEM = ["needed_call", "delay", "family", "item", "fate"]


class TakenOut:
    """What the compactions of a session took; worked out when it is first asked for."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @cached_property
    def _judged(self) -> dict[int, Judged]:
        return {cut.call: cut for cut in thrash.cuts(self.session)}

    @cached_property
    def _losses(self) -> pd.DataFrame | None:
        return loss.losses(self.session) if self.session.has_text else None

    @cached_property
    def _sheet(self) -> Sheet:
        return Sheet.of(self.session.origin or self.session)

    def of(self, number: int, one: Compacted) -> dict[str, Any]:
        """Return the sentences, the diff and the items of a compaction, as plain values."""
        changes = diff_data(self.session, number)
        changed = [(i, c) for i, c in enumerate(changes) if c.what != "kept"]
        changed.sort(key=lambda at: (at[1].what != "put in", -at[1].before))
        counts = Counter(c.what for c in changes)
        told = ", ".join(f"{n:,} {what}" for what, n in counts.items())
        more = len(changed) - CHANGES
        rows = [
            [
                f"{i:,}",
                line(c.tool or c.role, 40),
                c.what,
                f"{c.before:,}",
                f"{c.after:,}",
                line(c.preview, 80),
            ]
            for i, c in changed[:CHANGES]
        ]
        why = list(dict.fromkeys(line(c.reason, 120) for _, c in changed if c.reason))
        needed, items = self._needed(one.call)
        head = f"Messages: {told}." if told else "No message stood in the window."
        return {
            "ledger": [*self._ledger(one), *([f"Why: {'; '.join(why[:3])}"] if why else [])],
            "changed": head
            + (f" The {CHANGES} largest that changed; {more:,} more." if more > 0 else ""),
            "changes": rows,
            "needed": needed,
            "items": items,
        }

    def _ledger(self, one: Compacted) -> list[str]:
        """Return what it cost, when that is paid back, and how soon the window was full again."""
        cut = self._judged.get(one.call) if one.call is not None else None
        out = [f"It put in {one.put:,} tokens." if one.put else "It put nothing in."]
        out.append(self._price(one, cut))
        if cut is None:
            return [*out, "No call was shown its outcome, so nothing says how it held."]
        if cut.pays_after is None:
            out.append("Without a price nothing says when it has paid for itself.")
        elif cut.pays_after == float("inf"):
            out.append("It freed nothing, so it never pays for itself.")
        else:
            out.append(f"It has paid for itself after {cut.pays_after:,.0f} calls (derived).")
        if cut.interval is None:
            out.append("No compaction followed.")
        else:
            paid = {True: ": it did not pay", False: ": it paid", None: ""}[cut.unpaid]
            out.append(f"The next one came {cut.interval:,} calls later{paid}.")
        if cut.refill_10 is not None:
            out.append(f"Ten calls later {cut.refill_10:.0%} of what it freed was full again.")
        return [" ".join(out)]

    def _price(self, one: Compacted, cut: Judged | None) -> str:
        """Return what making it cost: as its frame says, else as the bill of a replay takes it."""
        if one.usd is not None:
            return f"Making it cost {dollars(one.usd)} ({one.usd_source})."
        if cut is not None and not cut.written:
            return "No model made it."
        usd = None if cut is None else self._sheet.summaries_usd(cut.written)
        if usd is None:
            return "No price of making it is known."
        return f"Making it would have cost {dollars(usd)} (estimated)."

    def _needed(self, call: int | None) -> tuple[str, list[list[str]]]:
        """Return what of it was named later: a sentence, and rows in the order of need."""
        if self._losses is None or call is None:
            why = "no call followed" if call is None else "the log has no text"
            return f"What was needed later cannot be said: {why}.", []
        mine = self._losses[self._losses["call"] == call]
        if mine.empty:
            return "It took nothing out of sight that the log could name later.", []
        needed = mine.dropna(subset=["needed_call"]).sort_values(["needed_call", "item"])
        gone = int((needed["fate"] == "lost").sum())
        told = (
            f"It took {len(mine):,} facts (paths, ids, numbers, errors ...) out of sight; "
            f"{len(needed):,} were named again later, {gone:,} of them could not be fetched again."
        )
        more = len(needed) - ITEMS
        rows = [
            [f"call {use:,}", f"{delay:,} calls", line(family, 20), line(item, 80), fate]
            for use, delay, family, item, fate in needed.head(ITEMS)[_ITEM].itertuples(index=False)
        ]
        return told + (f" The first {ITEMS}; {more:,} more." if more > 0 else ""), rows
