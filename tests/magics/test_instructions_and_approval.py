"""`--system` and `--approve`: what a session begins with, and what a person is asked."""

from __future__ import annotations

import builtins
import json
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from magics.test_agent_in_a_kernel import Kernel, clear_kernel, errors
from waiting import PATIENCE, wait_until

import ctxkit as ck
from ctxkit._internal import TextAndHtml, escape_html
from ctxkit.errors import BadArguments
from ctxkit.magics.turn_handle_and_approvals import (
    MAX_CALL_CHARS,
    NOBODY_TO_ASK_MESSAGE,
    TurnHandle,
)


def run(shell, cell: str):
    done = shell.run_cell(cell, store_history=True)
    done.raise_error()
    return done.result


def refused(shell, cell: str, match: str) -> None:
    with pytest.raises(BadArguments, match=match):
        run(shell, cell)


def first(answer):
    return answer.session.messages[0]


# -- instructions ------------------------------------------------------------------------------------


def test_a_session_begins_with_its_instructions_and_keeps_them(shell):
    answer = run(shell, "%%agent --system 'Answer in verse.'\nWrite it")
    assert (first(answer).role, first(answer).text) == ("system", "Answer in verse.")
    assert first(answer).turn == answer.session.messages[1].turn == 0
    assert all(answer.session.view(c)[0].text == "Answer in verse." for c in range(4))
    again = run(shell, "%%agent --system 'Answer in verse.'\nMore")  # the cell is run again
    assert [m.role for m in again.session.messages].count("system") == 1
    refused(shell, "%%agent --system 'In prose.'\nMore", "began with other instructions")
    run(shell, "%compact --keep 1")
    assert first(run(shell, "%%agent\nCheck")).role == "system"
    assert run(shell, "%%agent\nCheck").session.view(-1)[0].text == "Answer in verse."


def test_instructions_come_from_a_file_a_variable_or_the_root(shell):
    Path("here.md").write_text("From here.")
    Path("root").mkdir()
    Path("root/there.md").write_text("From the root.")
    shell.user_ns["mine"] = "From\na variable."
    for n, (words, said) in enumerate({
        "here.md": "From here.", "there.md": "From the root.", "mine": "From\na variable.",
        "terse": "terse",
    }.items()):  # fmt: skip
        answer = run(shell, f"%%agent --session s{n} --root root --system {words}\nGo")
        assert first(answer).text == said
    refused(shell, "%%agent --session x --system lost.md\nGo", "no file 'lost.md'")
    refused(shell, "%%agent --session x --system ' '\nGo", "says nothing")
    Path("bin.md").write_bytes(b"\xff\xfe\x00")
    refused(shell, "%%agent --session x --system bin.md\nGo", "no text in UTF-8")
    Path("big.md").write_text("x" * 200_001)
    refused(shell, "%%agent --session x --system big.md\nGo", "that is no prompt")
    assert not Path(".ctxkit/sessions/x.jsonl").exists()


def test_what_is_no_path_is_the_text_itself(shell):
    Path("root").mkdir()
    Path("root/bom.md").write_bytes(b"\xef\xbb\xbfHi.")
    Path("most.md").write_text("x" * 200_000)
    for path in ("root/over.md", "more.md"):
        Path(path).write_text("x" * 200_001)
    resolver = shell.magics_manager.registry["CtxKit"].lives.resolver
    for words, text in {
        "bom.md": "Hi.",
        str(Path("root/bom.md").resolve()): "Hi.",
        "most.md": "x" * 200_000,
        "Two\nlines.md": "Two\nlines.md",
        "See lost.md": "See lost.md",
        "x" * 998 + ".md": "x" * 998 + ".md",
        "": "",
    }.items():
        assert resolver.load_instructions({"system": words, "root": "root"}) == text
    for words, said in {
        "over.md": "more than 200,000 bytes",
        "more.md": "more than 200,000 bytes",
        "lost.txt": "no file 'lost.txt'",
        "lost.prompt": "no file 'lost.prompt'",
        "x" * 997 + ".md": "no file 'x",
        "lost.rst": "no file 'lost.rst', neither here nor in the root.",
    }.items():
        with pytest.raises(BadArguments, match=said):
            resolver.load_instructions({"system": words, "root": "root"})


