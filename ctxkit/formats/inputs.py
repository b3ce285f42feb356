"""Sessions from a session, a path or messages: as_session, as_sessions, accepts_session."""

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
"""What is taken for a session."""
SessionsLike: TypeAlias = SessionLike | Iterable[SessionLike]
"""What is taken for any number of them: also a folder."""
_P = ParamSpec("_P")
_R = TypeVar("_R")


def as_session(given: Any) -> Session:
    """Return the session that is meant by a session, a path, a list of messages, or what holds one.

    Raises:
        BadArguments: it is none of these.
        ReadError: the file cannot be read, or holds no session or several.
    """
    if isinstance(given, Session):
        return given
    if isinstance(given, (str, PathLike)) or _is_message_list(given):
        from ctxkit.formats.reading import read

        return read(given)
    held = getattr(given, "session", None)  # a live session, a recording, a Context
    if isinstance(held, Session):
        return held
    raise BadArguments(
        f"Give a session, the path of a log or a list of messages, not {type(given).__name__}."
    )


def as_sessions(given: Any) -> list[Session]:
    """Return the sessions meant by one or by several of what `as_session` takes, or by a folder.

    Raises:
        BadArguments: something given is none of these.
        ReadError: a file cannot be read, or holds no session.
    """
    if isinstance(given, (str, PathLike)):
        return _read_all_of(given)
    keyed = hasattr(given, "keys")  # a dictionary, a frame: what it yields are no sessions
    if not isinstance(given, Iterable) or keyed or _is_message_list(given):
        return [as_session(given)]
    return [as_session(each) for each in given]


def accepts_session(
    function: Callable[Concatenate[Session, _P], _R],
) -> Callable[Concatenate[SessionLike, _P], _R]:
    """Let a function of a session take whatever `as_session` does as its first argument."""
    first = next(iter(signature(function).parameters))

    @wraps(function)
    def taken(*args: Any, **more: Any) -> Any:
        if args:
            args = (as_session(args[0]), *args[1:])
        elif first in more:
            more[first] = as_session(more[first])
        return function(*args, **more)

    return cast("Callable[Concatenate[SessionLike, _P], _R]", taken)


def _read_all_of(place: str | PathLike[str]) -> list[Session]:
    from ctxkit.formats.reading import read, read_all

    found: Sessions = read_all(place)
    if not found:
        return [read(place)]  # says why
    n = len(found.failures)
    if n:
        warnings.warn(
            f"{n} file{'s' * (n != 1)} of {str(place)!r} could not be read: "
            "ctxkit.read_all(...).failed says which and why.",
            stacklevel=4,
        )
    return list(found)


def _is_message_list(given: Any) -> bool:
    """Say whether it is a list of messages rather than a list of sessions."""
    return isinstance(given, (list, tuple)) and bool(given) and _is_message(given[0])


def _is_message(one: Any) -> bool:
    return isinstance(one, (Message, Edit, dict)) or hasattr(one, "model_dump")
