"""The architecture page names every package with its docstring, in the order of the checked layers."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import distribution
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

import grimp
import pytest

import ctxkit as ck
from ctxkit._internal import lazy_exports_and_late_bound_calls
from ctxkit._internal.lazy_exports_and_late_bound_calls import DEVELOPERS_PART
from ctxkit.cli.app import COMMAND_MODULES
from ctxkit.course.exercises import _LESSONS as LESSON_MODULES
from ctxkit.formats import READER_MODULES as READERS
from ctxkit.policies.registry import MEMBERS as POLICIES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "ctxkit"
STUBS = sorted(PACKAGE.rglob("__init__.pyi"))
MOST = 55


class ModuleFacts(NamedTuple):
    """What the tests ask of a module, so that each file is parsed once and no tree stays."""

    first_line: str
    vague: list[str]
    unknown: list[str]


@cache
def read_modules() -> dict[str, ModuleFacts]:
    """Return the facts of each module of the package, by its path."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        facts = ModuleFacts(first_line(tree), vague_names(tree), unknown_arguments(tree))
        found[path.relative_to(PACKAGE).as_posix()] = facts
    return found


def first_line(tree: ast.Module) -> str:
    docstring = ast.get_docstring(tree) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def read_packages() -> dict[str, str]:
    """Return each package and module at the top level with the first paragraph of its docstring."""
    lines = {Path(file): facts.first_line for file, facts in read_modules().items()}
    folders = {
        f"{p.parent}/": s
        for p, s in lines.items()
        if p.match("*/__init__.py") and len(p.parts) == 2
    }
    files = {p.name: s for p, s in lines.items() if len(p.parts) == 1 and p.name != "__init__.py"}
    return folders | files


