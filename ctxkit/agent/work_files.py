"""The files of an agent's work, written while it works: intents as calls begin and end, the rest at
a turn's end.

They are made from the session's record, so they say what it says; where one cannot be written, the
session goes on without it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ctxkit.errors import StoreError
from ctxkit.ledgers import changes_of, evidence_of, intents_of, ledger_bytes
from ctxkit.tools.work import work_tools

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.session import Session
    from ctxkit.store.workspace import Workspace
    from ctxkit.tools.tool import Tool

EVERY = 1.0
"""Seconds between two writings of intents in a turn: each takes as long as the session is."""
CHANGES, INTENTS, EVIDENCE = "changes.json", "intents.json", "evidence.json"


class WorkFiles:
    """Writes `.ctxkit/state/ID/`: `changes.json`, `intents.json`, `evidence.json`.

    Args:
        workspace: of the session.
        clock: seconds since 1970.
    """

    def __init__(self, workspace: Workspace, clock: Callable[[], float]) -> None:
        self._workspace, self._clock = workspace, clock
        self._written, self._worked = float("-inf"), False

    def hear(self, kind: str, session: Callable[[], Session]) -> None:
        """Take the kind of an event; the session is asked for where something is written."""
        if kind in ("tool_call", "tool_result"):
            self._worked = True
            now = self._clock()
            if now - self._written >= EVERY:
                self._written = now
                self._intents(session())
        elif kind == "turn_end" and self._worked:
            self._worked = False
            held = session()
            if self._intents(held):
                self._keep(held.id, CHANGES, ledger_bytes(changes_of(held)))
                self._keep(held.id, EVIDENCE, ledger_bytes(evidence_of(held)))

    def tools(self, session: Callable[[], str]) -> tuple[Tool, ...]:
        """Return the tools for the brief and the summary of a session, by its id."""

        def held(name: str) -> str:
            return self._workspace.held(self._workspace.state(session()), name)

        return work_tools(
            lambda name, text: self._workspace.keep(self._workspace.state(session()), name, text),
            held,
        )

    def _intents(self, held: Session) -> bool:
        """Write the intents; return whether there are any."""
        made = intents_of(held)
        if made.entries:
            self._keep(held.id, INTENTS, ledger_bytes(made))
        return bool(made.entries)

    def _keep(self, session: str, name: str, data: bytes) -> None:
        with suppress(StoreError):
            self._workspace.keep(self._workspace.state(session), name, data.decode("utf-8"))
