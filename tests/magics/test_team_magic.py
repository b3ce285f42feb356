"""`%%team` in a real IPython: the scripted team works, goes on, and says what cannot work in one line."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest
from magics.shells import completions

from ctxkit.errors import BadArguments
from ctxkit.teams.demo import DEMO_TASK

PLAN = "Agents:\n  - Name: A\n  - Name: B\nSelection: {Type: sequential}\n"


def test_a_team_works_on_the_task_of_the_cell(shell):
    page = repr(shell.run_cell_magic("team", "roman --tools files,shell --out crew", DEMO_TASK))
    assert "Developer: validation fail" in page
    assert "Developer: state advanced -> Testing" in page
    assert page.endswith("done: Done is reached")
    assert shell.user_ns["crew"].standing.turns == 5
    assert repr(shell.run_line_magic("team", "roman")).endswith("done: Done is reached")


def test_without_a_task_there_is_nothing_to_do(shell):
    with pytest.raises(BadArguments, match="Say what the team shall do"):
        shell.run_line_magic("team", "roman")


def test_a_team_goes_on_as_it_was_opened(shell):
    Path("two.yaml").write_text(PLAN)
    begun = repr(
        shell.run_cell_magic("team", "two --config two.yaml --model scripted/tour", "Work.")
    )
    assert begun.endswith("done: each agent has had its turn")
    assert repr(shell.run_line_magic("team", "two")) == begun


def test_a_team_goes_on_in_a_new_kernel_as_it_was_opened(shell):
    Path("two.yaml").write_text(PLAN)
    words = "two --config two.yaml --model scripted/tour --tools document --approve document"
    begun = repr(shell.run_cell_magic("team", words, "Work."))
    Path("two.yaml").unlink()
    kit = shell.magics_manager.registry["CtxKit"]
    kit.teams.clear()  # a new kernel knows of none
    assert repr(shell.run_line_magic("team", "two")) == begun
    assert (kit.teams["two"]["approve"], kit.teams["two"]["tools"]) == ("document", "document")


def test_who_had_no_turn_is_named(shell):
    Path("two.yaml").write_text(
        PLAN.replace("sequential", "roundrobin") + "Termination: {MaxIterations: 1}\n"
    )
    words = "two --config two.yaml --model scripted/tour"
    *rows, silent, end = repr(shell.run_cell_magic("team", words, "Work.")).splitlines()
    assert [row.split(":")[0] for row in rows if row.startswith("two.")] == ["two.A"]
    assert (silent, end) == ("Without a turn: B.", "stopped: the team has had its 1 turns")
    assert not Path(".ctxkit/sessions/two.B.jsonl").exists()


@pytest.mark.parametrize("words", ["--approve shell", ""])
def test_a_person_is_asked_where_the_line_or_the_settings_say_so(shell, monkeypatch, words):
    asked = []
    monkeypatch.setattr(builtins, "input", lambda prompt="": asked.append(prompt) or "n")
    if not words:
        shell.run_line_magic("config", "CtxKit.approve = 'shell'")
    page = repr(shell.run_cell_magic("team", f"roman --tools files,shell {words}", DEMO_TASK))
    assert asked
    assert all("May the agent call shell?" in a for a in asked)
    assert "stopped: " in page
    with pytest.raises(BadArguments, match="no such tool"):
        shell.run_line_magic("team", "roman --approve shel")


def test_words_are_completed(shell):
    Path("two.yaml").write_text(PLAN)
    assert completions(shell, "%%team two --con") == ["--config"]
    assert "two.yaml" in completions(shell, "%%team two --config tw")
    assert completions(shell, "%team two --approve she") == ["shell"]
