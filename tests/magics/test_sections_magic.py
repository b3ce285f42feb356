"""Sections in a kernel: on by default, switched, kept, said again, priced; the context store beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from magics.ipython_shells import completions, new_shell

import ctxkit as ck
from ctxkit.errors import BadArguments, StoreError


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Begin a kernel in the same folder, with what a user gets by default."""
    monkeypatch.chdir(tmp_path)
    open_shells = []

    def kernel():
        end()
        open_shells[:] = [new_shell()]
        open_shells[0].run_line_magic("load_ext", "ctxkit")
        return open_shells[0]

    def end():
        for old in open_shells:
            old.run_line_magic("unload_ext", "ctxkit")

    yield kernel
    end()


def run(shell, cell: str):
    done = shell.run_cell(cell, store_history=True)
    done.raise_error()
    return done.result


def names(message) -> list[str]:
    return [name for name, _, _ in message.sections]


def test_a_session_begins_with_its_sections_unless_they_are_off(begin):
    """F1, F3, T1: Each section is on without being asked for, and is switched by itself."""
    shell = begin()
    first = run(shell, "%%agent --system 'In verse.'\nGo").session.messages[0]
    assert (first.role, names(first)) == ("system", ["base", "own", "runtime", "time"])
    assert f"Working directory: {Path('.ctxkit/scratch/main').resolve()}" in first.text
    off = run(shell, "%%agent --session b --sections off --system 'In verse.'\nGo").session.messages
    assert (off[0].text, off[0].details) == ("In verse.", {})
    few = run(shell, "%%agent --session c --sections -time,-runtime\nGo").session.messages[0]
    assert names(few) == ["base"]
    with pytest.raises(BadArguments, match="Did you mean 'runtime'"):
        run(shell, "%%agent --session d --sections runtme\nGo")
    assert not Path(".ctxkit/sessions/d.jsonl").exists()


def test_the_files_of_a_named_root_are_the_projects_word(begin, capsys, tmp_path):
    shell = begin()
    Path("root").mkdir()
    Path("root/AGENTS.md").write_text("Use tabs.")
    Path("root/.gitignore").write_text("build/")
    (tmp_path / "secret").write_text("the secret")
    Path("root/CLAUDE.md").symlink_to(tmp_path / "secret")
    first = run(shell, "%%agent --root root\nGo").session.messages[0]
    assert names(first) == ["base", "runtime", "project", "gitignore", "time"]
    assert "Use tabs." in first.text
    assert "the secret" not in first.text
    assert "Note: AGENTS.md of the root stands in the prompt" in capsys.readouterr().out
    run(shell, "%%agent --session b --root root --sections -project\nGo")
    assert "`--system AGENTS.md` begins a session with it" in capsys.readouterr().out


def test_live_log_and_replay_agree_to_the_token(begin):
    shell = begin()
    Path("root").mkdir()
    Path("root/.gitignore").write_text("build/\n" * 300)
    Path("a.md").write_text("A")
    live = run(shell, "%%agent --root root\nGo").session
    run(shell, "%context add a.md --name a")
    live = run(shell, "%%agent\nMore").session
    log = ck.read(".ctxkit/sessions/main.jsonl")
    assert [names(m) for m in log.messages] == [names(m) for m in live.messages]
    assert ["store"] in [names(m) for m in log.messages]
    again = ck.replay(log, live.prompt_source._latest_run.rules)
    for call in range(len(live.calls)):
        held = [
            [(i.message.parts, i.tokens) for i in s.sent(call) if i.message.kind != "fixed"]
            for s in (live, log, again)
        ]
        assert held[0] == held[1] == held[2]
        parts = [{p.name: p.tokens for p in ck.report(s, call).parts if p.group == "system prompt"}
                 for s in (live, log, again)]  # fmt: skip
        assert parts[0] == parts[1] == parts[2]
        assert set(parts[0]) == {"base", "runtime", "gitignore", "time"}
    told = [names(i.message) for i in live.sent(0) if i.message.kind != "fixed"]
    assert told[0] == ["base", "runtime", "gitignore", "time"]


