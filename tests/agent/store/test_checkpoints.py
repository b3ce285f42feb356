"""Checkpoints of a session: pointers, the newest of them, by number."""

from __future__ import annotations

from builders import assistant, session, summarised, user

from ctxkit.agent import list_checkpoints
from ctxkit.agent.session_log import MAX_CHECKPOINTS, get_checkpoint


def test_the_newest_are_offered_under_their_numbers():
    """D28: However many compactions there were, 25 places are offered, and each keeps its number."""
    log = [m for _ in range(MAX_CHECKPOINTS + 5) for m in (user(), assistant(), summarised([]))]
    found = list_checkpoints(session(*log))
    assert [c.number for c in found] == list(range(5, MAX_CHECKPOINTS + 5))
    assert get_checkpoint(session(*log), MAX_CHECKPOINTS + 4).entry == len(log) - 2
