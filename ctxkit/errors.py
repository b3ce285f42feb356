"""The few errors of the kit: one root, each message a sentence that says what to do."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class CtxkitError(Exception):
    """The root of all errors that the kit raises on purpose.

    In IPython it shows as one line and is still a real error output, which notebook tests see (a
    `UsageError` is not).
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {_printable(str(self), 2000)}"]


class ReadError(CtxkitError):
    """A file could not be read as a session.

    Args:
        why: one sentence that says what was expected.
        path: the file, where there is one.
        line: the line in the file, counted from 1, where it is known.
    """

    def __init__(self, why: str, path: str | Path | None = None, line: int | None = None) -> None:
        self.why, self.path, self.line = why, None if path is None else str(path), line
        super().__init__(why, self.path, line)

    def __str__(self) -> str:
        place = (
            ""
            if self.path is None
            else self.path + ("" if self.line is None else f", line {self.line}") + ": "
        )
        return place + self.why


class UnknownFormat(ReadError):
    """No reader knows the shape of a file, or the format asked for does not exist."""


class BadArguments(CtxkitError):
    """A function, rule or magic was given something that cannot work."""


class UnknownPreset(BadArguments):
    """A preset, policy, key, agent or tool of that name does not exist."""


class UnsoundHistory(CtxkitError):
    """A policy broke an invariant of the history, such as a tool call that lost its result."""


class ModelError(CtxkitError):
    """A model could not answer.

    Args:
        why: one sentence that says what happened and what to do.
        overflow: True where the prompt was larger than the model's window.
        again: True where the same call may be made again: no reply came, or not the whole of one.
        window: the model's window in tokens, where an overflow's text names it.
    """

    def __init__(
        self, why: str, *, overflow: bool = False, again: bool = False, window: int | None = None
    ) -> None:
        super().__init__(why)
        self.overflow, self.again, self.window = overflow, again, window


class StoreError(CtxkitError):
    """Something on disk could not be kept or opened: a lock, a torn log, a path out of bounds."""


def short_repr(value: object) -> str:
    """Return a value as a sentence names it: in one line, of at most 80 characters."""
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001  whatever a user's class raises, or an endless number
        shown = f"a value of type {type(value).__name__}"
    return _printable(" ".join(shown[:4_000].split()), 80)


def _printable(text: str, limit: int) -> str:
    """Return text without control, bidi and other format characters, cut to `limit` characters."""
    shown = "".join(c for c in text[: 2 * limit] if c.isprintable() or c == "\n")
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known word, or an empty string."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""
