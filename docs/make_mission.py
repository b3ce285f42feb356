# ruff: noqa: INP001  a script beside the page that it writes
"""Write `docs/mission.md`: statements of the systems' documents, by the tests that hold them.

A test says what it holds at the beginning of its docstring: ``F4, F5: In our own words.``
Run: ``python docs/make_mission.py``.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "mission.md"
SYSTEMS = {"F": "fuseraft", "T": "Tyrum", "A": "ai", "P": "pulse-coder", "D": "Fased"}
_TAG = re.compile(rf"((?:[{''.join(SYSTEMS)}]\d+)(?:, [{''.join(SYSTEMS)}]\d+)*): (.+)")
_HEAD = """# What the systems' documents state, and the tests that hold it

Each row is a statement of one of the documents that the kit was made from, under its number there: {letters}.
The table is made from the docstrings of the tests (`python docs/make_mission.py`); a statement without a row is not
held by a test that names it yet.

| statement | in our words | test |
| --- | --- | --- |
"""


class Held(NamedTuple):
    """A statement that a test holds."""

    statement: str
    words: str
    test: str


def held(folder: Path = ROOT / "tests") -> Iterator[Held]:
    """Yield what the tests of a folder hold, by their docstrings."""
    for path in sorted(folder.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if _TAG.search(source) else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found = _TAG.fullmatch((ast.get_docstring(node) or "").split("\n")[0])
                for name in found[1].split(", ") if found else ():
                    where = path.relative_to(folder.parent).as_posix()
                    yield Held(name, found[2], f"`{where}` {node.name}")


def page() -> str:
    """Return the page."""
    letters = ", ".join(f"{letter} for {name}" for letter, name in SYSTEMS.items())
    rows = sorted(
        held(), key=lambda h: (list(SYSTEMS).index(h.statement[0]), int(h.statement[1:]), h.test)
    )
    return _HEAD.format(letters=letters) + "".join(
        f"| {h.statement} | {h.words} | {h.test} |\n" for h in rows
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
