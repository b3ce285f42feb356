"""Forked workers run each test once, with fixtures and output of its own, and a crash is a failure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")

SHARED = """
import os, pytest
@pytest.fixture(scope="package")
def shared():
    print("made the package's fixture in", os.getpid())
"""
FIRST = """
import os, pytest, sys, warnings
@pytest.fixture(scope="module")
def numbers():
    return []
@pytest.mark.parametrize("n", range(3))
def test_in_a_row(numbers, n, tmp_path):
    numbers.append(n)
    assert numbers == [*range(n + 1)] and os.listdir(tmp_path) == []
    (tmp_path / "file").touch()
def test_fails(capfd):
    print("words of the failing test")
    assert 1 + 1 == 3
def test_warns():
    warnings.warn("words of the warning", FutureWarning)
@pytest.mark.skip(reason="words of the skipped test")
def test_skipped(): ...
@pytest.mark.xfail(reason="expected")
def test_expected_to_fail(): assert False
"""
SECOND = """
import os
def test_output_is_its_own(capfd, tmp_path):
    os.system("echo out; echo err >&2")
    assert capfd.readouterr() == ("out\\n", "err\\n")
def test_uses_the_package(shared): print("used by", os.getpid()); assert False
"""
THIRD = """
import os
def test_also_uses_the_package(shared): print("used by", os.getpid()); assert False
"""


def run_pytest(folder: Path, *arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "forked_workers",
        "-p",
        "no:nbval",
        f"--basetemp={folder / 'temporary'}",
        "-q",
        *arguments,
    ]
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": "", "COLUMNS": "200"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_each_test_is_reported_once_as_it_ended(tmp_path):
    files = {"conftest": SHARED, "test_first": FIRST, "test_second": SECOND, "test_third": THIRD}
    (tmp_path / "__init__.py").touch()
    ended = run_pytest(tmp_path, "--workers", "3", "-rs", **files)
    assert ended.returncode == 1, ended.stderr
    last = ended.stdout.strip().splitlines()[-1]
    assert re.sub(r" in .*", "", last) == "3 failed, 5 passed, 1 skipped, 1 xfailed, 1 warning"
    assert ended.stdout.count("words of the failing test") == 2  # the line of code and the output
    assert "FutureWarning: words of the warning" in ended.stdout
    assert "test_first.py:16: words of the skipped test" in ended.stdout
    made = re.findall(r"made the package's fixture in (\d+)", ended.stdout)
    assert len(made) == 1
    assert re.findall(r"used by (\d+)", ended.stdout) == made * 2


LONG = """
import pathlib, time, pytest
@pytest.mark.long
@pytest.mark.parametrize("n", range(6))
def test_long(n):
    path = pathlib.Path(__file__).with_name("last")
    if n == 5:
        path.touch()
    deadline = time.monotonic() + 20
    while n == 0 and not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""


def test_workers_share_the_long_tests_of_a_file(tmp_path):
    """The first of them ends only where the last runs beside it."""
    ended = run_pytest(tmp_path, "--workers", "2", "-W", "ignore", test_long=LONG)
    assert (ended.returncode, "6 passed" in ended.stdout) == (0, True), ended.stdout


def test_more_workers_than_batches_are_no_failure(tmp_path):
    ended = run_pytest(tmp_path, "--workers", "4", test_it="def test_it(): pass")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_worker_that_ends_early_is_named_with_its_test(tmp_path):
    ended = run_pytest(
        tmp_path,
        *("--workers", "2"),
        test_a="import os\ndef test_crash(): os._exit(0)\ndef test_behind(): pass",
        test_b="def test_other(): pass",
    )
    assert ended.returncode == 1
    assert "FAILED test_a.py::test_crash - The worker ended within this test" in ended.stdout
    assert "1 failed, 1 passed" in ended.stdout


def test_where_all_workers_end_what_is_left_is_no_success(tmp_path):
    crash = "import os\ndef test_crash(): os._exit(0)"
    ended = run_pytest(tmp_path, "--workers", "1", test_a=crash, test_b="def test_it(): pass")
    assert ended.returncode == 2
    assert "tests are left that did not run" in ended.stdout


def test_after_the_first_failure_nothing_is_begun(tmp_path):
    ended = run_pytest(
        tmp_path,
        *("--workers", "1", "-x"),
        test_a="def test_fails(): assert False",
        test_b="import time\ndef test_slow(): time.sleep(60)",
    )
    assert ended.returncode == 1
    assert "stopping after 1 failures" in ended.stdout
    assert "1 failed in" in ended.stdout
