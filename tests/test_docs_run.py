"""What README and docs show is run, block by block, in a real IPython; what they say of it is held.

A block of `python` or `ipython` is run as a cell. A comment ``<!-- run ... -->`` is run where it stands and not shown: it
runs what the prose describes, and ``says(...)`` in it holds words and numbers: each must be in the text above it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from cli.command_runner import environment
from conftest import sample
from magics.ipython_shells import new_shell

import ctxkit as ck
from ctxkit.formats import registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN, SHOWN = ("python", "ipython"), ("sh", "py", "text")
"""Languages of blocks that are run, and of those that are only shown; `py` needs packages that `make test-peers` has."""
NEEDS = {"polars-and-duckdb.md": ("polars", "duckdb")}
"""Packages that a page is about; it is not run where they are missing."""
_PIECE = re.compile(
    r"^```(?P<language>\S*)\n(?P<block>.*?)^```$|^<!-- run\n(?P<hidden>.*?)^-->$",
    re.DOTALL | re.MULTILINE,
)


class Piece(NamedTuple):
    """Code of a page, and all visible text above its end, on one line."""

    language: str
    code: str
    above: str
    is_hidden: bool = False


def pieces(text: str) -> list[Piece]:
    out, above, at = [], "", 0
    for found in _PIECE.finditer(text):
        above += text[at : found.start()] + (found["block"] or "")
        at = found.end()
        out.append(
            Piece(
                found["language"] or "ipython",
                found["block"] or found["hidden"],
                " ".join(above.split()),
                is_hidden=found["hidden"] is not None,
            )
        )
    return out


def run(page: list[Piece]) -> list[str]:
    """Run the pieces of a page in a new shell; return what went wrong."""
    shell, wrong, above = new_shell(), [], ""

    def says(*words: object) -> None:
        missing = [str(w) for w in words if str(w) not in above]
        assert not missing, f"the text does not say {missing}"

    shell.push({"says": says})
    try:
        for piece in page:
            if piece.language in RUN:
                above = piece.above
                with warnings.catch_warnings():
                    warnings.simplefilter("error", UserWarning)
                    done = shell.run_cell(piece.code, store_history=False)
                if not done.success:
                    wrong.append(f"{piece.code}\n{done.error_before_exec or done.error_in_exec!r}")
    finally:
        shell.run_cell("%reload_ext ctxkit\n%unload_ext ctxkit", silent=True)
        type(shell).clear_instance()
    return wrong


def make_home(folder: Path) -> Path:
    """Make a home that holds one session, as the newest of its machine."""
    logs = folder / "home" / ".pi" / "agent" / "sessions" / "work"
    logs.mkdir(parents=True)
    (logs / "one.jsonl").write_bytes(convert_sample())
    return folder / "home"


@cache
def convert_sample() -> bytes:
    """Return the session of that home: every page has a copy of it."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "one.jsonl")
        ck.write(ck.read(ck.samples.path("billing")), path, "pi")
        return path.read_bytes()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_block_of_a_page_runs_and_holds(page: Path, tmp_path: Path, monkeypatch):
    for package in NEEDS.get(page.name, ()):
        pytest.importorskip(package)
    monkeypatch.setenv("HOME", str(make_home(tmp_path)))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setattr(
        registry, "_USER_READERS", {}
    )  # a page's own reader is none of other tests'
    found = pieces(page.read_text(encoding="utf-8"))
    assert {p.language for p in found} <= {*RUN, *SHOWN}, (
        "a block names its language, so that it is run"
    )
    if any(p.language in RUN for p in found):
        assert run(found) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```python\n1 / 0\n```", "ZeroDivisionError"),
        ("```ipython\n%nonsense\n```", "UsageError|nonsense"),
        ("```ipython\n%load_ext ctxkit\n%context nonsense\n```", "nonsense"),
        ("```python\nimport warnings; warnings.warn('mind')\n```", "UserWarning"),
        ("It costs $4.\n\n<!-- run\nsays('$5')\n-->", "does not say"),
        ("<!-- run\nassert 1 == 2\n-->", "AssertionError"),
    ],
)
def test_what_does_not_hold_is_found(text: str, told: str, capsys):
    wrong = run(pieces(text))
    assert len(wrong) == 1
    assert re.search(told, wrong[0])


# -- pasted into a fresh kernel --------------------------------------------------------------------------------------

_PASTE = """
import json, os, sys, warnings
from IPython.core.interactiveshell import InteractiveShell
warnings.simplefilter("error", UserWarning)
shell, wrong = InteractiveShell.instance(), {}
for name, cells in json.load(open(sys.argv[1])).items():
    os.mkdir(name)
    os.chdir(name)
    for cell in cells:
        done = shell.run_cell(cell)
        if not done.success:
            wrong.setdefault(name, []).append(f"{cell}: {done.error_before_exec or done.error_in_exec!r}")
    shell.run_cell("%reload_ext ctxkit\\n%unload_ext ctxkit", silent=True)
    shell.reset(new_session=False)
    os.chdir("..")
json.dump(wrong, open(sys.argv[2], "w"))
"""
_SETUP_ONLY = re.compile(r"\bassert\b|\bsays\(")


def cells_of(page: Path) -> list[str]:
    """What a reader pastes, and before it what is the reader's own: hidden pieces that check nothing."""
    return [
        p.code
        for p in pieces(page.read_text(encoding="utf-8"))
        if p.language in RUN and not (p.is_hidden and _SETUP_ONLY.search(p.code))
    ]


def paste(pages: dict[str, list[str]], folder: Path) -> dict[str, list[str]]:
    """Run the cells of each page in one process, each page in an empty folder; return what failed."""
    (folder / "cells.json").write_text(json.dumps(pages))
    (folder / "work").mkdir()
    command = [sys.executable, "-c", _PASTE, folder / "cells.json", folder / "wrong.json"]
    done = subprocess.run(
        command,
        cwd=folder / "work",
        env=environment(make_home(folder)) | {"PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((folder / "wrong.json").read_text())


WITH_CELLS = {
    str(p.relative_to(ROOT)).replace("/", "-"): cells
    for p in PAGES
    if p.name not in NEEDS and (cells := cells_of(p))
}


def test_pages_run_as_pasted_into_a_fresh_kernel_in_an_empty_folder(tmp_path: Path):
    chosen = sample(sorted(WITH_CELLS), 1)
    assert paste({name: WITH_CELLS[name] for name in chosen}, tmp_path) == {}


@pytest.mark.long
def test_every_page_runs_as_pasted_into_a_fresh_kernel_in_an_empty_folder(tmp_path: Path):
    assert len(WITH_CELLS) > 15
    assert paste(WITH_CELLS, tmp_path) == {}


def test_a_block_that_needs_what_is_not_there_fails_when_pasted(tmp_path: Path):
    wrong = paste({"page": ["session.calls"], "other": ["x = 1"], "last": ["x"]}, tmp_path)
    assert set(wrong) == {"page", "last"}
    assert "NameError" in wrong["page"][0]
