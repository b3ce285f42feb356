"""Each form of a line that the help of a subcommand shows runs: bare, with each option, with all of them."""

from __future__ import annotations

import shutil
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from ctxkit.magics.line_parser import format_usage
from ctxkit.magics.magics_class import CONTEXT_SUBCOMMANDS
from ctxkit.magics.memory_commands import MEMORY_SUBCOMMANDS

MAGICS = {"context": CONTEXT_SUBCOMMANDS, "memory": MEMORY_SUBCOMMANDS}
EVERY = [(magic, name) for magic, known in MAGICS.items() for name in known]
GOLDEN = Path(__file__).parents[1] / "formats/golden/pi.jsonl"
VALUES = {
    "session": "main", "call": "-1", "limit": "2", "compaction": "-1", "checkpoint": "-1",
    "type": "feedback", "system": "fuseraft", "format": "pi", "body": "'More words.'",
    "desc": "'All tables.'", "rename": "other-NUMBER", "description": "'Use ruff.'",
    "context.report.id": "REPORT", "kept": "REPORT", "context.sections.words": "-runtime",
    "context.add.path": "schema.sql", "context.add.name": "db2", "context.remove.name": "db",
    "context.branch.name": "side-NUMBER", "context.use.name": "kept", "context.use.what": "log.jsonl",
    "context.validate.path": "orchestration.yaml", "context.export.path": "out.html",
    "memory.show.name": "runner", "memory.edit.name": "runner", "memory.forget.name": "runner",
    "memory.why.name": "runner", "memory.add.name": "tox",
}  # fmt: skip
"""A value for each word and option, by its name, or by magic, subcommand and name; REPORT is the id of a
report that is kept, NUMBER that of the form."""
NEEDED = {
    ("context", "add"): "--name db2",
    ("memory", "add"): "'Use tox.'",
    ("memory", "edit"): "--type fact",
}
"""What a subcommand is refused without, though its help shows it as free."""


def forms(magic: str, name: str, report: str) -> list[str]:
    """Return the lines: with what must be there alone, with each thing that may be, with all of these."""
    must, may = [], {}
    for f in fields(MAGICS[magic][name].shape):
        option = f"--{f.name.rstrip('_').replace('_', '-')}"
        known = VALUES.get(f"{magic}.{name}.{f.name}") or VALUES.get(f.name, "")
        assert known or f.type == "bool", (
            f"`%{magic} {name}` has no value here for {f.name}: add one"
        )
        value = known.replace("REPORT", report)
        if f.metadata["place"] == "option":
            may[option] = option if f.type == "bool" else f"{option} {value}"
        elif f.default is MISSING:
            must.append(value)
        else:
            may[f.name] = value
    needed = NEEDED.get((magic, name), "")
    one = [
        each if each.split()[0] == needed.split(" ")[0] else f"{needed} {each}"
        for each in may.values()
    ]
    tails = dict.fromkeys((needed, *(each.strip() for each in one), " ".join(may.values())))
    return [" ".join(filter(None, (f"%{magic}", name, *must, tail))) for tail in tails]


@pytest.fixture
def kernel(shell, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    shell.run_line_magic("config", "CtxKit.sections = 'on'")
    shutil.copy(GOLDEN, "log.jsonl")
    Path("schema.sql").write_text("create table x;")
    Path("orchestration.yaml").write_text("Agents: [{Name: A}]\n")
    return shell


def run(shell, cell: str) -> Any:
    done = shell.run_cell(cell)
    done.raise_error()
    return done.result


def prepare(shell) -> str:
    """Bring back what a form took away, without displaying anything; return the id of a kept report."""
    kit = shell.magics_manager.registry["CtxKit"]
    if "runner" not in shell.run_line_magic("memory", "list").index:
        shell.run_line_magic("memory", "add Use pytest -q. --name runner")
    if "db" not in shell.run_line_magic("context", "store").index:
        shell.run_line_magic("context", "add schema.sql --name db")
    if "main" not in kit.lives or not kit.lives.get("main").session.edits:
        run(shell, "%%agent --session main --memory on\nGo")
        run(shell, "%%agent --session main\nMore")
        run(shell, "%compact --keep 1")
    for path in Path(".ctxkit/sessions").glob("*main-branch-*"):
        path.unlink()  # a branch without a name has the same one each time
    kit.sessions.add(kit.lives.get("main").session, "main")
    kit.lives.current = "main"
    return shell.run_line_magic("context", "reports").index[0]


@pytest.mark.parametrize(("magic", "name"), EVERY, ids=[" ".join(each) for each in EVERY])
def test_each_form_of_its_help_runs(kernel, magic, name):
    for number, line in enumerate(forms(magic, name, prepare(kernel))):
        prepare(kernel)
        run(kernel, line.replace("NUMBER", str(number)))


@pytest.mark.parametrize(("magic", "name"), EVERY, ids=[" ".join(each) for each in EVERY])
def test_its_help_is_that_of_its_shape(kernel, magic, name):
    known = MAGICS[magic][name]
    told = repr(run(kernel, f"%{magic} {name} -h"))
    assert told.endswith(known.help)
    assert format_usage(known.shape, "").split("\n")[1:] == told.split("\n")[1:-2]


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("list --user", "user"),
        ("turns --chart", "budget"),
        ("turns --reports", "reports"),
        ("detail --kept last", "report"),
        ("status --count", "count"),
    ],
)
def test_a_hidden_name_is_an_option_of_one_that_the_help_shows(kernel, option, name):
    prepare(kernel)
    assert CONTEXT_SUBCOMMANDS[name].hidden
    assert f"`%context {option.split()[0]} --" in CONTEXT_SUBCOMMANDS[name].help
    said = [run(kernel, f"%context {line}") for line in (option, name)]
    assert repr(said[0]) == repr(said[1])
