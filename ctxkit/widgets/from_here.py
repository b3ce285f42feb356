"""The button of a tuner that leads a live session by its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets as w

from ctxkit.display.markup import escape
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.presets.naming import as_rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.live import LiveSession


class FromHere(w.HBox):  # type: ignore[misc]
    """A button "from here on", and what it did.

    Args:
        live: the session that is led.
        words: returns the settings as `%%agent --rules` takes them; empty: no words name them.
    """

    def __init__(self, live: LiveSession, words: Callable[[], str]) -> None:
        self._live, self._words = live, words
        self.button = w.Button(
            description="from here on",
            tooltip="Lead the live session by these settings from its next call on",
        )
        self.told = w.HTML(layout=w.Layout(width="auto"))
        super().__init__([self.button, self.told])
        self.button.on_click(lambda _: self.lead())

    def lead(self) -> None:
        """Lead the session by the settings from its next call on."""
        try:
            words = self._words()
            if not words:
                raise BadArguments("No words name these rules: open the session with them instead.")
            self._live.take(as_rules(words), words)
            told = f"From call {len(self._live.session.calls):,} on: {words}"
        except CtxkitError as error:
            told = str(error)
        self.told.value = f"<small>{escape(told, 400)}</small>"
