"""The one engine for live sessions, replays and sweeps."""

from ctxkit.engine.advances import advance, run
from ctxkit.engine.logs import (
    as_known,
    believed,
    identified,
    log_of,
    run_behind,
    sent_at,
    woven,
)
from ctxkit.engine.marks import Event, Held, Kept
from ctxkit.engine.runs import Run
from ctxkit.faces import listed

__all__ = [
    "Event",
    "Held",
    "Kept",
    "Run",
    "advance",
    "as_known",
    "believed",
    "identified",
    "log_of",
    "run",
    "run_behind",
    "sent_at",
    "woven",
]
__dir__ = listed(__all__)
