"""Qwen Code from npm as the agent of a cell, its model a server of this machine."""

from __future__ import annotations

import builtins

import pytest
from agent.models.fake_provider_server import Play, wire

import ctxkit as ck

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("default")]
WRITE = (
    "write_file",
    {"file_path": "heat.py", "content": "def f(c):\n    return c * 9 / 5 + 32\n"},
)
SHELL = ("run_shell_command", {"command": "echo hi > x.txt", "is_background": False})


def test_it_writes_asks_and_its_own_log_says_the_same(engines, shell, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(builtins, "input", lambda q: asked.append(q) or "y")
    work = tmp_path / "work"
    work.mkdir()
    write = (WRITE[0], {**WRITE[1], "file_path": str(work / "heat.py")})
    plays = (Play("I look.", calls=(write,)), Play(calls=(SHELL,)), Play("Done."))
    with wire("chat", *plays) as up:
        for name, value in {"HOME": str(tmp_path), "OPENAI_API_KEY": "none",
                            "OPENAI_BASE_URL": up.url, "OPENAI_MODEL": "own-model"}.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        program = engines / "@qwen-code" / "qwen-code" / "cli.js"
        via = f"acp:node {program} --acp --auth-type openai --approval-mode default"
        done = shell.run_cell(f'%%agent --root work --max-seconds 120 --via "{via}"\nWrite heat.py')
        done.raise_error()
    answer = done.result
    assert (work / "heat.py").is_file()
    assert (work / "x.txt").is_file()
    assert len(asked) == 2
    roles = ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [m.role for m in answer.session.messages] == roles
    assert [m.role for m in answer.own.messages if m.role != "system"] == roles
    sizes = [list(ck.frame(s, per="call").prompt_tokens) for s in (answer.session, answer.own)]
    assert sizes[0] == sizes[1]
    assert answer.session.messages[1].model == "acp/qwen-code"
