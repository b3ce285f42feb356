"""Moments at which a system looks whether a compaction is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.tokens import Room


def opens_turn(history: History, _room: Room) -> bool:
    """Say whether a user message waits for its answer."""
    return len(history) > 0 and history[len(history) - 1].role == "user"