def read_layers() -> list[str]:
    """Return the layers that import-linter checks, the lowest first."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(c for c in config["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    return [name for layer in contract["layers"] for name in re.findall(r"\w+", layer)][::-1]


def test_the_page_has_every_package_with_its_docstring_in_the_order_of_the_layers():
    packages = {name.partition("/")[0].removesuffix(".py"): name for name in read_packages()}
    assert sorted(read_layers()) == sorted(packages)
    rows = [f"| `{packages[n]}` | {read_packages()[packages[n]]} |\n" for n in read_layers()]
    assert "".join(rows) in PAGE, "the table of packages should be:\n" + "".join(rows)


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


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    graph = grimp.build_graph("ctxkit")
    return {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}


def read_stub_imports(stub: Path) -> set[str]:
    """Return the modules that the public names of a stub come from, and the names themselves."""
    package = ".".join(("ctxkit", *stub.relative_to(PACKAGE).parts[:-1]))
    used = set()
    for node in ast.parse(stub.read_text("utf-8").partition(DEVELOPERS_PART)[0]).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            module = resolve_name("." * node.level + (node.module or ""), package)
            used |= {module, *(f"{module}.{name.name}" for name in node.names)}
    return used


def read_names_in_use() -> set[str]:
    """Return modules that are reached by name: registries, hooks, entry points, programs, notebooks."""
    named = {f"ctxkit.formats.{n}" for n in READERS}
    named |= {f"ctxkit.presets.systems.{n}" for n in ck.presets.names()}
    named |= {f"ctxkit.policies.{at.split(':')[0]}" for at in POLICIES.values()}
    named |= {f"ctxkit.cli.{n}" for n in COMMAND_MODULES.values()}
    named |= {f"ctxkit.course.lessons.{n}" for n in LESSON_MODULES}
    named |= {hook.split(":")[0] for hook in lazy_exports_and_late_bound_calls._targets.values()}
    named |= {e.module for e in distribution("jupyter-ctxkit").entry_points}
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        named |= {*re.findall(r"from (ctxkit[\w.]+) import", notebook.read_text("utf-8"))}
    return named


def test_every_module_serves_the_package_or_a_notebook(imports):
    """What only `docs/` or `benchmarks/` use is there, not in the wheel."""
    used = read_names_in_use().union(*imports.values(), *map(read_stub_imports, STUBS))
    packages = {m for m in imports if any(n.startswith(f"{m}.") for n in imports)}
    unused = {*imports} - used - packages - {"ctxkit.__main__"}
    assert unused == set()


def test_no_file_imports_itself_by_way_of_others(imports):
    sorter = TopologicalSorter(imports)
    sorter.prepare()  # names the files of a circle


@pytest.mark.parametrize(
    ("members", "bases"),
    [
        ([f"presets.systems.{name}" for name in ck.presets.names()], ()),
        ([f"formats.{name}" for name in READERS], ("otel", "pi")),
        (
            [f"policies.{at.split(':')[0]}" for at in POLICIES.values()],
            (
                "result_clearing_and_cache_ttl",
                "message_shortening",
                "summary_compaction",
                "message_hiding",
            ),
        ),
    ],
    ids=["presets", "formats", "policies"],
)
def test_members_of_a_family_do_not_know_each_other(members, bases, imports):
    own = {f"ctxkit.{name}" for name in members}
    known = {
        f"{m} knows {n}" for m in own for n in imports[m] & own if n.split(".")[-1] not in bases
    }
    assert known == set()


VAGUE = frozenset(
    [
        "told",
        "tell",
        "tells",
        "telling",
        "said",
        "says",
        "saying",
        "found",
        "kept",
        "known",
        "asked",
        "made",
        "held",
        "heard",
        "shown",
        "given",
        "want",
        "wanted",
        "stood",
        "stands",
        "came",
        "went",
        "taken",
        "took",
        "brought",
        "felt",
        "led",
        "room",
        "rooms",
        "cuts",
    ]
)
"""Words that say that there is a value but not which, and words that the field has others for (a
token budget, compactions): no part of a public name or a parameter.
"""
VAGUE_LEFT = {
    "facts_kept",  # `ck.course.facts_kept`, which notebooks call
    "_judge_lost_values.told",  # what the notebook of the exercise calls it
}
"""Names with such a word that stay for now; nothing is added here."""


def name_words(name: str) -> set[str]:
    return {w.lower() for w in re.split(r"_+|(?<=[a-z])(?=[A-Z])", name) if w}


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
"""Where statements stand in a statement. Functions and classes are found there, not in expressions."""


def list_definitions(tree: ast.Module) -> list[ast.stmt]:
    """Return the functions and classes of a module at any depth."""
    found, rest = [], [tree]
    while rest:
        node = rest.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found.append(node)
        for block in BLOCKS:
            rest += getattr(node, block, ())
    return found


def public_names_and_parameters(tree: ast.Module) -> list[str]:
    """Return the public functions and classes of a module, and the parameters of its functions."""
    top = [n for n in tree.body if isinstance(n, (*FUNCTIONS, ast.ClassDef))]
    names = [n.name for n in top if not n.name.startswith("_")]
    for node in list_definitions(tree):
        if isinstance(node, FUNCTIONS):
            arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            names += [f"{node.name}.{a.arg}" for a in arguments]
    return names


def vague_names(tree: ast.Module) -> list[str]:
    names = public_names_and_parameters(tree)
    return [n for n in names if VAGUE & name_words(n.rpartition(".")[2]) and n not in VAGUE_LEFT]


def test_no_public_name_or_parameter_only_says_that_there_is_a_value():
    assert {file: m.vague for file, m in read_modules().items() if m.vague} == {}


def test_a_vague_name_is_noticed():
    code = "def told_rows(x):\n    return x\n\n\nclass Kept:\n    def get(self, found): ...\n"
    assert vague_names(ast.parse(code)) == ["told_rows", "Kept", "get.found"]


def test_a_vague_name_in_any_block_is_noticed():
    code = (
        "try:\n    def a(told): ...\nexcept E:\n    def b(told): ...\nelse:\n    def c(told): ...\n"
        "finally:\n    def d(told): ...\nmatch x:\n    case 1:\n        async def e(told): ...\n"
        "if x:\n    with x:\n        def f(told): ...\nelse:\n    def g(told): ...\n"
        "def h():\n    def i(told): ...\nclass J:\n    def k(self, told): ...\n"
    )
    assert sorted(vague_names(ast.parse(code))) == [f"{name}.told" for name in "abcdefgik"]


def test_no_module_docstring_asks_a_question():
    """It says what the module does, in a noun phrase or a sentence."""
    question = re.compile(r"(What|How|Where|Which|When|Whether|Why|Who)\b")
    assert [file for file, m in read_modules().items() if question.match(m.first_line)] == []


def parameter_names(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """Return the parameters of a function, or what a class can be created or called with."""
    if isinstance(node, ast.ClassDef):
        methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
        names = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}  # type: ignore[union-attr]
        return names.union(*(parameter_names(m) for m in methods if m.name.startswith("__")))
    a = node.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    return {argument.arg for argument in every}


def unknown_arguments(tree: ast.Module) -> list[str]:
    """Return the names under `Args:` that are no parameters of their function or class."""
    out = []
    for node in list_definitions(tree):
        _, _, section = (ast.get_docstring(node) or "").partition("Args:\n")
        names = re.findall(r"^    \**(\w+):", section.partition("\n\n")[0], re.MULTILINE)
        inherits = isinstance(node, ast.ClassDef) and not any(
            isinstance(n, ast.FunctionDef) and n.name == "__init__" for n in node.body
        )
        known = set(names) if inherits and node.bases else parameter_names(node)
        out += [f"{node.name}.{n}" for n in names if n not in known]
    return out


def test_a_docstring_names_the_parameters_as_the_code_does():
    assert {file: m.unknown for file, m in read_modules().items() if m.unknown} == {}


def test_an_argument_under_an_old_name_is_noticed():
    code = 'def f(new, *rest):\n    """Do it.\n\n    Args:\n        old: it.\n        *rest: all.\n    """\n'
    assert unknown_arguments(ast.parse(code)) == ["f.old"]


POSSESSIVE_GROUP = re.compile(r"\)(?:\{\{?[\d,]+\}?\}|[*+?])\+")
"""A group of a pattern that is repeated and never given back, as in `(?:a|b)++`."""


def test_no_pattern_repeats_a_group_possessively():
    """Python 3.11.0 to 3.11.4 match such groups wrongly (gh-106052): secrets would be shown."""
    found = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if POSSESSIVE_GROUP.search(line)
    ]
    assert found == []
    for pattern in (r"(?:\w|/){1,200}+", "(?:a)*+", "(?:a){{1,4}}+"):
        assert POSSESSIVE_GROUP.search(pattern)
