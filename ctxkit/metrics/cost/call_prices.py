"""Dollars of single calls and of summary calls: as recorded, else from the price table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.session.messages import SEALED_SUMMARY, Message
from ctxkit.tokens.prices import cost_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.recorded_compactions import EditGroup
    from ctxkit.session.session import Session


def price_calls(
    messages: Sequence[Message], models: Sequence[str | None]
) -> tuple[list[tuple[float | None, str | None]], list[float | None]]:
    """Return `price_call` and `price_by_table` of each call; the table is read once for both."""
    priced = [price_call(m, model) for m, model in zip(messages, models, strict=True)]
    return priced, [
        price_by_table(m, model) if source == "recorded" else usd
        for m, model, (usd, source) in zip(messages, models, priced, strict=True)
    ]


def price_call(message: Message, model: str | None) -> tuple[float | None, str | None]:
    """Return one call's dollars and their source; None where neither log nor table has a price."""
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
    """Return the source of a call's output tokens; None where the log has none.

    They are estimated where the log has only the first piece of a stream.
    """
    usage = message.usage
    if usage is None or usage.output_tokens is None:
        return None
    return str(message.details.get("output_source", "recorded"))


def pick_weakest_source(sources: list[str | None]) -> str | None:
    """Return the least certain of some sources: recorded, derived, estimated; None where one is."""
    if not sources or None in sources:
        return None
    return max(
        (s for s in sources if s is not None), key=("recorded", "derived", "estimated").index
    )


MODEL_FREE_METHODS = frozenset({"intents", "evidence", "digest", "tombstones", "superseded"})
"""Methods that compute a text from the record; any other summary is billed as a model's."""


class CompactionSizes(NamedTuple):
    """Tokens before and after a compaction, and of its summary; None: unknown."""

    before: int | None
    after: int | None
    summary: int | None
    """0 or None where no model wrote a summary."""


def price_summary(
    session: Session,
    cut: EditGroup,
    sizes: CompactionSizes,
    model: str | None,
    *,
    reuse: bool = False,
) -> tuple[float | None, str | None]:
    """Return the dollars of a compaction's summary calls and the source of the figure.

    Where the log does not price them it is an estimate: the source of the summary is sent as fresh
    input and the summary is the output. None where no model wrote anything, or it has no price.

    Args:
        session: the session of the compaction.
        cut: its edits.
        sizes: its tokens.
        model: the last model that answered before it, whose price is used.
        reuse: estimate with the whole prompt read from the cache, not with fresh input.
    """
    billed_edits = [e for e in cut.edits if e.usage is not None]
    if billed_edits:
        priced = [
            price_call(Message(role="assistant", usage=e.usage), e.model or session.model)
            for e in billed_edits
        ]
        dollars = [usd for usd, _ in priced if usd is not None]
        if len(dollars) < len(priced):
            return None, None
        return sum(dollars), pick_weakest_source([source for _, source in priced])
    usd = _estimate_summary_cost(cut, sizes, model, reuse=reuse)
    return usd, None if usd is None else "estimated"


def has_summary_calls(cut: EditGroup) -> bool:
    """Return True where a model was called: the log bills the call, or it holds a summary."""
    return any(e.usage is not None for e in cut.edits) or _has_model_summary(cut) or is_sealed(cut)


def is_sealed(cut: EditGroup) -> bool:
    """Return True where the log does not hold the text of the summary that a model wrote."""
    return any(e.details.get(SEALED_SUMMARY) is True for e in cut.edits)


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
        or is_sealed(cut)
        or not sizes.summary
        or sizes.before is None
        or sizes.after is None
    ):
        return None
    p = price(model)
    if p is None:
        return None
    source_tokens = sum(e.details.get("source_tokens", 0) for e in cut.edits)
    removed = source_tokens or max(sizes.before - sizes.after + sizes.summary, 0)
    return p.asked_usd(sizes.before if reuse else removed, sizes.summary, cached=reuse)
