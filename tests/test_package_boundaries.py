"""Tests import a name from its package, so that a file can be split or moved without a change to them."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import ctxkit as ck
from ctxkit._internal.lazy_exports_and_late_bound_calls import DEVELOPERS_PART

ROOT = Path(__file__).parents[1]
PACKAGE = Path(ck.__file__).parent
MAX_INNER_SHARE = 0.15
"""Largest share of the tests' imports that may name a module inside a package."""


class ImportLine(NamedTuple):
    """An import of ctxkit in a file of tests, documentation or benchmarks."""

    file: str
    module: str
    names: tuple[str, ...]

    @property
    def is_inner(self) -> bool:
        """Say whether it names a module inside a package of ctxkit."""
        return self.module.count(".") >= 2


IMPORT = re.compile(
    r"^ *(?:from (ctxkit[\w.]*) import (?:\(([^)]*)\)|(.*))|import (ctxkit[\w.]*))", re.MULTILINE
)
COMMENT = re.compile(r"#.*")


@cache
def list_imports(folder: str) -> list[ImportLine]:
    """Return the imports of ctxkit in a folder of the repository, read as text: parsing takes seconds."""
    lines = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        for module, several, one, whole in IMPORT.findall(path.read_text(encoding="utf-8")):
            parts = COMMENT.sub("", several or one).split(",")
            names = tuple(part.split()[0] for part in parts if part.strip())
            lines.append(ImportLine(file, module or whole, names))
    return lines


@cache
def read_exports(developers_only: bool) -> dict[str, dict[str, str]]:
    """Return each name that a stub takes from a module, with that module, by package."""
    exports = {}
    for stub in PACKAGE.glob("*/__init__.pyi"):
        package = f"ctxkit.{stub.parent.name}"
        public, _, developers = stub.read_text("utf-8").partition(DEVELOPERS_PART)
        tree = ast.parse(developers if developers_only else public + developers)
        exports[package] = {
            name.asname or name.name: f"{package}.{node.module}"
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.level and node.module
            for name in node.names
        }
    return exports


def test_few_imports_of_tests_name_a_module_inside_a_package():
    imports = list_imports("tests")
    assert len(imports) > 1_500
    assert sum(line.is_inner for line in imports) <= MAX_INNER_SHARE * len(imports)


def test_tests_import_exported_names_from_the_package():
    """A line may name the module if it also imports a name that the package does not export.

    A name that the package takes from a package inside it is not imported from a module of that.
    """
    direct = []
    for line in list_imports("tests"):
        names = read_exports(developers_only=False).get(".".join(line.module.split(".")[:2]), {})
        homes = [names.get(name, "a module that is not named") for name in line.names]
        if line.is_inner and homes and all(f"{line.module}.".startswith(f"{h}.") for h in homes):
            direct.append(line)
    assert direct == []


def test_each_name_for_developers_is_imported_from_its_package():
    folders = ("tests", "docs", "benchmarks", "ctxkit")
    imported = {
        (line.module, name) for f in folders for line in list_imports(f) for name in line.names
    }
    assert {
        f"{package}.{name}"
        for package, names in read_exports(developers_only=True).items()
        for name in names
        if (package, name) not in imported
    } == set()


def test_names_for_developers_can_be_imported_and_are_not_shown_to_users():
    exports = read_exports(developers_only=True)
    assert "extract_items_without_thinking" in exports["ctxkit.metrics"]
    for package, names in exports.items():
        module = import_module(package)
        assert not {*names} & {*dir(module), *module.__all__}
        for name, home in names.items():
            assert getattr(module, name) is getattr(import_module(home), name)
