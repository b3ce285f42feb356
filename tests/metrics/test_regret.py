"""Regret is the loss that another choice of messages of the same size would have avoided."""

from __future__ import annotations

import pytest
from builders import assistant, session, summarised, user

from ctxkit.metrics import loss_tables

LONG = "word " * 400
"""About 400 tokens in front of the name of a file."""


def compact(*, summary: str, needed: str, other: str):
    """Return a session that loses a message about src/gone.py, which is named again afterwards."""
    old = [user(f"{needed} src/gone.py"), assistant(f"{other} I see.")]
    return session(
        *old, summarised(old, summary), user("go on"), assistant("so src/gone.py is next")
    )


def test_what_no_choice_of_that_size_could_hold_is_not_regretted():
    small = loss_tables.compute_loss_columns(compact(summary="Nothing.", needed=LONG, other=""))
    assert small["needed_later_loss"] == 1
    # Some ten tokens remain, and the message that names the file has 400.
    assert 0 < small["regret"] < 0.1


def test_what_would_have_had_room_is_regretted_whole():
    wasteful = loss_tables.compute_loss_columns(
        compact(summary=f"Nothing. {LONG}", needed="", other=LONG)
    )
    assert wasteful["needed_later_loss"] == 1
    assert wasteful["regret"] == 1


def test_what_is_half_too_large_is_regretted_by_half():
    half = loss_tables.compute_loss_columns(
        compact(summary="Nothing. " + "word " * 195, needed=LONG, other="")
    )
    assert half["regret"] == pytest.approx(0.5, abs=0.03)
