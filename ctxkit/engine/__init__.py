"""The one engine for live sessions, replays and sweeps."""

from typing import TYPE_CHECKING

from ctxkit.engine.advances import advance, run
from ctxkit.engine.marks import Held, HookEvent, Kept
from ctxkit.engine.replayed import Run
from ctxkit.engine.run_logs import (
    as_known,
    believed,
    identified,
    log_of,
    run_behind,
    sent_at,
    woven,
)
from ctxkit.faces import listed, renamed

__all__ = [
    "Held",
    "HookEvent",
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
if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Event": "HookEvent"})
