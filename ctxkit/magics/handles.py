"""A turn beside the notebook as its cell holds it: its state, a Stop button, its result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxkit.agent.threads import Background
    from ctxkit.magics.agents import Answer


class Interrupted(KeyboardInterrupt):
    """The user stopped a turn; it is shown in one line, and the cell counts as interrupted."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Handle:
    """A turn in the background: `state`, `stop()`, `result()`."""

    running: Background[Answer]

    def __init__(self, name: str) -> None:
        self.name = name
        self._over = False
        self._shown: list[tuple[Any, Any]] = []
        """Stop buttons on the screen, with the words beside them."""

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

    def __repr__(self) -> str:
        return f"Turn of session {self.name!r} beside the notebook: {self.state}. `.stop()` ends it, `.result()` waits."

    def _ipython_display_(self) -> None:
        from IPython.display import display
        from ipywidgets import Button, HBox, Label

        button = Button(description="Stop", icon="stop", tooltip=f"Stop the turn of session {self.name}")
        button.on_click(lambda _: self.stop())
        label = Label(repr(self))
        self._shown.append((button, label))
        if self._over:
            self.over()
        display(HBox([button, label]))  # type: ignore[no-untyped-call]

    def over(self) -> None:
        """Say on the screen that the turn is over."""
        self._over = True
        for button, label in self._shown:
            button.disabled = True
            label.value = f"The turn of session {self.name!r} is over: `.result()` has its answer."
