"""Write `docs/mission.md`, the statements of the systems' documents and the tests that check them.

`docs/statements.csv` paraphrases each statement, names tests by their functions, and says what is
not checked. A test may name its statements itself, at the beginning of its docstring:
``F4, F5: the paraphrase.``
Run: ``python docs/make_mission.py``.
"""

from __future__ import annotations

import ast
import csv
import importlib.util
import re
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.presets.rules_from_config_files import parse_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "mission.md"
SAID = ROOT / "docs" / "statements.csv"
FILES = ROOT / "docs" / "fuseraft_files.csv"
SNIPPETS = ROOT / "tests" / "presets" / "fuseraft_snippets.py"
SYSTEMS = {"F": "fuseraft", "T": "Tyrum", "A": "ai", "P": "pulse-coder", "D": "Fased"}
STATES = ("built", "built in a team", "partly", "missing", "not meaningful")
_TAG = re.compile(rf"((?:[{''.join(SYSTEMS)}]\d+)(?:, [{''.join(SYSTEMS)}]\d+)*): (.+)")
_HEAD = """# What the systems' documents state, and the tests that hold it

ctxkit was designed from five documents. This page paraphrases them as {n} statements: F from
fuseraft's, T from Tyrum's, A from ai's, P from pulse-coder's, D from Fased's. *Built* means that the
named tests check the statement, *built in a team* that these are tests of several agents; the other
states say what is not checked, or why the statement does not apply here.
`python docs/make_mission.py` makes the page from `statements.csv` and from the docstrings of tests;
naming a test that does not exist is an error.

"""


class Held(NamedTuple):
    """A statement that a test holds."""

    statement: str
    words: str
    test: str


class Statement(NamedTuple):
    """A statement, as the page has it."""

    name: str
    words: str
    tests: tuple[str, ...]
    """Paths and functions."""
    rest: str
    """What is not held of it, or why it means nothing here; empty: all is held."""

    @property
    def state(self) -> str:
        """One of `STATES`."""
        said = self.rest.partition(":")[0]
        if said:
            return said
        here = [t for t in self.tests if not t.startswith("tests/teams/")]
        return "built" if here else "built in a team"

    @property
    def row(self) -> str:
        """Its row."""
        held = "<br>".join(f"`{t}`" for t in self.tests)
        why = self.rest.partition(":")[2].strip()
        return f"| {self.name} | {self.words} | {self.state} | {'<br>'.join(filter(None, [why, held]))} |"


class Test(NamedTuple):
    """A test."""

    place: str
    """Path of its file, and its name."""
    name: str
    about: str
    """The first paragraph of its docstring, in one line."""


@cache
def tests_of(folder: Path) -> tuple[Test, ...]:
    """Return the tests of a folder."""
    out = []
    for path in sorted(folder.rglob("test_*.py")):
        where = path.relative_to(folder.parent).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                about = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                out.append(Test(f"{where}::{node.name}", node.name, about))
    return tuple(t for t in out if t.name.startswith("test_"))


def held(folder: Path = ROOT / "tests") -> Iterator[Held]:
    """Yield what the tests of a folder hold, by their docstrings."""
    for test in tests_of(folder):
        found = _TAG.fullmatch(test.about)
        for name in found[1].split(", ") if found else ():
            yield Held(name, found[2], test.place)


def statements(said: Path = SAID, folder: Path = ROOT / "tests") -> list[Statement]:
    """Return all statements.

    Raises:
        ValueError: a row names a test that is not there, or there twice; a statement has neither a
            test nor a word on why; a test holds a statement that is none.
    """
    places: dict[str, list[str]] = {}
    for test in tests_of(folder):
        places.setdefault(test.name, []).append(test.place)
    tagged: dict[str, list[str]] = {}
    for each in held(folder):
        tagged.setdefault(each.statement, []).append(each.test)
    with said.open(encoding="utf-8", newline="") as file:
        out = [
            _statement(row, places, tagged.pop(row["statement"], []))
            for row in csv.DictReader(file)
        ]
    if tagged:
        raise ValueError(f"tests hold what is no statement: {', '.join(tagged)}")
    return out


