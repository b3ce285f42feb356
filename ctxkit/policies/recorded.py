"""The recorded compactions as rules: what a replay must reproduce before it is believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.policies.chain import Part
from ctxkit.policies.rules import Rules
from ctxkit.policies.triggers import Recorded

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.policies.policy import Forecast
    from ctxkit.tokens.counters import Room


@dataclass(frozen=True)
class AsRecorded(Part):
    """Does at each call what the log recorded before it."""

    name = "recorded"

    def __call__(self, history: History, room: Room) -> History:  # noqa: ARG002
        """Return the history after the recorded edits of this call."""
        for call, edit in history.log.recorded:
            if call == history.call:
                history = history.apply(edit)
        return history

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call with a recorded edit before it."""
        return Recorded().first(forecast, start, stop)


def recorded() -> Rules:
    """Return rules that cut where the log has cuts, with the recorded summaries."""
    return Rules(policy=AsRecorded(), trigger=Recorded(), name="recorded")
