"""Public names resolve for type checkers and editors, and are the names that are there at run time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from inspect import isfunction, signature
from pathlib import Path
from types import ModuleType

import pytest

import ctxkit as ck
from ctxkit.formats import accepts_session

PACKAGE = Path(ck.__file__).parent
STUBS = sorted(PACKAGE.rglob("__init__.pyi"))
PACKAGES = [".".join(("ctxkit", *stub.relative_to(PACKAGE).parts[:-1])) for stub in STUBS]
PUBLIC = [
    f"{package}.{name}"
    for package in PACKAGES
    if "._" not in package
    for name in import_module(package).__all__
]
"""Every public name of every stub."""


def get_value(name: str) -> object:
    package, _, last = name.rpartition(".")
    return getattr(import_module(package), last)


FUNCTIONS = [n for n in PUBLIC if isfunction(get_value(n))]


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    """A program that asks a type checker for each name of PUBLIC, one a line."""
    path = tmp_path_factory.mktemp("typed") / "names.py"
    imports = "; ".join(f"import {package}" for package in PACKAGES)
    lines = [imports, *(f"reveal_type({name})" for name in PUBLIC)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def mypy_types(script) -> dict[str, str]:
    """What mypy says of each public name."""
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(script)]
    done = subprocess.run(
        command, cwd=PACKAGE.parent, capture_output=True, text=True, check=False, timeout=300
    )
    notes = re.findall(r'names\.py:(\d+): note: Revealed type is "(.*)"', done.stdout)
    return {PUBLIC[int(line) - 2]: kind for line, kind in notes}


@pytest.fixture(scope="module")
def pyright_types(script) -> dict[str, str]:
    """What pyright says of each public name: basedpyright's wheel brings it, or npm."""
    beside = Path(sys.executable).with_name("basedpyright")
    program = str(beside) if beside.exists() else shutil.which("pyright")
    if program is None:
        pytest.skip("neither basedpyright nor pyright is installed")
    (script.parent / "pyrightconfig.json").write_text('{"typeCheckingMode": "off"}')
    command = [program, "--outputjson", "--pythonpath", sys.executable, script.name]
    done = subprocess.run(
        command, cwd=script.parent, capture_output=True, text=True, check=False, timeout=600
    )
    told = json.loads(done.stdout)["generalDiagnostics"]
    kinds = [(m, d["range"]["start"]["line"]) for d in told for m in [d["message"]]]
    found = [(re.search(r'^Type of ".*?" is "(.*)"$', m, re.DOTALL), line) for m, line in kinds]
    return {PUBLIC[line - 1]: match[1] for match, line in found if match}


def is_given_a_session(function: object) -> bool:
    """Say whether `accepts_session` made a function of it."""
    is_wrapped = hasattr(function, "__wrapped__")
    return is_wrapped and function.__code__.co_filename == accepts_session.__code__.co_filename


CHECKERS = ["mypy_types", pytest.param("pyright_types", marks=pytest.mark.long)]
"""Both read the same names; the suite of each change has one of them."""


def find_parameter_faults(name: str, kind: str) -> list[str]:
    """Return the parameters of a function that its type lacks; `session` where it takes no log."""
    function = get_value(name)
    parameters = [*signature(function).parameters]
    faults = []
    if is_given_a_session(function):  # typed by ParamSpec, which cannot name what it puts before
        faults = [] if "Session | str" in kind else ["session"]
        del parameters[0]
    return faults + [p for p in parameters if not re.search(rf"[(*, ]{p}: ", kind)]


# One test a checker, not one a name: a checker runs for half a minute, and each process that has
# one of the tests would run it again.
@pytest.mark.parametrize("checker", CHECKERS)
def test_each_public_name_has_its_own_type(checker, request):
    types = request.getfixturevalue(checker)
    assert [name for name in PUBLIC if name not in types] == []
    vague = re.compile(r"(?:def )?\(\*?[\w.]*: ?Any.*\) -> Any|Any|Unknown")
    assert [name for name in PUBLIC if vague.fullmatch(types[name])] == []
    faults = {name: find_parameter_faults(name, types[name]) for name in FUNCTIONS}
    assert {name: missing for name, missing in faults.items() if missing} == {}


@pytest.mark.parametrize("stub", STUBS, ids=lambda p: str(p.relative_to(PACKAGE).parent))
def test_each_name_of_a_stub_is_there_at_run_time(stub):
    module = import_module(".".join(("ctxkit", *stub.relative_to(PACKAGE).parts[:-1])))
    assert module.__all__
    assert [n for n in module.__all__ if not hasattr(module, n)] == []


def test_the_presets_of_the_stub_are_those_of_the_registry():
    functions = {"names", "preset", "preset_differences", "resolve_rules"}
    assert {*ck.presets.__all__} == {*ck.presets.names(), *functions}


def test_a_signature_is_shown_with_its_settings():
    functions = [
        getattr(ck, n) for n in ck.__all__ if not isinstance(getattr(ck, n), (type, ModuleType))
    ]
    assert all(signature(f).parameters for f in functions)
    assert "rules" in signature(ck.compare).parameters


@pytest.fixture(scope="module")
def kernel():
    """A kernel that has imported `ck` and used nothing of it yet."""
    manager = pytest.importorskip("jupyter_client").manager
    running, client = manager.start_new_kernel(kernel_name="python3")
    client.execute_interactive("import ctxkit as ck", timeout=60)
    yield client
    client.stop_channels()
    running.shutdown_kernel(now=True)


def complete(kernel, text: str) -> dict[str, dict]:
    """What the tab key offers after a text, with type and signature."""
    content = kernel.complete(text, reply=True, timeout=60)["content"]
    return {m["text"]: m for m in content["metadata"]["_jupyter_types_experimental"]}


def test_the_tab_key_offers_names_with_their_signatures(kernel):
    offered = complete(kernel, "ck.comp")
    assert offered["compare"]["type"] == "function"
    assert "rules" in offered["compare"]["signature"]
    offered = complete(kernel, "ck.presets.fas")
    assert "reserve_tokens" in offered["fased"]["signature"]


@pytest.mark.parametrize("call", ["ck.compare", "ck.presets.fased", "ck.plots.growth", "ck.read"])
def test_the_tab_key_offers_parameters(kernel, call):
    value = get_value(call.replace("ck.", "ctxkit."))
    first = next(iter(signature(value).parameters))
    assert f"{first}=" in complete(kernel, f"{call}({first[:2]}")


def test_the_tab_key_offers_every_name_of_a_package(kernel):
    for package in ("ck", "ck.presets", "ck.plots", "ck.metrics"):
        module = import_module(package.replace("ck", "ctxkit", 1))
        assert {*module.__all__} <= {*complete(kernel, f"{package}.")}


QUESTIONS = [n for n in FUNCTIONS if n.rpartition(".")[0] in ("ctxkit", "ctxkit.presets")]


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_mark_shows_the_real_signature(kernel, name):
    asked = name.replace("ctxkit.", "ck.", 1)
    content = kernel.inspect(asked, reply=True, timeout=60)["content"]
    shown = re.sub(r"\x1b\[[0-9;]*m", "", content["data"]["text/plain"])
    function = get_value(name)
    head = shown.partition("Docstring:")[0]
    assert [p for p in signature(function).parameters if not re.search(rf"\b{p}\b", head)] == []
    assert function.__doc__.split("\n")[0].strip() in shown
