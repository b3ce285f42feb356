"""A turn beside the notebook as its cell holds it: what it says, a Stop button, what it asks, its result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxkit.agent.threads import Background
    from ctxkit.magics.agents import Answer
    from ctxkit.magics.streams import Shown


class Interrupted(KeyboardInterrupt):
    """The user stopped a turn; it is shown in one line, and the cell counts as interrupted."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Handle:
    """A turn in the background: `state`, `stop()`, `result()`; it is a view of the turn, too."""

    running: Background[Answer]

    def __init__(self, name: str) -> None:
        self.name = name
        self._over, self._html = False, ""
        self._shown: list[_Box] = []

    @property
    def state(self) -> str:
        """`running`, `stopping`, `stopped`, `failed` or `done`."""
        return self.running.state

    def stop(self) -> None:
        """Stop the turn; what was said so far is kept."""
        self.running.stop()

    def result(self, seconds: float | None = None) -> Answer:
        """Return the answer when it is there.

        Raises:
            TimeoutError: it is not, after so many seconds.
            Interrupted: the turn was stopped.
        """
        try:
            return self.running.result(seconds)
        except asyncio.CancelledError:
            raise Interrupted(f"Stopped. What was said so far is kept in session {self.name!r}.") from None

    # -- on the screen ---------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Turn of session {self.name!r} beside the notebook: {self.state}. `.stop()` ends it, `.result()` waits."

    def _ipython_display_(self) -> None:
        from IPython.display import display

        box = _Box(self)
        self._shown.append(box)
        self._draw(box)
        bundle = box.widget._repr_mimebundle_()
        text = f"Turn of session {self.name!r} beside the notebook: `.result()` waits for its answer."
        display({**bundle, "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]

    def show(self, shown: Shown) -> None:
        """Show the turn as it stands."""
        self._html = shown.html
        for box in self._shown:
            self._draw(box)

    end = show

    def over(self) -> None:
        """Say on the screen that the turn is over."""
        self._over = True
        for box in self._shown:
            self._draw(box)

    def _draw(self, box: _Box) -> None:
        box.words.value = self._html
        if self._over:
            box.stop.disabled = True
            box.label.value = f"The turn of session {self.name!r} is over: `.result()` has its answer."


class _Box:
    """One display of a handle."""

    def __init__(self, handle: Handle) -> None:
        from ipywidgets import HTML, Button, HBox, Label, VBox

        tip = f"Stop the turn of session {handle.name}"
        self.stop = Button(description="Stop", icon="stop", tooltip=tip)
        self.stop.on_click(lambda _: handle.stop())
        self.label = Label(repr(handle))
        self.words = HTML()
        self.widget: Any = VBox([HBox([self.stop, self.label]), self.words])
