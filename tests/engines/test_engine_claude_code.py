"""Claude Code from npm, its model a server of this machine: its bodies and its transcript as one session."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from agent.models.fake_provider_server import Play, wire
from formats.body_folders import share_not_held

import ctxkit as ck

pytestmark = pytest.mark.engines
FEW = 0.01
"""Share of a request that may be in no message and no tool."""


def run_program(program, home, work, bodies, url):
    """Let the program answer one prompt, with everything it writes below `home` and `bodies`."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_LOG_RAW_API_BODIES": f"file:{bodies}",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    command = [str(program), "-p", "Look at @a.py and repair it.", "--allowedTools", "Read,Bash",
               "--model", "claude-opus-5"]  # fmt: skip
    subprocess.run(command, env=environment, cwd=work, timeout=120, check=True, capture_output=True)


def test_no_hundredth_of_a_prompt_is_unexplained(engines, tmp_path):
    program = engines / "@anthropic-ai" / "claude-code-linux-x64" / "claude"
    if not program.is_file():
        pytest.skip("this system's Claude Code is not among the installed programs")
    home, work, bodies = tmp_path / "home", tmp_path / "work", tmp_path / "bodies"
    home.mkdir()
    work.mkdir()
    (work / "CLAUDE.md").write_text("Always run the linter. " * 60, encoding="utf-8")
    (work / "a.py").write_text("x = 1\n" * 200, encoding="utf-8")
    plays = [
        Play("I read.", calls=(("Read", {"file_path": str(work / "a.py")}),), usage="counted"),
        Play("I list.", calls=(("Bash", {"command": "seq 1 300"}),), usage="counted"),
        Play("Done.", usage="counted"),
    ]
    with wire("anthropic", *plays) as up:
        run_program(program, home, work, bodies, up.url)
    (s,) = ck.read_all([bodies, home], progress=False)
    assert len(s.calls) == len(up.asked) == 3
    assert s.version
    assert s.cwd == str(work)
    assert not s.faults
    for call, request in enumerate(sorted(up.asked, key=lambda body: len(json.dumps(body)))):
        assert share_not_held(s, call, request) <= FEW
        report = ck.report(s, call=call)
        assert report.groups().get("not in the log", 0) <= FEW * report.prompt_tokens
    (transcript,) = ck.read_all(home, progress=False)
    for call in range(3):
        report = ck.report(transcript, call=call)
        assert report.groups().get("not in the log", 0) <= FEW * report.prompt_tokens
