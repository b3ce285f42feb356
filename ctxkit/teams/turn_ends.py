"""How an agent's turn ended: whether it is over, its last words, signals by a tool call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.teams.handing import HANDOFF_TOOL
from ctxkit.texts.contents import texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.messages import Message
    from ctxkit.session import Session


def finished(session: Session, turn: int) -> bool:
    """Say whether a turn of an agent's session came to its own end."""
    said = [m for m in session.messages if m.turn == turn and m.visible]
    return (
        bool(said)
        and said[-1].role == "assistant"
        and not said[-1].tool_calls
        and said[-1].stop != "length"
    )


def last_words(own: Sequence[Message]) -> str:
    """Return the words of the last reply."""
    return next((texts(m) for m in reversed(own) if m.role == "assistant" and m.visible), "")


def signals_called(own: Sequence[Message]) -> list[str]:
    """Return the signals that were given by tool calls."""
    calls = [c for m in own for c in m.tool_calls if c.name == HANDOFF_TOOL]
    return [str(c.arguments.get("route_keyword", "")) for c in calls[-1:]]
