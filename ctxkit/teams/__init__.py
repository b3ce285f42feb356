"""Several agents on one task, each in its own session, with hand-offs, contracts and views."""

from __future__ import annotations

from ctxkit._internal.lazy import public_dir
from ctxkit.teams.team_building import team

__all__ = ["team"]
__dir__ = public_dir(__all__)
