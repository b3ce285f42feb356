"""Every command over logs that lack something: an answer, or one sentence, within 80 columns."""

from __future__ import annotations

import json
import shutil

import pytest
from cli.command_runner import run_in_this_process
from cli.incomplete_logs import make_odd_logs
from cli.test_hostile_log_in_commands import OUTPUTS, WORDS
from conftest import sample

import ctxkit as ck

LOGS = make_odd_logs()
COMMANDS = [name for name, words in WORDS.items() if words and words[0] in {"LOG", "LOGS"}]
"""The commands that are given a log, or a folder of them."""
CASES = [
    (command, form, name)
    for command in COMMANDS
    for form in ("", "--json")
    for name in LOGS
    if not form or form in OUTPUTS[command]
]
MOST = 400
"""Most characters of a sentence that says why there is no answer."""


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


@pytest.mark.parametrize(("command", "form", "name"), sample(CASES, 60))
def test_an_odd_log_gets_an_answer_or_one_sentence(home, command, form, name):
    path = home / "odd" / "log.jsonl"
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    ck.write(LOGS[name], path)
    places = {"LOG": path, "LOGS": path.parent}
    done = run_in_this_process(
        home, command, *(places.get(w, w) for w in WORDS[command]), *[form] * bool(form)
    )
    said = done.stderr.strip()
    if done.returncode == 2:
        assert done.stdout == ""
        assert said.startswith("ctxkit: ")
        assert said[-1] in ".`"
        assert len(said) <= MOST
        return
    assert done.returncode in {0, 1}, said
    assert "Traceback" not in said
    assert done.stdout.strip() or said or command == "watch"  # it says nothing until a call comes
    if form:
        json.loads(done.stdout, parse_constant=refuse_constant)
    else:
        assert max(map(len, done.stdout.splitlines()), default=0) <= 80


def test_the_usual_log_gets_an_answer_of_every_command(home):
    path = home / "odd" / "log.jsonl"
    path.parent.mkdir(exist_ok=True)
    ck.write(LOGS["usual"], path)
    for command in ("when", "idle", "rules", "exam", "limits", "card"):
        words = [path if w == "LOG" else w for w in WORDS[command]]
        done = run_in_this_process(home, command, *words)
        assert (done.returncode, "nan" in done.stdout) == (0, False), done.stderr
