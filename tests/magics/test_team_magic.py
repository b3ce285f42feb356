"""`%%team` in a real IPython: the scripted team works, goes on, and says what cannot work in one line."""

from __future__ import annotations

import pytest

from ctxkit.errors import BadArguments
from ctxkit.teams.troupe import TASK


def test_a_team_works_on_the_task_of_the_cell(shell):
    page = repr(shell.run_cell_magic("team", "roman --tools files,shell --out crew", TASK))
    assert "Developer: validation fail" in page
    assert "Developer: state advanced -> Testing" in page
    assert page.endswith("done: Done is reached")
    assert shell.user_ns["crew"].standing.turns == 5
    assert repr(shell.run_line_magic("team", "roman")).endswith("done: Done is reached")


def test_without_a_task_there_is_nothing_to_do(shell):
    with pytest.raises(BadArguments, match="Say what the team shall do"):
        shell.run_line_magic("team", "roman")
