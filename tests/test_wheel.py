"""The wheel: what it carries, and that it reads and replays in an empty environment without LiteLLM."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import ctxkit

ROOT = Path(__file__).parents[1]
FIRST = """
import sys
import ctxkit as ck
assert "site-packages" in ck.__file__, ck.__file__
session = ck.read(ck.samples.path("billing"))
table = ck.compare(session, ["pi", "codex"])
assert round(table["cost_usd"].iloc[0], 2) == 3.29, table
assert len(ck.frame(session, per="call")) == 343
assert ck.report(session).groups()["tool schemas"] > 0
assert ck.plots.growth(session)._repr_mimebundle_()
assert ck.prices.price("claude-sonnet-4-5").input == 3e-6
from ctxkit import tokens
assert tokens.exact_counter("o200k_base")("hello world") == 2
assert "litellm" not in sys.modules
"""
ASKING = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "ctxkit")
shell.run_cell("%%agent\\nWrite heat.py").raise_error()
for cell in ("%%agent --session a --model openai/gpt-5\\nHello", "%%agent --session b --mcp x\\nHello"):
    error = shell.run_cell(cell).error_in_exec
    assert "pip install 'jupyter-ctxkit[live]'" in str(error), error
"""
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_BLOCK = re.search(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)[1]
"""The first code that the README shows."""
BESIDE = Path(sys.executable).with_name("uv")
UV = str(BESIDE) if BESIDE.exists() else shutil.which("uv")
VERSION = f"ctxkit, version {ctxkit.__version__}\n"


def ran(*command: str | Path, **env: str) -> str:
    """Run a program without this repository on its path; return what it printed."""
    clean = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CTXKIT_CACHE_DIR")
    } | env
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, env=clean, timeout=900
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    ran(sys.executable, "-m", "build", "--no-isolation", "-o", out, ROOT)
    return out


@pytest.mark.long
def test_wheel_and_sdist_are_as_indexes_want_them(dist):
    pytest.importorskip("twine")
    pytest.importorskip("check_wheel_contents")
    files = sorted(dist.iterdir())
    assert len(files) == 2
    ran(sys.executable, "-m", "twine", "check", "--strict", *files)
    ran(sys.executable, "-m", "check_wheel_contents", *(f for f in files if f.suffix == ".whl"))


@pytest.mark.long
def test_the_wheel_carries_its_data_and_asks_for_no_litellm(dist):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        names = set(held.namelist())
        (path,) = (n for n in names if n.endswith("/METADATA"))
        metadata = held.read(path).decode()
    assert {
        "ctxkit/data/prices.json",
        "ctxkit/data/o200k_base.tiktoken.gz",
        "ctxkit/py.typed",
    } <= names
    asked = [row for row in metadata.splitlines() if row.startswith("Requires-Dist:")]
    assert all("extra ==" in row for row in asked if "litellm" in row or " mcp" in row)
    assert wheel.stat().st_size < 6_000_000


@pytest.fixture(scope="module")
def empty(dist, tmp_path_factory) -> Path:
    """The programs of an environment that has the wheel and what it asks for, and nothing else."""
    (wheel,) = dist.glob("jupyter_ctxkit-*.whl")
    place = tmp_path_factory.mktemp("empty") / "venv"
    if UV is None:
        ran(sys.executable, "-m", "venv", place)
        ran(place / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    else:
        ran(UV, "venv", "--quiet", "--python", sys.executable, place)
        ran(UV, "pip", "install", "--quiet", "--python", place / "bin" / "python", wheel)
    return place / "bin"


@pytest.fixture
def where(tmp_path) -> dict[str, str]:
    return {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "OPENAI_API_KEY": "none",
    }


@pytest.mark.long
@pytest.mark.parametrize("script", [FIRST, ASKING, FIRST_BLOCK], ids=["first", "asking", "readme"])
def test_it_is_used_in_an_empty_environment(script, empty, where, tmp_path):
    # the README asks for the newest session of the machine
    logs = tmp_path / ".pi" / "agent" / "sessions" / "work"
    logs.mkdir(parents=True)
    ctxkit.write(ctxkit.read(ctxkit.samples.path("billing")), logs / "one.jsonl", "pi")
    subprocess.run([str(empty / "python"), "-c", script], cwd=tmp_path, check=True, timeout=300,
                   env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | where)  # fmt: skip
    assert not list(empty.parent.glob("lib/*/site-packages/litellm"))


@pytest.mark.long
def test_its_commands_run_in_an_empty_environment(empty, where):
    sample = next(empty.parent.glob("lib/*/site-packages/ctxkit/formats/samples/billing.jsonl"))
    assert "48,000" in ran(empty / "ctxkit", "report", sample, **where)
    help_of = {
        ran(*command, "--help", **where)
        for command in (
            (empty / "ctxkit",),
            (empty / "jupyter-ctxkit",),
            (empty / "jupyter", "ctxkit"),
        )
    }
    assert len(help_of) == 1
    assert "report" in help_of.pop()
    assert ran(empty / "jupyter", "ctxkit", "--version", **where) == VERSION


@pytest.mark.long
@pytest.mark.skipif(UV is None, reason="needs uv")
def test_uv_runs_the_wheel_by_its_name(dist, where):
    (wheel,) = dist.glob("*.whl")
    plain = ("run", "--quiet", "--no-project", "--python", sys.executable)
    assert ran(UV, *plain, "--with", wheel, "jupyter-ctxkit", "--version", **where) == VERSION
    tool = ("tool", "run", "--quiet", "--python", sys.executable, "--from", wheel)
    assert ran(UV, *tool, "jupyter-ctxkit", "--version", **where) == VERSION


@pytest.mark.long
def test_somebody_elses_ctxkit_over_it_is_named(empty, where, tmp_path):
    """The other program has the same module and the same command, as the one on the index has."""
    rival = tmp_path / "ctxkit-2.2.5-py3-none-any.whl"
    info = "ctxkit-2.2.5.dist-info"
    with zipfile.ZipFile(rival, "w") as made:
        made.writestr("ctxkit/__init__.py", "")
        made.writestr("ctxkit/main.py", "def main():\n    print('another program')\n")
        made.writestr(f"{info}/entry_points.txt", "[console_scripts]\nctxkit = ctxkit.main:main\n")
        made.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: ctxkit\nVersion: 2.2.5\n")
        made.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{info}/RECORD", "ctxkit/__init__.py,,\nctxkit/main.py,,\n")
    place = tmp_path / "venv"
    shutil.copytree(empty.parent, place, symlinks=True)
    packages = next(place.glob("lib/*/site-packages"))
    with zipfile.ZipFile(rival) as made:
        made.extractall(packages)
    done = subprocess.run(
        [place / "bin" / "python", "-c", "import sys; from ctxkit.cli import run; run()", "--version"],
        capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | where,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, VERSION), done.stderr
    assert done.stderr.startswith("ctxkit: ctxkit 2.2.5 installs a module ctxkit, too")
    assert len(done.stderr.splitlines()) == 1
