"""`%memory` and `--memory` in a kernel: listed, added, edited, forgotten, explained; off for scripts unless asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from magics.ipython_shells import completions

import ctxkit as ck
from ctxkit.errors import BadArguments


@pytest.fixture
def kernel(shell, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    shell.run_line_magic("config", "CtxKit.sections = 'on'")
    return shell


def run(shell, cell):
    done = shell.run_cell(cell, store_history=True)
    done.raise_error()
    return done.result


def memory(session):
    return [t.strip() for m in session.messages for n, t, _ in m.sections if n == "memory"]


def test_entries_are_added_listed_shown_edited_and_forgotten(kernel, tmp_path):
    """F20: What is remembered is inspected and deleted by a command."""
    said = run(kernel, "%memory add Use pytest -q. --name runner --type feedback")
    assert repr(said) == "Remembered [feedback] runner: Use pytest -q."
    table = run(kernel, "%memory")
    assert list(table.index) == ["runner"]
    assert table.loc["runner", "type"] == "feedback"
    assert "tox" in repr(run(kernel, '%memory edit runner --description "Use tox."'))
    assert repr(run(kernel, "%memory show runner")).startswith("[feedback] runner: Use tox.\n(")
    assert repr(run(kernel, "%memory why runner")).count(" by user") == 2
    assert list((tmp_path / "state/ctxkit/memory/repl").glob("memory_*.md"))
    assert repr(run(kernel, "%memory forget RUNNER")) == "Forgot runner."
    assert run(kernel, "%memory list").empty
    for bad, why in (("%memory show runner", "Nothing is remembered"), ("%memory add", "Say what is to be"),
                     ("%memory add x --type ../..", "no type of memory"), ("%memory lst", "Did you mean 'list'"),
                     ("%memory edit runner", "Say what is to change")):  # fmt: skip
        with pytest.raises(BadArguments, match=why):
            run(kernel, bad)


def test_an_entry_has_a_body_in_words_or_of_a_variable(kernel):
    kernel.user_ns["why"] = "It is\nthe fastest."
    run(kernel, "%memory add Use ruff. --name linter --body why")
    run(kernel, "%memory add Use tox. --name runner --type feedback --body nowhere")
    kernel.user_ns["count"] = 7
    run(kernel, "%memory add Use ty. --name types --body count")
    assert repr(run(kernel, "%memory show types")).splitlines()[1] == "  count"
    shown = repr(run(kernel, "%memory show linter")).splitlines()
    assert shown[1:3] == ["  It is", "  the fastest."]
    assert repr(run(kernel, "%memory show runner")).splitlines()[1] == "  nowhere"
    table = run(kernel, "%memory list")
    assert table.loc["runner", "chars"] == len("[feedback] runner: Use tox.") + len("nowhere")
    assert shown[3].startswith(f"({table.loc['linter', 'guid']}")
    assert len(table.loc["linter", "guid"]) == 8


def test_an_entry_is_renamed_unless_another_has_the_name(kernel):
    run(kernel, "%memory add Use pytest -q. --name runner")
    run(kernel, "%memory add Use ruff. --name linter")
    assert repr(run(kernel, "%memory edit runner --rename tests --type feedback")) == (
        "Changed [feedback] tests: Use pytest -q."
    )
    assert list(run(kernel, "%memory list").index) == ["tests", "linter"]
    assert repr(run(kernel, "%memory why tests")).count(" by user") == 2
    assert "TESTS" in repr(run(kernel, "%memory edit tests --rename TESTS"))
    for bad, why in (
        ("--rename Linter", "Another entry is called 'Linter'"),
        ("--rename ''", "name"),
    ):
        with pytest.raises(BadArguments, match=why):
            run(kernel, f"%memory edit tests {bad}")
    assert set(run(kernel, "%memory list").index) == {"TESTS", "linter"}


def test_what_fuseraft_remembers_is_seen_and_written_there_if_asked(kernel, tmp_path):
    folder = tmp_path / "home/.fuseraft/memory/repl"
    folder.mkdir(parents=True)
    (folder / "memory_7.md").write_text(
        "---\nguid: 7\nname: go\ndescription: Run go vet.\ntype: user\n---\n"
    )
    assert list(run(kernel, "%memory list").index) == ["go"]
    run(kernel, "%memory add Write Go. --name lang --fuseraft")
    assert len(list(folder.glob("memory_*.md"))) == 2
    assert "[lang](memory_" in (folder / "MEMORY.md").read_text()


def test_a_script_remembers_where_it_is_asked_to_alone(kernel, tmp_path):
    run(kernel, "%memory add Use pytest -q. --name runner --type feedback")
    assert memory(run(kernel, "%%agent\nGo").session) == []
    block = memory(run(kernel, "%%agent --session b --memory on\nGo").session)
    assert block == [
        "## MEMORY: facts recalled from prior sessions\n[feedback] runner: Use pytest -q."
    ]
    assert "Memory: " in repr(run(kernel, "%agent --session b"))
    off = memory(run(kernel, "%%agent --session b --memory off\nGo on").session)
    assert off == [*block, "[memory: no longer there]"]
    assert "Memory: " not in repr(run(kernel, "%agent --session b"))
    with_, without = (
        repr(run(kernel, f"%%agent --session c --memory {m} --dry-run\nGo")) for m in ("on", "off")
    )
    assert with_ != without
    with pytest.raises(BadArguments, match="no memory 'redis'") as refusal:
        run(kernel, "%%agent --session d --memory redis\nGo")
    assert hasattr(ck.agent, re.search(r"ctxkit\.agent\.(\w+)", str(refusal.value))[1])
    with pytest.raises(BadArguments, match="`off` stands alone"):
        run(kernel, "%%agent --session d --memory off,on\nGo")
    assert not Path(".ctxkit/sessions/d.jsonl").exists()


def test_a_webhook_in_a_variable_is_a_memory(kernel):
    from agent.memory.webhook_server import hook

    with hook() as (url, asked):
        kernel.push({"hooked": {"Provider": "webhook", "Webhook": {"LoadUrl": url}}})
        block = memory(run(kernel, "%%agent --session w --memory on,hooked\nGo").session)
    assert block == ["User prefers tabs."]
    assert asked[0][2] == {"agent": "w"}


def test_words_are_completed(kernel):
    run(kernel, "%memory add Use pytest -q. --name runner")
    assert completions(kernel, "%memory fo") == ["forget"]
    assert completions(kernel, "%memory show r") == ["runner"]
    assert "procedure" in completions(kernel, "%memory add x --type pro")
    assert completions(kernel, "%%agent --memory di") == ["digest"]
