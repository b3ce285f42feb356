"""The bill of a session: its calls, and the model calls that wrote its summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.compaction_sizes_and_detection import measure_compactions
from ctxkit.metrics.cost.call_and_summary_charges import (
    SessionBill,
    SummaryBill,
    get_call_price_and_source,
    make_charge,
    pick_weakest_source,
    price_call_with,
)
from ctxkit.policies.protocols import MODEL_FREE_METHODS
from ctxkit.session.compactions_and_prunings import has_sealed_summary, hides_compactions
from ctxkit.session.messages import Message, Usage
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.metrics.compaction_sizes_and_detection import MeasuredCompaction
    from ctxkit.metrics.cost.call_and_summary_charges import CallCharge
    from ctxkit.session.compactions_and_prunings import CompactionEdits
    from ctxkit.session.session import Session
    from ctxkit.tokens.prices import Price


__all__ = ["bill_session"]
__dir__ = make_dunder_dir(__all__)


@accepts_session
def bill_session(session: Session, *, reuse: bool = False) -> SessionBill:
    """Return the bill of a session, call by call, with its summaries and without its subagents.

    A recorded or live session is billed by its usage, with the dollars of the log, else of the
    price table; a replay by the cache behaviour of its record (`metrics.cost.replay_cost_model`).

    Args:
        session: any session, the path of a log, or a list of messages.
        reuse: bill summaries that the log does not price as if their calls had read the cached
            prompt.

    Returns:
        One charge a call and one summary bill a compaction whose summary a model wrote; sums are
        properties.

    Example:
        >>> import ctxkit as ck
        >>> bill = bill_session(ck.samples.path("billing"))
        >>> bill.unpriced_n, round(bill.cost_usd, 2)
        (0, 3.29)
    """
    is_replay, charges = session.origin is not None, charge_calls(session)
    logged = session.details.get("cost_usd")
    has_total = not is_replay and not charges and isinstance(logged, float) and logged > 0
    return SessionBill(
        charges=tuple(charges),
        summaries=bill_summaries(session, reuse=reuse),
        logged_usd=logged if has_total else None,
        hides_summaries=hides_compactions(session),
    )


def charge_calls(session: Session) -> list[CallCharge]:
    """Return one charge for each call with usage: the bill without its summaries, which takes no
    count of their texts.
    """
    if session.origin is not None:
        return _charge_replayed_calls(session)
    return _charge_recorded_calls(session)


def get_billed_usages(session: Session) -> list[Usage | None]:
    """Return the billed usage of each call; for a replay it has the cache reads of its bill."""
    if session.origin is None:
        return [c.message.usage for c in session.calls]
    from ctxkit.metrics.cost.replay_cost_model import ReplayCostModel

    if not ReplayCostModel.of(session.origin).has_usage:
        return [c.message.usage for c in session.calls]
    usages = {call: usage for call, usage, _ in _iter_replayed_usages(session)}
    return [usages.get(c.index) for c in session.calls]


def _charge_recorded_calls(session: Session) -> list[CallCharge]:
    charges = []
    for call in session.calls:
        message, model = call.message, call.message.model or session.model
        if message.usage is not None:
            at_call = price(model, at=message.time)
            usd, source = price_call_with(message, at_call)
            charges.append(make_charge(call.index, message.usage, at_call, usd, source))
    return charges


def _charge_replayed_calls(session: Session) -> list[CallCharge]:
    charges = []
    for call, usage, model_price in _iter_replayed_usages(session):
        usd = None if model_price is None else model_price.cost_usd(usage)
        charges.append(
            make_charge(call, usage, model_price, usd, None if usd is None else "derived")
        )
    return charges


def _iter_replayed_usages(session: Session) -> Iterator[tuple[int, Usage, Price | None]]:
    """Yield the calls of a replay that its record bills, with their cache reads."""
    from ctxkit.metrics.compaction_savings_and_payback import get_replay_prompt_sizes
    from ctxkit.metrics.cost.replay_cost_model import ReplayCostModel

    assert session.origin is not None  # noqa: S101  for the type checker: asked before
    cost_model, prompts = ReplayCostModel.of(session.origin), get_replay_prompt_sizes(session)
    if not cost_model.has_usage:
        return
    has_cache, hour = cost_model.has_cache, cost_model.fit.hour
    bills_writes = has_cache and cost_model.fit.writes
    for call in [c.index for c in session.calls if cost_model.billed[c.index]]:
        prompt, read = prompts.prompt(call), cost_model.count_read_tokens(call, prompts)
        writes = prompt - read if cost_model.is_billed_for_writes(call, prompt) else 0
        usage = Usage(
            input_tokens=prompt - read - writes,
            cache_read_tokens=read if has_cache else None,
            cache_write_tokens=writes if bills_writes and not hour else None,
            cache_write_1h_tokens=writes if bills_writes and hour else None,
            output_tokens=cost_model.output[call] if cost_model.has_output else None,
        )
        yield call, usage, cost_model.prices[cost_model.model[call]]


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
        reuse: where the log has no price of a summary, bill it as if its call had read the cached
            prompt.
    """
    if not session.edits:
        return ()
    if session.origin is not None:
        return _bill_replay_summaries(session, reuse=reuse)
    out = []
    for one in measure_compactions(session) if measured is None else measured:
        if _has_summary_calls(one.group):
            usd, source = _price_recorded_summary(session, one, reuse=reuse)
            out.append(SummaryBill(one.group.number, one.call, usd, source))
    return tuple(out)


