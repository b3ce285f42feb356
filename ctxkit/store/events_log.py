"""A session's events as fuseraft's lines: ts, session, agent, turn, event_type, payload."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 400
"""Characters of one text in a payload: the log has sizes, not contents, as fuseraft's has."""


class EventsLog:
    """Appends events to a file, a line at a time.

    Args:
        handle: the file, open for writing at its end; it is closed with this.
        session: id on every line.
        agent: name on every line.
    """

    def __init__(self, handle: int, session: str, agent: str = "main") -> None:
        self._session, self._agent = session, agent
        self._handle = handle

    def write(
        self,
        kind: str,
        time: float,
        turn: int,
        payload: Mapping[str, Any],
        agent: str | None = None,
    ) -> None:
        """Write one event; `agent`: whose it is, where not the session's own."""
        stamp = datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds")
        line = {
            "ts": stamp,
            "session": self._session,
            "agent": agent or self._agent,
            "turn": max(turn, 0),
            "event_type": kind,
            "payload": {k: _short(v) for k, v in redacted(dict(payload)).items() if v is not None},
        }
        os.write(self._handle, msgspec.json.encode(line, enc_hook=str) + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        return value[:_LONGEST] + f"… [{len(value)} characters]"
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_short(v) for v in value]
    return value
