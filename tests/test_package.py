"""`import ctxkit` is light and quiet; what it names is there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ctxkit

ROOT = Path(__file__).parents[1]
HEAVY = ("litellm", "plotly", "ipywidgets", "nbformat", "IPython", "pandas")


def fresh(code: str, tmp_path) -> str:
    """Run code in a new interpreter in an empty folder; return what it printed."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_import_loads_nothing_heavy_says_nothing_and_makes_nothing(tmp_path):
    out = fresh(
        f"import sys, ctxkit; sys.exit([m for m in {HEAVY!r} if m in sys.modules] or 0)", tmp_path
    )
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_dir_names_all_that_is_public_without_loading_it(tmp_path):
    assert (
        fresh(
            f"import sys, ctxkit; dir(ctxkit); print([m for m in {HEAVY!r} if m in sys.modules])",
            tmp_path,
        )
        == "[]\n"
    )
    assert set(ctxkit.__all__) <= set(dir(ctxkit))


def test_loading_the_magics_loads_no_library_of_frames_or_charts(tmp_path):
    code = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell as S; s = S.instance();"
        f"s.run_line_magic('load_ext', 'ctxkit'); print([m for m in {HEAVY!r} if m in sys.modules and m != 'IPython'])"
    )
    assert fresh(code, tmp_path) == "[]\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(ctxkit.__all__))
def test_every_public_name_resolves_and_says_what_it_is(name: str):
    assert getattr(ctxkit, name).__doc__


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        ctxkit.nonsense  # noqa: B018


def test_a_growth_chart_loads_no_library_of_frames_or_charts(tmp_path):
    code = (
        "import sys, ctxkit as ck\n"
        "chart = ck.plots.growth(ck.read(ck.samples.path()))\n"
        "assert chart._repr_mimebundle_()\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert fresh(code, tmp_path) == "[]\n"


def pinned(text: str) -> dict[str, set[str]]:
    """The versions of each package of a file of requirements, each with at least one hash."""
    out: dict[str, set[str]] = {}
    for entry in re.split(r"\n(?! )", text.strip()):
        name, version = re.match(r"([a-z0-9-]+)==([^ ]+)", entry).groups()
        assert "--hash=sha256:" in entry, entry
        out.setdefault(name, set()).add(version)
    return out


def test_the_environment_of_the_suite_is_pinned_and_holds_what_the_project_asks_for():
    """`make requirements` writes it; it names no server."""
    text = (ROOT / "requirements-dev.txt").read_text()
    assert "://" not in text
    held = pinned(text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked, waiting = [*project["dependencies"]], ["dev"]
    while waiting:
        for each in map(Requirement, extras[waiting.pop()]):
            asked.append(str(each)) if each.name != "jupyter-ctxkit" else waiting.extend(
                each.extras
            )
    for each in map(Requirement, asked):
        versions = held[canonicalize_name(each.name)]
        assert any(each.specifier.contains(v) for v in versions), (str(each), versions)
    assert len(asked) > 40
