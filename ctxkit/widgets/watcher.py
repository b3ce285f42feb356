"""A watcher: how full a context is, how it grew, its last calls; it follows a session while it
runs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import ipywidgets as w

from ctxkit.widgets import gauges
from ctxkit.widgets.gauges import Gauge

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.events import LiveEvent
    from ctxkit.agent.live import LiveSession
    from ctxkit.session import Session

_PAUSE = 0.25
"""Seconds between two drawings while a turn runs."""
_SOME = ("turn_start", "model_response", "tool_result", "inner_call_context")
_ALL = ("turn_end", "cancelled", "compaction_end", "moved", "model_error", "limit_reached")
"""Events that are drawn where the last drawing is long enough ago, and those that always are."""


class Watcher(w.VBox):  # type: ignore[misc]
    """The widget that `ctxkit.watch` returns. Front ends without widgets get the same as text and
    as HTML.

    It only listens: a session that runs in the background draws into it from its own thread, and
    nothing waits.

    Args:
        name: what the session is called.
        session: returns the session as it stands.
        live: returns the live session, or None where there is none (any more).
    """

    def __init__(
        self, name: str, session: Callable[[], Session], live: Callable[[], LiveSession | None]
    ) -> None:
        self.name, self._session, self._live = name, session, live
        self._drawn, self._turning = 0.0, False
        wide = w.Layout(width="auto")
        self.gauge, self.growth, self.calls = (
            w.HTML(layout=wide),
            w.HTML(layout=wide),
            w.HTML(layout=wide),
        )
        super().__init__([self.gauge, self.growth, self.calls], layout=w.Layout(width="100%"))
        followed = live()
        if followed is not None:
            followed.listen(self.hear)
        self.draw()

    def hear(self, event: LiveEvent) -> None:
        """Take an event of the session."""
        if event.kind == "turn_start":
            self._turning = True
        elif event.kind in ("turn_end", "cancelled"):
            self._turning = False
        if event.kind in _ALL or (event.kind in _SOME and time.monotonic() - self._drawn > _PAUSE):
            self.draw()

    def draw(self) -> None:
        """Draw the session as it stands."""
        self._drawn = time.monotonic()
        session = self._session()
        self.gauge.value = self.state.html()
        self.growth.value = gauges.growth(session, self.name)
        self.calls.value = gauges.listing(session)

    def stop(self) -> None:
        """Follow no more; what is shown stays."""
        live = self._live()
        if live is not None:
            live.unlisten(self.hear)

    @property
    def state(self) -> Gauge:
        """How the session stands, as plain values."""
        session, live = self._session(), self._live()
        done = len(session.calls), len(session.edits)
        if live is None:
            return Gauge(self.name, _last(session), session.context_window, *done, "", "")
        state = "running" if self._turning else "at rest"
        return Gauge(self.name, *live.agent.gauge(), *done, state, live.agent.model.notice)

    def to_text(self) -> str:
        """Return what is shown as text."""
        return "\n".join([self.state.text, *gauges.twin(self._session())])

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        return f"{self.gauge.value}{self.growth.value}{self.calls.value}"

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        return {**bundle, "text/plain": self.to_text(), "text/html": self.to_html()}


def _last(session: Session) -> int | None:
    """Return the size of the last prompt whose size is recorded."""
    sizes = (c.message.usage.prompt_tokens for c in reversed(session.calls) if c.message.usage)
    return next((n for n in sizes if n), None)
