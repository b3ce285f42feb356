"""Dollars of single calls and of summary calls: recorded, else from the price table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.metrics.recorded_compactions import is_sealed
from ctxkit.policies.model_free_methods import MODEL_FREE_METHODS
from ctxkit.session.messages import Message
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from ctxkit.metrics.compaction_sizes import MeasuredCompaction
    from ctxkit.session.compaction_groups import EditGroup
    from ctxkit.session.session import Session
    from ctxkit.tokens.prices import Price


def price_call(message: Message, model: str | None) -> tuple[float | None, str | None]:
    """Return one call's dollars and their source; None where neither log nor table has a price."""
    table = price(model)
    return price_call_with(message, None if table is None else table.on(message.time))


def price_call_with(message: Message, prices: Price | None) -> tuple[float | None, str | None]:
    """Return the same as `price_call`, by given prices."""
    usage = message.usage
    if usage is None:
        return None, None
    if usage.cost_usd is not None:
        return usage.cost_usd, "recorded"
    usd = None if prices is None else prices.cost_usd(usage)
    if usd is None:
        return None, None
    return usd, "estimated" if get_output_source(message) == "estimated" else "derived"


def get_output_source(message: Message) -> str | None:
    """Return the source of a call's output tokens; None where the log has none.

    They are estimated if the log has only the first piece of a stream.
    """
    usage = message.usage
    if usage is None or usage.output_tokens is None:
        return None
    return str(message.details.get("output_source", "recorded"))


def pick_weakest_source(sources: list[str | None]) -> str | None:
    """Return the least certain source (recorded, derived, estimated); None if any is None."""
    if not sources or None in sources:
        return None
    return max(
        (s for s in sources if s is not None), key=("recorded", "derived", "estimated").index
    )


def is_written_by_model(method: str | None) -> bool:
    """Return True if a model writes, or would write, the summaries of a method of rules.

    Without a method the user's own function wrote the summary.
    """
    return method is not None and method not in MODEL_FREE_METHODS


def price_summary(
    session: Session, measured: MeasuredCompaction, *, reuse: bool = False
) -> tuple[float | None, str | None]:
    """Return the dollars of the summary calls of a recorded compaction, and their source.

    If the log does not price them, they are estimated: the text to summarise is fresh input, and
    the summary is output. None where no model wrote a summary or the model has no price.

    Args:
        session: the session of the compaction.
        measured: the compaction's edits and sizes, and the model whose price is used.
        reuse: estimate that the whole prompt is read from the cache, instead of fresh input.
    """
    billed_edits = [e for e in measured.group.edits if e.usage is not None]
    if billed_edits:
        priced = [
            price_call(
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


def has_summary_calls(group: EditGroup) -> bool:
    """Return True if a model was called: the log bills the call or contains its summary."""
    return (
        any(e.usage is not None for e in group.edits)
        or _has_model_summary(group)
        or is_sealed(group)
    )


def _has_model_summary(group: EditGroup) -> bool:
    return any(
        e.source == "recorded"
        and e.method not in MODEL_FREE_METHODS
        and any(m.role == "summary" for m in e.inserted)
        for e in group.edits
    )


def _estimate_summary_cost(measured: MeasuredCompaction, *, reuse: bool) -> float | None:
    before, after, summary = measured.before, measured.after, measured.summary
    if not _has_model_summary(measured.group) or is_sealed(measured.group):
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
