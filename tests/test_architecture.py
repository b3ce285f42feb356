"""The map of the house is true: every room is on it with its own words, every file that it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "ctxkit"
MOST = 30


def first_line(path: Path) -> str:
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return told.split("\n")[0]


def rooms() -> dict[str, str]:
    folders = {f"{p.parent.name}/": first_line(p) for p in PACKAGE.glob("*/__init__.py")}
    files = {p.name: first_line(p) for p in PACKAGE.glob("*.py") if p.name != "__init__.py"}
    return dict(sorted((folders | files).items()))


def table(rows: dict[str, str]) -> str:
    return "".join(f"| `{name}` | {told} |\n" for name, told in rows.items())


def test_every_room_says_what_it_is():
    made = table(rooms())
    assert made in PAGE, f"the table of rooms should be:\n{made}"


def test_the_words_are_few_and_each_is_explained_once():
    """There is one list: the glossary; the map points at it."""
    names = re.findall(r"^### ([a-z -]+)\n[A-Z]", GLOSSARY, re.MULTILINE)
    assert len(names) == GLOSSARY.count("\n### ")
    assert 20 <= len(names) <= MOST
    assert len(set(names)) == len(names)
    assert "(glossary.md)" in PAGE.split("## The words")[1]


def test_every_file_that_is_named_is_there():
    named = re.findall(r"(?<=`)[a-z_]+/[a-z_]+\.py", PAGE)
    assert len(named) >= 3
    assert not [n for n in named if not any((at / n).exists() for at in (PACKAGE, ROOT))]
