"""The one engine for live sessions, replays and sweeps."""

from ctxkit.engine.advances import advance, run
from ctxkit.engine.logs import as_known, believed, identified, log_of, sent_at, woven
from ctxkit.engine.marks import Cut, Event, Held
from ctxkit.engine.runs import Run

__all__ = [
    "Cut",
    "Event",
    "Held",
    "Run",
    "advance",
    "as_known",
    "believed",
    "identified",
    "log_of",
    "run",
    "sent_at",
    "woven",
]
