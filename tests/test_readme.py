"""Every visible line of the README runs as pasted in an empty folder, in a home that holds one session."""

from __future__ import annotations

import html
import importlib.util
import operator
import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from cli.command_runner import COMMAND, environment, list_commands

import ctxkit as ck

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
INLINE_CALLS = re.findall(r"`([\w.]+\([^`]*\))`", re.sub(r"```.*?```", "", README, flags=re.DOTALL))
"""Calls in the text, which run after the blocks."""
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
    cells += ["warnings.simplefilter('ignore')", *INLINE_CALLS]  # one says what a file cannot hold
    program = (
        "import sys, warnings\nwarnings.simplefilter('error', UserWarning)\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nshell.push({'warnings': warnings})\n"
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


@pytest.fixture(scope="module")
def make_pictures():
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "make_pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_are_what_the_commands_print_now(make_pictures, monkeypatch, tmp_path):
    monkeypatch.setattr(make_pictures, "run_command", cache(make_pictures.run_command))
    for path in ck.samples.paths():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for name, (command, max_lines) in make_pictures.COMMANDS.items():
        drawn = make_pictures.draw_command(command, max_lines, tmp_path)
        assert (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8") == drawn
        printed = make_pictures.run_command(command, tmp_path)
        assert not "".join(printed[max_lines : max_lines + 1]), "cut within a paragraph"
        assert (">…</text>" in drawn) == (len(printed) > max_lines)


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=lambda p: p.stem
)
def test_a_picture_keeps_its_words_off_its_frame_and_turns_dark_with_its_page(picture):
    text = picture.read_text(encoding="utf-8")
    height = int(re.search(r'viewBox="0 0 \d+ (\d+)"', text)[1])
    lines = [int(y) for y in re.findall(r'<text class="text [^>]*y="(\d+)"', text)]
    assert not lines or height - max(lines) >= 16
    words = re.findall(r'<text class="text [^>]*>(.*)</text>', text)
    assert all(len(html.unescape(line)) <= 80 for line in words)
    assert "prefers-color-scheme" in text


def test_the_charts_are_what_the_plots_draw_now(make_pictures):
    for name in make_pictures.CHARTS:
        drawn = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        assert drawn == make_pictures.draw_billing_chart(name)


def test_a_question_is_a_picture_the_call_and_its_limits():
    pages = sorted((ROOT / "docs" / "questions").glob("*-*.md"))
    assert len(pages) == 7
    for page in pages:
        text = page.read_text(encoding="utf-8")
        picture, call, limits = (text.index(p) for p in ("\n![", "\n```python\n", "\n## Limits\n"))
        assert picture < call < limits, page.name
        assert text.count("\n## ") == 1, page.name
        drawn = re.search(r"\n!\[.*\]\((.*)\)", text)[1]
        assert (page.parent / drawn).is_file(), page.name
        assert f"({page.name})" in (page.parent / "README.md").read_text(encoding="utf-8")


def test_every_name_in_the_text_is_there():
    names = set(re.findall(r"`ck\.([\w.]+)`", README))
    assert names
    for name in names:
        operator.attrgetter(name)(ck)
    shown = set(re.findall(r"`ctxkit (\w+)`", README)) | {
        words[1] for line in SHELL_LINES if len(words := line.split()) > 1 and words[0] == "ctxkit"
    }
    assert shown <= set(list_commands())
