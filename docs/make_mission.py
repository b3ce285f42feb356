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
STATEMENTS = ROOT / "docs" / "statements.csv"
FILES = ROOT / "docs" / "fuseraft_files.csv"
SNIPPETS = ROOT / "tests" / "presets" / "fuseraft_snippets.py"
SYSTEMS = {"F": "fuseraft", "T": "Tyrum", "A": "ai", "P": "pulse-coder", "D": "Fased"}
STATES = ("built", "built in a team", "partly", "missing", "not meaningful")
_TAG = re.compile(rf"((?:[{''.join(SYSTEMS)}]\d+)(?:, [{''.join(SYSTEMS)}]\d+)*): (.+)")
_HEAD = """# What the systems' documents state, and the tests that check it

ctxkit was designed from five documents, which this page paraphrases as {n} statements. *Built* means
that the named tests check the statement, *built in a team* that they run several agents;
the other states say what is not checked, or why the statement does not apply here.
`python docs/make_mission.py` writes the page from `statements.csv` and the docstrings of tests.

"""


class TaggedStatement(NamedTuple):
    """A statement that a test names in its docstring."""

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
    """`state: reason` where it is not checked in full; empty: the tests check all of it."""

    @property
    def state(self) -> str:
        """One of `STATES`."""
        state = self.rest.partition(":")[0]
        if state:
            return state
        has_single_agent_test = any(not t.startswith("tests/teams/") for t in self.tests)
        return "built" if has_single_agent_test else "built in a team"

    @property
    def row(self) -> str:
        """Its row in the Markdown table."""
        tests = "<br>".join(f"`{t}`" for t in self.tests)
        reason = self.rest.partition(":")[2].strip()
        notes = "<br>".join(filter(None, [reason, tests]))
        return f"| {self.name} | {self.words} | {self.state} | {notes} |"


class Test(NamedTuple):
    """A test function and what its docstring says."""

    id: str
    """Path of its file, and its name, as pytest writes them."""
    name: str
    summary: str
    """The first paragraph of its docstring, in one line."""


@cache
def collect_tests(folder: Path) -> tuple[Test, ...]:
    """Return the tests of a folder."""
    out = []
    for path in sorted(folder.rglob("test_*.py")):
        file = path.relative_to(folder.parent).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                summary = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                out.append(Test(f"{file}::{node.name}", node.name, summary))
    return tuple(t for t in out if t.name.startswith("test_"))


def iter_tagged_statements(folder: Path = ROOT / "tests") -> Iterator[TaggedStatement]:
    """Yield the statements that the tests of a folder name in their docstrings."""
    for test in collect_tests(folder):
        tag = _TAG.fullmatch(test.summary)
        for name in tag[1].split(", ") if tag else ():
            yield TaggedStatement(name, tag[2], test.id)


def read_statements(file: Path = STATEMENTS, folder: Path = ROOT / "tests") -> list[Statement]:
    """Return all statements.

    Raises:
        ValueError: a row names a test that is not there, or there twice; a statement has neither a
            test nor a word on why; a test holds a statement that is none.
    """
    ids_by_name: dict[str, list[str]] = {}
    for test in collect_tests(folder):
        ids_by_name.setdefault(test.name, []).append(test.id)
    tagged_tests: dict[str, list[str]] = {}
    for tagged in iter_tagged_statements(folder):
        tagged_tests.setdefault(tagged.statement, []).append(tagged.test)
    with file.open(encoding="utf-8", newline="") as lines:
        statements = [
            _parse_statement(row, ids_by_name, tagged_tests.pop(row["statement"], []))
            for row in csv.DictReader(lines)
        ]
    if tagged_tests:
        raise ValueError(f"tests name unknown statements: {', '.join(tagged_tests)}")
    return statements


def _parse_statement(
    row: Mapping[str, str], ids_by_name: Mapping[str, Sequence[str]], tagged_tests: Sequence[str]
) -> Statement:
    name, tests = row["statement"], list(tagged_tests)
    for test in row["tests"].split():
        folder, _, function = test.rpartition("/")
        ids = [i for i in ids_by_name.get(function, ()) if f"/{folder}" in i]
        if len(ids) != 1:
            raise ValueError(f"{name}: {test} is {'twice' if ids else 'not'} among the tests")
        tests += ids
    statement = Statement(name, row["words"], tuple(dict.fromkeys(sorted(tests))), row["rest"])
    is_explained = bool(statement.rest or tests)
    is_missing_with_tests = bool(tests) and statement.state == "missing"
    if statement.state not in STATES or not is_explained or is_missing_with_tests:
        raise ValueError(f"{name}: name the tests that check it, or say why none does")
    return statement


def format_page(file: Path = STATEMENTS, folder: Path = ROOT / "tests") -> str:
    """Return the page in Markdown."""
    rows = read_statements(file, folder)
    out = [_HEAD.format(n=len(rows)), _format_counts(rows)]
    for letter, system in SYSTEMS.items():
        table = [r.row for r in rows if r.name.startswith(letter)]
        head = "| | statement | state | what is not checked; tests |\n| --- | --- | --- | --- |"
        out.append("\n".join([f"\n## {system}\n", head, *table, ""]))
    return "".join([*out, format_files(), format_snippets()])


_FILES_HEAD = """
## fuseraft's public files

These are the {n} orchestrations of github.com/fuseraft/fuseraft-cli, rebuilt key by key from the
public text. `python benchmarks/fuseraft_files.py FOLDER` runs each with
`ck.team(file, model="scripted")`; [the data](fuseraft_files.csv) include what is not obeyed.
Instructions are shortened, because a script does not read them. Agents use real tools. A team with a
limit of turns and no ending keyword runs up to its limit; a team whose tests need Go stops if Go is
not installed.

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
            settings = [f"`{k}={rules.parameters[k]!r}`" for k in parsed.settings]
            lines.append(f"| {name} | {', '.join(settings)} | {', '.join(parsed.team_keys)} |\n")
    return _SNIPPETS_HEAD.format(n=len(lines)) + "".join(lines)


def _format_counts(rows: Sequence[Statement]) -> str:
    lines = [f"| | {' | '.join(STATES)} | all |", "| --- |" + " --- |" * (len(STATES) + 1)]
    for letter, system in {**SYSTEMS, "": "all"}.items():
        counts = Counter(r.state for r in rows if r.name.startswith(letter))
        lines.append(
            f"| {system} | {' | '.join(f'{counts[s]}' for s in STATES)} | {counts.total()} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(format_page(), encoding="utf-8")
