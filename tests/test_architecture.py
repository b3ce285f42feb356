"""The map of the house is true: every room is on it with its own words, every file that it names is there."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import grimp
import pytest

import ctxkit as ck
from ctxkit.formats.registry import READER_MODULES as READERS
from ctxkit.policies.registry import MEMBERS as POLICIES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "ctxkit"
MOST = 30


def first_line(path: Path) -> str:
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(told.split("\n\n")[0].split())


def rooms() -> dict[str, str]:
    folders = {f"{p.parent.name}/": first_line(p) for p in PACKAGE.glob("*/__init__.py")}
    files = {p.name: first_line(p) for p in PACKAGE.glob("*.py") if p.name != "__init__.py"}
    return dict(sorted((folders | files).items()))


def table(rows: dict[str, str]) -> str:
    return "".join(f"| `{name}` | {told} |\n" for name, told in rows.items())


def test_every_room_says_what_it_is():
    made = table(rooms())
    assert made in PAGE, f"the table of rooms should be:\n{made}"


def test_the_picture_is_the_layers_that_are_checked():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(c for c in told["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    layers = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    picture = PAGE.split("```text\n")[1].split("```")[0]
    lines = [re.split(r" {2,}", line.strip())[0].split() for line in picture.splitlines()]
    assert [["__main__"], *lines] == layers
    assert sorted(name for layer in layers for name in layer) == sorted(
        name.removesuffix("/").removesuffix(".py") for name in rooms()
    )


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


def public_classes(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [n.name for n in tree.body if isinstance(n, ast.ClassDef) and n.name[0] != "_"]


def test_no_file_and_no_public_class_has_the_name_of_another():
    paths = sorted(PACKAGE.rglob("*.py"))
    files = Counter(p.name for p in paths if not p.name.startswith("__"))
    classes = Counter(name for p in paths for name in public_classes(p))
    assert [name for name, n in (files + classes).items() if n > 1] == []


@pytest.mark.parametrize(
    ("room", "old", "new"),
    [
        ("agent", "Event", "LiveEvent"),
        ("agent", "Spent", "SpentInTurn"),
        ("engine", "Event", "HookEvent"),
        ("snapshots", "Fault", "SnapshotFault"),
        ("composition", "Part", "WindowPart"),
        ("composition", "Window", "PromptWindow"),
        ("schedules", "Window", "OldFirst"),
        ("policies.summarisers", "Recorded", "RecordedSummary"),
        ("policies.summarisers", "Share", "ShareOfInput"),
    ],
)
def test_a_name_of_the_version_before_is_still_found_and_says_the_new_one(room, old, new):
    module = import_module(f"ctxkit.{room}")
    with pytest.warns(DeprecationWarning, match=rf"{old} is called {new} now"):
        assert getattr(module, old) is getattr(module, new)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        module.nothing  # noqa: B018


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    graph = grimp.build_graph("ctxkit")
    return {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}


def test_no_file_imports_itself_by_way_of_others(imports):
    sorter = TopologicalSorter(imports)
    sorter.prepare()  # names the files of a circle


@pytest.mark.parametrize(
    ("members", "bases"),
    [
        ([f"presets._{name}" for name in ck.presets.names()], ()),
        ([f"readers.{name}" for name in READERS], ("otel",)),
        (
            [f"policies.{at.split(':')[0]}" for at in POLICIES.values()],
            ("clear", "shorten", "summary"),
        ),
    ],
    ids=["presets", "readers", "policies"],
)
def test_members_of_a_family_do_not_know_each_other(members, bases, imports):
    own = {f"ctxkit.{name}" for name in members}
    known = {
        f"{m} knows {n}" for m in own for n in imports[m] & own if n.split(".")[-1] not in bases
    }
    assert known == set()
