"""How the command ends: exit codes, sentences, closed pipes, Ctrl-C, completion."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib.metadata import entry_points

import pytest
from cli.command_runner import (
    COMMAND,
    ctxkit,
    environment,
    in_terminal,
    list_commands,
    run_as_in_terminal,
    run_in_this_process,
)


def test_the_console_script_and_the_module_are_one():
    scripts = [e.value for e in entry_points(group="console_scripts") if e.name == "ctxkit"]
    if not scripts:
        pytest.skip("ctxkit was installed before it had a command: install it again")
    assert scripts[0] == "ctxkit.cli:run"


BOUNDS = {
    "when": {"--window": "x>=1", "--extra-loss": "default: 0.05; 0<=x<=1"},
    "list": {"--most": "default: 20; x>=0"},
    "report": {"--call": "default: -1"},
    "watch": {"--every": "default: 1.0; x>=0.1", "--times": "x>=1"},
    "card": {"--compaction": "default: -1"},
    "compare": {"--max-loss": "0<=x<=1"},
    "sweep": {"--loss": "default: loss", "--max-loss": "0<=x<=1"},
    "convert": {"--to": "default: native"},
    "exam": {"--questions": "default: 10; 1<=x<=200", "--repeat": "default: 1; 1<=x<=20"},
    "gate": {
        "--tolerance": "default: 0.0; 0<=x<1",
        "--rounds": "default: 6; 1<=x<=100",
        "--repeat": "default: 1; 1<=x<=100",
        "--timeout": "default: 120.0; x>=0.1",
        "--least": "default: 0.0; 0<=x<=1",
    },
}
"""Defaults and bounds of the options that have some."""
BOUND = re.compile(r"\[(default: [^]]*|[^]|]*x[<>][^]]*)]")


@pytest.mark.parametrize("name", list_commands())
def test_each_command_explains_itself_within_80_columns(home, name):
    code, shown = run_as_in_terminal(home, name, "--help")
    assert code == 0
    assert shown.startswith(f"Usage: ctxkit {name}")
    assert max(map(len, shown.splitlines())) <= 80
    options = [" ".join(o.split()) for o in re.split(r"\n  (?=-)", shown)[1:]]
    bounds = {re.search("--[a-z-]+", o)[0]: BOUND.search(o) for o in options}
    assert {o: found[1] for o, found in bounds.items() if found} == BOUNDS.get(name, {})


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["lst"], "Did you mean 'list'?"),
        (["list", "--since", "soon"], "give a day as 2026-08-31"),
        (["list", "--html", "x.html", "--json"], "not both"),
        (["report", "no/such/file.jsonl"], "no/such/file.jsonl"),
        (["report", ""], ""),
        (["report", "billing", "--call", "9999"], "has no call 9999"),
        (["compare", "billing", "-r", "pie"], "'pi'"),
        (["compare", "billing", "-r", "pi:reserv=1"], "reserv"),
        (["convert", "billing", "/nowhere/x.jsonl"], "/nowhere/x.jsonl"),
        (["advise", "billing", "-r", "pie"], "'pi'"),
        (["gate"], "--compacted"),
        (
            ["gate", "billing", "-r", "pi", "-b", "none.json"],
            "There is no baseline 'none.json' yet",
        ),
        (["gate", "--update"], "--baseline"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_exit_code_2(home, words, reason):
    done = run_in_this_process(home, *words)
    assert (done.returncode, done.stdout) == (2, "" if words[0] != "report" else done.stdout)
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_control_characters_of_an_argument_stay_words(home):
    """The process itself ends with 2."""
    done = ctxkit(home, "report", "\x1b[2Jevil")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr


def test_a_reader_that_leaves_is_no_error(home):
    """As in `ctxkit ... | head -1`; the pipe is closed before all is written."""
    running = subprocess.Popen(
        [*COMMAND, "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=home,
        env=environment(home),
    )
    running.stdout.close()
    with running.stderr:
        errors = running.stderr.read().decode()
    assert running.wait(timeout=60) == 141
    assert errors == ""


def test_ctrl_c_says_so_and_ends_with_130(home):
    code, shown = in_terminal(home, "watch", "billing", until="#342", key=b"\x03")
    assert code == 130
    assert shown.endswith("ctxkit: Stopped.\n")


def test_shells_are_given_completion(home):
    for shell in ("bash", "zsh", "fish"):
        assert "_CTXKIT_COMPLETE" in run_in_this_process(home, "completion", shell).stdout
    asked = {"_CTXKIT_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "ctxkit sp"}
    assert ctxkit(home, **asked).stdout.split() == ["plain,spend"]
    asked |= {"COMP_CWORD": "4", "COMP_WORDS": "ctxkit compare x -r cod"}
    assert ctxkit(home, **asked).stdout.split() == ["plain,codex"]
    run_in_this_process(home, "list")
    asked |= {"COMP_CWORD": "2", "COMP_WORDS": "ctxkit report bil"}
    assert "plain,billing" in ctxkit(home, **asked).stdout


def test_the_doctor_says_a_sentence_each(home):
    done = ctxkit(home, "doctor")
    assert done.returncode == 0
    for about in (
        "ctxkit",
        "notebook",
        "widgets",
        "tokenizer",
        "prices",
        "tools' folders",
        "state folder",
        "models",
    ):
        assert f" {about}: " in " ".join(done.stdout.split())
    assert "no key is set" in done.stdout
    keyed = run_in_this_process(home, "doctor", OPENAI_API_KEY="sk-very-secret").stdout
    assert "OPENAI_API_KEY is set" in keyed
    assert "very-secret" not in keyed


def test_the_doctor_ends_with_1_where_something_is_missing(home):
    (home / "state").write_text("a file")
    done = run_in_this_process(home, "doctor")
    assert done.returncode == 1
    assert "cannot be written (Not a directory)" in " ".join(done.stdout.split())


def test_the_doctor_names_packages_that_are_there_and_damaged(home):
    for package in ("plotly", "numpy", "tiktoken"):
        (home / "damaged" / package).mkdir(parents=True)
        (home / "damaged" / package / "__init__.py").write_text("raise ImportError('no libfoo.so')")
    path = os.pathsep.join((str(home / "damaged"), environment(home).get("PYTHONPATH", "")))
    done = ctxkit(home, "doctor", PYTHONPATH=path)
    said = " ".join(done.stdout.split())
    assert (done.returncode, done.stderr) == (1, "")
    assert "no ctxkit: numpy (damaged: no libfoo.so), pandas (damaged: " in said
    assert (
        "no widgets: plotly (damaged: no libfoo.so) missing: install jupyter-ctxkit again." in said
    )
    assert "no tokenizer: no libfoo.so: install jupyter-ctxkit again." in said


AGAIN = "install jupyter-ctxkit again."
LAB = "pip install 'jupyter-ctxkit[lab]'"
WIDGETS = "ipywidgets, anywidget, plotly, jupyterlab_widgets"
PROCESS = "ctxkit.cli.doctor.subprocess.run"
FINDINGS = [
    # packages that the other process does not find; others have another cause
    ("", {"notebook": ("ready", "JupyterLab and its kernel are here: %load_ext ctxkit.")}),
    ("", {"widgets": ("ready", "explore, tune and watch can be drawn.")}),
    ("ipykernel", {"notebook": ("optional", f"ipykernel missing: {LAB}.")}),
    (
        "jupyterlab_widgets",
        {
            "widgets": (
                "optional",
                f"jupyterlab_widgets missing: {LAB}; texts are shown instead.",
            )
        },
    ),
    ("plotly", {"widgets": ("missing", f"plotly missing: {AGAIN}")}),
    ("plotly jupyterlab_widgets", {"widgets": ("missing", f"plotly missing: {AGAIN}")}),
    (
        "anywidget plotly ipywidgets",
        {"widgets": ("missing", f"ipywidgets, anywidget, plotly missing: {AGAIN}")},
    ),
    (
        -11,
        {
            "notebook": ("missing", f"ipykernel cannot be imported (exit code -11): {AGAIN}"),
            "widgets": ("missing", f"{WIDGETS} cannot be imported (exit code…: {AGAIN}"),
        },
    ),
    (
        "slow",
        {
            "notebook": ("missing", f"ipykernel cannot be imported in 120 s: {AGAIN}"),
            "widgets": ("missing", f"{WIDGETS} cannot be imported in 120 s: {AGAIN}"),
        },
    ),
    (
        "ctxkit.cli.doctor.find_spec",
        {
            "notebook": ("optional", f"jupyterlab missing: {LAB}."),
            "models": (
                "optional",
                "no key is set (OPENAI_API_KEY, ...): replays need none, %%agent needs one.",
            ),
        },
    ),
    ("ctxkit.tokens.can_count_exactly", {"tokenizer": ("missing", f"no vocabulary: {AGAIN}")}),
    ("ctxkit.tokens.prices.price", {"prices": ("missing", f"no table of prices: {AGAIN}")}),
    (
        "sessions",
        {
            "tools' folders": (
                "optional",
                "no sessions of known tools in your home: name files or folders yourself.",
            )
        },
    ),
]
"""What is not there, and states and sentences of the doctor."""


def test_the_doctor_says_of_each_part_what_is_missing_and_what_to_do(home, monkeypatch):
    (home / "empty").mkdir()
    for cause, expected in FINDINGS:
        with monkeypatch.context() as patch:
            if "." in str(cause):
                patch.setattr(cause, lambda *_: None)

            def import_elsewhere(words, timeout, cause=cause, **_):
                names = words[3:]
                if cause == "slow":
                    raise subprocess.TimeoutExpired(words, timeout)
                missing = [n for n in names if n in str(cause).split()]
                code = cause if isinstance(cause, int) else 0
                said = f"a package's own line\n{json.dumps(missing)}\n"
                return subprocess.CompletedProcess(words, code, said)

            patch.setattr(PROCESS, import_elsewhere)
            place = home / "empty" if cause == "sessions" else home
            done = run_in_this_process(place, "doctor", "--json")
        found = {r["about"]: (r["state"], r["finding"]) for r in json.loads(done.stdout)}
        assert {about: found[about] for about in expected} == expected, cause
        states = {state for state, _ in found.values()}
        assert done.returncode == ("missing" in states), cause
    assert len(found) == 8
