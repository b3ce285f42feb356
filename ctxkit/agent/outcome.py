"""How a turn ended: the answer, why it stopped, and what it used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ctxkit.display.amounts import counted
from ctxkit.display.markup import line

if TYPE_CHECKING:
    from ctxkit.agent.limits import SpentInTurn

Ended = Literal["answered", "limit", "error"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One turn's end."""

    text: str
    """The last reply's text."""
    ended: Ended
    why: str
    """For a limit or an error: one sentence."""
    spent: SpentInTurn
    compactions: int
    """Compactions made in the turn."""
    context_tokens: int
    """How large the session is, in tokens (see `prompt_sizes.size_now`)."""
    context_window: int
    notice: str
    """What must be said of the model, such as that none was called."""

    def account(self) -> str:
        """Return one line: calls, tokens, dollars, how full the context is, compactions."""
        s = self.spent
        cost = "no price known" if s.cost_usd is None else f"${s.cost_usd:.4f}"
        if s.free and s.cost_usd == 0:
            cost = "free"
        full = self.context_tokens / self.context_window if self.context_window else 0.0
        parts = [
            counted(s.calls, "call"),
            f"{s.fresh:,} fresh / {s.cached:,} cached / {s.output:,} out",
            cost,
            f"context {self.context_tokens:,}/{self.context_window:,} ({full:.0%})",
            counted(self.compactions, "compaction"),
        ]
        if s.unbilled:
            parts.append(f"about {s.unbilled:,} tokens of which the model told no usage")
        return " · ".join(p for p in (*parts, line(self.why, 300), self.notice) if p)
