"""Several agents on one task, each in its own session, with hand-offs, contracts and views."""

from __future__ import annotations

from ctxkit.faces import listed
from ctxkit.teams.opening import team

__all__ = ["team"]
__dir__ = listed(__all__)