def _price_recorded_summary(
    session: Session, measured: MeasuredCompaction, *, reuse: bool = False
) -> tuple[float | None, str | None]:
    """Return the cost of the summary calls of a recorded compaction, and its source.

    If the log does not price them, they are estimated: the text to summarise is fresh input, and
    the summary is output.

    Args:
        session: the session of the compaction.
        measured: the compaction's edits and sizes, and the model whose price is used.
        reuse: where they are estimated, the whole prompt is read from the cache instead.

    Returns:
        US dollars and their source; None where no model wrote a summary, or where the price of one
        of the calls or a size is unknown.
    """
    billed_edits = [e for e in measured.group.edits if e.usage is not None]
    if billed_edits:
        priced = [
            get_call_price_and_source(
                Message(role="assistant", usage=e.usage, time=e.time), e.model or session.model
            )
            for e in billed_edits
        ]
        dollars = [usd for usd, _ in priced if usd is not None]
        if len(dollars) < len(priced):
            return None, None
        return sum(dollars), pick_weakest_source([source for _, source in priced])
    usd = _estimate_summary_cost(measured, reuse=reuse)
    return usd, None if usd is None else "estimated"


def _has_summary_calls(group: CompactionEdits) -> bool:
    """Return True if a model was called: the log bills the call or contains its summary."""
    return (
        any(e.usage is not None for e in group.edits)
        or _has_model_summary(group)
        or has_sealed_summary(group)
    )


def _has_model_summary(group: CompactionEdits) -> bool:
    return any(
        e.source == "recorded"
        and e.method not in MODEL_FREE_METHODS
        and any(m.role == "summary" for m in e.inserted)
        for e in group.edits
    )


def _estimate_summary_cost(measured: MeasuredCompaction, *, reuse: bool) -> float | None:
    before, after = measured.before, measured.after
    # our own loop records what the model wrote; attachments beside it are not output
    written_tokens = sum(e.details.get("written_tokens", 0) for e in measured.group.edits)
    summary = written_tokens or measured.summary
    if not _has_model_summary(measured.group) or has_sealed_summary(measured.group):
        return None
    if not summary or before is None or after is None:
        return None
    times = (e.time for e in measured.group.edits if e.time is not None)
    p = price(measured.model, at=next(times, None))
    if p is None:
        return None
    source_tokens = sum(e.details.get("source_tokens", 0) for e in measured.group.edits)
    removed = source_tokens or max(before - after + summary, 0)
    return p.request_usd(before if reuse else removed, summary, cached=reuse)


def _bill_replay_summaries(session: Session, *, reuse: bool) -> tuple[SummaryBill, ...]:
    """Return the bills of a replay's summaries, by the cost model of the record it was made of."""
    from ctxkit.metrics.compaction_savings_and_payback import get_replay_compactions
    from ctxkit.metrics.cost.replay_cost_model import ReplayCostModel

    assert session.origin is not None  # noqa: S101  for the type checker: asked before
    cost_model, calls_n, out = ReplayCostModel.of(session.origin), len(session.calls), []
    for one in get_replay_compactions(session):
        if one.summaries:
            usd = cost_model.summaries_usd(one.summaries, reuse=reuse)
            call, source = (
                one.call if one.call < calls_n else None,  # no call may follow
                None if usd is None else "derived",
            )
            out.append(SummaryBill(one.number, call, usd, source))
    return tuple(out)
