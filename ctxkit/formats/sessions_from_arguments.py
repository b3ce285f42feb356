"""Conversion of arguments to sessions: from sessions, paths, lists of messages, live sessions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from os import PathLike
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

from ctxkit.errors import BadArguments
from ctxkit.session.messages import Edit, Message
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from ctxkit.formats.reading import Sessions

SessionLike: TypeAlias = (
    Session | str | PathLike[str] | Sequence[Message | Edit | Mapping[str, Any]]
)
"""Whatever a function that takes one session accepts."""
SessionsLike: TypeAlias = SessionLike | Iterable[SessionLike]
"""Whatever a function that takes several sessions accepts; a path may be a folder."""
_P = ParamSpec("_P")
_R = TypeVar("_R")


def as_session(value: Any) -> Session:
    """Return the session that an argument stands for.

    Args:
        value: a session, the path of a log, a list of messages, or an object with a `session` (a
            live session, a recording, a context).

    Returns:
        The session itself, or the one that is read or made of the argument.

    Raises:
        BadArguments: it is none of these.
        ReadError: the file cannot be read, or does not hold exactly one session.

    Example:
        >>> import ctxkit as ck
        >>> as_session(ck.samples.path("chat")).format
        'native'
    """
    if isinstance(value, Session):
        return value
    if isinstance(value, (str, PathLike)) or _is_message_list(value):
        from ctxkit.formats.reading import read

        return read(value)
    session = getattr(value, "session", None)
    if isinstance(session, Session):
        return session
    raise BadArguments(
        f"Give a session, the path of a log or a list of messages, not {type(value).__name__}."
    )


def as_sessions(value: Any) -> list[Session]:
    """Return the sessions that an argument stands for.

    Args:
        value: one of the values that `as_session` takes, an iterable of them, or a folder.

    Returns:
        The sessions in the order given; of a folder in the order of its files.

    Raises:
        BadArguments: an item is none of these.
        ReadError: a file cannot be read, or holds no session.

    Example:
        >>> import ctxkit as ck
        >>> len(as_sessions([ck.samples.path("chat"), ck.samples.path("inbox")]))
        2
    """
    if isinstance(value, (str, PathLike)):
        return _read_all_of(value)
    has_keys = hasattr(value, "keys")  # a dictionary, a frame: what it yields are no sessions
    if not isinstance(value, Iterable) or has_keys or _is_message_list(value):
        return [as_session(value)]
    return [as_session(item) for item in value]


def accepts_session(
    function: Callable[Concatenate[Session, _P], _R],
) -> Callable[Concatenate[SessionLike, _P], _R]:
    """Decorate a function so that its first argument may be whatever `as_session` takes."""
    first_name = next(iter(signature(function).parameters))

    @wraps(function)
    def wrapper(*args: Any, **more: Any) -> Any:
        if args:
            args = (as_session(args[0]), *args[1:])
        elif first_name in more:
            more[first_name] = as_session(more[first_name])
        return function(*args, **more)

    return cast("Callable[Concatenate[SessionLike, _P], _R]", wrapper)


def _read_all_of(path: str | PathLike[str]) -> list[Session]:
    from ctxkit.formats.reading import read, read_all

    sessions: Sessions = read_all(path)
    if not sessions:
        return [read(path)]  # raises the reason
    failures = len(sessions.failures)
    if failures:
        warnings.warn(
            f"{failures} file{'s' * (failures != 1)} of {str(path)!r} could not be read: "
            "ctxkit.read_all(...).failed says which and why.",
            stacklevel=4,
        )
    return list(sessions)


def _is_message_list(value: Any) -> bool:
    """Return True for a list of messages, as against a list of sessions."""
    return isinstance(value, (list, tuple)) and bool(value) and _is_message(value[0])


def _is_message(value: Any) -> bool:
    return isinstance(value, (Message, Edit, dict)) or hasattr(value, "model_dump")
