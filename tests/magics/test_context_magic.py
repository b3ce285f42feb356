"""`%context` in a real IPython: values, errors, silence, completion, a clean unload."""

from __future__ import annotations

import pytest
from builders import assistant, session, step, summarised, usage, user
from magics.ipython_shells import completions, new_shell
from widgets.reports.hostile_logs import hostile, intruders

import ctxkit as ck
from ctxkit.errors import BadArguments, ReadError


@pytest.fixture(scope="module")
def loaded():
    shell = new_shell()
    shell.run_line_magic("load_ext", "ctxkit")
    yield shell
    shell.run_line_magic("unload_ext", "ctxkit")


@pytest.fixture
def shell(loaded):
    """The shell with one session in use, called `log`, and nothing else."""
    a, b = user("find it"), assistant("found", usage=usage(900))
    log = session(
        a,
        b,
        step(text="x" * 400),
        summarised([a, b]),
        assistant("done", usage=usage(300)),
        id="log",
    )
    loaded.run_line_magic("reload_ext", "ctxkit")
    loaded.user_ns["log"] = log
    run(loaded, "%context use log;")
    return loaded


def run(shell, cell: str):
    """Run a cell as the notebook does and return the value that it displayed."""
    done = shell.run_cell(cell, store_history=True)
    done.raise_error()
    return done.result


def test_use_makes_a_variable_the_active_session(shell):
    assert run(shell, "%context use log") is shell.user_ns["log"]
    assert list(run(shell, "%context sessions").index) == ["log"]


def test_use_reads_a_file_in_quotes_under_a_name(shell, tmp_path):
    file = tmp_path / "two words.jsonl"
    file.write_text('{"type":"session","version":3,"id":"s1","timestamp":"2026-01-01T00:00:00Z","cwd":"/"}\n'
                    '{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-01T00:00:01Z","message":{"role":"user","content":"hi"}}\n')  # fmt: skip
    read = run(shell, f'%context use "{file}" --name mine')
    assert read.messages[0].text == "hi"
    sessions = run(shell, "%context sessions")
    assert list(sessions.index) == ["log", "mine"]
    assert list(sessions["active"]) == [False, True]


def test_a_session_known_by_name_can_be_used_again(shell):
    shell.user_ns["other"] = session(user("o"), assistant("p"), id="other")
    run(shell, "%context use other")
    assert run(shell, "%context use log") is shell.user_ns["log"]
    assert run(shell, "%context turns --session other")["session"].tolist() == ["other"]


def test_a_session_is_called_after_its_id_and_numbered_where_another_has_the_name(loaded):
    loaded.run_line_magic("reload_ext", "ctxkit")
    registry = loaded.magics_manager.registry["CtxKit"].sessions
    with pytest.raises(BadArguments, match=r"called 'x'; known: none yet\.$"):
        registry.get("x")
    first, second, third = (session(user(t), id="a b") for t in "123")
    files = [session(user("f"), id="f", path_=p) for p in ("f.jsonl", "f.jsonl", "g.jsonl")]
    other = session(user("o"), id="o", path_="f.jsonl")
    for added, name in (
        *((first, "a-b"), (second, "a-b-2"), (third, "a-b-3"), (first, "a-b")),
        *((files[0], "f"), (files[1], "f"), (files[2], "f-2"), (other, "o")),
        *((session(id=""), "session"), (session(id="n" * 90), "n" * 39 + "…")),
    ):
        assert registry.add(added) == name == registry.active_name
        assert registry.get(name) is added
    assert registry.add(third, "a-b") == "a-b"  # a name that is given replaces
    registry.update(second, "f")
    assert (registry.active_name, registry.get("f")) == ("a-b", second)
    assert list(registry) == ["a-b", "a-b-2", "a-b-3", "f", "f-2", "o", "session", "n" * 39 + "…"]


def test_the_newest_checkpoint_is_the_one_to_go_back_to(shell):
    def shown() -> str:
        return " ".join(repr(run(shell, "%context checkpoints")).split())

    a, b, c = user("a"), user("b"), user("c")
    edits = [summarised([a], trigger="t" * 90), summarised([b], trigger="manual")]
    shell.user_ns["twice"] = session(a, edits[0], b, edits[1], c, id="twice")
    run(shell, "%context use twice")
    assert shown().startswith(
        "2 checkpoints, each before a compaction: %context restore 1 goes back to the last."
    )
    assert list(run(shell, "%context checkpoints")["trigger"]) == ["t" * 39 + "…", "manual"]
    shell.user_ns["never"] = session(a, id="never")
    run(shell, "%context use never")
    assert shown().startswith("No compaction yet, so there is nothing to go back to.")