def _statement(
    row: Mapping[str, str], places: Mapping[str, Sequence[str]], tagged: Sequence[str]
) -> Statement:
    name, tests = row["statement"], list(tagged)
    for asked in row["tests"].split():
        room, _, function = asked.rpartition("/")
        found = [p for p in places.get(function, ()) if f"/{room}" in p]
        if len(found) != 1:
            raise ValueError(f"{name}: {asked} is {'twice' if found else 'not'} among the tests")
        tests += found
    made = Statement(name, row["words"], tuple(dict.fromkeys(sorted(tests))), row["rest"])
    if made.state not in STATES or not (made.rest or tests) or (tests and made.state == "missing"):
        raise ValueError(f"{name}: say what holds it, or why nothing does")
    return made


def page(said: Path = SAID, folder: Path = ROOT / "tests") -> str:
    """Return the page."""
    rows = statements(said, folder)
    out = [_HEAD.format(n=len(rows)), _counts(rows)]
    for letter, system in SYSTEMS.items():
        table = [r.row for r in rows if r.name.startswith(letter)]
        head = "| | statement | state | what is not held; tests |\n| --- | --- | --- | --- |"
        out.append("\n".join([f"\n## {system}\n", head, *table, ""]))
    return "".join([*out, format_files(), format_snippets()])


_FILES_HEAD = """
## fuseraft's public files

The {n} orchestrations of github.com/fuseraft/fuseraft-cli, run by `ck.team(file,
model="scripted")` (`python benchmarks/fuseraft_files.py FOLDER`; [the table as data, with what is not
obeyed](fuseraft_files.csv)). The files were rebuilt key by key from the public text; instructions,
which a script does not read, are shortened. Agents fulfil the contracts with real tools. A team with
a limit of turns and without an ending keyword runs up to its limit; a team whose tests need Go stops
if Go is not installed.

| file | selection | agents | turns | end | why |
| --- | --- | --- | --- | --- | --- |
"""
_SNIPPETS_HEAD = """
## The snippets of fuseraft's document

Each of its {n} configuration snippets, rewritten with other names and values, is a file that
`ck.load_rules` recognises without `system=`.

| snippet | settings of the rules | obeyed by a team |
| --- | --- | --- |
"""


def format_files(path: Path = FILES) -> str:
    """Return the table of fuseraft's files."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    keys = ("file", "selection", "agents", "turns", "ended", "why")
    lines = ["| " + " | ".join(row[k].replace("|", "\\|") for k in keys) + " |\n" for row in rows]
    return _FILES_HEAD.format(n=len(rows)) + "".join(lines)


def format_snippets() -> str:
    """Return the table of the snippets, each loaded as a file."""
    spec = importlib.util.spec_from_file_location("snippets", SNIPPETS)
    if spec is None or spec.loader is None:
        raise ValueError(f"{SNIPPETS} cannot be read")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, snippet in module.SNIPPETS.items():
            path = Path(folder) / "snippet.yaml"
            path.write_text(snippet.text, encoding="utf-8")
            rules, parsed, _ = parse_rules(path, None)
            taken = [f"`{k}={rules.parameters[k]!r}`" for k in parsed.settings]
            lines.append(f"| {name} | {', '.join(taken)} | {', '.join(parsed.team_keys)} |\n")
    return _SNIPPETS_HEAD.format(n=len(lines)) + "".join(lines)


def _counts(rows: Sequence[Statement]) -> str:
    lines = [f"| | {' | '.join(STATES)} | all |", "| --- |" + " --- |" * (len(STATES) + 1)]
    for letter, system in {**SYSTEMS, "": "all"}.items():
        found = Counter(r.state for r in rows if r.name.startswith(letter))
        lines.append(
            f"| {system} | {' | '.join(f'{found[s]}' for s in STATES)} | {found.total()} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
