"""A session continues in another kernel as it was led: model, root, tools, rules and limits, or a word on what differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from agent.models.fake_provider_server import Play, wire
from magics.ipython_shells import new_shell
from magics.test_agent_magic import kit, lines_of_error, run

from ctxkit import presets, read
from ctxkit.errors import BadArguments
from ctxkit.metrics import count_groups_by_call

pytestmark = pytest.mark.filterwarnings("default")  # LiteLLM's libraries warn about each other

PAD = "x" * 400


def look(where: str) -> str:
    """Look somewhere."""
    return f"at {where} {PAD}"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Begin another kernel in the same folder, with the same function of the user's."""
    monkeypatch.chdir(tmp_path)
    open_shells = []

    def begin():
        for old in open_shells:
            old.run_line_magic("unload_ext", "ctxkit")
        open_shells[:] = [new_shell()]
        open_shells[0].run_line_magic("load_ext", "ctxkit")
        open_shells[0].user_ns["look"] = look
        return open_shells[0]

    yield begin
    for old in open_shells:
        old.run_line_magic("unload_ext", "ctxkit")


@pytest.fixture
def server():
    with wire("chat", Play("It is here.")) as up:
        up.model = f"openai/own-model?api_base={up.url}&context_window=50000"
        yield up


def test_another_kernel_goes_on_with_all_that_was_named(kernel, server, capsys):
    Path("work").mkdir()
    named = "--tools look,files --root work --rules pi --max-calls 7 --max-seconds 60"
    run(kernel(), f"%%agent --session k --model '{server.model}' {named}\nLook.")
    capsys.readouterr()
    shell = kernel()
    answer = run(shell, "%%agent --session k\ngo on")
    live = kit(shell).lives.get("k")
    assert answer.session.calls[-1].message.model == "openai/own-model"
    assert live.root.folder.name == "work"
    assert "look" in live.agent.tools
    assert live.agent.rules.label == "pi"
    assert (live.agent.limits.calls, live.agent.limits.seconds) == (7, 60)
    assert "before" not in capsys.readouterr().out
    run(shell, "%%agent --session k --max-seconds inf --max-calls 9\ngo on")
    assert (live.agent.limits.calls, live.agent.limits.seconds) == (9, None)


def test_another_kernel_asks_a_person_as_before(kernel, server):
    shell = kernel()
    run(shell, f"%%agent --session k --model '{server.model}' --tools look\nLook.")
    run(shell, "%%agent --session k --approve look\nagain")  # named when it was open already
    shell = kernel()
    run(shell, "%%agent --session k\ngo on")
    assert kit(shell).lives.get("k").settings["approve"] == "look"


def test_what_is_named_otherwise_in_another_kernel_is_said(kernel, server, capsys):
    shell = kernel()
    shell.user_ns["mine"] = presets.pi()
    run(shell, f"%%agent --session k --model '{server.model}' --tools look --rules mine\nLook.")
    shell = kernel()
    shell.user_ns["mine"] = presets.pi(keep_recent_tokens=9_000)
    capsys.readouterr()
    run(shell, "%%agent --session k --tools files\ngo on")
    said = capsys.readouterr().out
    assert "Note: tools: look before, files from here on." in said
    assert "Note: its rules have the same name as before (mine), but they have changed." in said
    assert "look (gone)" in said
    assert "read_file" in said
    run(shell, "%%agent --session k\ngo on")
    assert "Note:" not in capsys.readouterr().out


def test_what_is_as_before_is_not_noted_and_another_name_once(kernel, server, capsys):
    shell = kernel()
    shell.user_ns["mine"] = presets.pi()
    run(shell, f"%%agent --session k --model '{server.model}' --rules mine\nLook.")
    shell = kernel()
    shell.user_ns["mine"] = presets.pi()
    capsys.readouterr()
    run(shell, "%%agent --session k\ngo on")
    assert "Note:" not in capsys.readouterr().out
    run(kernel(), "%%agent --session k --rules pi\ngo on")
    notes = [line for line in capsys.readouterr().out.splitlines() if "Note:" in line]
    assert notes == ["Note: rules: mine before, pi from here on."]


