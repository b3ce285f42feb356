"""Checkpoints of a session: pointers, the newest of them, by number."""

from __future__ import annotations

from builders import assistant, session, summarised, user

from ctxkit.store.checkpoints import KEPT, checkpoint, checkpoints


def test_the_newest_are_offered_under_their_numbers():
    """D28: However many compactions there were, 25 places are offered, and each keeps its number."""
    log = [m for _ in range(KEPT + 5) for m in (user(), assistant(), summarised([]))]
    found = checkpoints(session(*log))
    assert [c.number for c in found] == list(range(5, KEPT + 5))
    assert checkpoint(session(*log), KEPT + 4).entry == len(log) - 2