def test_only_a_help_that_leaves_names_out_says_that_there_are_more(shell):
    more = "has further names, which still work."
    for line, is_short in (("context -h", True), ("context -h --all", False), ("memory -h", False)):
        assert repr(run(shell, f"%{line}")).endswith(f"`%context -h --all` {more}") is is_short
        assert (more in repr(run(shell, f"%{line}"))) is is_short


def test_the_value_can_be_kept(shell):
    run(shell, "table = %context compactions")
    assert len(shell.user_ns["table"]) == 1


@pytest.mark.parametrize(
    "line", ["context turns;", "context turns ; ", "context;", "context list --call 0;"]
)
def test_a_semicolon_silences_the_display_and_keeps_the_value(shell, line: str):
    assert run(shell, f"%{line}") is None
    run(shell, f"r = %{line}")
    assert shell.user_ns["r"] is not None


def test_only_its_own_cell_is_silenced(shell):
    assert run(shell, "%context turns;\n5") == 5
    assert run(shell, "%context turns") is not None


def test_a_semicolon_is_understood_when_called_by_hand(shell):
    assert shell.run_line_magic("context", "sessions;") is not None


def test_no_magic_has_a_name_with_a_semicolon(shell):
    assert not [name for name in shell.magics_manager.magics["line"] if ";" in name]
    assert run(shell, "%memory -h;") is None
    run(shell, "r = %agent -h;")
    assert shell.user_ns["r"] is not None


SHORT = ["status", "list", "detail", "turns", "compactions", "diff", "spend", "sections", "store",
         "sessions", "use", "export"]  # fmt: skip


def test_the_short_help_has_twelve_subcommands_by_task(shell):
    from ctxkit.magics.magics_class import CONTEXT_SUBCOMMANDS

    page = repr(run(shell, "%context -h")).splitlines()
    rows = [line.split()[1] for line in page if line.startswith("  %context ")]
    assert sorted(rows) == sorted(SHORT)
    blocks = [block.splitlines()[1:] for block in "\n".join(page).split("\n\n")[1:-1]]
    assert [{line.split()[1] for line in block} for block in blocks] == [
        {"status", "list", "detail", "sections", "store"},
        {"turns", "compactions", "spend", "diff"},
        {"sessions", "use", "export"},
    ]
    tasks = {s.task for s in CONTEXT_SUBCOMMANDS.values()}
    assert {line[:-1] for line in page if line.endswith(":")} == tasks
    assert len(tasks) == 3
    full = repr(run(shell, "%context -h --all"))
    assert all(f"  %context {name} " in full for name in CONTEXT_SUBCOMMANDS)


@pytest.mark.parametrize("line", ["-h", "--help", "use -h", "turns --help", "use x -h"])
def test_help_is_a_value_and_names_what_it_explains(shell, line: str):
    assert f"%context {line.split(maxsplit=1)[0] if line[0] != '-' else 'use'}" in repr(
        run(shell, f"%context {line}")
    )


def test_the_help_of_ipython_lists_every_subcommand(shell):
    from ctxkit.magics.magics_class import CONTEXT_SUBCOMMANDS

    doc = shell.magics_manager.magics["line"]["context"].__doc__
    assert all(f"%context {name} " in doc for name in CONTEXT_SUBCOMMANDS)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("trns", "Did you mean 'turns'"),
        ("turns --sesion log", "Did you mean '--session'"),
        ("turns --session", "needs a value"),
        ("turns --session nobody", "No session is called 'nobody'; known: log"),
        ("list --call many", "call must be a number"),
        ("list --call 9", "has no call 9"),
        ("turns now", "no further word"),
        ("use", "needs WHAT"),
        ("export", "needs PATH"),
        ("export report.pdf", "ends in .html"),
    ],
)
def test_a_mistake_says_in_one_line_what_to_do(shell, line: str, said: str):
    with pytest.raises(BadArguments, match=said) as raised:
        run(shell, f"%context {line}")
    assert len(raised.value._render_traceback_()) == 1
    assert "\n" not in raised.value._render_traceback_()[0]


def test_a_file_that_is_not_there_is_a_read_error(shell):
    with pytest.raises(ReadError, match=r"nowhere\.jsonl: there is no such file"):
        run(shell, "%context use nowhere.jsonl")


