"""What the notebook of a team says of its team holds, and its exercises can be solved."""

from __future__ import annotations

from pathlib import Path

import pytest

import ctxkit as ck
from ctxkit.course.scripted_coding_team import TASK, open_library_team
from ctxkit.tokens import prices

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
VIEWS = {"text only": {"TextOnly": True}, "fresh": {"Isolation": "Fresh"},
         "short frames": {"MaxToolResultChars": 100}, "sliding": {"MaxTurnAge": 40},
         "artifacts": {"Context": [{"Source": "session_context"}, {"Source": "changes_recent:5"},
                                   {"Source": "own_history"}]}}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    known = dict(prices._registered)
    try:
        with open_library_team(tmp_path_factory.mktemp("library")) as made:
            assert made.run(TASK).ended == "done"
            assert made.status.turns == 21
            found = ck.compare(made, VIEWS)
    finally:
        prices._registered.clear()  # its agents are called as those of other teams
        prices._registered.update(known)
        prices._find_price.cache_clear()
    return found[found["agent"] == "all agents"].set_index("view")


@pytest.mark.long
def test_the_library_teams_figures_hold(whole):
    """11-a: short frames lose nothing. 11-b: a window that slides sends less and costs more."""
    cost, share, lost = (whole[c] for c in ("cost_usd", "token_share", "needed_later_loss"))
    assert whole.loc["recorded", "prompt_tokens"] == whole.loc["shared", "prompt_tokens"]
    assert share["text only"] == pytest.approx(0.38, abs=0.02)
    assert cost["text only"] / cost["shared"] == pytest.approx(0.54, abs=0.03)
    assert lost["short frames"] == 0
    assert cost["short frames"] <= 0.23
    assert share["sliding"] <= 0.9
    assert cost["sliding"] > cost["shared"]
    assert share["artifacts"] < share["text only"]
    assert cost["artifacts"] > cost["text only"]
    assert lost["fresh"] > lost["text only"] > 0
