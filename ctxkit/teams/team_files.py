"""The files that a team writes, in fuseraft's formats: events, snapshots, checkpoint."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ctxkit.errors import StoreError
from ctxkit.snapshots.write import SnapshotWriter
from ctxkit.store.events_log import EventsLog
from ctxkit.teams.checkpoint_file import CHECKPOINT, checkpoint_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ctxkit.messages import Message
    from ctxkit.session import Session
    from ctxkit.store.workspace import Workspace
    from ctxkit.teams.decisions import Decided, Standing
    from ctxkit.teams.rosters import Roster

_ADDED = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class TeamFiles:
    """Writes `.ctxkit/logs/` and `.ctxkit/state/` of one team.

    Args:
        workspace: of the team.
        team: its id.
        plan: whose thresholds stand in each snapshot, and which says when a turn is too large.
        clock: seconds since 1970.

    Raises:
        StoreError: a log cannot be written.
    """

    def __init__(
        self, workspace: Workspace, team: str, plan: Roster, clock: Callable[[], float]
    ) -> None:
        self._workspace, self._team, self._clock = workspace, team, clock
        self._most = plan.warn_turn
        self._closing = ExitStack()
        with ExitStack() as undo:
            self._events = EventsLog(workspace.open(workspace.events(team), _ADDED), team, "team")
            undo.callback(self._events.close)
            self._snapshots = SnapshotWriter(
                workspace.snapshots(team), team, warn_at=plan.warn_at, cutover_at=plan.cutover_at,
                opener=workspace.open, now=lambda: datetime.fromtimestamp(clock(), UTC),
            )  # fmt: skip
            undo.callback(self._snapshots.close)
            self._closing = undo.pop_all()

    def tell(self, kind: str, turn: int, payload: Mapping[str, Any], agent: str) -> None:
        """Write an event."""
        self._events.write(kind, self._clock(), turn, dict(payload), agent)

    def record(self, agent: str, turn: int, found: Decided, own: Sequence[Message]) -> None:
        """Write the row and the events of a turn.

        Args:
            agent: who took it.
            turn: its number.
            found: what follows from it.
            own: what was said in it.
        """
        used = [m.usage for m in own if m.usage is not None]
        sent = sum(u.prompt_tokens or 0 for u in used)
        output = sum(u.output_tokens or 0 for u in used)
        self._snapshots.turn(agent, turn, sent, output)
        self.tell("turn_end", turn, {"input_tokens": sent, "output_tokens": output}, agent)
        if 0 < self._most < sent:
            told = {"estimated_tokens": sent, "is_actual": True, "budget": self._most}
            self.tell("context_warning", turn, told, agent)
        self.tell(found.kind, turn, found.told, agent)
        if found.correction:
            self.tell("correction_injected", turn, {"reason": found.kind}, agent)
        if found.standing.helper:
            self.tell("recovery_activated", turn, {"agent": found.standing.helper}, agent)

    def checkpoint(
        self, ledger: Session, members: Mapping[str, Session], standing: Standing, folder: str
    ) -> None:
        """Write the checkpoint; where it cannot be written, the team goes on without it."""
        made = checkpoint_bytes(ledger, members, standing, "", folder)
        with suppress(StoreError):
            self._workspace.keep(self._workspace.state(self._team), CHECKPOINT, made.decode())

    def close(self) -> None:
        """Close both logs."""
        self._closing.close()