def test_a_script_never_goes_on_with_a_models_session(kernel, server, monkeypatch, tmp_path):
    run(kernel(), f"%%agent --session k --model '{server.model}'\nLook.")
    shell = kernel()
    written = Path(".ctxkit/sessions/k.jsonl").read_bytes()
    why = "conversation with openai/own-model, and scripted/tour would write invented turns"
    lines_of_error(shell, "%%agent --session k --model scripted/tour\ngo on", BadArguments, why)
    # a session that somebody else led: its model is not taken over, nor is a script put in its place
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    shell = kernel()
    for more in ("", " --dry-run"):
        lines_of_error(shell, f"%%agent --session k --trust{more}\ngo on", BadArguments, why)
    assert Path(".ctxkit/sessions/k.jsonl").read_bytes() == written
    assert len(server.asked) == 1


def test_a_model_that_goes_on_with_a_scripts_session_is_told(kernel, server, capsys):
    run(kernel(), "%%agent --session k\nWrite it")
    run(kernel(), f"%%agent --session k --model '{server.model}'\ngo on")
    said = capsys.readouterr().out
    assert "a script wrote what was answered so far (scripted/tour); from here on openai/" in said


def test_what_somebody_else_wrote_of_model_and_tools_is_not_taken_over(kernel, server, capsys):
    shell = kernel()
    run(shell, "%%agent --session k --tools files\nWrite it")
    kit(shell).close()
    path = Path(".ctxkit/sessions/k.jsonl")
    forged = re.sub(r'"tools":"files"', '"tools":"shell"', path.read_text())
    assert forged != path.read_text()
    path.write_text(forged)
    answer = run(kernel(), "%%agent --session k\ngo on")
    assert answer.session.calls[-1].message.model == "scripted/tour"
    shell = kernel()
    assert "shell" not in kit(shell).lives.open("k").agent.tools
    assert "holds no settings that you have sealed" in capsys.readouterr().out


def test_a_tool_cannot_ask_the_session_that_runs_it(kernel):
    shell = kernel()
    plays = (Play(calls=(("again", {"what": "x"}),)), Play("Done."))
    said = []

    def again(what: str) -> str:
        """Ask again."""
        done = shell.run_cell(f"%%agent --session k\n{what}")
        said.append(str(done.error_in_exec or done.error_before_exec))
        return said[-1]

    shell.user_ns["again"] = again
    with wire("chat", *plays) as up:
        model = f"openai/own-model?api_base={up.url}&context_window=50000"
        run(shell, f"%%agent --session k --model '{model}' --tools again\nGo.")
        assert len(up.asked) == 2
    assert "A tool cannot ask the session that runs it" in said[0]
    results = [m for m in kit(shell).session("k").messages if m.role == "tool"]
    assert len(results) == 1
    assert "busy" in results[0].text


def test_a_branch_is_live_at_once(kernel):
    shell = kernel()
    run(shell, "%%agent --model scripted/audit\ngo")
    run(shell, "%%agent\ngo on")
    run(shell, "%compact --keep 1")
    assert "is live" in repr(run(shell, "%context branch 0 other"))
    assert repr(run(shell, "%agent")).startswith("Session other ")
    assert "Model: scripted/audit" in repr(run(shell, "%agent"))
    run(shell, "%compact --keep 1")
    assert len(read(".ctxkit/sessions/other.jsonl").edits) == 1
    assert len(kit(shell).lives.get("main").session.edits) == 1


def test_the_schemas_of_other_tools_are_counted_as_schemas(kernel):
    def usage(n):
        return b"data: " + (
            b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
            b'"delta":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{'
            b'"prompt_tokens":%d,"completion_tokens":2,"total_tokens":%d}}\n\ndata: [DONE]\n\n' % (n, n + 2)
        )  # fmt: skip

    with wire("chat", Play(raw=usage(90)), Play(raw=usage(900))) as up:
        model = f"openai/own-model?api_base={up.url}&context_window=50000"
        run(kernel(), f"%%agent --session k --model '{model}' --tools look --sections off\nLook.")
        answer = run(kernel(), "%%agent --session k --tools files\ngo on")
    session = read(".ctxkit/sessions/k.jsonl")
    assert session == answer.session or session.log == answer.session.log
    assert {t.name for t in session.tools} == {
        "read_file", "write_file", "patch_file", "list_files", "search", "compact_conversation",
    }  # fmt: skip
    found = count_groups_by_call(session).groups
    assert found["tool schemas"][-1] > 300, found
    assert (
        sum(n[-1] for g, n in found.items() if g not in ("tool schemas", "not in the log")) < 50
    ), found


def test_rules_with_a_function_of_the_users_are_the_same_in_another_kernel(kernel, capsys):
    for _ in range(2):
        shell = kernel()
        shell.run_cell("def mine(history, budget):\n    return history")
        run(shell, "%%agent --session k --rules mine\nWrite it")
    assert "Note:" not in capsys.readouterr().out
