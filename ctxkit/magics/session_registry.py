"""The sessions that the magics know by name, and which of them is the active one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit._internal.formatting import sanitize_line
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session.session import Session


class SessionRegistry:
    """Sessions by name, in the order in which they were first used."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self.active_name: str | None = None

    def add(self, session: Session, name: str | None = None) -> str:
        """Keep a session and make it the active one; return its name.

        Without a name it is called after its id, with a number where another session has that name
        already.
        """
        wanted = name or sanitize_line(session.id, 40).replace(" ", "-") or "session"
        chosen, n = wanted, 2
        while (
            name is None
            and chosen in self._sessions
            and not _is_same_session(self._sessions[chosen], session)
        ):
            chosen, n = f"{wanted}-{n}", n + 1
        self._sessions[chosen] = session
        self.active_name = chosen
        return chosen

    def put(self, session: Session, name: str) -> None:
        """Keep what a session has become; the active one stays the active one, if there was one."""
        self._sessions[name] = session
        self.active_name = self.active_name or name

    def get(self, name: str) -> Session:
        """Return a session by its name.

        Raises:
            BadArguments: there is none of that name.
        """
        if name not in self._sessions:
            known = ", ".join(self._sessions) or "none yet"
            raise BadArguments(
                f"No session is called {name!r}; known:"
                f" {known}.{did_you_mean(name, self._sessions)}"
            )
        return self._sessions[name]

    @property
    def active(self) -> Session:
        """The session that magics speak of when no other is named.

        Raises:
            BadArguments: none was read yet.
        """
        if self.active_name is None:
            raise BadArguments("No session is active: read one with `%context use FILE`.")
        return self._sessions[self.active_name]

    def __contains__(self, name: object) -> bool:
        return name in self._sessions

    def __iter__(self) -> Iterator[str]:
        return iter(self._sessions)

    def items(self) -> list[tuple[str, Session]]:
        """Names and sessions."""
        return list(self._sessions.items())


def _is_same_session(one: Session, other: Session) -> bool:
    return one is other or (
        one.id == other.id and one.path_ is not None and one.path_ == other.path_
    )
