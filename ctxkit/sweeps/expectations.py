"""What a row of scores says of real runs: how many calls they take, what is told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.metrics.elongation import expected, family_of, kind_of, verdict
from ctxkit.metrics.money import recorded

if TYPE_CHECKING:
    from ctxkit.metrics.elongation import Kind
    from ctxkit.metrics.money import Ledger
    from ctxkit.session import Session

_PROCESSORS: dict[str, Kind] = {"swe_agent_mask": "mask", "none": "raw"}
"""Families of the history processors that a reader infers."""


class Expectation:
    """What the rows of one recorded session share: the policy it was made under, and its bill."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.kind = recorded_kind(session)
        self.family = family_of(next((m.model for m in session.messages if m.model), session.model))
        self._ledgers: dict[bool, Ledger] = {}

    def ledger(self, *, reuse: bool) -> Ledger:
        """Return the bill of the record by the table of prices, as replays are billed."""
        if reuse not in self._ledgers:
            self._ledgers[reuse] = recorded(self.session, reuse=reuse)
        return self._ledgers[reuse]

    def columns(self, row: dict[str, Any], *, pruned: bool, reuse: bool) -> dict[str, Any]:
        """Return the columns `longer` to `told_apart` of a replay's row; missing: not known."""
        after = kind_of(
            summaries=bool(row.get("summary_tokens")),
            pruned=pruned,
            cuts=row.get("cuts_n"),
            hidden=(row["hidden_messages_n"], row["hidden_results_n"]),
        )
        if after is None or self.kind is None:
            return {}
        found = expected(after, self.kind, self.family)
        out: dict[str, Any] = {
            "longer": found.factor,
            "longer_low": found.low,
            "longer_high": found.high,
        }
        cost, summaries = row["cost_usd"], row["summaries_usd"]
        usd = self.ledger(reuse=reuse).total_usd
        if cost is None or usd is None:
            return out
        calls = cost - summaries
        ends = calls * found.low + summaries, calls * found.high + summaries
        out["real_low_usd"], out["real_high_usd"] = ends
        return out | {"told_apart": verdict(ends, usd)}


def recorded_kind(session: Session) -> Kind | None:
    """Return the family of the policy that a record was made under; None: its log cannot say."""
    if any(edit.inserted for edit in session.edits):
        return "summary"
    if session.edits:
        return "other"
    processor = session.details.get("history_processor")
    if processor is not None:
        return _PROCESSORS.get(processor["name"], "other")
    return None if "compactions" in session.details.get("cannot_tell", ()) else "raw"