def test_without_a_session_it_says_how_to_get_one(loaded):
    loaded.run_line_magic("reload_ext", "ctxkit")
    with pytest.raises(BadArguments, match="%context use FILE"):
        run(loaded, "%context")


def test_a_usage_error_of_ipython_leaves_as_one_of_ours():
    from IPython.core.error import UsageError

    from ctxkit.magics.magics_class import convert_to_kit_errors

    @convert_to_kit_errors
    def magic():
        raise UsageError("no such thing")

    with pytest.raises(BadArguments, match="no such thing"):
        magic()


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("%context tu", {"turns"}),
        ("r = %context comp", {"compactions"}),
        ("%context turns --", {"--session", "--follow", "--reports", "--chart", "--help"}),
        ("%context turns --session l", {"log"}),
        ("%context use lo", {"log"}),
        ("x = 1\n%context se", {"sessions", "sections"}),
        ("%context use x --format p", {"pi"}),
    ],
)
def test_completion_offers_what_fits_and_nothing_of_python(shell, text: str, offered: set[str]):
    assert set(completions(shell, text)) == offered


def test_completion_offers_files(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run one.jsonl").touch()
    (tmp_path / "runs").mkdir()
    (tmp_path / ".hidden").touch()
    assert set(completions(shell, "%context use ru")) == {'"run one.jsonl"', "runs/"}
    assert ".hidden" in completions(shell, "%context use .h")


def test_completion_offers_at_most_200(shell):
    for n in range(250):
        shell.user_ns[f"many{n:03}"] = session(user("go"), id=f"many{n:03}")
    registry = shell.magics_manager.registry["CtxKit"].sessions
    for n in range(250):
        registry.add(shell.user_ns.pop(f"many{n:03}"))
    assert completions(shell, "%context use many") == [f"many{n:03}" for n in range(200)]


def test_python_completes_as_before(shell):
    shell.user_ns["turnstile"] = 1
    assert "turnstile" in completions(shell, "turnst")


def test_settings_are_shown_and_checked(shell, capsys):
    run(shell, "%config CtxKit")
    assert "contributors" in capsys.readouterr().out
    run(shell, "%config CtxKit.contributors = 3")
    assert shell.magics_manager.registry["CtxKit"].contributors == 3


def test_the_file_of_the_settings_is_read_when_none_is_active(loaded):
    loaded.run_line_magic("reload_ext", "ctxkit")
    loaded.magics_manager.registry["CtxKit"].session_file = str(ck.samples.path())
    assert run(loaded, "%context").compactions == 2
    assert list(run(loaded, "%context sessions").index) == ["billing"]


def test_a_kernel_updates_displays_in_place_and_a_terminal_does_not(shell, monkeypatch):
    kit = shell.magics_manager.registry["CtxKit"]
    assert kit.rich is False
    monkeypatch.setattr(shell, "kernel", object(), raising=False)
    assert kit.rich is True


def test_unloading_leaves_nothing_behind():
    shell = new_shell()
    manager, before = shell.extension_manager, state(shell)
    for _ in range(2):
        manager.load_extension("ctxkit")
        assert state(shell) != before
        manager.unload_extension("ctxkit")
        assert state(shell) == before


def state(shell) -> dict:
    manager = shell.magics_manager
    return {
        "magics": {kind: sorted(known) for kind, known in manager.magics.items()},
        "registry": sorted(manager.registry),
        "configurables": len(shell.configurables),
        "matchers": list(shell.Completer.custom_matchers),
        "transformers": list(shell.input_transformers_post),
    }


def test_loading_says_nothing(capfd):
    shell = new_shell()
    shell.run_line_magic("load_ext", "ctxkit")
    shell.run_line_magic("unload_ext", "ctxkit")
    assert capfd.readouterr() == ("", "")


def test_text_of_a_log_stays_text(shell):
    shell.user_ns["bad"] = hostile()
    assert not {"\x1b", "\u202e", "\x00"} & set(repr(run(shell, "%context use bad")))
    for line in ("", "list", "detail", "turns", "compactions", "sessions"):
        value = run(shell, f"%context {line}")
        bundle, _ = shell.display_formatter.format(value)
        assert intruders(bundle["text/html"]) == []
        assert not {"\x1b", "\u202e", "\x00"} & set(bundle["text/plain"])
    assert "window.evil" in repr(run(shell, "%context"))
