"""docs/command-line.md and printed_answers.md show what the commands print.

Each `$` line is run and what follows is compared.

``CTXKIT_WRITE_PAGES=1 python -m pytest tests/cli/test_command_line_page.py`` writes the outputs again.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from cli.command_runner import COMMAND, environment, list_commands, run_in_this_process

import ctxkit as ck

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "command-line.md"
ANSWERS = Path(__file__).with_name("printed_answers.md")
"""Outputs of commands that are too long for the page."""
NEWEST = """import json, sys
messages = json.load(sys.stdin)
kept = messages[-150:]
while kept[0]["role"] == "tool":
    kept = kept[1:]
print(json.dumps(messages[:1] + [m for m in kept if m["role"] != "system"]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "sessions").mkdir()
    shutil.copy(ck.samples.path("billing"), tmp_path / "sessions")
    os.utime(tmp_path / "sessions" / "billing.jsonl", (1.7e9, 1.7e9))  # long ago: shown as a day
    (tmp_path / "newest.py").write_text(NEWEST)
    (tmp_path / "bin").mkdir()
    for name, words in (("ctxkit", COMMAND), ("python", [sys.executable])):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield tmp_path
    time.tzset()


def run(folder: Path, line: str) -> tuple[int, str]:
    """Run a line in this process: eight processes that import pandas take half a minute."""
    name, *words = shlex.split(line)
    assert name == "ctxkit"
    done = run_in_this_process(folder, *words)
    return done.returncode, done.stdout + done.stderr


def run_in_shell(folder: Path, line: str) -> tuple[int, str]:
    done = subprocess.run(
        ["sh", "-c", line],
        check=False,
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def printed(folder: Path, block: str) -> str:
    """The block with the output of each command after it."""
    out = []
    for line in block.splitlines():
        if line.startswith("$ "):
            out += [line, run(folder, line[2:])[1].rstrip("\n")]
    return "\n".join(filter(None, out)) + "\n"


@pytest.mark.parametrize(("page", "least"), [(PAGE, 5), (ANSWERS, 2)], ids=lambda p: str(p)[-10:])
def test_a_page_shows_what_is_printed(folder, page, least):
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    made = {block: printed(folder, block) for block in blocks}
    if os.environ.get("CTXKIT_WRITE_PAGES") == "1":
        for block, shown in made.items():
            text = text.replace(f"```sh\n{block}```", f"```sh\n{shown}```")
        page.write_text(text, encoding="utf-8")
    assert len(blocks) >= least
    assert list(made.values()) == blocks


def test_the_command_itself_prints_what_this_process_prints(folder):
    line = "ctxkit when sessions/billing.jsonl"
    assert run_in_shell(folder, line) == run(folder, line)


def test_the_page_names_every_command():
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in list_commands() if f"| `ctxkit {name}" not in text] == []


def test_the_workflow_of_the_docs_passes_and_fails_where_it_should(folder):
    steps = yaml.safe_load((DOCS / "gate-workflow.yml").read_text())["jobs"]["gate"]["steps"]
    commands = [s["run"] for s in steps if s.get("run", "").startswith("ctxkit")]
    assert len(commands) == 2
    (folder / "sessions").rename(folder / "gates-sessions")
    (folder / "gates").mkdir()
    (folder / "gates-sessions").rename(folder / "gates" / "sessions")
    program = folder / "gates" / "compact.py"
    program.write_text(NEWEST)
    assert [run(folder, c)[0] for c in commands] == [2, 2]  # no baselines yet
    assert [run(folder, f"{c} --update")[0] for c in commands] == [0, 0]
    assert [run(folder, c)[0] for c in commands] == [0, 0]
    program.write_text(NEWEST.replace("-150", "-5"))
    codes = [run(folder, c) for c in commands]
    assert [code for code, _ in codes] == [0, 1]
    assert "survived" in codes[1][1] or "cliff_round" in codes[1][1]
