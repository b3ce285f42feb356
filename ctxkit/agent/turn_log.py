"""The turns of a live session: a frame that grows, and the same rows in its log of snapshots."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from ctxkit.frames import frame

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.session import Session
    from ctxkit.snapshots.write import SnapshotWriter


class TurnLog:
    """Writes a row at each turn's end; a mark stands before it where a compaction fired before its
    last call.

    Args:
        writer: appends to the log of snapshots.
        session: where it stands.
    """

    def __init__(self, writer: SnapshotWriter, session: Session) -> None:
        self._writer, self._session = writer, session
        self._within = False
        self._waiting: list[int] = []
        """Compactions after which no call was made in this turn: the numbers of replies so far."""
        if session.calls:
            self.moved(session)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The rows so far: always this one object."""
        return _rows(self._session)

    def called(self, kind: str) -> None:
        """Note that a turn begins, or that a call is made in it."""
        self._within = True
        if kind == "model_call":
            self._mark()

    def compacted(self, session: Session) -> None:
        """Note a compaction; between turns its mark is written at once."""
        self._waiting.append(sum(c.message.stop != "error" for c in session.calls))
        if not self._within:
            self._mark()
            self.stand(session)

    def end(self, session: Session) -> None:
        """Write the row of the turn that ended, if it was billed anything."""
        if self._within and session.calls:
            turn = session.calls[-1].turn
            if turn == session.turns[-1]:
                self._write(session, turn)
        self._mark()
        self._within = False
        self.stand(session)

    def moved(self, session: Session) -> None:
        """Go on from another place: its log of snapshots is brought to the turns there."""
        self._writer.bring(_rows(session))
        self.stand(session)

    def stand(self, session: Session) -> None:
        """Bring the frame to where the session stands."""
        self._session = session
        if "frame" in self.__dict__:
            _brought(self.frame, _rows(session))

    def _write(self, session: Session, turn: int) -> None:
        calls = [c.message for c in session.calls if c.turn == turn]
        used = [m.usage for m in calls if m.usage is not None]
        times = [m.time for m in calls if m.time is not None]
        self._writer.turn(
            session.agent,
            turn,
            sum(u.prompt_tokens or 0 for u in used),
            sum(u.output_tokens or 0 for u in used),
            datetime.fromtimestamp(times[-1], UTC) if times else None,
        )

    def _mark(self) -> None:
        for replies in self._waiting:
            self._writer.marker(replies)
        self._waiting.clear()


def _rows(session: Session) -> pd.DataFrame:
    """Return the turns that were billed input: a log of snapshots has no others.

    A compaction after one of the others is one after the last turn before it that has a row.
    """
    made = frame(session, per="turn")
    billed = (made["turn_input_tokens"].fillna(0) > 0).astype(bool)
    row = billed.cumsum() - 1  # of each turn: the last row so far
    fired = set(row[made["compaction_occurred"].astype(bool)])
    out = made[billed].reset_index(drop=True)
    out["compaction_occurred"] |= out.index.isin(fired)
    return out


def _brought(old: pd.DataFrame, new: pd.DataFrame) -> None:
    """Make a frame equal to another one, in place: whoever holds it sees the rows that came."""
    if not old.equals(new):
        type(old).__init__(old, new)  # type: ignore[call-arg]  # pandas has no way to do this that lasts