def test_the_report_has_raw_and_injected_sizes(begin):
    """T7, T8, T11: The report has the size of each section, raw and as it was put in; `%context
    list` has a line for each of its parts.
    """
    shell = begin()
    Path("root").mkdir()
    Path("root/.gitignore").write_text("build/\n" * 1000)
    Path("big.md").write_text("word " * 4000)
    run(shell, "%context add big.md --name big")
    live = run(shell, "%%agent --root root\nGo").session
    parts = {p.name: p for p in ck.report(live).parts if p.group == "system prompt"}
    assert parts["gitignore"].raw_tokens > 5 * parts["gitignore"].tokens
    assert parts["store"].raw_tokens > 100 * parts["store"].tokens
    assert parts["base"].raw_tokens == parts["base"].tokens
    listed = run(shell, "%context list")
    assert {"base", "runtime", "gitignore", "store", "time"} <= set(listed["name"].dropna())
    assert {"system prompt", "tool schemas", "user", "tool results"} <= set(listed["part"])
    costs = run(shell, "%context sections")
    assert list(costs.index[:5]) == ["base", "runtime", "gitignore", "store", "time"]
    assert costs.loc["gitignore", "billed_tokens"] == costs.loc["gitignore", "tokens"] * len(
        live.calls
    )


def test_sections_are_kept_and_obeyed_in_another_kernel(begin, capsys):
    run(begin(), "%%agent --sections base,time\nGo")
    shell = begin()
    more = run(shell, "%%agent\nMore").session
    assert [names(m) for m in more.messages if m.sections] == [["base", "time"]]
    capsys.readouterr()
    changed = run(begin(), "%%agent --sections base,time,runtime\nMore").session
    assert [names(m) for m in changed.messages if m.sections] == [["base", "time"], ["runtime"]]
    told = capsys.readouterr().out
    assert "sections: base,time before, base,time,runtime from here on" in told
    assert "said with the prompt: runtime" in told


def test_sections_are_switched_in_a_running_session(begin):
    shell = begin()
    run(shell, "%%agent\nGo")
    said = repr(run(shell, "%context sections -runtime"))
    assert "from the next prompt on: base, own, project" in said
    assert "kept so that the cache holds: runtime" in said
    assert run(shell, "%%agent\nMore").session.messages[0].sections[1][0] == "runtime"
    run(shell, "%context reset")
    assert names(run(shell, "%%agent\nGo").session.messages[0]) == ["base", "time"]
    kit = shell.magics_manager.registry["CtxKit"]
    assert kit.lives.get("main").settings["sections"] == "-runtime"


@pytest.mark.parametrize(
    ("begun", "words", "on"),
    [
        ("off", "-runtime", []),
        ("off", "+time", ["time"]),
        ("base,time", "-time", ["base"]),
        ("base", "+time,+runtime", ["base", "runtime", "time"]),
        ("-time,-runtime", "+time", ["base", "time"]),
        ("-time", "-runtime", ["base"]),
        ("base", "on", ["base", "runtime", "time"]),
        ("on", "off", []),
    ],
)
def test_signs_change_what_is_on_in_the_session(begin, begun, words, on):
    shell = begin()
    run(shell, f"%%agent --sections {begun}\nGo")
    said = repr(run(shell, f"%context sections {words}"))
    assert ("from the next prompt on: none" in said) == (not on)
    run(shell, "%context reset")
    first = run(shell, "%%agent\nGo").session.messages[0]
    assert (names(first) or [first.role]) == (on or ["user"])
    more = run(begin(), "%%agent\nMore")  # in another kernel, too
    assert {n for m in more.session.messages for n in names(m)} == set(on)


def test_signs_change_what_new_sessions_begin_with(begin):
    shell = begin()
    run(shell, "%config CtxKit.sections = 'off'")
    assert "new sessions: none." in repr(run(shell, "%context sections -runtime"))
    assert "new sessions: time." in repr(run(shell, "%context sections +time"))
    assert "new sessions: base, time." in repr(run(shell, "%context sections +base"))
    assert names(run(shell, "%%agent\nGo").session.messages[0]) == ["base", "time"]


