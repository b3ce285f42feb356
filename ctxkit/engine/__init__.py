"""The one engine for live sessions, replays and sweeps."""

from typing import TYPE_CHECKING

from ctxkit.engine.advances import advance, run
from ctxkit.engine.marks import Held, HookEvent, Kept
from ctxkit.engine.replayed import Run
from ctxkit.engine.run_logs import (
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
from ctxkit.faces import listed, renamed

__all__ = [
    "COUNTED",
    "Held",
    "HookEvent",
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
if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Event": "HookEvent"})
