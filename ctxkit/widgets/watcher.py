"""A watcher: how full a context is, how it grew, its last calls; it follows a session while it
runs, here or in another program.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anywidget
import traitlets as t

from ctxkit.widgets import gauges
from ctxkit.widgets.ahead import last_call, next_compaction
from ctxkit.widgets.gauges import Gauge
from ctxkit.widgets.twins import Twins

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.events import LiveEvent
    from ctxkit.agent.live import LiveSession
    from ctxkit.session import Session
    from ctxkit.widgets.followed_logs import FollowedLog

_PAUSE = 0.25
"""Seconds between two drawings while a turn runs."""
_SOME = ("turn_start", "model_response", "tool_result", "inner_call_context")
_ALL = ("turn_end", "cancelled", "compaction_end", "moved", "model_error", "limit_reached")
"""Events that are drawn where the last drawing is long enough ago, and those that always are."""
_ESM = """
export default { render({ model, el }) {
  el.classList.add("ctxkit-watch");
  for (const name of ["gauge", "ahead", "growth", "calls"]) {
    const box = el.appendChild(document.createElement("div"));
    // our own HTML, in which text of a log is escaped
    const draw = () => { box.innerHTML = model.get(name); };
    model.on("change:" + name, draw); draw();
  }
} };
"""


class Watcher(Twins, anywidget.AnyWidget):  # type: ignore[misc]
    """The widget that `ctxkit.watch` returns. Front ends without widgets get the same as text and
    as HTML.

    It only listens: a session that runs in the background draws into it from its own thread, and
    nothing waits.

    Args:
        name: what the session is called.
        session: returns the session as it stands.
        live: returns the live session, or None where there is none (any more).
        tail: the file that is followed, where another program writes it.
    """

    _esm = _ESM
    gauge = t.Unicode("").tag(sync=True)
    """How full it is, as HTML."""
    ahead = t.Unicode("").tag(sync=True)
    """What the last call added, and when the next compaction is due; of a foreign log."""
    growth = t.Unicode("").tag(sync=True)
    calls = t.Unicode("").tag(sync=True)
    """The last calls, as a table."""

    def __init__(
        self,
        name: str,
        session: Callable[[], Session],
        live: Callable[[], LiveSession | None],
        tail: FollowedLog | None = None,
    ) -> None:
        self.name, self._session, self._live, self._tail = name, session, live, tail
        self._drawn, self._turning = 0.0, False
        super().__init__()
        followed = live()
        if followed is not None:
            followed.listen(self.hear)
        self.draw()
        if tail is not None:
            tail.listen(self.draw)

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
        self.gauge = self.state.html()
        self.ahead = gauges.sentences(self.told)
        self.growth = gauges.growth(session, self.name)
        self.calls = gauges.listing(session)

    def stop(self) -> None:
        """Follow no more; what is shown stays."""
        live = self._live()
        if live is not None:
            live.unlisten(self.hear)
        if self._tail is not None:
            self._tail.stop()

    def close(self) -> None:
        """Follow no more, and take the widget away."""
        self.stop()
        super().close()

    @property
    def told(self) -> list[str]:
        """What the last call added, and when the next compaction is due: of a foreign log."""
        session = self._session()
        if self._tail is None or not session.calls:
            return []
        return [s for s in (last_call(session), next_compaction(session)) if s]

    @property
    def state(self) -> Gauge:
        """How the session stands, as plain values."""
        session, live = self._session(), self._live()
        done = len(session.calls), len(session.edits)
        if live is None:
            failed = self._tail.failed if self._tail is not None else ""
            note = failed and f"the last look failed: {failed}"
            state = "followed" if self._tail is not None else ""
            return Gauge(self.name, _last(session), _window(session), *done, state, note)
        state = "running" if self._turning else "at rest"
        return Gauge(self.name, *live.agent.gauge(), *done, state, live.agent.model.notice)

    def to_text(self) -> str:
        """Return what is shown as text."""
        return "\n".join([self.state.text, *self.told, *gauges.twin(self._session())])

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        return f"{self.gauge}{self.ahead}{self.growth}{self.calls}"


def _window(session: Session) -> int | None:
    """Return the window of the last call: as recorded, else by the price table."""
    from ctxkit.sizes.windows import window_of

    if not session.calls:
        return session.context_window
    last = session.calls[-1].message
    return window_of(session, last.model or session.model, last).tokens


def _last(session: Session) -> int | None:
    """Return the size of the last prompt whose size is recorded."""
    sizes = (c.message.usage.prompt_tokens for c in reversed(session.calls) if c.message.usage)
    return next((n for n in sizes if n), None)
