"""What commands import: a terminal needs no charts and no widgets."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from cli.command_runner import environment, list_commands

NEVER = ("plotly", "ipywidgets", "anywidget")
WORDS = {
    "": [],
    "when": ["billing"],
    "list": [],
    "report": ["billing"],
    "spend": ["billing"],
    "idle": ["billing"],
    "limits": ["billing"],
    "card": ["billing", "card.html"],
    "rules": ["billing"],
    "exam": ["billing", "--questions", "3"],
    "forecasts": [".ctxkit", "--add", "recorded"],
    "compare": ["billing", "-r", "pi"],
    "sweep": [".ctxkit", "-r", "pi"],
    "advise": [".ctxkit", "-r", "pi", "-r", "codex"],
    "convert": ["billing", "other.json", "--to", "openai"],
    "watch": ["billing", "--times", "1", "--every", "0.1"],
    "keep": ["kept"],
    "gate": [".ctxkit", "-r", "pi", "-b", "baseline.json", "--update"],
    "demo": [],
    "doctor": [],
    "completion": ["bash"],
}
"""A call of each command; one that is not here fails the test."""
_SCRIPT = """
import contextlib, io, json, sys
from ctxkit.cli import main
name, calls, never, found = None, json.loads(sys.argv[1]), sys.argv[2:], {}
for name, words in calls.items():
    before = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        code = main([name, *words] if name else words)
    imported = [n for n in never if n in sys.modules and n not in before]
    found[name] = [code, imported, err.getvalue()[-300:]]
print(json.dumps(found))
"""


def run_commands(home, calls, never=NEVER):
    """The exit code of each command, what it imported of `never`, and its errors."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(calls), *never],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_no_command_imports_charts_or_widgets(home):
    assert set(WORDS) == {"", *list_commands()}, "give the new command words here"
    found = run_commands(home, WORDS)
    assert {name: imported for name, (_, imported, _) in found.items() if imported} == {}
    broken = {name: rest for name, (code, *rest) in found.items() if code not in (0, 1)}
    assert broken == {}


@pytest.mark.parametrize("name", ["compare", "report"])
def test_an_unknown_session_is_no_reason_to_import_them(home, name):
    assert run_commands(home, {name: ["no-such-session"]})[name][1] == []


def test_a_list_imports_nothing_that_only_replays_need(home):
    heavy = ("numpy", "pandas", "pyarrow", "ctxkit.engine", "ctxkit.presets")
    assert run_commands(home, {"list": ["--all"]}, heavy)["list"][1] == []
