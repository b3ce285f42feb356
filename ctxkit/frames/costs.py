"""What calls and summaries cost and how large the window was: as recorded, else from the table of
prices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxkit.messages import Message
    from ctxkit.session import Session


class Costs:
    """Answers for many calls."""

    def cost(self, message: Message, model: str | None) -> tuple[float | None, str | None]:
        """Dollars of one call and where the figure comes from; missing where neither log nor table
        can say.
        """
        usage = message.usage
        if usage is None:
            return None, None
        if usage.cost_usd is not None:
            return usage.cost_usd, "recorded"
        cost = self.by_table(message, model)
        if cost is None:
            return None, None
        return cost, "estimated" if output_source(message) == "estimated" else "derived"

    def by_table(self, message: Message, model: str | None) -> float | None:
        """Dollars of one call by the table of prices, whatever the log says; None where it cannot
        say.
        """
        if message.usage is None or model is None or message.usage.prompt_tokens is None:
            return None
        from ctxkit.prices import cost_usd

        return cost_usd(message.usage, model)

    def limit(
        self, session: Session, message: Message, model: str | None
    ) -> tuple[int | None, str | None]:
        """Size of the window at one call and where the figure comes from."""
        from ctxkit.sizes.windows import window_of

        window = window_of(session, model, message)
        return window.tokens, window.source


def output_source(message: Message) -> str | None:
    """Where a reply's output comes from: an estimate where the log holds the first piece of a
    stream alone.
    """
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
