"""`%%team` in a real IPython: the scripted team works, continues, and says what cannot work in one line."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest
from IPython.core.error import UsageError
from magics.ipython_shells import completions

from ctxkit.errors import BadArguments
from ctxkit.teams import DEMO_TASK

PLAN = "Agents:\n  - Name: A\n  - Name: B\nSelection: {Type: sequential}\n"


def test_a_team_works_on_the_task_of_the_cell(shell):
    page = repr(shell.run_cell_magic("team", "roman --tools files,shell --out crew", DEMO_TASK))
    assert "Developer: validation fail" in page
    assert "Developer: state advanced -> Testing" in page
    assert page.endswith("done: Done is reached")
    assert shell.user_ns["crew"].status.turns == 5
    assert repr(shell.run_line_magic("team", "roman")).endswith("done: Done is reached")


@pytest.mark.parametrize("line", ["", "roman"])
def test_without_a_task_it_is_said_how(shell, line):
    with pytest.raises(
        BadArguments, match="Say what the team shall do: write `%%team NAME --config"
    ):
        shell.run_line_magic("team", line)
    assert not Path(".ctxkit/sessions").exists()


def test_a_run_shows_its_chart(shell):
    page = shell.run_cell_magic("team", "roman --tools files,shell", DEMO_TASK)
    shown = page._repr_html_()
    assert "Developer: validation fail" in shown
    assert "<svg" in shown
    assert "Developer" in shown.partition("<svg")[2]


def test_a_team_that_ran_can_be_used(shell):
    shell.run_cell_magic("team", "roman --tools files,shell", DEMO_TASK)
    for _ in range(2):  # in this kernel, and in another
        session = shell.run_line_magic("context", "use roman")
        assert sorted(c.agent for c in session.children) == [
            "Developer",
            "Planner",
            "Reviewer",
            "Tester",
        ]
        chart = shell.run_line_magic("context", "turns --chart")
        assert {row[0] for row in chart.rows} == {"Developer", "Planner", "Reviewer", "Tester"}
        kit = shell.magics_manager.registry["CtxKit"]
        kit.sessions = type(kit.sessions)()


@pytest.mark.parametrize("magic", ["agent", "team", "compact"])
def test_help_is_there_in_an_empty_cell(shell, magic):
    for cell in (f"%%{magic} -h", f"%%{magic} --help\n", f"%%{magic} -h\n\n"):
        done = shell.run_cell(cell)
        done.raise_error()
        assert repr(done.result).startswith(f"%{'%' if magic != 'compact' else ''}{magic} [")


def test_an_empty_cell_without_h_is_refused_as_before(shell):
    refused = shell.run_cell("%%agent --session x").error_in_exec
    assert isinstance(refused, UsageError)
    assert "cell body is empty" in str(refused)


def test_any_config_runs_by_a_script(shell):
    Path("two.yaml").write_text(PLAN)
    page = repr(shell.run_cell_magic("team", "two --config two.yaml --model scripted", "Work."))
    assert page.endswith("done: each agent has had its turn")
    Path("script.yaml").write_text("A: [I did it.]\nB: [So did I.]\n")
    words = "three --config two.yaml --model scripted:script.yaml --out crew"
    shell.run_cell_magic("team", words, "Work.")
    replies = [m.text for m in shell.user_ns["crew"].session.children[0].messages]
    assert replies[-1] == "I did it."


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
