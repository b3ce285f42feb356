"""The wheel: what it carries, and that it reads and replays in an empty environment without LiteLLM."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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


@pytest.mark.long
def test_it_is_installed_and_used_in_an_empty_environment(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    ran(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    ran(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    assert "litellm" not in ran(python, "-m", "pip", "list").lower()
    where = {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "OPENAI_API_KEY": "none",
    }
    for script in (FIRST, ASKING):
        subprocess.run([str(python), "-c", script], cwd=tmp_path, check=True, timeout=300,
                       env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | where)  # fmt: skip
    told = ran(
        tmp_path / "venv" / "bin" / "ctxkit",
        "report",
        python.parents[1].glob("lib/*/site-packages/ctxkit/samples/*.jsonl").__next__(),
        **where,
    )
    assert "48,000" in told
