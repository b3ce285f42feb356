"""Bills of the model calls that wrote the summaries of compactions, in records and replays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.metrics.compaction_sizes import measure_compactions
from ctxkit.metrics.cost.bill import SummaryBill
from ctxkit.metrics.cost.call_prices import has_summary_calls, price_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.compaction_sizes import MeasuredCompaction
    from ctxkit.session.session import Session


def bill_summaries(
    session: Session,
    measured: Sequence[MeasuredCompaction] | None = None,
    *,
    reuse: bool = False,
) -> tuple[SummaryBill, ...]:
    """Return the bills of a session's summaries, one for each compaction with model calls.

    For a record the dollars come from the log, else they are estimated. For a replay they follow
    from the size of the summary and the price of the call after the compaction.

    Args:
        session: any session.
        measured: its compactions; None: measured here.
        reuse: bill summaries that the log does not price as if their calls had read the cached
            prompt.
    """
    if not session.edits:
        return ()
    if session.origin is not None:
        return _bill_replay_summaries(session, reuse=reuse)
    out = []
    for one in measure_compactions(session) if measured is None else measured:
        if has_summary_calls(one.group):
            usd, source = price_summary(session, one, reuse=reuse)
            out.append(SummaryBill(one.group.number, one.call, usd, source))
    return tuple(out)


def _bill_replay_summaries(session: Session, *, reuse: bool) -> tuple[SummaryBill, ...]:
    from ctxkit.metrics.compactions import get_replay_compactions
    from ctxkit.metrics.cost.replay_bill import ReplayCostModel

    assert session.origin is not None  # noqa: S101  for the type checker: asked before
    cost_model, calls_n, out = ReplayCostModel.of(session.origin), len(session.calls), []
    for one in get_replay_compactions(session):
        if one.summaries:
            usd = cost_model.summaries_usd(one.summaries, reuse=reuse)
            call, source = (
                one.call if one.call < calls_n else None,
                None if usd is None else "derived",
            )
            out.append(SummaryBill(one.number, call, usd, source))
    return tuple(out)
