"""The context report of each turn, kept beside the session under an id and a date (Tyrum's
`context_reports`).
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from ctxkit.composition import ContextReport, report
from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, CtxkitError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.session import Session
    from ctxkit.store.workspace import Workspace

MOST = 20_000_000
"""Bytes of a file that are read, its newest reports left out where it has more."""


class KeptReport(msgspec.Struct, frozen=True, kw_only=True):
    """What filled the window at the last call of a turn."""

    id: str
    """The session's id, the number of the turn, and how often that turn was taken."""
    time: str
    """ISO 8601."""
    turn: int
    report: ContextReport


class KeptReports:
    """The reports of one session: `.ctxkit/logs/context_reports_ID.jsonl`, a line each.

    Args:
        workspace: where the session is kept.
        session: its id.
    """

    def __init__(self, workspace: Workspace, session: str) -> None:
        self._workspace, self._session = workspace, session
        self._taken: Counter[int] | None = None
        self._path = workspace.folder / "logs" / f"context_reports_{session}.jsonl"

    def keep(self, session: Session, clock: Callable[[], float]) -> KeptReport | None:
        """Keep the report of the turn that ended; None where it made no call, or nothing is said.

        A report that cannot be made or written costs nothing but itself.
        """
        if not session.calls or session.calls[-1].turn != session.turns[-1]:
            return None
        turn = session.calls[-1].turn
        try:
            if self._taken is None:
                self._taken = Counter(kept.turn for kept in self.all())
            again = self._taken[turn]
            name = f"{self._session}-{turn}" + (f"-{again + 1}" if again else "")
            now = datetime.fromtimestamp(clock(), UTC).isoformat(timespec="seconds")
            made = KeptReport(id=name, time=now, turn=turn, report=report(session, -1))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with os.fdopen(self._workspace.open(self._path, flags), "wb") as file:
                file.write(msgspec.json.encode(made) + b"\n")
            self._taken[turn] += 1
        except (CtxkitError, OSError):
            return None
        return made

    def all(self) -> list[KeptReport]:
        """Return all of them, the oldest first; lines that are none are left out."""
        found = []
        for row in self._workspace.held(self._path.parent, self._path.name, MOST).split("\n"):
            try:
                found.append(msgspec.json.decode(row, type=KeptReport))
            except (msgspec.DecodeError, RecursionError):
                continue
        return found

    def of(self, name: str) -> KeptReport:
        """Return a report by its id.

        Raises:
            BadArguments: there is none.
        """
        known = {kept.id: kept for kept in self.all()}
        if name not in known:
            raise BadArguments(
                f"No context report is called {line(name, 60)!r}; `%context reports` lists them."
                f"{did_you_mean(name, known)}"
            )
        return known[name]
