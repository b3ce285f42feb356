"""What calls cost: as recorded, else from the table of prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.prices import cost_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.messages import Message


def costs(
    messages: Sequence[Message], models: Sequence[str | None]
) -> tuple[list[tuple[float | None, str | None]], list[float | None]]:
    """Return what `cost` and `by_table` say of each call; the table is asked once for both."""
    spent = [cost(m, model) for m, model in zip(messages, models, strict=True)]
    by = zip(messages, models, spent, strict=True)
    return spent, [by_table(m, model) if w == "recorded" else usd for m, model, (usd, w) in by]


def cost(message: Message, model: str | None) -> tuple[float | None, str | None]:
    """Return one call's dollars and their source; missing where neither log nor table can say."""
    usage = message.usage
    if usage is None:
        return None, None
    if usage.cost_usd is not None:
        return usage.cost_usd, "recorded"
    usd = by_table(message, model)
    if usd is None:
        return None, None
    return usd, "estimated" if output_source(message) == "estimated" else "derived"


def by_table(message: Message, model: str | None) -> float | None:
    """Return one call's dollars by the price table, whatever the log says; None if unknown."""
    return cost_usd(message.usage, model)


def output_source(message: Message) -> str | None:
    """Where output tokens come from: an estimate if the log has only a stream's first piece."""
    usage = message.usage
    if usage is None or usage.output_tokens is None:
        return None
    return str(message.details.get("output_source", "recorded"))


def weakest(sources: list[str | None]) -> str | None:
    """Return the least sure of some sources; missing where one is."""
    if not sources or None in sources:
        return None
    return max(
        (s for s in sources if s is not None), key=("recorded", "derived", "estimated").index
    )
