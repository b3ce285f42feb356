"""How a turn of `%%agent` ended, as a value of the notebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.display.markup import TextAndHtml, escape, plain

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.agent.outcome import Outcome
    from ctxkit.session import Session


@dataclass(frozen=True, repr=False)
class Answer:
    """How a turn ended: `outcome` has the figures, `session` is the session as it stands.

    `shown` is what stays of a turn beside the notebook; one in a cell has shown it there.
    """

    outcome: Outcome
    session: Session
    shown: TextAndHtml | None = None
    chart: Path | None = None
    """The page that draws what each turn was sent."""
    own: Session | None = None
    """What the agent of another program wrote of itself, where its log was found."""

    @property
    def text(self) -> str:
        """The last reply."""
        return self.outcome.text

    def __repr__(self) -> str:
        before = f"{self.shown.text}\n" if self.shown else ""
        return before + "\n".join([plain(self.outcome.account()), *self._places()])

    def _repr_html_(self) -> str:
        before = self.shown.html if self.shown else ""
        said = "<br>".join(escape(t) for t in (self.outcome.account(), *self._places()))
        return f"{before}<small>{said}</small>"

    def _places(self) -> list[str]:
        return [f"Context viz → {plain(self.chart.as_posix())}"] if self.chart is not None else []