def test_a_link_out_of_the_root_is_no_file_of_it(shell, tmp_path_factory):
    secret = tmp_path_factory.mktemp("out") / "secret.md"
    secret.write_text("secret")
    Path("root").mkdir()
    Path("root/AGENTS.md").symlink_to(secret)
    refused(shell, "%%agent --root root --system AGENTS.md\nGo", "no file 'AGENTS.md'")


def test_a_projects_instructions_are_offered_once_and_read_after_a_word(shell, capsys):
    Path("root").mkdir()
    Path("root/AGENTS.md").write_text("Use tabs.")
    answer = run(shell, "%%agent --root root\nGo")
    assert "`--system AGENTS.md` begins a session with it" in capsys.readouterr().out
    assert first(answer).role == "user"
    run(shell, "%%agent\nMore")
    assert "AGENTS.md" not in capsys.readouterr().out
    assert (
        first(run(shell, "%%agent --session b --root root --system AGENTS.md\nGo")).text
        == "Use tabs."
    )
    assert "AGENTS.md`" not in capsys.readouterr().out


def test_a_key_in_instructions_is_not_kept(shell):
    key = "sk-ant-api03-" + "Ab1" * 30
    answer = run(shell, f"%%agent --system 'Use {key}.'\nGo")
    assert key not in first(answer).text
    run(shell, f"%%agent --system 'Use {key}.'\nMore")  # the same ones


def test_a_fresh_session_after_a_reset_has_the_same_instructions(shell):
    run(shell, "%%agent --system 'In verse.'\nGo")
    run(shell, "%context reset")
    assert first(run(shell, "%%agent\nGo")).text == "In verse."


def test_a_dry_run_counts_the_instructions(shell):
    assert "system" in repr(run(shell, "%%agent --dry-run --system 'In verse.'\nGo"))
    assert not Path(".ctxkit").exists()


# -- approval ----------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """What is typed, and what was asked."""

    class Asked(list):
        answers: list

    asked = Asked()
    asked.answers = []

    def typed(prompt=""):
        asked.append(prompt)
        said = asked.answers.pop(0) if asked.answers else "n"
        if isinstance(said, BaseException):
            raise said
        return said

    monkeypatch.setattr(builtins, "input", typed)
    return asked


def results(answer, tool="write_file"):
    return [m.text for m in answer.session.messages if m.tool == tool]


@pytest.mark.parametrize(("answers", "ran", "times"), [
    (["y"], True, 1), (["Yes "], True, 1), (["n"], False, 1), (["what?", "", "y"], True, 3),
    (["what?", "", "hm"], False, 3),
])  # fmt: skip
def test_a_call_waits_for_a_word(shell, asked, answers, ran, times):
    asked.answers[:] = answers
    answer = run(shell, "%%agent --approve write_file\nWrite it")
    assert len(asked) == times
    assert "May the agent call write_file?" in asked[0]
    assert "path: heat.py" in asked[0]
    assert Path(".ctxkit/scratch/main/heat.py").exists() is ran
    assert ("did not allow" in results(answer)[0]) is not ran


def test_always_holds_for_the_tool_and_the_session(shell, asked):
    asked.answers[:] = ["a"]
    run(shell, "%%agent --approve write_file\nWrite it")
    run(shell, "%%agent --tools files,shell\nWrite it")  # opened again, the same session
    assert len(asked) == 1
    assert Path(".ctxkit/scratch/main/heat.py").exists()
    run(shell, "%%agent --session other --approve write_file\nWrite it")
    assert len(asked) == 2
    assert not Path(".ctxkit/scratch/other/heat.py").exists()


