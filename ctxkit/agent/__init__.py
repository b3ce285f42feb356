"""Run an LLM agent on a session: the turn loop, models, tools, memory and session store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit._internal.lazy import deprecated_aliases, public_dir
from ctxkit.agent.agent import Agent
from ctxkit.agent.turn import Limits, LiveEvent, Outcome, SpentInTurn

__all__ = ["Agent", "Limits", "LiveEvent", "Outcome", "SpentInTurn"]
__dir__ = public_dir(__all__)
if not TYPE_CHECKING:
    __getattr__ = deprecated_aliases(__name__, {"Event": "LiveEvent", "Spent": "SpentInTurn"})
