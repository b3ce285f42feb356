"""Every visible line of the README runs as pasted in an empty folder, in a home that holds one session."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cli.words import COMMAND, environment

import ctxkit as ck

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INSTALL = re.compile(r"pip install '?([\w-]+)(?:\[(\w+)\])?'?")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with one session, and `ctxkit` on the path."""
    home = tmp_path_factory.mktemp("home")
    folder = home / ".pi" / "agent" / "sessions" / "work"
    folder.mkdir(parents=True)
    ck.write(ck.read(ck.samples.path("billing")), folder / "one.jsonl", "pi")
    (home / "bin").mkdir()
    script = home / "bin" / "ctxkit"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    script.chmod(0o755)
    return home


def ran(home: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        words,
        check=False,
        cwd=folder,
        env=environment(home, PATH=path),
        capture_output=True,
        text=True,
    )


SHELL_LINES = [
    line
    for language, block in BLOCKS
    if language == "sh"
    for line in block.splitlines()
    if not INSTALL.match(line)
]


@pytest.mark.parametrize("line", SHELL_LINES)
def test_a_line_for_the_shell_runs_in_an_empty_folder(home, tmp_path, line):
    done = ran(home, tmp_path, "sh", "-c", line)
    assert (done.returncode, done.stderr) == (0, "")
    assert "$" in done.stdout


def test_all_blocks_run_in_one_fresh_kernel_in_an_empty_folder(home, tmp_path):
    cells = [block for language, block in BLOCKS if language in ("python", "ipython")]
    program = (
        "import sys, warnings\nwarnings.simplefilter('error', UserWarning)\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        f"for cell in {cells!r}:\n"
        "    shell.run_cell(cell).raise_error()\n"
        "print('all ran')\n"
    )
    done = ran(home, tmp_path, sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.rstrip().endswith("all ran")


def test_what_is_installed_is_this_project_with_an_extra_that_there_is():
    installs = INSTALL.findall(README)
    assert len(installs) == 2
    for name, extra in installs:
        assert name == PROJECT["name"]
        assert not extra or extra in PROJECT["optional-dependencies"]


def test_it_is_short_and_begins_with_a_picture_of_an_answer():
    lines = README.splitlines()
    assert len(lines) <= 120
    assert any(line.startswith("![") for line in lines[:10])
    sections = README.split("\n## ")[2:-1]
    assert [s.splitlines()[0] for s in sections if "![" not in s] == ["Into your own loop"]


def test_the_pictures_are_what_the_commands_print_now():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import make_pictures
    finally:
        sys.path.pop(0)
    for name, (words, lines) in make_pictures.COMMANDS.items():
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            for path in ck.samples.paths():
                (Path(folder) / path.name).write_bytes(path.read_bytes())
            printed = make_pictures.run_command(words, Path(folder))[:lines]
        drawn = make_pictures.draw_terminal(f"ctxkit {words}", printed)
        assert (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8") == drawn
