"""`make install` by uv, by a uv that pip brings, or by pip alone: always from the same hashed file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UV_STEPS = [
    "uv pip sync --quiet --python env/bin/python --require-hashes requirements-dev.txt",
    "uv pip install --quiet --python env/bin/python --no-deps -e .",
]
PIP = "python -m pip install --quiet --disable-pip-version-check"
PIP_STEPS = [f"{PIP} --require-hashes -r requirements-dev.txt", f"{PIP} --no-deps -e ."]
BOOTSTRAP = f"{PIP} --require-hashes -r env/uv.txt"

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs make")


def write_program(path: Path, body: str = "") -> None:
    """Write a program that logs its name and words, then runs a body."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "$(basename "$0") $*" >> "$LOG"\n{body}\n')
    path.chmod(0o755)


@pytest.fixture
def run_make(tmp_path):
    """Run a target of the Makefile with an environment of logging programs; return what they logged."""
    for name in ("Makefile", "pyproject.toml", "requirements-dev.txt"):
        shutil.copy(ROOT / name, tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("make", "sh", "awk", "touch", "test", "basename", "grep", "id", "cp", "chmod"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    log = tmp_path / "log"

    def run(*words: str) -> list[str]:
        log.write_text("")
        subprocess.run(
            ["make", *words, "VENV=env"], cwd=tmp_path, check=True, capture_output=True, timeout=60,
            env={"PATH": str(tools), "LOG": str(log), "HOME": os.environ.get("HOME", "/")},
        )  # fmt: skip
        return log.read_text().splitlines()

    run.folder = tmp_path
    return run


def test_the_uv_of_the_machine_installs_once(run_make):
    write_program(run_make.folder / "env/bin/python")
    write_program(run_make.folder / "tools/uv")
    assert run_make("install") == UV_STEPS
    assert run_make("install") == []


def test_a_missing_uv_is_brought_by_pip_with_its_hash(run_make):
    folder = run_make.folder
    write_program(folder / "brought")
    bring = 'case "$*" in *uv.txt) cp brought env/bin/uv;; esac'
    write_program(folder / "env/bin/python", bring)
    assert run_make("install") == [BOOTSTRAP, *UV_STEPS]
    pinned = (folder / "env/uv.txt").read_text()
    assert pinned.startswith("uv==")
    assert pinned.count("--hash=sha256:") > 3
    assert pinned.count("==") == 1


def test_where_uv_cannot_be_had_pip_takes_the_same_file(run_make):
    write_program(run_make.folder / "env/bin/python", 'case "$*" in *uv.txt) exit 1;; esac')
    assert run_make("install") == [BOOTSTRAP, *PIP_STEPS]


def test_where_uv_reaches_no_index_pip_takes_the_same_file(run_make):
    write_program(run_make.folder / "env/bin/python")
    write_program(run_make.folder / "tools/uv", "exit 2")
    assert run_make("install") == [UV_STEPS[0], *PIP_STEPS]


def test_a_failed_install_fails_and_is_tried_again(run_make):
    write_program(run_make.folder / "env/bin/python", "exit 1")
    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError):
            run_make("install")
        assert (run_make.folder / "log").read_text().splitlines()[-1] == PIP_STEPS[0]


def test_the_demo_installs_first(run_make):
    write_program(run_make.folder / "env/bin/python")
    write_program(run_make.folder / "env/bin/ctxkit")
    write_program(run_make.folder / "tools/uv")
    assert run_make("demo") == [*UV_STEPS, "ctxkit demo build/demo"]
