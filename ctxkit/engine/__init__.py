"""The one engine for live sessions, replays and sweeps."""

from ctxkit.engine.advances import advance, run
from ctxkit.engine.logs import (
    COUNTED,
    as_known,
    believed,
    billed,
    identified,
    log_of,
    run_behind,
    schemas,
    sent_at,
    woven,
)
from ctxkit.engine.marks import Event, Held, Kept
from ctxkit.engine.runs import Run
from ctxkit.faces import listed

__all__ = [
    "COUNTED",
    "Event",
    "Held",
    "Kept",
    "Run",
    "advance",
    "as_known",
    "believed",
    "billed",
    "identified",
    "log_of",
    "run",
    "run_behind",
    "schemas",
    "sent_at",
    "woven",
]
__dir__ = listed(__all__)
