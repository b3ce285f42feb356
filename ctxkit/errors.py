"""The errors of ctxkit: one base class, and each message is a sentence that says what to do."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class CtxkitError(Exception):
    """The base class of all errors that ctxkit raises on purpose.

    IPython displays it in one line, as an error output that notebook tests see (unlike a
    `UsageError`).

    Example:
        >>> import ctxkit as ck
        >>> try:
        ...     ck.policies.Rules(window=0)
        ... except ck.CtxkitError as error:
        ...     print(type(error).__name__)
        BadArguments
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {_printable(str(self), 2000)}"]


class ReadError(CtxkitError):
    """A file could not be read as a session.

    Args:
        why: one sentence that says what was expected.
        path: the file, where there is one.
        line: the line in the file, counted from 1, where it is known.

    Example:
        >>> import ctxkit as ck
        >>> try:
        ...     ck.read("missing.jsonl")
        ... except ck.ReadError as error:
        ...     print(error.path, error.line)
        missing.jsonl None
    """

    def __init__(self, why: str, path: str | Path | None = None, line: int | None = None) -> None:
        self.why, self.path, self.line = why, None if path is None else str(path), line
        super().__init__(why, self.path, line)

    def __str__(self) -> str:
        if self.path is None:
            return self.why
        line = "" if self.line is None else f", line {self.line}"
        return f"{self.path}{line}: {self.why}"


class UnknownFormat(ReadError):
    """No reader recognises the format of a file, or the requested format does not exist.

    Example:
        >>> import ctxkit as ck
        >>> try:
        ...     ck.read(ck.samples.path("chat"), format="clod")
        ... except ck.UnknownFormat as error:
        ...     print(error)
        There is no format 'clod'. Did you mean 'codex'? Known formats: aider, ...
    """


class BadArguments(CtxkitError):
    """A function, rule or magic got arguments that cannot work.

    Example:
        >>> import ctxkit as ck
        >>> try:
        ...     ck.ContextBudget(0, 0, ck.tokens.default_counter())
        ... except ck.BadArguments as error:
        ...     print(error)
        A context budget needs a limit above 0 and a reserve of 0 or more, not 0 and 0.
    """


class UnknownName(BadArguments):
    """A preset, policy, key, agent or tool of that name does not exist.

    Example:
        >>> import ctxkit as ck
        >>> try:
        ...     ck.policies.parse("windw")
        ... except ck.UnknownName as error:
        ...     print(error)
        There is no policy 'windw'. Did you mean 'window'?
    """


class UnsoundHistory(CtxkitError):
    """A policy broke an invariant of the history, such as a tool call that lost its result.

    Example:
        >>> import ctxkit as ck
        >>> def remove_results(history, budget):
        ...     return [m for m in history.messages if m.role != "tool"]
        >>> rules = ck.policies.Rules(remove_results, ck.policies.triggers.Above(4_000))
        >>> try:
        ...     ck.replay(ck.read(ck.samples.path("incident")), rules)
        ... except ck.UnsoundHistory as error:
        ...     print(error)
        Tool call logs (call_...) lost its result.
    """


class ModelError(CtxkitError):
    """A model could not answer.

    Args:
        why: one sentence that says what happened and what to do.
        overflow: True where the prompt was larger than the model's context window.
        again: True where the same call may be repeated: no reply or no complete reply came.
        window: the model's context window in tokens, where the error of an overflow has it.

    Example:
        >>> import ctxkit as ck
        >>> error = ck.ModelError("The prompt is too long.", overflow=True, window=200_000)
        >>> error.overflow, error.window
        (True, 200000)
    """

    def __init__(
        self, why: str, *, overflow: bool = False, again: bool = False, window: int | None = None
    ) -> None:
        super().__init__(why)
        self.overflow, self.again, self.window = overflow, again, window


class StoreError(CtxkitError):
    """A file could not be stored or opened: a lock, a damaged log, a path out of bounds.

    Example:
        >>> import ctxkit as ck
        >>> try:
        ...     ck.write(ck.read(ck.samples.path("chat")), "no-such-folder/chat.jsonl")
        ... except ck.StoreError as error:
        ...     print(error)
        'no-such-folder/chat.jsonl' could not be written (No such file or directory). Choose ...
    """


def short_repr(value: object) -> str:
    """Return the `repr` of a value for an error message: one line of at most 80 characters."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  of a user's class, or an integer with too many digits
        text = f"a value of type {type(value).__name__}"
    return _printable(" ".join(text[:4_000].split()), 80)


def _printable(text: str, limit: int) -> str:
    """Return text without control, bidi and other format characters, cut to `limit` characters."""
    printable = "".join(c for c in text[: 2 * limit] if c.isprintable() or c == "\n")
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the most similar name, or an empty string.

    Args:
        word: what the user wrote.
        names: what could have been meant.
    """
    similar = get_close_matches(word, list(names), n=1, cutoff=0.5)
    return f" Did you mean {similar[0]!r}?" if similar else ""
