"""A text that grows: exact at each append, at the cost of what is new."""

from __future__ import annotations

from typing import Protocol


class Cutting(Protocol):
    """A counter that knows where counts add up: all of `ctxkit.tokens` do."""

    def fresh(self, text: str) -> int:
        """Tokens of a text, not remembered."""

    def cut(self, text: str) -> int:
        """Return the last place at which counts add up, or 0."""


class Growing:
    """The count of a text to which is appended: streamed output, or a log.

    Exact at each append. What lies before the last place at which counts add up is never counted
    again; only where a text has no such place (a run of white space, a script without ASCII) the
    open end is counted anew.

    Args:
        counter: from `tokens.exact`; with an estimate or Claude 2's tokenizer the whole is counted
            at each append.
        text: what is there already.
    """

    def __init__(self, counter: Cutting, text: str = "") -> None:
        self._counter = counter
        self._done = 0
        self._tail = ""
        self.tokens = 0
        """Tokens of everything appended so far."""
        if text:
            self.append(text)

    def append(self, text: str) -> int:
        """Add to the end and return the tokens of the whole."""
        tail = self._tail + text
        count, cut = self._counter.fresh, self._counter.cut(tail)
        if cut:
            self._done += count(tail[:cut])
            tail = tail[cut:]
        self._tail = tail
        self.tokens = self._done + (count(tail) if tail else 0)
        return self.tokens
