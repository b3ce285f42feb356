"""Dollars of single calls and of summary calls: as recorded, else from the price table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.session.messages import Message
from ctxkit.tokens.prices import cost_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.recorded_compactions import EditGroup
    from ctxkit.session.session import Session


def price_calls(
    messages: Sequence[Message], models: Sequence[str | None]
) -> tuple[list[tuple[float | None, str | None]], list[float | None]]:
    """Return what `cost` and `by_table` say of each call; the table is asked once for both."""
    spent = [price_call(m, model) for m, model in zip(messages, models, strict=True)]
    by = zip(messages, models, spent, strict=True)
    return spent, [
        price_by_table(m, model) if w == "recorded" else usd for m, model, (usd, w) in by
    ]


def price_call(message: Message, model: str | None) -> tuple[float | None, str | None]:
    """Return one call's dollars and their source; missing where neither log nor table can say."""
    usage = message.usage
    if usage is None:
        return None, None
    if usage.cost_usd is not None:
        return usage.cost_usd, "recorded"
    usd = price_by_table(message, model)
    if usd is None:
        return None, None
    return usd, "estimated" if get_output_source(message) == "estimated" else "derived"


def price_by_table(message: Message, model: str | None) -> float | None:
    """Return one call's dollars by the price table, whatever the log says; None if unknown."""
    return cost_usd(message.usage, model)


def get_output_source(message: Message) -> str | None:
    """Where output tokens come from: an estimate if the log has only a stream's first piece."""
    usage = message.usage
    if usage is None or usage.output_tokens is None:
        return None
    return str(message.details.get("output_source", "recorded"))


def pick_weakest_source(sources: list[str | None]) -> str | None:
    """Return the least sure of some sources; missing where one is."""
    if not sources or None in sources:
        return None
    return max(
        (s for s in sources if s is not None), key=("recorded", "derived", "estimated").index
    )


MODEL_FREE_METHODS = frozenset({"intents", "evidence", "digest", "tombstones", "superseded"})
"""Methods whose text is worked out from the record; every other summary is billed as a model's."""


class CompactionSizes(NamedTuple):
    """Tokens of a compaction; None: unknown."""

    before: int | None
    after: int | None
    summary: int | None
    """What the model wrote; 0 or None where it wrote nothing."""


def price_summary(
    session: Session,
    cut: EditGroup,
    sizes: CompactionSizes,
    model: str | None,
    *,
    reuse: bool = False,
) -> tuple[float | None, str | None]:
    """Return the dollars of a compaction's summary calls and where the figure comes from.

    A log that does not price them leaves an estimate: what was summarised is sent as fresh input
    (`reuse`: the whole prompt is read from the cache) and the summary is the output, by the prices
    of `model`, the last that answered before. Missing where no model wrote anything, or it has no
    price.
    """
    told = [e for e in cut.edits if e.usage is not None]
    if told:
        replies = [
            (Message(role="assistant", usage=e.usage), e.model or session.model) for e in told
        ]
        spent = [price_call(reply, model) for reply, model in replies]
        known = [usd for usd, _ in spent if usd is not None]
        return (
            (sum(known), pick_weakest_source([s for _, s in spent]))
            if len(known) == len(spent)
            else (None, None)
        )
    usd = _estimate_summary_cost(cut, sizes, model, reuse=reuse)
    return usd, None if usd is None else "estimated"


def has_summary_calls(cut: EditGroup) -> bool:
    """Say whether a compaction had calls of a model: the log bills them, or a summary stands."""
    return any(e.usage is not None for e in cut.edits) or _has_model_summary(cut)


def _has_model_summary(cut: EditGroup) -> bool:
    return any(
        e.source == "recorded"
        and e.method not in MODEL_FREE_METHODS
        and any(m.role == "summary" for m in e.inserted)
        for e in cut.edits
    )


def _estimate_summary_cost(
    cut: EditGroup, sizes: CompactionSizes, model: str | None, *, reuse: bool
) -> float | None:
    from ctxkit.tokens.prices import price

    if (
        not _has_model_summary(cut)
        or not sizes.summary
        or sizes.before is None
        or sizes.after is None
    ):
        return None
    p = price(model)
    if p is None:
        return None
    told = sum(e.details.get("source_tokens", 0) for e in cut.edits)
    went = told or max(sizes.before - sizes.after + sizes.summary, 0)
    return p.asked_usd(sizes.before if reuse else went, sizes.summary, cached=reuse)
