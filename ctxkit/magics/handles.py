"""A turn beside the notebook as its cell holds it: what it says, a Stop button, what it asks, its result."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ctxkit.magics.approvals import typed
from ctxkit.markup import escape

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.threads import Background
    from ctxkit.magics.agents import Answer
    from ctxkit.magics.streams import Shown

_TICK = 0.1


class Interrupted(KeyboardInterrupt):
    """The user stopped a turn; it is shown in one line, and the cell counts as interrupted."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Handle:
    """A turn in the background: `state`, `stop()`, `result()`; it is a view of the turn, too."""

    running: Background[Answer]

    def __init__(self, name: str) -> None:
        self.name = name
        self._over, self._html, self._question = False, "", ""
        self._answer: asyncio.Future[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
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
            BadArguments: it asks for a word, and this cell has no input field; the turn goes on waiting.
        """
        until = time.monotonic() + (float("inf") if seconds is None else seconds)
        while not self.running.wait(min(_TICK, max(until - time.monotonic(), 0))):
            if self._question:  # this cell waits, so that no click arrives
                self.answer(typed(self._question))
            if time.monotonic() >= until:
                break
        try:
            return self.running.result(0)
        except asyncio.CancelledError:
            raise Interrupted(
                f"Stopped. What was said so far is kept in session {self.name!r}."
            ) from None

    # -- what it asks ----------------------------------------------------------------------------

    async def ask(self, question: str) -> str:
        """Wait for the answer to a question: a click, a call of `allow`, `deny` or `always`."""
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        self._question, self._loop = question, loop
        self._draw_all()
        try:
            return await self._answer
        finally:
            self._question = ""
            self._draw_all()

    def answer(self, word: str) -> None:
        """Answer the question that stands; without one nothing happens."""
        asked = self._answer

        def settle() -> None:
            if asked is not None and not asked.done():
                asked.set_result(word)

        if self._question and self._loop is not None:
            with suppress(RuntimeError):  # the turn is over, and its loop closed
                self._loop.call_soon_threadsafe(settle)

    def allow(self) -> None:
        """Let the call run that it asks for."""
        self.answer("allow")

    def deny(self) -> None:
        """Let it not run."""
        self.answer("deny")

    def always(self) -> None:
        """Let it run, and all calls of that tool in this session from now on."""
        self.answer("always")

    # -- on the screen ---------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Turn of session {self.name!r} beside the notebook: {self.state}. `.stop()` ends it, `.result()` waits."

    def _ipython_display_(self) -> None:
        from IPython.display import display

        box = _Box(self)
        self._shown.append(box)
        self._draw(box)
        bundle = box.widget._repr_mimebundle_()
        text = (
            f"Turn of session {self.name!r} beside the notebook: `.result()` waits for its answer."
        )
        display({**bundle, "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]

    def show(self, shown: Shown) -> None:
        """Show the turn as it stands."""
        self._html = shown.html
        self._draw_all()

    end = show

    def over(self) -> None:
        """Say on the screen that the turn is over."""
        self._over = True
        self._draw_all()

    def _draw_all(self) -> None:
        for box in self._shown:
            self._draw(box)

    def _draw(self, box: _Box) -> None:
        box.words.value = self._html
        box.question.value = f"<pre>{escape(self._question)}</pre>" if self._question else ""
        box.asks.layout.display = "flex" if self._question else "none"
        if self._over:
            box.stop.disabled = True
            box.label.value = (
                f"The turn of session {self.name!r} is over: `.result()` has its answer."
            )


class _Box:
    """One display of a handle."""

    def __init__(self, handle: Handle) -> None:
        from ipywidgets import HTML, Button, HBox, Label, Layout, VBox

        def button(name: str, does: Callable[[], None], tip: str) -> Any:
            made = Button(description=name, tooltip=tip)
            made.on_click(lambda _: does())
            return made

        self.stop = button("Stop", handle.stop, f"Stop the turn of session {handle.name}")
        self.label, self.words, self.question = Label(repr(handle)), HTML(), HTML()
        self.choices = [
            button("Allow", handle.allow, "Let this call run"),
            button("Deny", handle.deny, "Do not let it run"),
            button("Always", handle.always, "Let all calls of this tool run in this session"),
        ]
        self.asks = VBox([self.question, HBox(self.choices)], layout=Layout(display="none"))
        self.widget: Any = VBox([HBox([self.stop, self.label]), self.words, self.asks])