def test_the_word_is_asked_for_in_later_turns_too_until_it_is_taken_back(shell, asked):
    run(shell, "%%agent --approve all --max-calls 1\nWrite it")
    run(shell, "%%agent --max-calls 1\nWrite it")
    assert len(asked) == 2
    run(shell, "%%agent --approve '' --max-calls 1\nWrite it")
    assert len(asked) == 2


@pytest.mark.parametrize(
    "error", [EOFError(), NotImplementedError("no stdin"), OSError("captured")]
)
def test_where_nobody_can_be_asked_nothing_runs(shell, asked, error):
    asked.answers[:] = [error] * 9
    answer = run(shell, "%%agent --approve write_file\nWrite it")
    assert results(answer)[0] == NOBODY_TO_ASK_MESSAGE
    assert not Path(".ctxkit/scratch/main/heat.py").exists()


def test_an_unknown_tool_is_refused(shell):
    refused(shell, "%%agent --approve shel\nGo", "no such tool.*Did you mean 'shell'")
    run(shell, "%config CtxKit.approve = 'shell,python'")
    run(shell, "%%agent --session two\nGo")  # known, and not among the session's tools


def test_a_group_of_tools_asks_for_each_of_them(tmp_path):
    from ctxkit.agent import RootFolder
    from ctxkit.magics.turn_handle_and_approvals import parse_approval_tools

    root = RootFolder(tmp_path)
    assert {"brief_write", "session_context_write"} <= parse_approval_tools(
        "work", ["brief_write"], root
    )
    assert {"write_file", "document"} <= parse_approval_tools(
        "files,document", ["write_file"], root
    )


def scripted(shell, *contents: str) -> None:
    """Make `scripted/talk` a model that writes files with these contents, all in one reply."""
    calls = [
        {"id": f"c{n}", "type": "function", "function": {
            "name": "write_file", "arguments": json.dumps({"path": f"{n}.txt", "content": text})}}
        for n, text in enumerate(contents)
    ]  # fmt: skip
    said = [{"role": "assistant", "content": None, "tool_calls": calls}]
    said += [{"role": "tool", "tool_call_id": c["id"], "content": "done"} for c in calls]
    talk = ck.Context("pi").add({"role": "user", "content": "go"}, *said)
    shell.user_ns["talk"] = talk.add({"role": "assistant", "content": "Done."}).session
    shell.run_line_magic("context", "use talk")


def test_a_call_that_cannot_be_shown_whole_does_not_run_and_says_why(shell, asked):
    scripted(shell, "x" * MAX_CALL_CHARS, "short")
    asked.answers[:] = ["y"]
    answer = run(shell, "%%agent --session s --approve write_file --model scripted/talk\nWrite it")
    assert len(asked) == 1
    assert "cannot be shown whole" in results(answer)[0]
    assert [p.name for p in Path(".ctxkit/scratch/s").iterdir()] == ["1.txt"]


def test_beside_the_notebook_the_buttons_answer(shell):
    handle = run(shell, "%%agent --background --approve write_file\nWrite it")
    handle._ipython_display_()
    box = handle._views[-1]
    wait_until(lambda: not box.choices[0].disabled)
    assert "May the agent call write_file?" in box.question.value
    assert [b.description for b in box.choices] == ["Allow", "Deny", "Always"]
    assert handle.state == "running"
    box.choices[0].click()
    answer = handle.result(PATIENCE)
    assert "did not allow" not in results(answer)[0]
    assert box.asks.layout.display == "none"
    handle.deny()  # nothing is asked any more


