"""Public names resolve for type checkers and editors, and are the names that are there at run time."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType

import pytest

import ctxkit as ck

PACKAGE = Path(ck.__file__).parent
STUBS = sorted(PACKAGE.rglob("__init__.pyi"))
PUBLIC = [
    *(f"ck.{n}" for n in ck.__all__),
    *(f"ck.presets.{n}" for n in ck.presets.__all__),
    *(f"ck.plots.{n}" for n in ck.plots.__all__),
    *(f"ck.metrics.{n}" for n in ck.metrics.__all__),
]


@pytest.fixture(scope="module")
def revealed(tmp_path_factory) -> dict[str, str]:
    """What mypy says of each public name, in the order of PUBLIC."""
    script = tmp_path_factory.mktemp("typed") / "names.py"
    lines = ["import ctxkit as ck", *(f"reveal_type({name})" for name in PUBLIC)]
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(script)]
    done = subprocess.run(
        command, cwd=PACKAGE.parent, capture_output=True, text=True, check=False, timeout=300
    )
    notes = re.findall(r'names\.py:(\d+): note: Revealed type is "(.*)"', done.stdout)
    return {PUBLIC[int(line) - 2]: kind for line, kind in notes}


@pytest.mark.parametrize("name", PUBLIC)
def test_no_public_name_is_any_for_mypy(name, revealed):
    assert revealed[name] != "Any"
    assert not re.fullmatch(r"def \(\*?[\w.]*: ?Any.*\) -> Any", revealed[name])


@pytest.mark.parametrize("stub", STUBS, ids=lambda p: str(p.relative_to(PACKAGE).parent))
def test_each_name_of_a_stub_is_there_at_run_time(stub):
    module = import_module(".".join(("ctxkit", *stub.relative_to(PACKAGE).parts[:-1])))
    assert module.__all__
    assert [n for n in module.__all__ if not hasattr(module, n)] == []


def test_the_presets_of_the_stub_are_those_of_the_registry():
    assert {*ck.presets.__all__} == {*ck.presets.names(), "names", "preset"}


def test_a_signature_is_shown_with_its_settings():
    functions = [
        getattr(ck, n) for n in ck.__all__ if not isinstance(getattr(ck, n), (type, ModuleType))
    ]
    assert all(signature(f).parameters for f in functions)
    assert "rules" in signature(ck.compare).parameters
