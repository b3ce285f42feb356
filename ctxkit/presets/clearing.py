"""Clear old tool uses where the prompt is over a limit: the way of Anthropic's server, LangChain and Inspect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies import contents
from ctxkit.policies.setting import Setting, at_least

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.tokens import Room


@dataclass(frozen=True, kw_only=True, repr=False)
class ClearUses(Setting):
    """Put a placeholder in the place of all tool results but the last few, where the prompt is over a limit."""

    trigger: int = 100_000
    """Tokens of the prompt up to which nothing is done."""
    keep: int = 3
    """Tool uses at the end that stay whole."""
    exclude: tuple[str, ...] = ()
    """Names or globs of the tools whose uses are never cleared; they count among the kept unless `count_all` is off."""
    count_all: bool = True
    """Whether excluded tools count among those that are kept."""
    clear_inputs: bool = False
    """Clear the arguments of the calls too."""
    clear_at_least: int = 0
    """Tokens to free: with `enough` the clearing stops there, else nothing is done where fewer would be freed."""
    enough: bool = False
    """Clear the oldest until `clear_at_least` is freed, instead of all or nothing."""
    placeholder: str = "[cleared]"
    """What a cleared result says."""

    def __post_init__(self) -> None:
        at_least(self, 0, "trigger", "keep", "clear_at_least")
        if not self.placeholder:
            raise BadArguments("A cleared result needs a placeholder: providers refuse an empty one.")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with old tool uses cleared."""
        if history.tokens <= self.trigger:
            return history
        old = self.old(history)
        if not self.clear_at_least or not self.enough:
            new = self.cleared(history, old)
            return new if history.tokens - new.tokens >= self.clear_at_least else history
        low, high = 1, len(old)
        while low < high:
            half = (low + high) // 2
            if history.tokens - self.cleared(history, old[:half]).tokens >= self.clear_at_least:
                high = half
            else:
                low = half + 1
        return self.cleared(history, old[:high])

    def old(self, history: History) -> np.ndarray:
        """Return the positions of the results that are cleared, oldest first."""
        results = history.role("tool")
        excluded = history.tool(*self.exclude) if self.exclude else np.zeros(len(history), bool)
        rows = np.flatnonzero(results if self.count_all else results & ~excluded)
        rows = rows[: max(len(rows) - self.keep, 0)]
        return np.asarray(rows[~excluded[rows] & ~history.stays[rows]])

    def cleared(self, history: History, rows: np.ndarray) -> History:
        """Return the history with the results at some positions cleared."""
        if not len(rows):
            return history
        new = history.shorten(rows, self.placeholder, reason=f"older than the last {self.keep} tool uses")
        if not self.clear_inputs:
            return new
        ids = {new[p].call_id for p in rows.tolist()}
        changes: dict[int, Message | str] = {}
        for p in np.flatnonzero(new.role("assistant") & ~new.stays).tolist():
            if any(c.id in ids and c.arguments for c in new[p].tool_calls):
                changes[p] = contents.with_arguments(new[p], lambda c: {} if c.id in ids else None)
        return new.shorten(changes, reason="the arguments of cleared calls") if changes else new