def test_instructions_outlive_a_reset_and_a_switch(begin):
    shell = begin()
    run(shell, "%%agent --system 'In verse.'\nGo")
    run(shell, "%context reset")
    run(shell, "%context sections -time")
    first = run(shell, "%%agent\nGo").session.messages[0]
    assert names(first) == ["base", "own", "runtime"]
    assert "In verse." in first.text
    with pytest.raises(BadArguments, match="began with other instructions"):
        run(shell, "%%agent --system 'In prose.'\nGo")
    run(shell, "%%agent --system 'In verse.'\nGo")


def test_sections_of_new_sessions_are_switched_before_there_is_one(begin):
    shell = begin()
    assert "new sessions: base." in repr(run(shell, "%context sections base"))
    assert names(run(shell, "%%agent\nGo").session.messages[0]) == ["base"]


def test_a_dry_run_counts_them_and_makes_nothing(begin):
    shell = begin()
    Path("root").mkdir()
    Path("root/.gitignore").write_text("build/")
    told = repr(run(shell, "%%agent --dry-run --root root --system 'In verse.'\nGo"))
    assert "system" in told
    off = repr(run(shell, "%%agent --dry-run --root root --sections off\nGo"))
    assert "system" not in off
    assert not Path(".ctxkit").exists()


def test_the_store_is_filled_listed_and_emptied(begin, capsys):
    """F7, F9: `%context add` fills the store, and its index is in the system prompt."""
    shell = begin()
    Path("schema.sql").write_text("create table x;")
    said = repr(run(shell, "%context add schema.sql --name db --desc 'All tables'"))
    assert "Kept 1 file, 15 bytes of text, as .ctxkit/context/db" in said
    run(shell, "%context add schema.sql --name other --fuseraft")
    table = run(shell, "%context store")
    assert list(table.index) == ["db", "other"]
    assert table.loc["db", ["raw_bytes", "text_bytes", "description"]].tolist() == [
        15,
        15,
        "All tables",
    ]
    first = run(shell, "%%agent\nGo").session.messages[0]
    lines = [
        "\n  [db] — All tables: .ctxkit/context/db/schema.sql",
        "\n  [other]: .fuseraft/context/other/schema.sql",
    ]
    assert "".join(lines) in first.text
    assert list(table["injected_chars"]) == [len(line) for line in lines]
    assert "Removed db" in repr(run(shell, "%context remove db"))
    assert list(run(shell, "%context store").index) == ["other"]
    for line, match in (("add schema.sql", "--name N"), ("add lost --name x", "no file or folder"),
                        ("remove lost", "has no 'lost'"), ("add schema.sql --name a/b", "no name")):  # fmt: skip
        with pytest.raises((BadArguments, StoreError), match=match):
            run(shell, f"%context {line}")
    Path(".fuseraft/context/index.json").write_text("{")
    run(shell, "%context store")
    assert "not used of .fuseraft/context" in capsys.readouterr().out


def test_an_agent_reads_the_store_from_a_scratch_root(begin):
    """F10: `read_file` gives the whole content, whatever the root."""
    from ctxkit.session import Message, Session, Text, ToolCall

    shell = begin()
    Path("spec.md").write_text("Amounts are minor units.")
    run(shell, "%context add spec.md --name spec")
    call = ToolCall("c1", "read_file", {"path": ".ctxkit/context/spec/spec.md"})
    log = [Message(role="user", id="u", parts=(Text("Go"),)),
           Message(role="assistant", id="a", parts=(call,), stop="tool"),
           Message(role="tool", id="t", call_id="c1", tool="read_file", parts=(Text(""),)),
           Message(role="assistant", id="b", parts=(Text("done"),), stop="stop")]  # fmt: skip
    shell.magics_manager.registry["CtxKit"].sessions.update(
        Session(id="script", log=tuple(log)), "script"
    )
    done = run(shell, "%%agent --session s --model scripted/script\nGo").session
    assert next(m.text for m in done.messages if m.role == "tool") == "Amounts are minor units."
    table = ck.experiments.index_or_paste(done).set_index("variant")
    assert table["calls_n"].tolist() == [2, 1]


def test_lines_complete(begin):
    shell = begin()
    assert "sections" in completions(shell, "%context sec")
    assert "-runtime" in completions(shell, "%%agent --sections -ru")
