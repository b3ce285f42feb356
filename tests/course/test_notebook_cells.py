"""Cells of 01 to 07: public imports alone, no answer beside its question, no winner that is entered."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import nbformat
import pytest

import ctxkit as ck
from ctxkit.course import judge_rules, students
from ctxkit.policies import Rules

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LESSONS = sorted(NOTEBOOKS.glob("0[1-7]*.ipynb"))
PACKAGE = Path(ck.__file__).parent


def code_cells(path):
    cells = nbformat.read(path, as_version=4).cells
    return [c.source for c in cells if c.cell_type == "code"]


def parse(source):
    """Return the cell as Python, its magics left out."""
    lines = [line for line in source.splitlines() if not re.match(r"\s*(\w+ = )?[%!]", line)]
    if source.startswith("%%"):
        return ast.parse("")
    return ast.parse("\n".join(lines))


@cache
def public_names(package):
    """Return the names that the stub of a package lists; None: it has no stub and is internal."""
    stub = PACKAGE.joinpath(*package.split(".")[1:], "__init__.pyi")
    if not stub.exists():
        return None
    nodes = ast.walk(ast.parse(stub.read_text("utf-8")))
    packages = {p.parent.name for p in stub.parent.glob("*/__init__.pyi")}
    return packages | {
        a.asname or a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names
    }


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem[:2])
def test_a_lesson_imports_public_names_alone(path):
    internal = []
    for source in code_cells(path):
        for node in ast.walk(parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ctxkit"):
                names = public_names(node.module)
                internal += [a.name for a in node.names if names is None or a.name not in names]
            if isinstance(node, ast.Import):
                internal += [a.name for a in node.names if a.name.startswith("ctxkit.")]
    assert internal == []


def test_an_internal_module_would_be_found():
    assert public_names("ctxkit.metrics.losable_items") is None
    assert "losses" in public_names("ctxkit.metrics")


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem[:2])
def test_helpers_that_lie_beside_a_notebook_are_not_imported(path):
    beside = {p.stem for p in NOTEBOOKS.iterdir() if p.suffix == ".py" or p.is_dir()}
    for source in code_cells(path):
        for node in ast.walk(parse(source)):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in beside


# -- answers beside questions ------------------------------------------------------------------------------------------

ANSWERED_BY_RULES = {"03-b": "03", "06-b": "06"}


def rules_in(number):
    """Run the cells of a notebook that make rules, and return all rules that they name."""
    path = next(NOTEBOOKS.glob(f"{number}-*.ipynb"))
    space = {}
    for source in code_cells(path):
        tree = parse(source)
        wanted = [
            n for n in tree.body
            if isinstance(n, (ast.Import, ast.ImportFrom, ast.FunctionDef))
            or (isinstance(n, ast.Assign) and "Rules(" in ast.unparse(n))
            or (isinstance(n, ast.Assign) and re.search(r"\brules\(", ast.unparse(n)) and not re.search("compare|replay", ast.unparse(n)))
            or (isinstance(n, ast.Assign) and isinstance(n.value, (ast.Constant, ast.Dict, ast.JoinedStr)))
        ]  # fmt: skip
        exec(compile(ast.Module(wanted, []), path.name, "exec"), space)
    found = []
    for value in space.values():
        many = value.values() if isinstance(value, dict) else value
        found += [v for v in (many if isinstance(many, list) else [value]) if isinstance(v, Rules)]
    return found


@pytest.mark.parametrize("key", ANSWERED_BY_RULES)
def test_no_rules_of_the_notebook_are_the_answer(key):
    found = rules_in(ANSWERED_BY_RULES[key])
    assert len(found) >= 2
    assert [each.label for each in found if ck.check(key, each).right] == []


@pytest.mark.parametrize("student", ["", "Ada", "Dee"])
def test_no_rules_of_the_last_lesson_are_the_answer(student, tmp_path, monkeypatch):
    """Those beside the exercise are meant, and not the grid of settings that is swept above."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: None)
    monkeypatch.setattr(students, "_current", {})
    if student:
        ck.course.begin(student)
    beside = ("mine", "cheapest on billing", "clear at 80%")
    named = [r for r in rules_in("07") if r.name in beside]
    assert len(named) == len(beside)
    assert [r.name for r in named if ck.check("07-b", r).right] == []


def test_no_notebook_enters_the_winner():
    entered = [
        line for path in NOTEBOOKS.glob("*.ipynb") for source in code_cells(path)
        for line in source.splitlines() if re.search(r"\.enter\(", line.split("#")[0])
    ]  # fmt: skip
    assert len(entered) == 2, entered
    four = Rules(policy="tail:messages=60", trigger=ck.policies.triggers.Above(30_000), name="keep")
    assert judge_rules("x", four).why
    assert judge_rules("x", "none").why
    assert {line.split("(")[1].split(",")[0] for line in entered} == {
        '"no management"',
        '"the newest sixty"',
    }


def test_no_text_between_two_dollars_is_drawn_as_a_formula():
    """JupyterLab takes what stands between two dollar signs of a cell for one."""
    drawn = []
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        texts = [re.sub(r"`[^`]*`", "", c.source) for c in cells if c.cell_type == "markdown"]
        drawn += [(path.name, t) for t in texts if len(re.findall(r"(?<!\\)\$", t)) > 1]
    assert drawn == []


def test_no_notebook_checks_an_answer_that_stands_there():
    """Every exercise is left open: its answer is three dots."""
    for path in NOTEBOOKS.glob("*.ipynb"):
        for source in code_cells(path):
            for key, answer in re.findall(
                r'^[^#\n]*ck\.check\("([^"]+)", ([\w.]+)', source, re.MULTILINE
            ):
                assert answer == ("GUESS" if key.endswith("guess") else "..."), (path.name, key)
