"""What a call cost and how large its window was: as recorded, else from the table of prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxkit.messages import Message
    from ctxkit.session import Session


class Costs:
    """Answers for many calls; each model is looked up once."""

    def __init__(self) -> None:
        self._limits: dict[str | None, int | None] = {None: None}

    def cost(self, message: Message, model: str | None) -> tuple[float | None, str | None]:
        """Dollars of one call and where the figure comes from; missing where neither log nor table can say."""
        usage = message.usage
        if usage is None:
            return None, None
        if usage.cost_usd is not None:
            return usage.cost_usd, "recorded"
        if model is None or usage.prompt_tokens is None:
            return None, None
        from ctxkit.prices import cost_usd

        cost = cost_usd(usage, model)
        return (None, None) if cost is None else (cost, "derived")

    def limit(self, session: Session, message: Message, model: str | None) -> tuple[int | None, str | None]:
        """Size of the window at one call and where the figure comes from."""
        recorded = message.context_window or session.context_window
        if recorded:
            return recorded, "recorded"
        limit = self.table_limit(model)
        return (None, None) if limit is None else (limit, "derived")

    def table_limit(self, model: str | None) -> int | None:
        """Size of a model's window by the table of prices."""
        if model not in self._limits:
            from ctxkit.prices import context_limit

            self._limits[model] = context_limit(model)
        return self._limits[model]
