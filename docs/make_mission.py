"""Write `docs/mission.md`: statements of the systems' documents, and the tests that hold them.

`docs/statements.csv` says each statement in our own words, names tests by their functions, and says
what is not held. A test may name its statements itself, at the beginning of its docstring:
``F4, F5: In our own words.``
Run: ``python docs/make_mission.py``.
"""

from __future__ import annotations

import ast
import csv
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "mission.md"
SAID = ROOT / "docs" / "statements.csv"
SYSTEMS = {"F": "fuseraft", "T": "Tyrum", "A": "ai", "P": "pulse-coder", "D": "Fased"}
STATES = ("built", "built in a team", "partly", "missing", "not meaningful")
_TAG = re.compile(rf"((?:[{''.join(SYSTEMS)}]\d+)(?:, [{''.join(SYSTEMS)}]\d+)*): (.+)")
_HEAD = """# What the systems' documents state, and the tests that hold it

The kit was made from five documents; this is what they state, cut into {n} statements and said in
our own words: F is fuseraft's, T Tyrum's, A ai's, P pulse-coder's, D Fased's. *Built* means that the
named tests hold it, *built in a team* that they are tests of several agents at work; the rest says
what is not held, or why it means nothing here. The page is made from `statements.csv` and from what
tests say of themselves (`python docs/make_mission.py`); a test that is named and is not there is an
error.

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
    return "".join(out)


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