def test_a_turn_that_ends_while_its_widget_is_displayed_leaves_its_result_once(shell, monkeypatch):
    updates = []
    handle = TurnHandle("s")
    handle.running = SimpleNamespace(state="done")
    handle.show(TextAndHtml("words", "<p>words</p>"))

    def display_and_end(*_, **__):
        handle._views[-1].display = display = SimpleNamespace(
            update=lambda bundle, raw: updates.append(bundle)
        )
        handle.show_end()
        assert len(updates) == 1
        return display

    monkeypatch.setattr("IPython.display.display", display_and_end)
    handle._ipython_display_()
    handle.show_end()
    over = "The turn of session 's' is over; result() returns its answer."
    assert updates == [
        {
            "text/plain": f"words\n{over}",
            "text/html": f"<p>words</p><small>{escape_html(over)}</small>",
        }
    ]
    box = handle._views[-1]
    assert (box.stop.disabled, box.label.value) == (True, over)


def test_the_second_of_two_fast_clicks_does_not_answer_the_next_question(shell):
    scripted(shell, "one", "two")
    words = "--background --session s --approve write_file --model scripted/talk"
    handle = run(shell, f"%%agent {words}\nWrite it")
    handle._ipython_display_()
    box = handle._views[-1]
    wait_until(lambda: not box.choices[0].disabled)
    first = handle._question
    box.choices[0].click()
    wait_until(lambda: handle._question not in (first, None))
    box.choices[0].click()
    assert box.choices[0].disabled
    time.sleep(0.2)
    assert "two" in handle._question.whole  # it still stands
    handle.answer("y", first)  # an answer to the first comes too late
    wait_until(lambda: not box.choices[1].disabled)
    box.choices[1].click()
    assert ["did not allow" in r for r in results(handle.result(PATIENCE))] == [False, True]


def test_a_cell_that_waits_for_it_asks_itself(shell, asked):
    asked.answers[:] = ["n"]
    handle = run(shell, "%%agent --background --approve write_file\nWrite it")
    assert "did not allow" in results(handle.result(PATIENCE))[0]
    assert len(asked) == 1


def test_a_turn_that_asks_can_be_stopped(shell):
    handle = run(shell, "%%agent --background --approve write_file\nWrite it")
    wait_until(lambda: handle._question)
    handle.stop()
    assert handle.running.wait(PATIENCE)
    assert handle.state == "stopped"
    assert not Path(".ctxkit/scratch/main/heat.py").exists()


@pytest.fixture(scope="module")
def shared_kernel(tmp_path_factory):
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    yield kernel
    kernel.close()


@pytest.mark.skipif(not find_spec("ipykernel"), reason="ipykernel is not installed")
class TestInAKernel:
    @pytest.fixture
    def kernel(self, shared_kernel, tmp_path):
        return clear_kernel(shared_kernel, tmp_path)

    def test_it_asks_in_the_cells_own_field(self, kernel, tmp_path):
        sent = kernel.client.execute("%%agent --approve write_file\nWrite it", allow_stdin=True)
        request = kernel.client.get_stdin_msg(timeout=PATIENCE)
        assert request["msg_type"] == "input_request"
        assert "May the agent call write_file, as shown above?" in request["content"]["prompt"]
        assert not (tmp_path / ".ctxkit/scratch/main/heat.py").exists()
        kernel.client.input("y")
        assert errors(kernel.end(sent)) == []
        assert (tmp_path / ".ctxkit/scratch/main/heat.py").exists()

    def test_an_interrupt_while_it_asks_ends_the_turn(self, kernel, tmp_path):
        sent = kernel.client.execute("%%agent --approve write_file\nWrite it", allow_stdin=True)
        kernel.client.get_stdin_msg(timeout=PATIENCE)
        kernel.manager.interrupt_kernel()
        assert [name for name, _ in errors(kernel.end(sent))] == ["TurnInterrupted"]
        assert not (tmp_path / ".ctxkit/scratch/main/heat.py").exists()
        assert errors(kernel.run("%%agent --approve ''\nWrite it")) == []

    def test_a_front_end_without_a_field_runs_nothing(self, kernel, tmp_path):
        sent = kernel.client.execute("%%agent --approve write_file\nWrite it", allow_stdin=False)
        assert errors(kernel.end(sent)) == []
        assert not (tmp_path / ".ctxkit/scratch/main/heat.py").exists()
