"""What a turn's prompt brings of another agent's last words: all, or one item of a list."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ctxkit.redaction import redact
from ctxkit.teams.conditions import object_in
from ctxkit.teams.turn_ends import last_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.live import LiveSession
    from ctxkit.teams.decisions import Standing
    from ctxkit.teams.rosters import TeamState

MOST_ITEMS = 200
"""Items of a list that is worked off, at most."""


def items_in(reply: str, path: str) -> list[str] | None:
    """Return the items of the list in a reply's JSON object, each as text.

    Args:
        reply: of an agent.
        path: names between dots, from the outermost on.

    Returns:
        None: there is no such list, or it is longer than `MOST_ITEMS`.
    """
    found: Any = object_in(reply)
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, list) or len(found) > MOST_ITEMS:
        return None
    return [x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for x in found]


def brought(
    state: TeamState | None, standing: Standing, sessions: Mapping[str, LiveSession]
) -> str:
    """Return what a turn's prompt brings beside its own words; empty: nothing.

    Args:
        state: in which the turn is taken.
        standing: before it.
        sessions: of the agents, by name.
    """
    if state is None or not state.reads:
        return ""
    session = sessions[state.reads].session
    last = standing.own.get(state.reads, -1)
    words = last_words([m for m in session.messages if m.turn == last])
    if not state.item:
        return redact(f"\n\nThis is what {state.reads} says:\n\n{words}")
    items = items_in(words, state.item) or []
    at = len(items) - len(standing.branches)
    return redact(f"\n\nYour part, {at + 1} of {len(items)}:\n\n{items[at]}")
