"""The handle and the answer of a turn: Stop button, questions, result."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import TextAndHtml, escape_html, sanitize_text
from ctxkit.magics.approvals import ask_blocking, format_question_html

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ctxkit.agent.event_loops import BackgroundTask
    from ctxkit.agent.turn_state_and_events import Outcome
    from ctxkit.magics.approvals import ApprovalQuestion
    from ctxkit.session.session import Session


_TICK = 0.1
_LOOK = 0.5
"""Seconds before buttons take an answer: the second of two fast clicks answers no next question."""


class TurnInterrupted(KeyboardInterrupt):
    """The user stopped a turn; it is shown in one line, and the cell counts as interrupted."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


# Two threads use a handle: that of the kernel, which runs cells and clicks, and that of the turn's
# event loop, in which `ask` waits. `ask` creates a future and sets `_question`; `answer` settles
# the future by `call_soon_threadsafe`, so only its own loop touches it. At most one question
# stands, its first answer counts, and an answer that names an earlier question does nothing.
# `_unseen` disables the buttons for `_LOOK` seconds after a question appears. After `over` the
# result replaces the widget.
class TurnHandle:
    """A turn in the background: `state`, `stop()`, `result()`; it is a view of the turn, too.

    Args:
        name: of the session.
        leaves: True: at the end the widget gives way to what a turn in a cell leaves, which is
            saved with the notebook and needs no kernel to be seen.
    """

    running: BackgroundTask[TurnAnswer]

    def __init__(self, name: str, *, leaves: bool = True) -> None:
        self.name, self._leaves = name, leaves
        self._over = False
        self._question: ApprovalQuestion | None = None
        self._unseen = True
        self._content: TextAndHtml | None = None
        self._answer: asyncio.Future[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._views: list[_HandleView] = []

    @property
    def state(self) -> str:
        """`running`, `stopping`, `stopped`, `failed` or `done`."""
        return self.running.state

    def stop(self) -> None:
        """Stop the turn; the text that has arrived is kept."""
        self.running.stop()

    def result(self, seconds: float | None = None) -> TurnAnswer:
        """Return the answer when it is there.

        Raises:
            TimeoutError: it is not, after so many seconds.
            Interrupted: the turn was stopped.
            BadArguments: it asks for a word, and this cell has no input field; the turn continues
                waiting.
        """
        until = time.monotonic() + (float("inf") if seconds is None else seconds)
        # Waiting in short steps, since a question may come up while this cell waits.
        while not self.running.wait(min(_TICK, max(until - time.monotonic(), 0))):
            if question := self._question:  # this cell waits, so that no click arrives
                self.answer(ask_blocking(question), question)
            if time.monotonic() >= until:
                break
        try:
            return self.running.result(0)
        except asyncio.CancelledError:
            raise TurnInterrupted(
                f"Stopped. What was said so far is kept in session {self.name!r}."
            ) from None

    # -- what it asks ----------------------------------------------------------------------------

    async def ask(self, question: ApprovalQuestion) -> str:
        """Wait for the answer to a question: a click, a call of `allow`, `deny` or `always`."""
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        self._question, self._loop, self._unseen = question, loop, True
        self._draw_all()
        seen = loop.call_later(_LOOK, self._enable_choices)
        try:
            return await self._answer
        finally:
            seen.cancel()
            self._question = None
            self._draw_all()

    def _enable_choices(self) -> None:
        self._unseen = False
        self._draw_all()

    def answer(self, word: str, question: ApprovalQuestion | None = None) -> None:
        """Answer the question that stands; without one nothing happens.

        Args:
            word: such as `y`, `deny`, `always`.
            question: the one that is meant; another one gets no answer. None: whichever stands.
        """
        # Read once: the turn's thread may replace it at any time.
        pending = self._answer
        if question is not None and question is not self._question:
            return

        def settle() -> None:
            if pending is not None and not pending.done():
                pending.set_result(word)

        if self._question and self._loop is not None:
            with suppress(RuntimeError):  # the turn is over, and its loop closed
                self._loop.call_soon_threadsafe(settle)

    def allow(self) -> None:
        """Allow the tool call in question."""
        self.answer("allow")

    def deny(self) -> None:
        """Refuse the tool call in question."""
        self.answer("deny")

    def always(self) -> None:
        """Allow the call in question, and all later calls of that tool in this session."""
        self.answer("always")

    # -- on the screen ---------------------------------------------------------------------------

    def __repr__(self) -> str:
        return (
            f"Turn of session {self.name!r} beside the notebook: {self.state}. `.stop()` ends it,"
            " `.result()` waits."
        )

    def _ipython_display_(self) -> None:
        from IPython.display import display

        box = _HandleView(self)
        self._views.append(box)
        self._draw_view(box)
        bundle = box.widget._repr_mimebundle_()
        text = (
            f"Turn of session {self.name!r} beside the notebook: `.result()` waits for its answer."
        )
        bundle_with_text = {**bundle, "text/plain": text}
        box.display = display(bundle_with_text, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        # The turn may have ended while the widget was built.
        self._leave_result(box)

    def show(self, display: TextAndHtml) -> None:
        """Display the current state of the turn."""
        self._content = display
        self._draw_all()

    end = show

    def show_end(self) -> None:
        """Say on the screen that the turn is over, and leave what it said."""
        self._over = True
        self._draw_all()
        for box in self._views:
            self._leave_result(box)

    @property
    def _end_note(self) -> str:
        return f"The turn of session {self.name!r} is over; result() returns its answer."

    def _leave_result(self, box: _HandleView) -> None:
        """Put the words of a turn that is over in the place of its widget."""
        if self._over and self._leaves and self._content is not None and box.display is not None:
            html = f"{self._content.html}<small>{escape_html(self._end_note)}</small>"
            final_bundle = {
                "text/html": html,
                "text/plain": f"{self._content.text}\n{self._end_note}",
            }
            box.display.update(final_bundle, raw=True)

    def _draw_all(self) -> None:
        for box in self._views:
            self._draw_view(box)

    def _draw_view(self, box: _HandleView) -> None:
        box.words.value = self._content.html if self._content else ""
        box.question.value = format_question_html(self._question.whole) if self._question else ""
        box.asks.layout.display = "flex" if self._question else "none"
        for choice in box.choices:
            choice.disabled = self._unseen
        if self._over:
            box.stop.disabled = True
            box.label.value = self._end_note


class _HandleView:
    """One display of a handle."""

    def __init__(self, handle: TurnHandle) -> None:
        from ipywidgets import HTML, Button, HBox, Label, Layout, VBox

        def button(name: str, does: Callable[[], None], tip: str) -> Any:
            widget = Button(description=name, tooltip=tip)
            # A click may be on its way when the button is disabled.
            widget.on_click(lambda _: None if widget.disabled else does())
            return widget

        self.stop = button("Stop", handle.stop, f"Stop the turn of session {handle.name}")
        self.label, self.words, self.question = Label(repr(handle)), HTML(), HTML()
        self.choices = [
            button("Allow", handle.allow, "Let this call run"),
            button("Deny", handle.deny, "Do not let it run"),
            button("Always", handle.always, "Let all calls of this tool run in this session"),
        ]
        self.asks = VBox([self.question, HBox(self.choices)], layout=Layout(display="none"))
        self.display: Any = None
        """Display id; None before the first display."""
        self.widget: Any = VBox([HBox([self.stop, self.label]), self.words, self.asks])


@dataclass(frozen=True, repr=False)
class TurnAnswer:
    """The result of a turn: `outcome` has the figures, `session` is the current session.

    `shown` is what stays of a turn beside the notebook; one in a cell has shown it there.
    """

    outcome: Outcome
    session: Session
    final_view: TextAndHtml | None = None
    chart: Path | None = None
    """The page that draws what each turn was sent."""
    own: Session | None = None
    """The external agent's own log of the session, if it was found."""

    @property
    def text(self) -> str:
        """The last reply."""
        return self.outcome.text

    def __repr__(self) -> str:
        before = f"{self.final_view.text}\n" if self.final_view else ""
        return before + "\n".join([sanitize_text(self.outcome.account()), *self._list_places()])

    def _repr_html_(self) -> str:
        before = self.final_view.html if self.final_view else ""
        lines_html = "<br>".join(
            escape_html(t) for t in (self.outcome.account(), *self._list_places())
        )
        return f"{before}<small>{lines_html}</small>"

    def _list_places(self) -> list[str]:
        return (
            [f"Context viz → {sanitize_text(self.chart.as_posix())}"]
            if self.chart is not None
            else []
        )
