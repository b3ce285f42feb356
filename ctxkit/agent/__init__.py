"""One turn of one agent: ask, run tools, compact, recover from overflow; the replay's engine
prepares every call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.agent.agent import Agent
from ctxkit.agent.events import LiveEvent
from ctxkit.agent.limits import Limits, SpentInTurn
from ctxkit.agent.outcome import Outcome
from ctxkit.faces import listed, renamed

__all__ = ["Agent", "Limits", "LiveEvent", "Outcome", "SpentInTurn"]
__dir__ = listed(__all__)
if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Event": "LiveEvent", "Spent": "SpentInTurn"})
